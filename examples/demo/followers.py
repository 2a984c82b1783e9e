"""The demo's consumers."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from thermocline import ConsumeFromWhere, PushConsumer, ReceivedMessage

FLIGHTS = "flights"
WAIT_S = 180.0


class Follower:
    """A consumer group that counts what it gets and checks that each airport's flights come in order.

    `allows_repeats`: a flight may come again, if all before it have come.
    """

    def __init__(self, group: str, name_server: str, *, allows_repeats: bool = False) -> None:
        self.count = 0
        self.repeated = 0
        self.body_bytes = 0
        self.seconds = 0.0
        self._next: dict[str, int] = defaultdict(int)
        self._failure = ""
        self._allows_repeats = allows_repeats
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._consumer = PushConsumer(
            group=group,
            namesrv=name_server,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_message_batch_max_size=64,
        )
        self._consumer.subscribe(FLIGHTS)
        self._consumer.register_orderly_listener(self._listen)
        self._consumer.start()

    def _listen(self, messages: Sequence[ReceivedMessage], context: object) -> None:
        with self._lock:
            for message in messages:
                origin, number = message.properties["origin"], int(message.properties["number"])
                if number < self._next[origin] and self._allows_repeats:
                    self.repeated += 1
                    continue
                if number != self._next[origin]:
                    self._failure = f"{origin}: flight {number} where {self._next[origin]} was due"
                self._next[origin] = number + 1
                self.body_bytes += len(message.body)
                self.count += 1
            self.seconds = time.monotonic() - self._started

    def check(self, expected: int) -> None:
        """Wait until all have come, then fail loudly unless they came in order, and once if they must."""
        wait_until(lambda: self.count >= expected or bool(self._failure), f"{expected} messages, got {self.count}")
        if self._failure or self.count != expected:
            raise SystemExit(f"demo FAILED: {self._failure or f'{self.count} messages instead of {expected}'}")

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does; fails loudly when it does not come."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"demo FAILED: waited {WAIT_S:.0f} s for {what}")
        time.sleep(0.2)
