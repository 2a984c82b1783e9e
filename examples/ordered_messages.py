"""Orders that are ordered, packed and sent: what happens to one order is consumed in that order, many orders at once.

    thermocline dev
    python examples/ordered_messages.py [NAMESERVER]

Messages with one sharding key go to one queue, and an orderly listener gets a queue's messages one after another,
different queues at the same time. However many consumers share the queues, each queue has one of them.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Sequence

from thermocline import (
    AdminClient,
    ConsumeFromWhere,
    Message,
    OrderlyContext,
    OrderlyResult,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

TOPIC = "order-steps"
ORDERS = ("order 1", "order 2", "order 3")
STEPS = ("ordered", "paid", "packed", "sent")


class Log:
    """What has happened to each order, as it was consumed."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[str]] = defaultdict(list)
        self._lock = threading.Lock()
        self.is_complete = threading.Event()

    def listen(self, messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        """Note a batch; an exception, or SUSPEND_CURRENT_QUEUE_A_MOMENT, would have it come again before the next."""
        with self._lock:
            for message in messages:
                self.steps[message.sharding_key].append(message.body.decode())
            if sum(map(len, self.steps.values())) == len(ORDERS) * len(STEPS):
                self.is_complete.set()
        return OrderlyResult.SUCCESS


def main(namesrv: str) -> None:
    """Send the steps of all orders by turns, and have a consumer note them."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=4, order=True, attributes={"message.type": "FIFO"})
    with Producer(group="shop", namesrv=namesrv) as producer:
        for step in STEPS:
            for order in ORDERS:
                producer.send(Message(TOPIC, step.encode(), sharding_key=order))
    log = Log()
    consumer = PushConsumer(
        group="tracking",
        namesrv=namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    consumer.register_orderly_listener(log.listen)
    with consumer:
        log.is_complete.wait(timeout=60)
    for order in ORDERS:
        print(f"{order}: {', '.join(log.steps[order])}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
