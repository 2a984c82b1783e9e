"""The clock by which brokers deliver, and the error of a test that reached a step too late for its times."""

from __future__ import annotations

import time


class TooSlowError(Exception):
    """What was to wait until the second broker serves is due before: try again with longer times."""


def wall_clock_ms() -> int:
    """Now, in ms since 1970."""
    return time.time_ns() // 1_000_000
