"""Clock: the wall clock of a test, which stands still until the test moves it; and the real one."""

from __future__ import annotations

import time


class Clock:
    """Milliseconds since 1970. `clock.now_ms += 5` is how time passes."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self._set_back_ms = 0

    def set_back(self, ms: int) -> None:
        """Let an operator set the wall clock back; the steady clock goes on."""
        self.now_ms -= ms
        self._set_back_ms += ms

    def steady(self) -> int:
        """The same as a clock that is never set."""
        return self.now_ms + self._set_back_ms

    def __call__(self) -> int:
        return self.now_ms


def now_ms() -> int:
    """The real wall clock, in ms since 1970: for tests with other processes."""
    return time.time_ns() // 1_000_000
