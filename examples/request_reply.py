"""Questions and answers: a message whose sender waits for a consumer's reply.

    thermocline dev
    python examples/request_reply.py [NAMESERVER]

Neither side needs the other's address, and either may be any RocketMQ client.
"""

import sys
from collections.abc import Sequence

from thermocline import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    ReplyTimeoutError,
)

TOPIC = "price-questions"
PRICES = {"book": 12, "lamp": 40}


class PriceDesk:
    """Answers questions about what it sells, and keeps silent about all else."""

    def __init__(self, namesrv: str) -> None:
        self.producer = Producer(group="price-desk", namesrv=namesrv)
        self.consumer = PushConsumer(
            group="price-desk",
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe(TOPIC)
        self.consumer.register_listener(self._answer)

    def _answer(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for message in messages:
            price = PRICES.get(message.body.decode())
            if price is not None:
                self.producer.reply(message, str(price).encode(), properties={"currency": "EUR"})


def main(namesrv: str) -> None:
    """Ask for three prices, of which one is not known."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    desk = PriceDesk(namesrv)
    with desk.producer, desk.consumer, Producer(group="shop", namesrv=namesrv) as shop:
        for thing in PRICES:
            reply = shop.request(Message(TOPIC, thing.encode()), timeout_ms=60_000)
            print(f"{thing}: {reply.body.decode()} {reply.properties['currency']}")
        try:
            shop.request(Message(TOPIC, b"moon"), timeout_ms=1_000)
        except ReplyTimeoutError:
            print("moon: no answer")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
