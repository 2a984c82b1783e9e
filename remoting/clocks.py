"""Clocks: the times that parts are given when tests give them no other ones."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> float:
    """Return milliseconds of a clock that is never set."""
    return time.monotonic() * 1_000
