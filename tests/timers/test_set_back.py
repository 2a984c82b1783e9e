"""A clock that was ahead and is set back: waiting messages come at their time, and none that went out comes again."""

from __future__ import annotations

import logging

import pytest

from tests.timers.test_timer_message_store import recall
from tests.timers.timer_parts import NOW_MS, TICK_MS, WHEEL_SLOTS, WINDOW_MS, World
from thermocline.timers.set_back import SET_BACK_MS

YEAR_MS = 365 * 86_400_000
AHEAD_MS = 600_000
LATE_MS_MAX = TICK_MS + 520
"""Without an exact time a message goes at its tick's end."""


def world_ahead(ahead_ms: int) -> World:
    """A world whose clock is ahead of NOW_MS."""
    world = World()
    world.run()
    world.jump(NOW_MS + ahead_ms)
    return world


@pytest.mark.parametrize("ahead_ms", [SET_BACK_MS + TICK_MS, AHEAD_MS, YEAR_MS])
def test_a_new_message_comes_at_its_time(ahead_ms: int) -> None:
    world = world_ahead(ahead_ms)
    world.clock.now_ms = NOW_MS
    world.send(TIMER_DELAY_MS="5000")
    ((went_ms, body),) = world.run_until(NOW_MS + 8_000)
    assert body == b"1"
    assert 0 <= went_ms - (NOW_MS + 5_000) <= LATE_MS_MAX


@pytest.mark.parametrize("ahead_ms", [SET_BACK_MS + TICK_MS, WINDOW_MS, AHEAD_MS])
def test_what_waits_comes_at_its_time_and_what_went_out_does_not_come_again(ahead_ms: int) -> None:
    world = World()
    late_ms = [ahead_ms + 3_000, ahead_ms + 2 * WINDOW_MS, ahead_ms + WINDOW_MS + 7_777]
    for time_ms in (1_000, ahead_ms - 100, *late_ms):
        world.send_at(NOW_MS + time_ms)
    assert world.jump(NOW_MS + ahead_ms) == [b"1", b"2"]
    world.clock.now_ms = NOW_MS
    for time_ms in late_ms:
        world.send_at(NOW_MS + time_ms)
    went = world.run_until(NOW_MS + max(late_ms) + 2_000, step_ms=500)
    assert sorted(body for _, body in went) == [b"3", b"4", b"5", b"6", b"7", b"8"]
    for went_ms, body in went:
        assert 0 <= went_ms - (NOW_MS + late_ms[int(body) % 3]) <= LATE_MS_MAX
    assert world.timers.status().pending_count == 0


def test_messages_that_came_into_the_open_tick_late_come_at_their_own_time() -> None:
    """They were stored after the clock was set back by little, for ticks that were closed."""
    world = world_ahead(60_000)
    world.clock.now_ms -= SET_BACK_MS
    world.send(TIMER_DELAY_MS="2000")
    world.run()
    world.clock.now_ms = NOW_MS
    assert world.run() == []
    ((went_ms, body),) = world.run_until(NOW_MS + 55_000, step_ms=20)
    assert body == b"1"
    assert 0 <= went_ms - (NOW_MS + 52_000) <= LATE_MS_MAX


def test_a_recall_still_meets_its_message() -> None:
    world = world_ahead(AHEAD_MS)
    first, second = (world.send(TIMER_DELAY_MS="60000") for _ in range(2))
    world.run()
    recall(world, first)
    world.run()
    world.clock.now_ms = NOW_MS
    world.run()
    recall(world, second)
    world.send(TIMER_DELAY_MS="60000")
    assert [body for _, body in world.run_until(NOW_MS + AHEAD_MS + 100_000, step_ms=500)] == [b"3"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_it_goes_on_after_a_restart(*, is_killed: bool) -> None:
    world = world_ahead(AHEAD_MS)
    world.send_at(NOW_MS + AHEAD_MS + 60_000)
    world.run()
    while world.timers.run_round():
        continue
    world.clock.now_ms = NOW_MS
    if not is_killed:
        world.close()
    world = world.kill() if is_killed else world.reopen()
    world.send(body=b"new", TIMER_DELAY_MS="5000")
    world.run()
    while world.timers.run_round():
        continue
    assert not world.timers.run_round(), "nothing is written again and again"
    assert world.timers.checkpoint.read_time_ms == NOW_MS // TICK_MS * TICK_MS
    world = world.kill()
    went = world.run_until(NOW_MS + AHEAD_MS + 62_000, step_ms=500)
    assert [body for _, body in went] == [b"new", b"1"]


def test_many_are_carried_in_slices_and_nothing_is_durable_before_the_last() -> None:
    world = world_ahead(AHEAD_MS)
    for number in range(1_200):
        world.send_at(NOW_MS + AHEAD_MS + 100_000 + number)
    world.run()
    while world.timers.run_round():
        continue
    before = world.timers.checkpoint
    world.clock.now_ms = NOW_MS
    assert world.timers.step() == []
    assert world.timers.has_more
    assert not world.timers.run_round(is_forced=True)
    assert world.timers.checkpoint == before
    world.close()
    world = world.reopen()
    assert world.timers.checkpoint.read_time_ms == NOW_MS // TICK_MS * TICK_MS, "the stop has carried the others"
    assert world.jump(NOW_MS + AHEAD_MS + 99_000) == []
    assert len(world.jump(NOW_MS + AHEAD_MS + 103_000)) == 1_200


def test_beyond_the_wheel_they_are_rolled(caplog: pytest.LogCaptureFixture) -> None:
    world = world_ahead(YEAR_MS)
    for _ in range(3):
        world.send(TIMER_DELAY_MS="60000")
    world.run()
    world.clock.now_ms = NOW_MS
    with caplog.at_level(logging.WARNING):
        world.run()
    assert "the clock was set back behind the timers" in caplog.text
    assert world.rolls == 0
    world.jump(NOW_MS + WINDOW_MS + TICK_MS)
    assert world.rolls == 3
    world.send(TIMER_DELAY_MS="5000")
    assert [body for _, body in world.run_until(world.clock.now_ms + WHEEL_SLOTS * TICK_MS, step_ms=500)] == [b"4"]
