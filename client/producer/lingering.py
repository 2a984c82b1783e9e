"""Lingering: single sends of one producer that travel together, with `auto_batch=True`.

What may linger waits in the accumulator and leaves as one batch; a batch that turns out too large leaves in halves. A
message is counted as under way from the moment it lingers.
"""

from __future__ import annotations

from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.batch_accumulator import BatchAccumulator, LingeringMessage, is_batchable
from thermocline.client.producer.in_flight import InFlight
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.send_pipeline import SendPipeline
from thermocline.client.producer.send_requests import SendRequests
from thermocline.client.producer.sending import Draft, SendCallback
from thermocline.client.send_result import SendResult
from thermocline.remoting.errors import MQError

__all__ = ["Lingering"]


class Lingering:
    """See the module. Belongs to the producer's loop."""

    def __init__(
        self, options: ProducerOptions, *, requests: SendRequests, pipeline: SendPipeline, in_flight: InFlight
    ) -> None:
        self._bytes_max = options.batch_max_bytes
        self._requests = requests
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._accumulator = BatchAccumulator(
            bytes_max=options.batch_max_bytes, delay_ms=options.batch_max_delay_ms, send=self._send
        )

    def may_linger(self, prepared: Draft) -> bool:
        """Whether the message may travel in a batch.

        A compressed one may not, nor one with a sharding key, nor one that carries more than its own properties.
        """
        message = prepared.message
        return (
            prepared.sys_flag == 0
            and not prepared.added_properties
            and not message.sharding_key
            and len(prepared.body) < self._bytes_max
            and is_batchable(message)
        )

    def add(self, prepared: Draft, callback: SendCallback, *, queue: MessageQueue | None) -> None:
        """Let the message wait for company."""
        self._in_flight.add(1, len(prepared.body))
        self._accumulator.add(LingeringMessage(prepared.message, callback), queue=queue)

    def flush_all(self) -> None:
        """Send everything that lingers."""
        self._accumulator.flush_all()

    def _send(self, lingering: list[LingeringMessage], queue: MessageQueue | None) -> None:
        """Send together what lingered, or in halves if that is too large; it is counted as under way already."""

        def done(outcome: list[SendResult] | MQError) -> None:
            if isinstance(outcome, MQError):
                for one in lingering:
                    one.callback(outcome)
            else:
                for one, result in zip(lingering, outcome, strict=True):
                    one.callback(result)

        messages = [one.message for one in lingering]
        try:
            sending = self._requests.checked_batch(messages, done, queue=queue, timeout_ms=None)
        except MQError as error:
            if len(lingering) == 1:
                self._in_flight.remove(1, len(messages[0].body))
                done(error)
                return
            half = len(lingering) // 2
            self._send(lingering[:half], queue)
            self._send(lingering[half:], queue)
            return
        self._pipeline.submit(sending)
