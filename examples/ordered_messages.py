"""Ordered messages: the steps of each purchase are consumed in the sequence of their sends, purchases in parallel.

    thermocline dev
    python examples/ordered_messages.py [NAMESERVER]

Messages with the same sharding key go to the same queue. An orderly listener gets the messages of one queue one after
another, and different queues in parallel. The consumers of a group share the queues: each queue has one consumer.
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


class StepRecorder:
    """The steps of each order, in the sequence in which they were consumed."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[str]] = defaultdict(list)
        self._lock = threading.Lock()
        self.is_complete = threading.Event()

    def listen(self, messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        """Record a batch.

        After an exception or SUSPEND_CURRENT_QUEUE_A_MOMENT the consumer delivers the batch again before the next one.
        """
        with self._lock:
            for message in messages:
                self.steps[message.sharding_key].append(message.body.decode())
            if sum(map(len, self.steps.values())) == len(ORDERS) * len(STEPS):
                self.is_complete.set()
        return OrderlyResult.SUCCESS


def main(namesrv: str) -> None:
    """Send the first step of every order, then the second, and so on; consume and print them."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=4, order=True, attributes={"message.type": "FIFO"})
    with Producer(group="shop", namesrv=namesrv) as producer:
        for step in STEPS:
            for order in ORDERS:
                producer.send(Message(TOPIC, step.encode(), sharding_key=order))
    recorder = StepRecorder()
    consumer = PushConsumer(
        group="tracking",
        namesrv=namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    consumer.register_orderly_listener(recorder.listen)
    with consumer:
        recorder.is_complete.wait(timeout=60)
    for order in ORDERS:
        print(f"{order}: {', '.join(recorder.steps[order])}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
