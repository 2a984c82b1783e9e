"""EpochStart: an epoch begins once; what fails before the broker serves is tried again."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.epoch_file import EpochFile, StaleEpochError
from thermocline.replication.epoch_start import EpochStart

ROOT = "/store"


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def begin(start: EpochStart, epoch: int, end_offset: int, min_offset: int = 0) -> None:
    start.begin(epoch, min_offset=at(min_offset), end_offset=at(end_offset))


def entries(disk: SimulatedDisk) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in EpochFile(disk, ROOT).epochs]


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    return disk


def test_an_attempt_that_failed_goes_on_with_the_epoch(disk: SimulatedDisk) -> None:
    start = EpochStart(disk, ROOT)
    begin(start, 1, 0)
    start.served()
    begin(start, 3, 500)
    begin(start, 3, 700)  # what the first attempt has put stays the epoch's
    assert entries(disk) == [(1, 0), (3, 500)]


def test_an_epoch_in_which_the_broker_has_served_does_not_begin_again(disk: SimulatedDisk) -> None:
    start = EpochStart(disk, ROOT)
    begin(start, 1, 0)
    start.served()
    with pytest.raises(StaleEpochError):
        begin(start, 1, 500)
    begin(start, 2, 500)
    assert entries(disk) == [(1, 0), (2, 500)]


def test_an_epoch_of_another_life_does_not_begin_again(disk: SimulatedDisk) -> None:
    begin(EpochStart(disk, ROOT), 1, 0)
    with pytest.raises(StaleEpochError):
        begin(EpochStart(disk, ROOT), 1, 0)


def test_an_epoch_that_was_cut_off_meanwhile_begins_anew(disk: SimulatedDisk) -> None:
    """Between two attempts the broker followed another master, and its log was cut below the epoch's start."""
    start = EpochStart(disk, ROOT)
    begin(start, 1, 0)
    start.served()
    begin(start, 3, 500)
    start.settle(min_offset=LOG_START, end_offset=at(400))
    assert entries(disk) == [(1, 0)]
    begin(start, 3, 400)
    assert entries(disk) == [(1, 0), (3, 400)]


def test_epochs_of_what_the_log_does_not_have_are_dropped(disk: SimulatedDisk) -> None:
    start = EpochStart(disk, ROOT)
    for epoch, end_offset in ((1, 0), (2, 100), (3, 200)):
        begin(start, epoch, end_offset)
        start.served()
    begin(start, 4, 300, min_offset=150)
    assert entries(disk) == [(2, 100), (3, 200), (4, 300)]
