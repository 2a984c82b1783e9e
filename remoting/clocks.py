"""Clocks: the times that parts are given when tests give them no other ones."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> float:
    """Return milliseconds of a clock that is never set."""
    return time.monotonic() * 1_000


def steady_clock_ms() -> int:
    """Return milliseconds since 1970, as the wall clock was at the process's start and time has passed since.

    For deadlines and intervals: with the wall clock they would stand still for as long as that was set back.
    """
    return _STEADY_START_MS + int(monotonic_ms())


_STEADY_START_MS = wall_clock_ms() - int(monotonic_ms())
