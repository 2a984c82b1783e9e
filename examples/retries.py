"""Bills that cannot be paid yet, and one that never can: failures come again, and end among the dead letters.

    thermocline dev
    python examples/retries.py [NAMESERVER]

A message whose listener asks for it, or raises, comes again after a wait that grows with each failure, here after a
second each; the other messages do not wait for it. What fails too often goes to the group's dead-letter topic, which is
read like any other.
"""

import sys
import threading
from collections import Counter
from collections.abc import Sequence

from thermocline import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)

TOPIC, GROUP = "bills", "cashier"
DEAD_LETTERS = f"%DLQ%{GROUP}"
TRIES_AGAIN = 2
FAILURES = {"bill 1": 0, "bill 2": 1, "bill 3": 99}
"""How often each bill fails."""


class Cashier:
    """Pays bills, if there is money."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()
        self.paid: list[str] = []
        self._lock = threading.Lock()
        self.has_given_up = threading.Event()

    def pay(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Pay one bill, if there is money; else again later."""
        (message,) = messages
        bill = message.body.decode()
        with self._lock:
            self.tries[bill] += 1
            if message.reconsume_times == TRIES_AGAIN:
                self.has_given_up.set()
            if self.tries[bill] <= FAILURES[bill]:
                context.delay_level_when_next_consume = 1
                return ConsumeResult.RECONSUME_LATER
            self.paid.append(bill)
        return ConsumeResult.SUCCESS


def main(namesrv: str) -> None:
    """Try to pay all bills, then look at the dead letters."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with Producer(group="suppliers", namesrv=namesrv) as producer:
        producer.send_many(Message(TOPIC, bill.encode()) for bill in FAILURES)
    cashier = Cashier()
    consumer = PushConsumer(
        group=GROUP,
        namesrv=namesrv,
        max_reconsume_times=TRIES_AGAIN,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    consumer.register_listener(cashier.pay)
    with consumer:
        cashier.has_given_up.wait(timeout=60)
    print(f"paid: {', '.join(sorted(cashier.paid))}")
    with PullConsumer(
        group="bookkeeper",
        namesrv=namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as bookkeeper:
        bookkeeper.subscribe(DEAD_LETTERS)
        (dead,) = bookkeeper.poll(timeout_ms=30_000)
    bill = dead.body.decode()
    print(f"given up after {cashier.tries[bill]} tries: {bill}, first sent to {dead.properties['RETRY_TOPIC']}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
