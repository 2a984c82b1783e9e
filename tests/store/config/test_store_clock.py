"""StoreClock: time that never steps back."""

from __future__ import annotations

from tests.clock import Clock
from thermocline.store.config.store_clock import StoreClock


def test_time_stands_still_while_the_wall_clock_is_behind() -> None:
    wall = Clock(5_000)
    clock = StoreClock(wall)
    assert clock.now_ms() == 5_000
    wall.now_ms = 3_000
    assert (clock.now_ms(), clock.wall_ms()) == (5_000, 3_000)
    clock.restore(7_000)
    clock.restore(6_000)
    assert (clock.last_ms, clock.now_ms()) == (7_000, 7_000)
    wall.now_ms = 8_000
    assert clock.now_ms() == 8_000
