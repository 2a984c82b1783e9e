"""ThreadRoom: how much the threads of a blocking producer have under way, and which of them wait for it to become less.

Bounds: a number of messages and of bytes, as `InFlight`; a single message always fits, however large. Messages count
from `send_async` on, before the loop hears of them.
"""

from __future__ import annotations

import threading

__all__ = ["ThreadRoom"]


class ThreadRoom:
    """Counts and bounds. Any thread may call it."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._changed = threading.Condition(threading.Lock())

    def take(self, size_bytes: int, *, waits: bool) -> bool:
        """Count a message of this size once there is room; False when there is none, and the caller does not wait."""
        with self._changed:
            while self._count and (self._count >= self._count_max or self._bytes >= self._bytes_max):
                if not waits:
                    return False
                self._changed.wait()
            self._count += 1
            self._bytes += size_bytes
            self._changed.notify()  # a large message that ended may have made room for several
            return True

    def give_back(self, size_bytes: int) -> None:
        """A message of this size has its outcome."""
        with self._changed:
            self._count -= 1
            self._bytes -= size_bytes
            assert self._count >= 0
            assert self._bytes >= 0
            self._changed.notify()
