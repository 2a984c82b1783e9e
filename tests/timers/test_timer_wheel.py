"""The wheel: RocketMQ's slots, turns, and what reaches the file when."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.store.files.disk import Disk
from thermocline.timers.timer_wheel import SLOT_BYTES, TimerWheel, WheelSlot

PATH = "/store/timerwheel"
SLOTS = 3_000
TURN_MS = SLOTS * 1_000
START_MS = 1_795_248_585_000


def open_wheel(disk: Disk) -> TimerWheel:
    return TimerWheel.open(disk, PATH, slot_count=SLOTS, precision_ms=1_000)


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    return disk


def write_all(wheel: TimerWheel) -> None:
    """Two rounds, each durable."""
    for _ in range(2):
        wheel.begin_round(was_covered=True)
        while not wheel.write(10):
            continue
        wheel.sync()
        wheel.end_round()


def test_a_slot_is_laid_out_as_rocketmq_lays_it_out() -> None:
    """The third slot that an official 5.5.0 broker wrote into the golden store."""
    disk = new_disk()
    wheel = TimerWheel.open(disk, PATH, slot_count=2 * 7 * 86_400, precision_ms=1_000)
    wheel.put(1_795_248_587_000, first_position=1_664, last_position=2_548, count=14)
    write_all(wheel)
    data = disk.read(PATH)
    assert len(data) == 38_707_200
    assert data[202_187 * SLOT_BYTES : 202_188 * SLOT_BYTES] == bytes.fromhex(
        "000000006b0151cb000000000000068000000000000009f40000000e00000000"
    )


def test_units_are_added_to_the_slot_of_their_time_and_no_other() -> None:
    wheel = open_wheel(new_disk())
    wheel.add(START_MS, 0, count=1)
    wheel.add(START_MS, 104, count=1)
    wheel.add(START_MS, 156, count=-1)
    wheel.add(START_MS + 1_000, 208, count=1)
    tick = START_MS // 1_000
    assert wheel.slot(START_MS) == WheelSlot(tick, 0, 156, 1)
    assert wheel.slot(START_MS + 1_000) == WheelSlot(tick + 1, 208, 208, 1)
    assert wheel.slot(START_MS + 2_000) is None


def test_a_slot_of_a_turn_before_is_empty_and_is_used_again() -> None:
    wheel = open_wheel(new_disk())
    wheel.add(START_MS, 0, count=1)
    assert wheel.slot(START_MS + TURN_MS) is None
    wheel.add(START_MS + TURN_MS, 52, count=1)
    assert wheel.slot(START_MS) is None
    assert wheel.slot(START_MS + TURN_MS) == WheelSlot((START_MS + TURN_MS) // 1_000, 52, 52, 1)


def test_adding_again_adds_only_missing_units_and_marks_all_dirty() -> None:
    disk = new_disk()
    wheel = open_wheel(disk)
    wheel.add(START_MS, 0, count=1)
    wheel.add(START_MS, 52, count=1)
    write_all(wheel)
    assert not wheel.is_dirty
    for position in (0, 52, 104):
        wheel.add_again(START_MS, position, count=1)
    assert wheel.is_dirty
    assert wheel.slot(START_MS) == WheelSlot(START_MS // 1_000, 0, 104, 3)


def test_the_file_is_one_round_behind() -> None:
    disk = new_disk()
    wheel = open_wheel(disk)
    wheel.add(START_MS, 0, count=1)
    wheel.begin_round(was_covered=False)
    assert wheel.write(100)
    assert open_wheel(disk).slot(START_MS) is None
    wheel.end_round()
    wheel.add(START_MS, 52, count=1)
    wheel.begin_round(was_covered=True)
    assert wheel.write(100)
    assert open_wheel(disk).slot(START_MS) == WheelSlot(START_MS // 1_000, 0, 0, 1)
    assert wheel.slot(START_MS) == WheelSlot(START_MS // 1_000, 0, 52, 2)


def test_a_round_that_was_not_covered_is_not_written_with_the_next() -> None:
    disk = new_disk()
    wheel = open_wheel(disk)
    wheel.add(START_MS, 0, count=1)
    for _ in range(3):
        wheel.begin_round(was_covered=False)
        assert wheel.write(100)
    assert open_wheel(disk).slot(START_MS) is None
    assert wheel.slot(START_MS) is not None
    assert wheel.is_dirty


def test_slots_are_written_in_slices() -> None:
    disk = new_disk()
    wheel = open_wheel(disk)
    for number in range(25):
        wheel.add(START_MS + number * 1_000, number * 52, count=1)
    wheel.begin_round(was_covered=False)
    wheel.end_round()
    wheel.begin_round(was_covered=True)
    assert [wheel.write(10) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("distance", [0, 1, 500, 2_047, 2_048, 2_900])
def test_the_next_occupied_slot_is_found(distance: int, *, is_written: bool) -> None:
    wheel = open_wheel(new_disk())
    # Left from the turn before.
    for number in range(distance):
        wheel.add(START_MS - TURN_MS + number * 1_000, number * 52, count=1)
    wheel.add(START_MS + distance * 1_000, 52 * distance, count=1)
    wheel.add(START_MS + (distance + 1) * 1_000, 52 * distance + 52, count=1)
    if is_written:
        write_all(wheel)
    end_ms = START_MS + TURN_MS
    assert wheel.next_occupied(START_MS, end_ms, slots_max=SLOTS) == START_MS + distance * 1_000
    assert wheel.next_occupied(START_MS, START_MS + distance * 1_000, slots_max=SLOTS) == START_MS + distance * 1_000


def test_the_search_ends_at_its_limit() -> None:
    wheel = open_wheel(new_disk())
    wheel.add(START_MS + 2_500_000, 0, count=1)
    assert wheel.next_occupied(START_MS, START_MS + TURN_MS, slots_max=100) == START_MS + 100_000
    assert wheel.next_occupied(START_MS, START_MS + 7_000, slots_max=100) == START_MS + 7_000
    assert wheel.next_occupied(START_MS, START_MS, slots_max=100) == START_MS


def test_the_search_agrees_with_looking_at_every_slot() -> None:
    random = Random(5)
    for _ in range(30):
        wheel = open_wheel(new_disk())
        times = sorted(START_MS + random.randrange(SLOTS) * 1_000 for _ in range(random.randrange(1, 6)))
        for number, time_ms in enumerate(times):
            wheel.add(time_ms, number * 52, count=1)
            if random.random() < 0.5:
                wheel.begin_round(was_covered=True)
                wheel.write(1_000)
                wheel.end_round()
        start_ms = START_MS + random.randrange(SLOTS) * 1_000
        expected = min((time_ms for time_ms in times if time_ms >= start_ms), default=START_MS + TURN_MS)
        assert wheel.next_occupied(start_ms, START_MS + TURN_MS, slots_max=SLOTS) == expected


def test_a_wheel_of_another_length_is_made_anew() -> None:
    disk = new_disk()
    disk.open(PATH, create=True).truncate(1_000)
    wheel = open_wheel(disk)
    assert disk.size_bytes(PATH) == SLOTS * SLOT_BYTES
    assert wheel.slot(START_MS) is None
