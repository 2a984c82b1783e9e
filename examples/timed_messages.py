"""Reminders: an order that is not paid in time is reminded of; the reminder of one that is paid is taken back.

    thermocline dev --set recallMessageEnable=true
    python examples/timed_messages.py [NAMESERVER]

Brokers refuse recalls unless their setting `recallMessageEnable` is true.
"""

import sys

from thermocline import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer

TOPIC = "reminders"
PAID, UNPAID = b"order 4711", b"order 4712"
PAYMENT_TERM_MS = 3_000


def main(namesrv: str) -> None:
    """Send two reminders for later, take one back, and wait for the other."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with (
        Producer(group="shop", namesrv=namesrv) as producer,
        PullConsumer(
            group="dunning",
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        handles = {
            order: producer.send(Message(TOPIC, order, delay_ms=PAYMENT_TERM_MS)).recall_handle
            for order in (PAID, UNPAID)
        }
        print(f"waiting: {', '.join(order.decode() for order in handles)}")

        handle = handles[PAID]
        assert handle is not None, "the broker keeps every message with a delay"
        producer.recall(handle)
        print(f"paid, so not to be reminded of: {PAID.decode()}")

        reminders = consumer.poll(timeout_ms=10 * PAYMENT_TERM_MS)
        for reminder in reminders:
            waited_ms = reminder.store_timestamp_ms - reminder.born_timestamp_ms
            print(f"reminder: {reminder.body.decode()}, {waited_ms} ms after it was sent")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
