"""Recovery of the timers, from the files after a stop, a kill, a power cut, or a manual deletion."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.timers.test_timer_message_store import recall
from tests.timers.timer_parts import NOW_MS, WINDOW_MS, World
from thermocline.remoting.errors import CorruptDataError
from thermocline.timers.timer_checkpoint import SHARED, TimerCheckpoint
from thermocline.timers.timer_log import BLANK_MAGIC, UNIT, UNIT_BYTES


def rounds(world: World) -> None:
    while world.timers.run_round():
        continue


def bodies(world: World, until_ms: int = NOW_MS + WINDOW_MS) -> list[int]:
    return sorted(int(body) for _, body in world.run_until(until_ms, step_ms=1_000))


def world_with_messages(count: int = 100) -> World:
    """Messages due one a second."""
    world = World()
    for second in range(1, count + 1):
        world.send_at(NOW_MS + second * 1_000)
    world.run()
    return world


def simulated(world: World) -> SimulatedDisk:
    assert isinstance(world.disk, SimulatedDisk)
    return world.disk


def test_a_clean_stop_repeats_nothing() -> None:
    world = world_with_messages()
    first = world.jump(NOW_MS + 30_500)
    world.close()
    again = world.reopen()
    assert again.timers.checkpoint.own is not None
    assert again.timers.checkpoint.own.wheel_position == again.timers.checkpoint.log_position
    assert [int(body) for body in first] + bodies(again) == list(range(1, 101))


def test_a_clean_stop_in_the_middle_of_a_full_tick_repeats_nothing() -> None:
    world = World()
    for number in range(300):
        world.send_at(NOW_MS + 1_000 + number * 7 % 500)
    world.run()
    went = world.jump(NOW_MS + 1_250)
    world.close()
    world = world.reopen()
    assert world.timers.status().pending_count == 0
    world.send_at(NOW_MS + 1_251)
    went += world.run()
    for _ in range(3):
        world.close()
        world = world.reopen()
    went += world.jump(NOW_MS + 1_400)
    world.close()
    world = world.reopen()
    went += world.jump(NOW_MS + 3_000)
    assert sorted(map(int, went)) == sorted([*range(1, 301), 1])
    assert world.timers.metrics.counts() == {"orders": 0}


def test_a_kill_repeats_deliveries_since_the_last_round() -> None:
    world = world_with_messages()
    world.jump(NOW_MS + 20_500)
    rounds(world)
    world.jump(NOW_MS + 30_500)
    assert bodies(world.kill()) == list(range(21, 101))


@pytest.mark.parametrize("kept_share", [0.0, 0.5, 1.0])
def test_a_power_cut_loses_nothing_that_was_flushed(kept_share: float) -> None:
    for seed in range(20):
        world = world_with_messages()
        world.store.commit_log.flush()
        for _ in range(seed % 4):
            world.timers.run_round()
        survivor = simulated(world).after_power_cut(Random(seed), kept_share=kept_share)
        assert set(bodies(world.reopen(survivor))) == set(range(1, 101))


def test_a_marker_behind_a_backlog_is_in_time_after_a_restart() -> None:
    """Nothing goes out before what was sent before the kill has its slot."""
    world = World()
    stored = world.send_at(NOW_MS + 5_000)
    world.run()
    rounds(world)
    for _ in range(500):
        world.send_at(NOW_MS + 60_000)
    recall(world, stored)
    world = world.kill()
    assert world.jump(NOW_MS + 30_000) == []


def test_a_lost_wheel_is_made_from_the_timer_log_also_when_that_is_cut_off() -> None:
    world = world_with_messages()
    world.jump(NOW_MS + 20_500)
    world.close()
    world.disk.remove(world.config.wheel_path)
    world = world.reopen()  # and killed before its first round: an empty wheel is there now
    world = world.kill()
    assert bodies(world) == list(range(21, 101))


def test_a_wheel_of_another_length_is_made_anew() -> None:
    world = world_with_messages()
    world.close()
    world.disk.open(world.config.wheel_path).truncate(77)
    assert bodies(world.reopen()) == list(range(1, 101))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_lost_timer_log_is_made_from_the_queue(*, is_killed: bool) -> None:
    world = world_with_messages()
    world.send_at(NOW_MS + 5 * WINDOW_MS)
    world.jump(NOW_MS + 90_500)
    world.close()
    world.disk.remove_tree(world.config.log_path)
    world = world.reopen()
    if is_killed:
        world.run()
        world = world.kill()
    # What was due in the minute before the read time is looked for in its queue; not so after one more kill.
    went = bodies(world, NOW_MS + 6 * WINDOW_MS)
    assert set(went) >= {*range(91, 101), 101}
    if not is_killed:
        assert went == [*range(91, 101), 101]


def test_a_timer_log_that_is_lost_with_nothing_in_it_pending_is_no_loss() -> None:
    world = world_with_messages()
    world.jump(NOW_MS + 120_000)
    world.close()
    world.disk.remove_tree(world.config.log_path)
    world = world.reopen()
    assert world.run() == []
    world.send_at(NOW_MS + 130_000)
    world.run()
    rounds(world)
    assert bodies(world.kill(), NOW_MS + 140_000) == [1]


def test_without_any_file_of_the_timers_everything_is_delivered() -> None:
    world = world_with_messages(10)
    world.jump(NOW_MS + 5_500)
    world.close()
    for path in (world.config.log_path, world.config.wheel_path, world.config.checkpoint_path):
        world.disk.remove_tree(path) if world.disk.is_directory(path) else world.disk.remove(path)
    assert bodies(world.reopen()) == list(range(1, 11))


def test_units_behind_the_checkpoint_are_not_believed() -> None:
    """Garbage that looks like a unit, as a power cut may leave it."""
    world = world_with_messages(3)
    world.close()
    checkpoint = TimerCheckpoint.load(world.disk, world.config.checkpoint_path)
    assert checkpoint is not None
    end = checkpoint.log_position
    garbage = UNIT.pack(UNIT_BYTES, 0, 1, NOW_MS, 5_000, 1 << 40, 100, 7, 0)
    simulated(world).corrupt(f"{world.config.log_path}/{0:020d}", end, garbage)
    world = world.reopen()
    assert bodies(world) == [1, 2, 3]


def test_a_failed_sync_ends_the_rounds_and_nothing_else() -> None:
    world = world_with_messages()
    rounds(world)
    world.send_at(NOW_MS + 120_000)
    world.jump(NOW_MS + 10_500)
    simulated(world).fail_syncs.add("timer log file")
    with pytest.raises(OSError, match="simulated"):
        world.timers.run_round()
    assert world.timers.failure is not None
    assert world.timers.begin_round(is_forced=True) is None
    assert len(world.jump(NOW_MS + 20_500)) == 10
    simulated(world).fail_syncs.clear()
    world = world.kill()
    rounds(world)
    survivor = simulated(world).after_power_cut(Random(1), kept_share=0)
    assert bodies(world.reopen(survivor)) == list(range(1, 102))


def test_a_full_disk_delays_rounds_and_nothing_else() -> None:
    world = world_with_messages(30)
    simulated(world).is_full = True
    world.send_at(NOW_MS + 60_000)
    world.run()
    for _ in range(30):
        world.send_at(NOW_MS + 61_000)
    world.run()
    assert world.timers.failure is None
    simulated(world).is_full = False
    rounds(world)
    assert bodies(world.kill()) == list(range(1, 62))


def test_another_precision_is_refused_while_messages_wait() -> None:
    world = world_with_messages(10)
    world.close()
    other = dataclasses.replace(world.config, precision_ms=500)
    with pytest.raises(CorruptDataError, match="precision"):
        World(world.disk, store_config=world.store_config, config=other, clock=Clock(NOW_MS))
    simulated(world).revive()
    world = world.reopen()
    world.jump(NOW_MS + 20_000)
    world.close()
    world = World(world.disk, store_config=world.store_config, config=other, clock=Clock(NOW_MS + 21_000))
    world.send_at(NOW_MS + 25_000)
    assert bodies(world) == [1]


# -- Apache RocketMQ wrote last ----------------------------------------------------------------------------------------


def as_rocketmq_would_have_left_it(world: World) -> None:
    """The checkpoint without our part, and a wheel in whatever state."""
    path = world.config.checkpoint_path
    shared = world.disk.read(path)[: SHARED.size]
    world.disk.open(path).write_at(shared.ljust(4_096, b"\0"), 0)
    world.disk.open(world.config.wheel_path).write_at(b"\x01" * 3_200, 0)


def test_timers_of_rocketmq_are_taken_over() -> None:
    world = world_with_messages()
    world.send_at(NOW_MS + 2 * WINDOW_MS)
    world.jump(NOW_MS + 20_500)
    world.close()
    as_rocketmq_would_have_left_it(world)
    world = world.reopen()
    assert world.timers.checkpoint.own is not None
    # It holds whole ticks only: messages delivered in the open tick come again.
    assert bodies(world, NOW_MS + 3 * WINDOW_MS) == [*range(20, 101), 101]


def test_units_that_rocketmq_wrote_behind_its_checkpoint_count() -> None:
    """Else their messages would be enqueued, and delivered, twice."""
    world = world_with_messages(50)
    rounds(world)
    older = world.disk.read(world.config.checkpoint_path)[: SHARED.size]
    world.send_at(NOW_MS + 60_000)
    world.run()
    rounds(world)
    world.disk.open(world.config.checkpoint_path).write_at(older.ljust(4_096, b"\0"), 0)
    assert bodies(world.kill()) == list(range(1, 52))


def test_units_behind_its_checkpoint_end_where_one_has_no_message() -> None:
    world = world_with_messages(3)
    world.close()
    as_rocketmq_would_have_left_it(world)
    garbage = UNIT.pack(UNIT_BYTES, 104, 1, NOW_MS, 5_000, 1 << 40, 100, 7, 0)
    simulated(world).corrupt(f"{world.config.log_path}/{0:020d}", 3 * UNIT_BYTES, garbage)
    world = world.reopen()
    assert world.timers.checkpoint.log_position == 3 * UNIT_BYTES
    assert bodies(world) == [1, 2, 3]


def test_a_unit_without_an_exact_time_goes_out_when_its_tick_is_over() -> None:
    world = World()
    world.send_at(NOW_MS + 5_300)
    world.run()
    world.close()
    # As RocketMQ writes it: nothing in the reserved field.
    simulated(world).corrupt(f"{world.config.log_path}/{0:020d}", UNIT_BYTES - 8, bytes(8))
    as_rocketmq_would_have_left_it(world)
    went = world.reopen().run_until(NOW_MS + 10_000, step_ms=10)
    assert [went_ms for went_ms, _ in went] == [(NOW_MS + 6_300) // 1_000 * 1_000]


def test_the_blank_is_rocketmqs() -> None:
    assert BLANK_MAGIC & 0xFFFF_FFFF == 0xBBCC_DDEE ^ (1_880_681_586 + 8)
