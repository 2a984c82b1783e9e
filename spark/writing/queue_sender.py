"""QueueSender: messages of one task on their way to their queues, in batches, in order within each queue.

    add -> the queue's buffer -> full: one request, as soon as the queue's last one is answered -> counted

One request a queue is under way, so a queue's messages keep their order whatever a broker does with requests side by
side, and a failed request has none behind it. What no key binds goes round the queues, a request to each.
Bounds: a buffer holds one request's bytes, all buffers together BUFFERED_BYTES_MAX; `add` waits when its queue's buffer
is full and a request is under way. After the first failure nothing more is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.send_result import SendResult
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QueueOffset

BUFFERED_BYTES_MAX = 64 << 20
BATCH_MESSAGES_MAX = 16_384
REFUSED_PAUSE_S = 0.2
HEAD_BYTES = 160  # a message's sizes, unique id and separators in a batch, about


@dataclass(slots=True)
class QueueReport:
    """What became of messages to one queue. Offsets: of the first message that was stored, and behind the last."""

    stored_count: int = 0
    unknown_count: int = 0
    """Sent, and no answer: stored, or not."""
    start_offset: QueueOffset = NO_QUEUE_OFFSET
    end_offset: QueueOffset = NO_QUEUE_OFFSET

    def add(self, results: Sequence[SendResult]) -> None:
        """These were stored."""
        self.stored_count += len(results)
        for result in results:
            if result.queue_offset >= 0:
                offset = QueueOffset(result.queue_offset)
                self.start_offset = offset if self.start_offset < 0 else min(self.start_offset, offset)
                self.end_offset = max(self.end_offset, offset + 1)


@dataclass(slots=True)
class _Lane:
    """One queue's buffer and request."""

    queue: MessageQueue
    is_bound: bool
    """Whether its messages may go to no other queue."""
    messages: list[Message] = field(default_factory=list)
    size_bytes: int = 0
    request: asyncio.Task[None] | None = None


class QueueSender:
    """See the module. Belongs to the producer's loop; one task of Spark has one."""

    def __init__(self, producer: AsyncProducer, *, batch_bytes: int, timeout_ms: int) -> None:
        self._producer = producer
        self._batch_bytes = batch_bytes
        self._timeout_ms = timeout_ms
        self._lanes: dict[tuple[MessageQueue, bool], _Lane] = {}
        self._buffered_bytes = 0
        self._failure: MQError | None = None
        self.reports: dict[MessageQueue, QueueReport] = {}

    async def add(self, message: Message, queue: MessageQueue, *, is_bound: bool) -> bool:
        """Take one message for a queue; returns whether that filled a request, so that the next may go elsewhere.

        One that is not bound goes to another queue, or another broker, when this one takes nothing.

        Raises:
            MQError: Some earlier message could not be sent; nothing more is.
        """
        self._check()
        lane = self._lanes.get((queue, is_bound))
        if lane is None:
            lane = self._lanes[queue, is_bound] = _Lane(queue, is_bound)
        size_bytes = _encoded_bytes(message)
        is_filled = False
        if lane.messages and (
            lane.size_bytes + size_bytes > self._batch_bytes
            or len(lane.messages) >= BATCH_MESSAGES_MAX
            or message.is_delayed
            or lane.messages[0].topic != message.topic
        ):
            await self._send(lane)
            is_filled = True
        lane.messages.append(message)
        lane.size_bytes += size_bytes
        self._buffered_bytes += size_bytes
        if message.is_delayed:  # travels alone
            await self._send(lane)
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            await self._send(max(self._lanes.values(), key=lambda one: one.size_bytes))
        return is_filled

    async def finish(self) -> None:
        """Send what is buffered, and return when everything is answered.

        Raises:
            MQError: Some message could not be sent.
        """
        for lane in self._lanes.values():
            if lane.messages:
                await self._send(lane)
        await self.settle()
        self._check()
        for lane in self._lanes.values():
            if lane.request is not None:
                lane.request.result()  # raises what only a bug can: errors of sends are in `_failure`

    async def settle(self) -> None:
        """Return when no request is under way, however they end."""
        requests = [lane.request for lane in self._lanes.values() if lane.request is not None]
        await asyncio.gather(*requests, return_exceptions=True)

    async def _send(self, lane: _Lane) -> None:
        """Begin to send a buffer, once the queue's request before is answered."""
        if lane.request is not None:
            await lane.request
        self._check()
        messages, lane.messages = lane.messages, []
        self._buffered_bytes -= lane.size_bytes
        lane.size_bytes = 0
        lane.request = asyncio.get_running_loop().create_task(self._request(lane, messages))

    async def _request(self, lane: _Lane, messages: list[Message]) -> None:
        try:
            results = await self._until_taken(lane.queue if lane.is_bound else None, messages)
        except MQError as error:
            if _may_be_stored(error):
                self._report(lane.queue).unknown_count += len(messages)
            self._failure = self._failure or error
        else:
            self._report(results[0].queue).add(results)

    async def _until_taken(self, queue: MessageQueue | None, messages: list[Message]) -> list[SendResult]:
        """Send, again and again while the broker says that it takes nothing now, until the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1_000
        while True:
            try:
                if len(messages) == 1:  # alone it is compressed when it is long, and may wait for its time
                    return [await self._producer.send(messages[0], queue=queue, timeout_ms=self._timeout_ms)]
                return await self._producer.send_batch(messages, queue=queue, timeout_ms=self._timeout_ms)
            except UnavailableError as error:
                if _may_be_stored(error) or loop.time() + REFUSED_PAUSE_S > deadline:
                    raise
                await asyncio.sleep(REFUSED_PAUSE_S)

    def _report(self, queue: MessageQueue) -> QueueReport:
        return self.reports.setdefault(queue, QueueReport())

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _may_be_stored(error: MQError) -> bool:
    """Whether the request may have been carried out: not when it was refused, by the broker's code or by the SDK."""
    return isinstance(error, UnavailableError) and "code" not in error.context


def _encoded_bytes(message: Message) -> int:
    size_bytes = len(message.body) + HEAD_BYTES + _text_bytes(message.tags) + _text_bytes(str(message.keys))
    for name, value in message.properties.items():
        size_bytes += _text_bytes(name) + _text_bytes(value) + 2
    return size_bytes


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
