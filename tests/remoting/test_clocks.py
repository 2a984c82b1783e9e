"""The clocks of the machine, in milliseconds."""

from __future__ import annotations

import time

import pytest

from thermocline.remoting.clocks import monotonic_ms, steady_clock_ms, wall_clock_ms


def test_both_are_in_milliseconds() -> None:
    before = int(time.time() * 1_000)
    assert before - 1 <= wall_clock_ms() <= before + 60_000
    before_s = time.monotonic()
    assert before_s * 1_000 <= monotonic_ms() <= (before_s + 60) * 1_000


def test_the_steady_clock_is_not_set_with_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = steady_clock_ms()
    assert abs(before - wall_clock_ms()) < 60_000
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000)
    assert wall_clock_ms() == 1
    assert before <= steady_clock_ms() < before + 60_000
