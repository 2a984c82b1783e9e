"""One topic, many kinds: each group takes the messages with the tags that it wants, and the broker leaves out the rest.

    thermocline dev
    python examples/tags.py [NAMESERVER]

For conditions on more than one word see chosen_messages.py.
"""

import sys

from thermocline import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer

TOPIC = "events"
EVENTS = [("paid", 1), ("cancelled", 2), ("paid", 3), ("refunded", 1)]
WANTED = {
    "warehouse": "paid",
    "bookkeeping": "paid || refunded",
    "archive": "*",
}


def main(namesrv: str) -> None:
    """Send events, and let each group take what it wants of them."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with Producer(group="shop", namesrv=namesrv) as producer:
        for tag, order in EVENTS:
            producer.send(Message(TOPIC, b"order %d" % order, tags=tag))
    for group, expression in WANTED.items():
        with PullConsumer(
            group=group,
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            consumer.subscribe(TOPIC, expression)
            events = [f"{event.body.decode()} {event.tags}" for event in consumer.poll(timeout_ms=30_000)]
        print(f"{group}: {', '.join(events)}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
