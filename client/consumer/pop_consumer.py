"""PopConsumer: the blocking half of `AsyncPopConsumer`; see there for what a receipt is worth, and for order.

with PopConsumer(group="audit", namesrv="127.0.0.1:9876") as consumer:
    consumer.subscribe("orders")
    while running:
        for message in consumer.receive(16, invisible_ms=30_000):
            handle(message)
            consumer.ack(message)
"""

from __future__ import annotations

from thermocline.client.blocking import BlockingHalf, blocking
from thermocline.client.consumer.async_pop_consumer import AsyncPopConsumer
from thermocline.client.consumer.options import PopConsumerOptions
from thermocline.client.options import option_values

__all__ = ["PopConsumer"]


class PopConsumer(PopConsumerOptions, BlockingHalf[AsyncPopConsumer]):
    """See the module. Several threads may receive from one consumer; each message goes to one of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adopt(AsyncPopConsumer(**option_values(self)), name=f"thermocline consumer {self.group}")

    subscribe = blocking(AsyncPopConsumer.subscribe)
    unsubscribe = blocking(AsyncPopConsumer.unsubscribe)
    receive = blocking(AsyncPopConsumer.receive)
    ack = blocking(AsyncPopConsumer.ack)
    ack_many = blocking(AsyncPopConsumer.ack_many)
    change_invisible_duration = blocking(AsyncPopConsumer.change_invisible_duration)

    @property
    def client_id(self) -> str:
        """The id that brokers know this consumer by; ClosedError before `start`."""
        return self._inner.client_id
