"""Store clock: the time that messages are stored at. It never steps back.

Lookup by time, expiry and retention all search for a time in what must be ascending, so a wall clock that is set back
stands still here until it has caught up. Recovery restores the last time from the log.
"""

from __future__ import annotations

from collections.abc import Callable


class StoreClock:
    """max(previous, now). Owner: the loop thread."""

    __slots__ = ("_wall_clock", "last_ms")

    def __init__(self, wall_clock: Callable[[], int]) -> None:
        """`wall_clock`: milliseconds since 1970."""
        self.last_ms = 0
        self._wall_clock = wall_clock

    def now_ms(self) -> int:
        """The time to store a message at."""
        now_ms = self._wall_clock()
        if now_ms > self.last_ms:
            self.last_ms = now_ms
        return self.last_ms

    def wall_ms(self) -> int:
        """The wall clock's time now, which may be behind."""
        return self._wall_clock()

    def restore(self, last_ms: int) -> None:
        """Go on from a time that was seen in the log."""
        self.last_ms = max(self.last_ms, last_ms)
