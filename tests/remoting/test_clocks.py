"""The clocks of the machine, in milliseconds."""

from __future__ import annotations

import time

from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms


def test_both_are_in_milliseconds() -> None:
    before = int(time.time() * 1_000)
    assert before - 1 <= wall_clock_ms() <= before + 60_000
    before_s = time.monotonic()
    assert before_s * 1_000 <= monotonic_ms() <= (before_s + 60) * 1_000
