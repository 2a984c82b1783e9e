"""Second thoughts: a message that any RocketMQ broker delivers later, after one of 18 fixed times.

    thermocline dev
    python examples/delay_levels.py [NAMESERVER]

Level 1 is a second, 2 five seconds, 3 ten; 18 two hours. For any other time see timed_messages.py.
"""

import sys

from thermocline import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer

TOPIC = "second-thoughts"
LEVELS = {0: "at once", 1: "after a second", 2: "after five seconds"}


def main(namesrv: str) -> None:
    """Send the latest first, and see them arrive in the order of their levels."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with (
        Producer(group="mind", namesrv=namesrv) as producer,
        PullConsumer(
            group="heart",
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        for level, text in sorted(LEVELS.items(), reverse=True):
            producer.send(Message(TOPIC, text.encode(), delay_level=level))
        count = 0
        while count < len(LEVELS):
            for message in consumer.poll(timeout_ms=30_000):
                waited_ms = message.store_timestamp_ms - message.born_timestamp_ms
                print(f"{message.body.decode()}: {waited_ms // 1000} s")
                count += 1


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
