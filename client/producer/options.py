"""Options of a producer. Source: client/producer/DefaultMQProducer.java, Apache RocketMQ 5.3."""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.client.options import ZonedOptions, require_positive
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.records.compression import LEVEL_DEFAULT
from thermocline.remoting.records.sys_flag import CompressionType
from thermocline.remoting.topic_validation import AUTO_CREATE_TOPIC, TRACE_TOPIC, check_group, check_topic

__all__ = ["ProducerOptions"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProducerOptions(ZonedOptions):
    """How a producer sends."""

    group: str = "DEFAULT_PRODUCER"
    """Producer group: producers that send the same kind of messages."""
    send_timeout_ms: int = 3_000
    """Bound on one send, retries included."""
    retry_times_when_send_failed: int = 2
    """How many more brokers (or queues, with one broker) are tried. Sends to a chosen queue are not retried."""
    retry_another_broker_when_not_store_ok: bool = False
    """Whether an answer that is not SEND_OK, though stored, is retried too: then the message exists twice."""
    compress_body_over_bytes: int = 4096
    """Longer bodies are compressed, except in batches."""
    compress_type: CompressionType = CompressionType.ZLIB
    compress_level: int = LEVEL_DEFAULT
    max_message_bytes: int = 4 * 1024 * 1024
    """Longer bodies are refused here, before the broker would refuse them."""
    create_topic_key: str = AUTO_CREATE_TOPIC
    """The topic whose settings a topic made by its first message inherits."""
    default_topic_queue_nums: int = 4
    """How many queues a topic made by its first message asks for, on each broker."""
    in_flight_max: int = 1024
    """Bound on sends without an answer: `send` waits for room, `send_async` of the asyncio half is refused."""
    auto_batch: bool = False
    """Whether single sends linger to travel together, many to a request.

    Messages that travel alone all the same: delayed, compressed or large ones; those with a sharding key, a selector or
    a `timeout_ms` of their own; requests and half messages.
    """
    batch_max_delay_ms: int = 10
    """How long a message lingers at most."""
    batch_max_bytes: int = 32 * 1024
    """How much lingers together at most."""

    send_latency_fault_enable: bool = False
    """Whether brokers that are slow, or fail, are avoided for a while."""
    latency_max_ms: tuple[int, ...] = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
    """A send that took at least so long, rising ..."""
    not_available_duration_ms: tuple[int, ...] = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
    """... has its broker left alone for the time at the same place here. A failed send counts as one of 10 s."""
    start_detector_enable: bool = False
    """Whether brokers that do not answer are asked again and again, and only chosen in need until they do. Needs
    `send_latency_fault_enable`.
    """
    detect_timeout_ms: int = 200
    detect_interval_ms: int = 2_000

    enable_trace: bool = False
    """Whether what becomes of each message is written to `trace_topic`, for `mqadmin queryMsgTraceById`."""
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group(self.group)
        check_topic(self.trace_topic)
        require_positive(self, "send_timeout_ms", "max_message_bytes", "default_topic_queue_nums", "in_flight_max")
        require_positive(self, "batch_max_delay_ms", "batch_max_bytes", "detect_timeout_ms", "detect_interval_ms")
        if len(self.latency_max_ms) != len(self.not_available_duration_ms):
            raise InvalidRequestError("latency_max_ms and not_available_duration_ms belong together, one to one")
        if self.start_detector_enable and not self.send_latency_fault_enable:
            raise InvalidRequestError("start_detector_enable needs send_latency_fault_enable")
        if list(self.latency_max_ms) != sorted(self.latency_max_ms):
            raise InvalidRequestError("latency_max_ms rises", value=self.latency_max_ms)
