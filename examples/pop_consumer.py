"""Workers that share messages, not queues: one that is stuck holds up only what it has received.

    thermocline dev
    python examples/pop_consumer.py [NAMESERVER]

Three workers pop a topic with one queue. One of them never acknowledges: its messages come back to the others when
their time is up.
"""

import sys
import threading
from collections import Counter

from thermocline import AdminClient, ConsumeFromWhere, Message, PopConsumer, Producer

TOPIC = "pictures"
PICTURES = 30
INVISIBLE_MS = 3_000


class Workers:
    """Receive until every picture is done."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._lock = threading.Lock()
        self.done: Counter[bytes] = Counter()
        self.came_back = 0
        self.finished = threading.Event()

    def work(self) -> None:
        """Receive, do, acknowledge."""
        with self._consumer() as consumer:
            consumer.subscribe(TOPIC)
            while not self.finished.is_set():
                for message in consumer.receive(4, await_ms=500):
                    consumer.ack(message)
                    with self._lock:
                        self.done[message.body] += 1
                        self.came_back += bool(message.reconsume_times)
                        if len(self.done) == PICTURES:
                            self.finished.set()

    def get_stuck(self) -> int:
        """Receive, and never be heard of again; how many messages that holds up."""
        with self._consumer() as consumer:
            consumer.subscribe(TOPIC)
            return len(consumer.receive(4))

    def _consumer(self) -> PopConsumer:
        return PopConsumer(
            group="resizers",
            namesrv=self._namesrv,
            invisible_ms=INVISIBLE_MS,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )


def main(namesrv: str) -> None:
    """Send pictures, let one worker get stuck, and two do the work."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with Producer(group="camera", namesrv=namesrv) as producer:
        for number in range(PICTURES):
            producer.send(Message(TOPIC, b"picture %d" % number))
    workers = Workers(namesrv)
    print(f"stuck with {workers.get_stuck()} pictures")
    threads = [threading.Thread(target=workers.work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"done: {len(workers.done)} pictures, {workers.came_back} of them came back")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
