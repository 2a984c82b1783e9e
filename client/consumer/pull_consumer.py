"""PullConsumer: the blocking half of `AsyncPullConsumer`; see there for commits and flow control.

with PullConsumer(group="audit", namesrv="127.0.0.1:9876") as consumer:
    consumer.subscribe("orders")
    while running:
        for message in consumer.poll():
            handle(message)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType

from thermocline.client.blocking import BlockingHalf, blocking
from thermocline.client.consumer.async_pull_consumer import AsyncPullConsumer
from thermocline.client.consumer.options import PullConsumerOptions
from thermocline.client.message_queue import MessageQueue
from thermocline.client.options import option_values
from thermocline.client.received_message import ReceivedMessage
from thermocline.remoting.errors import ClosedError

__all__ = ["PullConsumer"]


class PullConsumer(PullConsumerOptions, BlockingHalf[AsyncPullConsumer]):
    """See the module. Several threads may poll one consumer; each message goes to one of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adopt(AsyncPullConsumer(**option_values(self)), name=f"thermocline consumer {self.group}")

    subscribe = blocking(AsyncPullConsumer.subscribe)
    unsubscribe = blocking(AsyncPullConsumer.unsubscribe)
    assign = blocking(AsyncPullConsumer.assign)
    fetch_message_queues = blocking(AsyncPullConsumer.fetch_message_queues)
    commit = blocking(AsyncPullConsumer.commit)
    committed = blocking(AsyncPullConsumer.committed)
    seek_to_begin = blocking(AsyncPullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncPullConsumer.seek_to_end)
    offset_for_timestamp = blocking(AsyncPullConsumer.offset_for_timestamp)

    def poll(self, timeout_ms: int | None = None, *, count_max: int | None = None) -> list[ReceivedMessage]:
        """Return messages as soon as there are any, at most `count_max`; nothing after `timeout_ms`.

        With `auto_commit` this says that the messages of earlier polls are consumed. Messages that come just as an
        exception of a signal handler (Ctrl-C, a time limit) ends the wait are given by the next call.

        Raises:
            ClosedError: The consumer is not started, or closed.
        """
        hand_over = _HandOver()

        async def call() -> list[ReceivedMessage]:
            messages = await self._inner.poll(timeout_ms, count_max=count_max)
            if not hand_over.offer(messages):
                self._inner.take_back(messages)
            return messages

        try:
            return self._loop.run(call())
        except BaseException:
            messages = hand_over.refuse()
            with contextlib.suppress(ClosedError):
                self._loop.post(self._inner.take_back, messages)
            raise

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Give message after message, until the consumer is closed. Each is polled alone: see `poll` for commits."""
        while True:
            try:
                messages = self.poll(count_max=1)
            except ClosedError:
                if not self._started:
                    raise
                return
            yield from messages

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are consumed now, sorted."""
        return self._on_loop(self._inner.assignment)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` gives from a queue; ObjectNotFoundError: not consumed."""
        return self._on_loop(lambda: self._inner.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in a queue; ObjectNotFoundError when it is not consumed here."""
        self._on_loop(lambda: self._inner.seek(queue, offset))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give no messages from these queues until `resume`; ObjectNotFoundError when one is not consumed here."""
        self._on_loop(lambda: self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give messages from these queues again; ObjectNotFoundError when one is not consumed here."""
        self._on_loop(lambda: self._inner.resume(queues))

    @property
    def client_id(self) -> str:
        """The id that brokers know this consumer by; ClosedError before `start`."""
        return self._inner.client_id

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._inner.close_after(has_consumed=exc_type is None))
        except ClosedError:
            return
        self._loop.close()


class _HandOver:
    """Messages on their way from the loop to a thread that may be gone: they are the thread's, or go back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[ReceivedMessage] = []
        self._is_refused = False

    def offer(self, messages: list[ReceivedMessage]) -> bool:
        """Hand them over; False when the thread has gone."""
        with self._lock:
            self._messages = messages
            return not self._is_refused

    def refuse(self) -> list[ReceivedMessage]:
        """The thread goes; returns what was handed over already."""
        with self._lock:
            self._is_refused = True
            return self._messages
