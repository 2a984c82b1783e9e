"""PushConsumer: the blocking half of `AsyncPushConsumer`: gives a group's messages to a listener, in threads.

    def listener(messages, context):
        for message in messages:
            handle(message)                      # returning is success, raising is "again later"

    consumer = PushConsumer(group="billing", namesrv="127.0.0.1:9876")
    consumer.subscribe("orders", "paid || refunded")
    consumer.register_listener(listener)
    with consumer:
        stop.wait()

Listeners run in up to `consume_threads` threads of their own and may block. See `AsyncPushConsumer` for what is
delivered when, and for closing.
"""

from __future__ import annotations

from thermocline.client.blocking import BlockingHalf, blocking
from thermocline.client.consumer.async_push_consumer import AsyncPushConsumer
from thermocline.client.consumer.dispatch.listener_runner import ThreadRunner
from thermocline.client.consumer.listener import ConcurrentListener, OrderlyListener
from thermocline.client.consumer.options import PushConsumerOptions
from thermocline.client.message_queue import MessageQueue
from thermocline.client.options import option_values

__all__ = ["PushConsumer"]


class _ThreadedPushConsumer(AsyncPushConsumer):
    """The asyncio half with blocking listeners."""

    async def start(self) -> None:
        """Join the group and begin to consume."""
        await self.start_with(ThreadRunner(count_max=self.consume_threads, name=f"thermocline listener {self.group}"))


class PushConsumer(PushConsumerOptions, BlockingHalf[AsyncPushConsumer]):
    """See the module. Any thread may call its methods, listeners included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adopt(_ThreadedPushConsumer(**option_values(self)), name=f"thermocline consumer {self.group}")

    def subscribe(self, topic: str, expression: str = "*", *, expression_type: str = "TAG") -> None:
        """Consume the messages of a topic: all, or those with one of the tags in `a || b || c`.

        With `expression_type="SQL92"` those whose properties fulfil a condition, `price > 5 AND region = 'eu'`. May be
        called again to change the expression, also while the consumer runs.

        Raises:
            InvalidRequestError: The topic's name or the expression is impossible.
        """
        self._now_or_on_loop(lambda: self._inner.subscribe(topic, expression, expression_type=expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Consume the topic no longer; its queues are given up at the next rebalance."""
        self._now_or_on_loop(lambda: self._inner.unsubscribe(topic))

    def register_listener(self, listener: ConcurrentListener) -> None:
        """Consume concurrently with this listener; ClosedError after the start."""
        self._inner.set_listener(listener, is_orderly=False)

    def register_orderly_listener(self, listener: OrderlyListener) -> None:
        """Consume each queue in order with this listener; ClosedError after the start."""
        self._inner.set_listener(listener, is_orderly=True)

    @property
    def client_id(self) -> str:
        """The client id of this member; ClosedError before `start`."""
        return self._inner.client_id

    def assigned_queues(self) -> list[MessageQueue]:
        """Return the queues that this member works on now, sorted."""
        return self._on_loop(self._inner.assigned_queues)

    def suspend(self) -> None:
        """Pull nothing until `resume`; what is pulled already is consumed."""
        self._on_loop(self._inner.suspend)

    def resume(self) -> None:
        """Pull again after `suspend`."""
        self._on_loop(self._inner.resume)

    fetch_subscribe_queues = blocking(AsyncPushConsumer.fetch_subscribe_queues)
