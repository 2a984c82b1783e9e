"""IndexFile: Apache RocketMQ's layout, chains, and slots worked out from entries."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError
from thermocline.store.index.index_file import IndexFile

SLOTS, ENTRIES = 4, 10
ALL = {"begin_ms": 0, "end_ms": 1 << 50, "count_max": 100}


def make(disk: SimulatedDisk) -> IndexFile:
    return IndexFile.create(disk, "/index", slot_count=SLOTS, entry_count_max=ENTRIES)


def reopen(disk: SimulatedDisk) -> IndexFile:
    return IndexFile.open(disk, "/index", slot_count=SLOTS, entry_count_max=ENTRIES)


def append(file: IndexFile, *entries: tuple[int, int, int]) -> None:
    """Hash, physical offset, store time."""
    hashes, offsets, times = zip(*entries, strict=True)
    file.append(np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(times, np.int64))


def test_layout() -> None:
    """Byte for byte, as IndexFile.java writes it."""
    disk = SimulatedDisk()
    file = make(disk)
    append(file, (5, 1_000, 60_000), (9, 2_000, 61_500), (6, 3_000, 62_000))
    append(file, (1, 4_000, 200_000))
    file.seal()
    data = disk.read("/index")
    assert len(data) == 40 + SLOTS * 4 + ENTRIES * 20
    assert struct.unpack(">qqqqii", data[:40]) == (60_000, 200_000, 1_000, 4_000, 2, 5)
    assert struct.unpack(">4i", data[40:56]) == (0, 4, 3, 0)
    entries = list(struct.iter_unpack(">iqii", data[56 : 56 + 5 * 20]))
    assert entries == [(0, 0, 0, 0), (5, 1_000, 0, 0), (9, 2_000, 1, 1), (6, 3_000, 2, 0), (1, 4_000, 140, 2)]


@pytest.mark.parametrize("sealed", [False, True])
def test_find_follows_the_chain_newest_first(*, sealed: bool) -> None:
    disk = SimulatedDisk()
    file = make(disk)
    append(file, (5, 1, 10_000), (9, 2, 11_000), (5, 3, 12_000), (5, 4, 13_000), (13, 5, 14_000))
    if sealed:
        file.seal()
        file = reopen(disk)
    assert file.find(5, **ALL) == [4, 3, 1]
    assert file.find(9, **ALL) == [2]
    assert file.find(17, **ALL) == []
    assert file.find(2, **ALL) == []
    assert file.find(5, begin_ms=0, end_ms=1 << 50, count_max=2) == [4, 3]
    assert file.find(5, begin_ms=12_000, end_ms=12_999, count_max=9) == [3]
    assert file.find(5, begin_ms=0, end_ms=10_000, count_max=9) == [1]


def test_find_errs_towards_a_second_too_many() -> None:
    """Entries know whole seconds: what may be within the time is among them."""
    file = make(SimulatedDisk())
    append(file, (5, 1, 10_000), (5, 2, 10_900))
    assert file.find(5, begin_ms=10_500, end_ms=11_000, count_max=9) == [2, 1]
    assert file.find(5, begin_ms=11_000, end_ms=12_000, count_max=9) == []
    assert file.overlaps(10_900, 99_000)
    assert not file.overlaps(0, 9_999)
    assert not file.overlaps(11_900, 99_000)


def test_slots_are_worked_out_from_the_entries() -> None:
    """Whatever header and slots hold, and whatever bytes follow the entries that count."""
    disk = SimulatedDisk()
    file = make(disk)
    append(file, (5, 1, 10_000), (9, 2, 11_000), (5, 3, 12_000), (6, 4, 13_000))
    file.write_header()
    disk.corrupt("/index", 40, b"\xff" * 16)
    resumed = reopen(disk)
    resumed.resume(4)
    assert (resumed.entry_count, resumed.last_physical_offset, resumed.used_slot_count) == (4, 3, 1)
    assert resumed.find(5, **ALL) == [3, 1]
    assert resumed.find(6, **ALL) == []
    append(resumed, (6, 40, 13_000))
    assert resumed.find(6, **ALL) == [40]
    assert resumed.find(9, **ALL) == [2]


def test_a_chain_that_leads_astray_ends() -> None:
    """In a foreign file, an entry that names a newer one before it must not be a loop."""
    disk = SimulatedDisk()
    file = make(disk)
    append(file, (5, 1, 10_000), (5, 2, 10_000))
    file.seal()
    position = 56 + 20 + 16
    disk.corrupt("/index", position, (2).to_bytes(4, "big"))
    assert reopen(disk).find(5, **ALL) == [2, 1]


def test_full_at_its_count() -> None:
    file = make(SimulatedDisk())
    assert file.room == ENTRIES - 1
    append(file, *[(number, number, number) for number in range(ENTRIES - 1)])
    assert file.is_full
    with pytest.raises(AssertionError):
        append(file, (1, 1, 1))


def test_entries_come_in_the_order_of_the_log() -> None:
    file = make(SimulatedDisk())
    append(file, (1, 5, 1), (2, 6, 1))
    with pytest.raises(AssertionError):
        append(file, (1, 5, 1))
    with pytest.raises(AssertionError, match="order of the log"):
        append(file, (1, 8, 1), (1, 7, 1))


def test_another_length_is_not_ours() -> None:
    disk = SimulatedDisk()
    make(disk)
    with pytest.raises(CorruptDataError):
        IndexFile.open(disk, "/index", slot_count=SLOTS, entry_count_max=ENTRIES + 1)
