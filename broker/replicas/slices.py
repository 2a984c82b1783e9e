"""Slices: long work on the event loop, in pieces between which others are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

SLICE_S = 0.003


async def run_in_slices(steps: Iterator[None], *, clock_s: Callable[[], float] = time.perf_counter) -> None:
    """Take all steps; the loop serves others after each SLICE_S. `clock_s` never steps back. Cancelling is safe."""
    until_s = clock_s() + SLICE_S
    for _ in steps:
        if clock_s() >= until_s:
            await asyncio.sleep(0)
            until_s = clock_s() + SLICE_S
