"""Options of the consumers. Source: client/consumer/DefaultMQPushConsumer.java, DefaultLitePullConsumer.java, Apache
RocketMQ 5.3.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

from thermocline.client.consumer.allocation import AllocateAveragely, AllocationStrategy
from thermocline.client.options import ZonedOptions, require_positive
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.topic_validation import TRACE_TOPIC, check_group, check_topic

__all__ = [
    "ConsumeFromWhere",
    "ConsumerOptions",
    "MessageModel",
    "PopConsumerOptions",
    "PullConsumerOptions",
    "PushConsumerOptions",
]

MIB = 1024 * 1024


class MessageModel(enum.Enum):
    """How the members of a group share the messages."""

    CLUSTERING = "CLUSTERING"
    """Each message goes to one member; offsets are kept by the broker."""
    BROADCASTING = "BROADCASTING"
    """Each message goes to every member; offsets are kept in a local file, and failures are not retried."""


class ConsumeFromWhere(enum.Enum):
    """Where a group begins in a queue that it has no offset in."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConsumerOptions(ZonedOptions):
    """What both kinds of consumers have."""

    group: str = "DEFAULT_CONSUMER"
    """Consumer group: its members share the messages, and must subscribe to the same."""
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    """For CONSUME_FROM_TIMESTAMP: milliseconds since 1970; None means half an hour before the start."""
    allocation: AllocationStrategy = field(default_factory=AllocateAveragely)
    """How members share queues; all members of a group must use the same."""
    rebalance_interval_ms: int = 20_000
    """How often the shares are computed anew; a change of membership does it at once."""
    pull_threshold_for_queue: int = 1_000
    """Most messages of one queue held without an outcome."""
    pull_threshold_size_for_queue_mib: int = 100
    pull_threshold_for_all: int = 50_000
    """Most messages of all queues together held without an outcome."""
    pull_threshold_size_for_all_mib: int = 512
    consume_max_span: int = 2_000
    """How far the newest held message of a queue may be ahead of the oldest; not for orderly listeners."""
    pull_time_delay_ms_when_exception: int = 1_000
    """Pause of a queue's pulls after one failed."""
    local_offset_directory: Path | None = None
    """Where broadcasting keeps offsets; None means `~/.rocketmq_offsets`, where the official clients look too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group(self.group)
        require_positive(self, "rebalance_interval_ms")
        require_positive(self, "pull_threshold_for_queue", "pull_threshold_size_for_queue_mib", "consume_max_span")
        require_positive(self, "pull_threshold_for_all", "pull_threshold_size_for_all_mib")
        require_positive(self, "pull_time_delay_ms_when_exception")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PushConsumerOptions(ConsumerOptions):
    """How a push consumer consumes."""

    consume_threads: int = 20
    """Most listener calls at once: threads of the blocking half, tasks of the asyncio half."""
    persist_consumer_offset_interval_ms: int = 5_000
    """How often offsets are sent to the broker, or written to the local file of a broadcasting member."""
    consume_message_batch_max_size: int = 1
    """Most messages in one listener call."""
    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = 256 * 1024
    pull_interval_ms: int = 0
    """Pause of a queue between two pulls that found something."""
    max_reconsume_times: int = -1
    """Failures before a message goes to the dead-letter topic; -1: 16, or without limit for orderly listeners."""
    suspend_current_queue_ms: int = 1_000
    """How long a queue rests after its orderly listener failed."""
    consume_timeout_minutes: int = 15
    """A concurrent listener call that takes longer gives its messages back to be consumed again."""
    await_termination_ms: int = 30_000
    """How long `close` waits for listener calls that have begun."""
    enable_trace: bool = False
    """Whether each listener call is written to `trace_topic`, for `mqadmin queryMsgTraceById`."""
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        super().__post_init__()
        check_topic(self.trace_topic)
        require_positive(self, "consume_threads", "consume_message_batch_max_size", "pull_batch_size")
        require_positive(self, "persist_consumer_offset_interval_ms")
        require_positive(self, "pull_batch_size_in_bytes", "consume_timeout_minutes", "suspend_current_queue_ms")
        if self.consume_message_batch_max_size > 1024 or self.pull_batch_size > 1024:
            raise InvalidRequestError("a batch has at most 1024 messages", group=self.group)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PullConsumerOptions(ConsumerOptions):
    """How a pull consumer consumes."""

    auto_commit: bool = True
    """Whether offsets of polled messages are committed by themselves; see `AsyncPullConsumer.poll`."""
    auto_commit_interval_ms: int = 5_000
    pull_batch_size: int = 10
    """Most messages in one pull, and in one poll unless it says otherwise."""
    poll_timeout_ms: int = 5_000
    """How long `poll` waits for a message unless it says otherwise."""
    broker_suspend_max_time_ms: int = 20_000
    """How long a broker holds a pull that finds nothing."""
    consumer_timeout_ms_when_suspend: int = 30_000
    """How long the answer to such a pull is waited for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "auto_commit_interval_ms", "pull_batch_size", "broker_suspend_max_time_ms")
        if self.consumer_timeout_ms_when_suspend <= self.broker_suspend_max_time_ms:
            raise InvalidRequestError("a suspended pull must outlast the broker's suspension", group=self.group)


POP_MESSAGES_MAX = 32


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PopConsumerOptions(ZonedOptions):
    """How a POP consumer consumes."""

    group: str = "DEFAULT_CONSUMER"
    """Consumer group: its members share the messages."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group begins in a queue that it has no offset in; first or last."""
    invisible_ms: int = 60_000
    """How long a received message is invisible to other consumers, unless `receive` says otherwise."""
    await_ms: int = 15_000
    """How long `receive` waits for a message, unless it says otherwise."""
    in_order: bool = False
    """Whether a queue gives no more before its received messages are acknowledged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group(self.group)
        require_positive(self, "invisible_ms", "await_ms")
        if self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise InvalidRequestError("a POP consumer begins at the first or the last message", group=self.group)
