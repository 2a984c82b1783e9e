"""Producer: the blocking half of `AsyncProducer`; see there for the ways to send and their bounds.

    with Producer(group="orders", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("orders", b"...", tags="paid", keys="4711"))

Any number of threads may share one. Messages are checked and compressed in the calling thread; the background loop does
the rest, and callbacks run on its thread: they must be short, and must not call the producer's waiting methods.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import AsyncIterable, Coroutine, Iterable, Sequence
from typing import Any

from thermocline.client.blocking import BlockingHalf, blocking
from thermocline.client.item_feed import ItemFeed
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.options import option_values
from thermocline.client.producer.async_producer import IN_FLIGHT_BYTES_MAX, WINDOW, AsyncProducer
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.queue_selector import QueueSelector
from thermocline.client.producer.sending import Draft, SendCallback, call_back, draft
from thermocline.client.producer.thread_room import ThreadRoom
from thermocline.client.send_result import SendResult
from thermocline.remoting.errors import InvalidRequestError, MQError

__all__ = ["Producer"]

logger = logging.getLogger(__name__)


class Producer(ProducerOptions, BlockingHalf[AsyncProducer]):
    """See the module."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adopt(self._make_inner(), name=f"thermocline producer {self.group}")
        self._room = ThreadRoom(count_max=self.in_flight_max, bytes_max=IN_FLIGHT_BYTES_MAX)

    def _make_inner(self) -> AsyncProducer:
        return AsyncProducer(**option_values(self))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and wait until the broker has stored it; see `AsyncProducer.send`.

        Raises:
            InvalidRequestError: The message, its topic or its queue is impossible.
            UnavailableError: No broker took it, after all attempts or in time.
            ClosedError: The producer is not started, or closed.
        """
        self._loop.check_may_wait()
        return self.send_async(
            message, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms
        ).result()

    def send_async(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Begin to send; the future, and `callback` if given, gets the result or the error.

        Waits while `in_flight_max` sends, or `IN_FLIGHT_BYTES_MAX` bytes, are under way, so that a fast caller cannot
        fill the memory.

        Raises:
            InvalidRequestError: The message, its topic or its queue is impossible; or a callback would have to wait.
            ClosedError: The producer is not started, or closed.
        """
        prepared = draft(message, self)
        future: concurrent.futures.Future[SendResult] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # what is on its way cannot be called back
        self._loop.check_process()  # first: in a copy no room comes back
        size_bytes = len(prepared.body)
        if not self._room.take(size_bytes, waits=False):
            self._loop.check_may_wait()
            self._room.take(size_bytes, waits=True)

        def done(outcome: SendResult | MQError) -> None:
            self._room.give_back(size_bytes)
            if isinstance(outcome, MQError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
            if callback is not None:
                call_back(callback, outcome)

        try:
            self._loop.post(self._start, prepared, done, queue, selector, argument, timeout_ms)
        except MQError:
            self._room.give_back(size_bytes)
            raise
        return future

    def _start(
        self,
        prepared: Draft,
        done: SendCallback,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: object,
        timeout_ms: int | None,
    ) -> None:
        try:
            self._inner.start_send(
                prepared, done, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms
            )
        except MQError as error:
            done(error)
        except Exception as error:
            logger.exception("a message cannot be sent")
            done(InvalidRequestError("a message cannot be sent", reason=repr(error)))

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        window: int = WINDOW,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages with up to `window` under way and return their results in order; see `AsyncProducer`.

        The calling thread reads the iterable, which may wait for more: what it gave is sent meanwhile. Its exception is
        raised once the sends under way have their outcomes.

        Raises:
            SendManyError: Some were not sent; it holds every outcome.
            ClosedError: The producer is not started, or closed.
        """

        def sending(messages: Iterable[Message] | AsyncIterable[Message]) -> Coroutine[Any, Any, list[SendResult]]:
            return self._inner.send_many(
                messages, window=window, selector=selector, argument=argument, timeout_ms=timeout_ms
            )

        if isinstance(messages, Sequence):
            return self._loop.run(sending(messages))  # all are there, and nothing waits for them
        feed: ItemFeed[Message] = ItemFeed(self._loop, count_max=max(1, window))
        begun = self._loop.begin(sending(feed))
        begun.add_done_callback(lambda _: feed.close())
        try:
            for message in messages:
                if not feed.put(message):
                    break
        except Exception:
            feed.end()
            concurrent.futures.wait([begun])
            raise
        except BaseException:
            begun.cancel()
            raise
        feed.end()
        return self._loop.wait_for(begun)

    send_one_way = blocking(AsyncProducer.send_one_way)
    send_batch = blocking(AsyncProducer.send_batch)
    request = blocking(AsyncProducer.request)
    reply = blocking(AsyncProducer.reply)
    recall = blocking(AsyncProducer.recall)
    fetch_publish_queues = blocking(AsyncProducer.fetch_publish_queues)

    @property
    def client_id(self) -> str:
        """The id that brokers know this producer by; ClosedError before `start`."""
        return self._inner.client_id
