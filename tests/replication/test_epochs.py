"""Where two logs part, by their epochs; the file in RocketMQ's form.

Covers `replication/epochs.py`, `replication/epoch_file.py`.
"""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.epoch_file import EpochFile, StaleEpochError, decode_epochs, encode_epochs
from thermocline.replication.epochs import ENTRIES_MAX, Alignment, EpochEntry, Epochs

PATH = "/store/epochFileCheckpoint"
OFFICIAL_EXAMPLE = b"2\n773307083\n7-7000\n8-8000\n"
"""Of the comment in RocketMQ's CheckpointFile.java."""


def epochs(*entries: tuple[int, int]) -> Epochs:
    return Epochs([EpochEntry(epoch, PhysicalOffset(start)) for epoch, start in entries])


def align(own: Epochs, own_end: int, others: Epochs, others_end: int) -> Alignment | None:
    return own.align(PhysicalOffset(own_end), others, PhysicalOffset(others_end))


@pytest.mark.parametrize(
    ("own", "own_end", "others", "others_end", "expected"),
    [
        # The same master still: the shorter of the two.
        (epochs((1, 0)), 100, epochs((1, 0)), 300, (100, 1)),
        (epochs((1, 0)), 300, epochs((1, 0)), 100, (100, 1)),
        # An old master's tail, behind where its successor began.
        (epochs((1, 0)), 130, epochs((1, 0), (2, 100)), 500, (100, 1)),
        # It missed two masters, and was one itself in between.
        (epochs((1, 0), (2, 100)), 130, epochs((1, 0), (3, 80)), 500, (80, 1)),
        # The same epoch with another start is another master's.
        (epochs((1, 0), (2, 100)), 130, epochs((1, 0), (2, 90)), 500, (90, 1)),
        # A master that wrote nothing.
        (epochs((1, 0), (2, 100)), 100, epochs((1, 0), (2, 100), (3, 100)), 500, (100, 2)),
        (epochs((1, 0), (2, 100)), 140, epochs((1, 0), (2, 100), (3, 100)), 500, (100, 2)),
        # The master has forgotten its oldest epochs, or the slave has begun later.
        (epochs((4, 900)), 950, epochs((1, 0), (4, 900), (5, 2_000)), 3_000, (950, 4)),
        (epochs((1, 0)), 130, epochs((7, 100)), 500, None),
        (epochs(), 130, epochs((7, 100)), 500, None),
    ],
)
def test_where_two_logs_part(
    own: Epochs, own_end: int, others: Epochs, others_end: int, expected: tuple[int, int] | None
) -> None:
    found = align(own, own_end, others, others_end)
    assert found == expected
    if found is not None:
        # Nothing to be cut is left, by either's account.
        back = align(others, others_end, own, own_end)
        assert back is not None
        assert back.end_offset == found.end_offset


def test_the_epoch_of_a_byte() -> None:
    some = epochs((1, 100), (2, 200), (5, 200), (6, 300))
    assert some.at(PhysicalOffset(99)) is None
    assert [entry.epoch for entry in map(some.at, map(PhysicalOffset, (100, 199, 200, 299, 300))) if entry] == [
        1, 1, 5, 5, 6,
    ]  # fmt: skip
    assert [some.end_of(epoch) for epoch in (1, 2, 5, 6)] == [200, 200, 300, None]


def test_entries_are_dropped_from_both_ends() -> None:
    some = epochs((1, 0), (2, 200), (5, 300))
    some.drop_before(PhysicalOffset(199))
    assert list(some) == [(1, 0), (2, 200), (5, 300)]
    some.drop_before(PhysicalOffset(200))
    assert list(some) == [(2, 200), (5, 300)]
    some.drop_before(PhysicalOffset(300))
    assert list(some) == [(5, 300)]
    some = epochs((2, 200), (5, 300))
    some.drop_behind(PhysicalOffset(299))
    assert list(some) == [(2, 200)]
    some.drop_before(PhysicalOffset(10_000))
    assert list(some) == [(2, 200)]


