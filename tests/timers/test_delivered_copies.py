"""Timed messages that are in their queues are not put there again, whatever no checkpoint says of them."""

from __future__ import annotations

import pytest

from tests.timers.timer_parts import NOW_MS, World
from thermocline.timers import delivered_copies

SECOND_MS = 1_000
COUNT = 10


def world_that_delivered(count: int, **properties: str) -> World:
    """A master that has delivered the first `count` of its messages, and whose timer log is not there any more."""
    world = World()
    for second in range(1, COUNT + 1):
        world.send_at(NOW_MS + second * SECOND_MS, **properties)
    world.jump(NOW_MS + count * SECOND_MS + 500)
    while world.timers.run_round():
        continue
    world.close()
    world.disk.remove_tree(world.config.log_path)
    return world


def went_again(world: World) -> list[int]:
    again = world.reopen()
    return [int(body) for body in again.jump(NOW_MS + 60 * SECOND_MS)]


@pytest.mark.parametrize("count", [0, 1, 5, COUNT])
def test_what_is_in_its_queue_does_not_come_again(count: int) -> None:
    assert went_again(world_that_delivered(count)) == list(range(count + 1, COUNT + 1))


@pytest.mark.parametrize("behind_ms", [0, 5_000, 3_600_000])
def test_what_was_delivered_since_the_checkpoint_does_not_come_again(behind_ms: int) -> None:
    """Nor when the clock of the new master is behind that of the one before."""
    world = World()
    for second in range(1, COUNT + 1):
        world.send_at(NOW_MS + second * SECOND_MS)
    world.jump(NOW_MS + 3 * SECOND_MS + 500)
    while world.timers.run_round():
        continue
    checkpoint = world.disk.read(world.config.checkpoint_path)
    world.jump(NOW_MS + 6 * SECOND_MS + 500)
    world.close()
    world.disk.remove_tree(world.config.log_path)
    world.disk.open(world.config.checkpoint_path).write_at(checkpoint, 0)
    world.clock.now_ms -= behind_ms
    assert went_again(world) == list(range(7, COUNT + 1))


def test_messages_without_a_unique_key_may_come_again() -> None:
    assert went_again(world_that_delivered(5, UNIQ_KEY="")) == list(range(1, COUNT + 1))


def test_no_more_of_a_queue_is_read_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_copies, "RECORDS_MAX", 2)
    assert went_again(world_that_delivered(5)) == [1, 2, 3, *range(6, COUNT + 1)]
