"""StoreCheckpoint: Apache RocketMQ's file."""

from __future__ import annotations

from tests.simulated_disk import SimulatedDisk
from thermocline.store.state.checkpoint import StoreCheckpoint


def test_layout() -> None:
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(
        log_timestamp_ms=5, queue_timestamp_ms=4, index_timestamp_ms=3, master_flush_offset=2, confirm_offset=1
    )
    checkpoint.save(disk, "/checkpoint")
    data = disk.read("/checkpoint")
    assert data[:40].hex() == "".join(f"{number:016x}" for number in (5, 4, 3, 2, 1))
    assert data[40:] == bytes(4_056)
    assert StoreCheckpoint.load(disk, "/checkpoint") == checkpoint


def test_missing_or_short_says_nothing() -> None:
    disk = SimulatedDisk()
    assert StoreCheckpoint.load(disk, "/checkpoint") == StoreCheckpoint()
    disk.open("/checkpoint", create=True).write_at(b"x" * 39, 0)
    assert StoreCheckpoint.load(disk, "/checkpoint") == StoreCheckpoint()


def test_recovery_begins_three_seconds_before_the_lesser_stamp() -> None:
    assert StoreCheckpoint(log_timestamp_ms=10_000, queue_timestamp_ms=9_000).recovery_timestamp_ms == 6_000
    assert StoreCheckpoint(log_timestamp_ms=10_000, queue_timestamp_ms=1_000).recovery_timestamp_ms == 0