def test_the_oldest_of_too_many_entries_are_dropped() -> None:
    some = epochs(*((epoch, 10 * epoch) for epoch in range(1, ENTRIES_MAX + 4)))
    assert len(some) == ENTRIES_MAX
    assert next(iter(some)) == (4, 40)


@pytest.mark.parametrize("entries", [((2, 0), (1, 50)), ((2, 0), (2, 50)), ((1, 50), (2, 0)), ((1, -1),), ((-1, 0),)])
def test_entries_that_do_not_follow_each_other(entries: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="follow"):
        epochs(*entries)


def test_the_text_is_rocketmqs() -> None:
    assert encode_epochs(epochs((7, 7000), (8, 8000))) == OFFICIAL_EXAMPLE
    assert list(decode_epochs(OFFICIAL_EXAMPLE)) == [(7, 7000), (8, 8000)]
    assert list(decode_epochs(b"1\n0\n7-7000\n")) == [(7, 7000)]
    assert list(decode_epochs(encode_epochs(epochs()))) == []


@pytest.mark.parametrize("data", [b"", b"2\n773307083\n7-7000\n", b"2\n773307083\n7-7000\n8-8001\n", b"x\n0\n7-1\n"])
def test_a_damaged_text(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of int() as well
        decode_epochs(data)


def test_a_damaged_file_counts_as_its_backup() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    file = EpochFile(disk, "/store")
    file.begin(EpochEntry(7, PhysicalOffset(7000)))
    file.begin(EpochEntry(8, PhysicalOffset(8000)))
    assert disk.read(PATH) == OFFICIAL_EXAMPLE
    disk.corrupt(PATH, 15, b"9")
    assert list(EpochFile(disk, "/store").epochs) == [(7, 7000)]
    disk.corrupt(PATH + ".bak", 0, b"?")
    with pytest.raises(CorruptDataError):
        EpochFile(disk, "/store")


def test_a_masters_epoch_begins_where_its_log_ends() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    file = EpochFile(disk, "/store")
    file.begin_as_master(1, PhysicalOffset(0))
    assert list(file.epochs) == [(1, 0)]
    # It has started again, before the controller noticed.
    with pytest.raises(StaleEpochError):
        file.begin_as_master(1, PhysicalOffset(500))
    file.begin_as_master(2, PhysicalOffset(400))
    file.begin_as_master(3, PhysicalOffset(400))
    assert list(EpochFile(disk, "/store").epochs) == [(1, 0), (2, 400), (3, 400)]
    with pytest.raises(StaleEpochError):
        file.begin_as_master(2, PhysicalOffset(900))


def test_a_log_that_was_there_before_its_first_epoch() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    file = EpochFile(disk, "/store")
    file.begin_as_master(4, PhysicalOffset(500))
    assert list(file.epochs) == [(0, 0), (4, 500)]
    file.cut(Alignment(PhysicalOffset(500), 0))
    assert list(file.epochs) == [(0, 0)]


def test_a_slave_takes_over_what_its_master_tells_of_their_common_part() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    file = EpochFile(disk, "/store")
    file.follow(epochs((3, 0), (4, 0), (5, 10)), PhysicalOffset(0))
    assert list(file.epochs) == [(3, 0), (4, 0)]
    # Its master may have forgotten the oldest ones.
    file.follow(epochs((4, 0), (5, 10), (6, 10), (7, 11)), PhysicalOffset(10))
    assert list(EpochFile(disk, "/store").epochs) == [(3, 0), (4, 0), (5, 10), (6, 10)]
    # With an empty log nothing that it knew means anything.
    file.follow(epochs((2, 0)), PhysicalOffset(0))
    assert list(EpochFile(disk, "/store").epochs) == [(2, 0)]


def test_what_the_log_does_not_have_is_dropped_at_a_start() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    file = EpochFile(disk, "/store")
    for epoch, start in ((1, 0), (2, 300), (3, 600), (4, 900)):
        file.begin(EpochEntry(epoch, PhysicalOffset(start)))
    file.settle(min_offset=PhysicalOffset(400), end_offset=PhysicalOffset(600))
    assert list(EpochFile(disk, "/store").epochs) == [(2, 300), (3, 600)]
