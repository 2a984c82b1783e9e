"""The checkpoint: RocketMQ's 56 bytes, ours behind them, and whose counts."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.timers.open_slot import SlotProgress
from thermocline.timers.timer_checkpoint import OwnPart, TimerCheckpoint

PATH = "/store/config/timercheck"


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/store/config")
    disk.sync_everything()
    return disk


CHECKPOINT = TimerCheckpoint(
    read_time_ms=1_795_248_788_000,
    log_position=17_160,
    queue_offset=330,
    timestamp_ms=1_795_248_788_909,
    number=167,
    own=OwnPart(
        wheel_position=17_108, held_position=52, progress=SlotProgress(stretch=7, position=104), precision_ms=200
    ),
)

OFFICIAL = bytes.fromhex(
    "000001a1fd2a9220" "0000000000004308" "000000000000014a" "000000000000014a"
    "0000000000000000" "000001a1fd2a95ad" "00000000000000a7"
)  # fmt: skip
"""What the official 5.5.0 broker wrote into the golden store."""


def test_the_first_part_is_rocketmqs() -> None:
    assert CHECKPOINT.encode_shared() == OFFICIAL


def test_it_is_read_back() -> None:
    disk = new_disk()
    CHECKPOINT.save(disk, PATH)
    assert disk.size_bytes(PATH) == 4_096
    assert TimerCheckpoint.load(disk, PATH) == CHECKPOINT


def test_a_checkpoint_of_rocketmq_is_accepted() -> None:
    disk = new_disk()
    disk.open(PATH, create=True).write_at(OFFICIAL.ljust(4_096, b"\0"), 0)
    checkpoint = TimerCheckpoint.load(disk, PATH)
    assert checkpoint is not None
    assert checkpoint.own is None
    assert (checkpoint.read_time_ms, checkpoint.queue_offset) == (1_795_248_788_000, 330)


def test_our_part_does_not_count_once_rocketmq_has_written_its_own() -> None:
    disk = new_disk()
    CHECKPOINT.save(disk, PATH)
    disk.open(PATH).write_at((331).to_bytes(8, "big"), 16)
    checkpoint = TimerCheckpoint.load(disk, PATH)
    assert checkpoint is not None
    assert checkpoint.own is None


def test_a_missing_or_empty_file_is_no_checkpoint() -> None:
    disk = new_disk()
    assert TimerCheckpoint.load(disk, PATH) is None
    disk.open(PATH, create=True).truncate(4_096)
    assert TimerCheckpoint.load(disk, PATH) is None


def test_a_power_cut_leaves_one_or_the_other() -> None:
    later = TimerCheckpoint(
        read_time_ms=5,
        log_position=6,
        queue_offset=7,
        own=OwnPart(wheel_position=8, held_position=9, progress=SlotProgress(), precision_ms=1_000),
    )
    found = set()
    for seed in range(40):
        disk = new_disk()
        CHECKPOINT.save(disk, PATH)
        disk.cut_at_step = disk.step_count + 1
        with pytest.raises(PowerCut):
            later.save(disk, PATH)
        found.add(TimerCheckpoint.load(disk.after_power_cut(Random(seed)), PATH))
    assert found == {CHECKPOINT, later}
