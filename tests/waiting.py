"""Waiting for a state: another task, thread or process makes it true, and nothing here can wait on it.

The time limits are far above what a busy machine needs: they end a test that hangs, they measure nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TIMEOUT_S = 120.0
PAUSE_S = 0.005


async def until(
    condition: Callable[[], object],
    *,
    what: str = "the condition holds",
    timeout_s: float = TIMEOUT_S,
    pause_s: float = PAUSE_S,
) -> None:
    """Return when `condition()` is true, asked every `pause_s`; fail with `what` after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        await asyncio.sleep(pause_s)


def wait_until(
    condition: Callable[[], object],
    *,
    what: str,
    timeout_s: float = TIMEOUT_S,
    interval_s: float = 0.2,
) -> None:
    """The same in a thread, for tests without an event loop."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(interval_s)
