"""Bargains: two groups read one topic, each the messages whose properties it wants.

    thermocline dev --set enablePropertyFilter=true
    python examples/chosen_messages.py [NAMESERVER]

Brokers choose by tags alone unless their setting `enablePropertyFilter` is true.
"""

import sys

from thermocline import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer

TOPIC = "offers"
OFFERS = [("book", 9), ("book", 25), ("lamp", 15), ("lamp", 40), ("book", 12)]
WANTED = {
    "readers": "TAGS = 'book' AND price BETWEEN 10 AND 30",
    "savers": "price < 16",
}


def main(namesrv: str) -> None:
    """Send offers, and let each group take what it wants of them."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with Producer(group="shop", namesrv=namesrv) as producer:
        for kind, price in OFFERS:
            text = f"{kind} for {price}"
            producer.send(Message(TOPIC, text.encode(), tags=kind, properties={"price": str(price)}))
    for group, expression in WANTED.items():
        with PullConsumer(
            group=group,
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            consumer.subscribe(TOPIC, expression, expression_type="SQL92")
            offers = [offer.body.decode() for offer in consumer.poll(timeout_ms=30_000)]
        print(f"{group}: {', '.join(offers)}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
