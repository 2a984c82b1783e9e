"""Price changes for every till: each member of a group gets each message.

    thermocline dev
    python examples/broadcast.py [NAMESERVER]

Each till keeps its offsets in a file of its own, so it gets later what was sent while it was off.
"""

import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from thermocline import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageModel,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

TOPIC = "prices"
MORNING, NOON = ("book 12", "lamp 40"), ("lamp 35",)


class Till:
    """A consumer of all price changes, and the present prices."""

    def __init__(self, namesrv: str, name: str, directory: Path) -> None:
        self.name = name
        self.prices: dict[str, str] = {}
        self._changed = threading.Condition()
        self.consumer = PushConsumer(
            group="tills",
            namesrv=namesrv,
            message_model=MessageModel.BROADCASTING,
            instance_name=name,
            local_offset_directory=directory,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe(TOPIC)
        self.consumer.register_listener(self._listen)

    def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        with self._changed:
            for message in messages:
                thing, price = message.body.decode().split()
                self.prices[thing] = price
            self._changed.notify_all()

    def wait_for(self, **prices: str) -> None:
        """Return when it has these prices."""
        with self._changed:
            self._changed.wait_for(lambda: self.prices.items() >= prices.items(), timeout=60)
        print(f"{self.name}: {', '.join(f'{thing} {price}' for thing, price in sorted(self.prices.items()))}")


def main(namesrv: str) -> None:
    """Two tills in the morning; one of them is off at noon, and learns the new price in the evening."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    with tempfile.TemporaryDirectory() as name, Producer(group="office", namesrv=namesrv) as producer:
        directory = Path(name)
        first, second = Till(namesrv, "till-1", directory), Till(namesrv, "till-2", directory)
        with first.consumer:
            with second.consumer:
                producer.send_many(Message(TOPIC, change.encode()) for change in MORNING)
                first.wait_for(book="12", lamp="40")
                second.wait_for(book="12", lamp="40")
            producer.send_many(Message(TOPIC, change.encode()) for change in NOON)
            first.wait_for(lamp="35")
        evening = Till(namesrv, "till-2", directory)
        with evening.consumer:
            evening.wait_for(lamp="35")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
