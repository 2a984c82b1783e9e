"""BatchAccumulator: lets single messages linger for a moment, so that they travel many to a request.

Messages of one topic, one chosen queue (or none) and one durability wish share a batch. It leaves when it holds
`bytes_max`, or `delay_ms` after its first message, or at close. The sum over all topics is bounded by the producer,
which counts lingering messages as under way.
Source: client/producer/ProduceAccumulator.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.sending import SendCallback
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = ["BatchAccumulator", "LingeringMessage", "is_batchable"]

_Key: TypeAlias = "tuple[str, MessageQueue | None, bool]"


class LingeringMessage(msgspec.Struct, frozen=True, gc=False):
    """A message and who wants to know."""

    message: Message
    callback: SendCallback


@dataclass(slots=True)
class _Batch:
    timer: asyncio.TimerHandle
    messages: list[LingeringMessage] = field(default_factory=list)
    size_bytes: int = 0


class BatchAccumulator:
    """See the module. Belongs to the producer's loop."""

    def __init__(
        self,
        *,
        bytes_max: int,
        delay_ms: int,
        send: Callable[[list[LingeringMessage], MessageQueue | None], None],
    ) -> None:
        self._bytes_max = bytes_max
        self._delay_s = delay_ms / 1000
        self._send = send
        self._batches: dict[_Key, _Batch] = {}
        self._loop = asyncio.get_running_loop()

    def add(self, lingering: LingeringMessage, *, queue: MessageQueue | None) -> None:
        """Let the message wait for company."""
        message = lingering.message
        key = (message.topic, queue, message.wait_store_ok)
        batch = self._batches.get(key)
        if batch is None:
            batch = _Batch(self._loop.call_later(self._delay_s, self._flush, key))
            self._batches[key] = batch
        batch.messages.append(lingering)
        batch.size_bytes += len(message.body)
        if batch.size_bytes >= self._bytes_max:
            self._flush(key)

    def flush_all(self) -> None:
        """Send everything that lingers."""
        for key in list(self._batches):
            self._flush(key)

    def _flush(self, key: _Key) -> None:
        batch = self._batches.pop(key)
        batch.timer.cancel()
        self._send(batch.messages, key[1])


def is_batchable(message: Message) -> bool:
    """Whether a broker takes this message in a batch."""
    return not (message.is_delayed or message.topic.startswith(RETRY_TOPIC_PREFIX))
