"""ConsumeQueue, its files, and the table of all: units by offset, from memory and from files.

Covers `store/queues/consume_queue_files.py`.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError, DiskFullError
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.queues.consume_queue import FILLER, UNIT, ConsumeQueue
from thermocline.store.queues.consume_queue_files import ConsumeQueueFiles

UNITS_PER_FILE = 8
FILE_BYTES = UNITS_PER_FILE * 20


def make_files(disk: SimulatedDisk | None = None, *, open_files_max: int = 2) -> ConsumeQueueFiles:
    disk = disk or SimulatedDisk()
    disk.make_directory("/cq")
    return ConsumeQueueFiles(disk, "/cq", file_bytes=FILE_BYTES, open_files_max=open_files_max)


def make_queue(files: ConsumeQueueFiles, topic: str = "t", queue_id: int = 0, **state: int) -> ConsumeQueue:
    return ConsumeQueue(topic, queue_id, files, **state)


def append(queue: ConsumeQueue, count: int, *, start: int = 0) -> None:
    """Units whose physical offset is 100 times their queue offset."""
    for number in range(start, start + count):
        queue.append_unit(number * 100, 50, number)


def offsets(units: bytes) -> list[int]:
    return [physical_offset for physical_offset, _, _ in UNIT.iter_unpack(units)]


def test_unit_layout() -> None:
    """Byte for byte what Apache RocketMQ has."""
    files = make_files()
    queue = make_queue(files)
    queue.append_unit(0x0102030405060708, 0x0A0B0C0D, -2)
    assert queue.units(0, 1).hex() == "01020304050607080a0b0c0dfffffffffffffffe"
    assert FILLER.hex() == "00000000000000007fffffff0000000000000000"


def test_units_come_from_tail_and_files() -> None:
    queue = make_queue(make_files())
    append(queue, 20)
    assert (queue.tail_offset, queue.next_offset) == (0, 20)
    queue.write_tail()
    append(queue, 5, start=20)
    assert queue.tail_offset == 20
    assert offsets(queue.units(0, 100)) == [number * 100 for number in range(25)]
    assert offsets(queue.units(18, 4)) == [1_800, 1_900, 2_000, 2_100]
    assert offsets(queue.units(22, 2)) == [2_200, 2_300]
    assert queue.units(25, 1) == b""
    assert queue.unit(19).tags_code == 19


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.one_of(st.integers(1, 30), st.none()), max_size=15),
    reads=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=8),
)
def test_a_queue_is_a_list(steps: list[int | None], reads: list[tuple[int, int]]) -> None:
    """Whatever is appended and written in between, a read is a slice of the list."""
    queue = make_queue(make_files())
    expected: list[int] = []
    for step in steps:
        if step is None:
            queue.write_tail()
        else:
            append(queue, step, start=len(expected))
            expected += [number * 100 for number in range(len(expected), len(expected) + step)]
        for start, count in reads:
            assert offsets(queue.units(start, count)) == expected[start : start + count]


def test_files_are_sparse_and_of_full_length() -> None:
    disk = SimulatedDisk()
    queue = make_queue(make_files(disk))
    append(queue, 9)
    queue.write_tail()
    assert disk.list_directory("/cq/t/0") == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert [disk.size_bytes(f"/cq/t/0/{name}") for name in disk.list_directory("/cq/t/0")] == [FILE_BYTES] * 2


def test_a_queue_that_starts_within_a_file_is_filled_up() -> None:
    """Apache RocketMQ's recovery reads from the file's start and stops at the first empty unit."""
    disk = SimulatedDisk()
    queue = make_queue(make_files(disk), next_offset=11, min_offset=11)
    append(queue, 2, start=11)
    queue.write_tail()
    units = disk.read(f"/cq/t/0/{FILE_BYTES:020d}")
    assert units[:60] == FILLER * 3
    assert offsets(units[60:100]) == [1_100, 1_200]
    assert queue.min_offset == 11


def test_minimum_follows_the_log() -> None:
    files = make_files()
    queue = make_queue(files)
    assert queue.min_offset == 0
    append(queue, 30)
    queue.write_tail()
    append(queue, 10, start=30)
    for log_min_offset, expected in ((0, 0), (101, 2), (1_000, 10), (3_950, 40), (9_999, 40)):
        files.log_min_offset = log_min_offset
        assert queue.known_min_offset <= queue.min_offset == expected == queue.known_min_offset
    append(queue, 1, start=100)
    assert queue.min_offset == 40


def test_minimum_of_a_queue_whose_first_files_are_gone() -> None:
    disk = SimulatedDisk()
    files = make_files(disk)
    queue = make_queue(files)
    append(queue, 20)
    queue.write_tail()
    files.log_min_offset = 1_000
    assert files.delete_before(queue, 8) == [f"/cq/t/0/{0:020d}"]
    disk.remove(f"/cq/t/0/{0:020d}")
    reopened = make_queue(make_files(disk), next_offset=20)
    reopened._files.log_min_offset = 1_000
    assert reopened.min_offset == 10
    assert files.delete_before(queue, 1 << 40) == [f"/cq/t/0/{FILE_BYTES:020d}"]


def test_reading_a_missing_file_is_damage() -> None:
    disk = SimulatedDisk()
    queue = make_queue(make_files(disk, open_files_max=1))
    append(queue, 20)
    queue.write_tail()
    disk.remove(f"/cq/t/0/{0:020d}")
    with pytest.raises(CorruptDataError):
        queue.units(0, 20)


def test_no_room_keeps_the_tail() -> None:
    disk = SimulatedDisk()
    queue = make_queue(make_files(disk))
    append(queue, 4)
    disk.is_full = True
    with pytest.raises(DiskFullError):
        queue.write_tail()
    assert queue.tail_offset == 0
    assert len(offsets(queue.units(0, 9))) == 4
    disk.is_full = False
    queue.write_tail()
    assert (queue.tail_offset, len(offsets(queue.units(0, 9)))) == (4, 4)


def test_a_file_that_was_not_finished_is_made_anew() -> None:
    """A crash between making a file and giving it its length."""
    disk = SimulatedDisk()
    disk.make_directory("/cq/t/0")
    disk.open(f"/cq/t/0/{0:020d}", create=True).write_at(struct.pack(">q", 5), 0)
    queue = make_queue(make_files(disk), next_offset=3, min_offset=3)
    append(queue, 1, start=3)
    queue.write_tail()
    assert disk.read(f"/cq/t/0/{0:020d}")[:80] == FILLER * 3 + UNIT.pack(300, 50, 3)
    assert disk.size_bytes(f"/cq/t/0/{0:020d}") == FILE_BYTES


def test_cut_leaves_nothing_behind_the_end() -> None:
    disk = SimulatedDisk()
    files = make_files(disk)
    queue = make_queue(files)
    append(queue, 20)
    queue.write_tail()
    files.cut(queue, 5, files.base_positions("t", 0))
    assert disk.list_directory("/cq/t/0") == [f"{0:020d}"]
    assert disk.read(f"/cq/t/0/{0:020d}") == b"".join(
        UNIT.pack(number * 100, 50, number) for number in range(5)
    ) + bytes(60)


def test_cut_keeps_the_first_file_for_its_name() -> None:
    """It tells where the queue goes on, even to Apache RocketMQ."""
    disk = SimulatedDisk()
    files = make_files(disk)
    queue = make_queue(files, next_offset=8, min_offset=8)
    append(queue, 3, start=8)
    queue.write_tail()
    files.cut(queue, 8, files.base_positions("t", 0))
    assert disk.read(f"/cq/t/0/{FILE_BYTES:020d}") == bytes(FILE_BYTES)


def test_fill_writes_fillers_across_files() -> None:
    disk = SimulatedDisk()
    files = make_files(disk)
    queue = make_queue(files)
    append(queue, 2)
    queue.write_tail()
    files.fill(queue, 2, 20)
    assert b"".join(disk.read(path) for path in disk.paths())[40:400] == FILLER * 18


def test_descriptors_are_bounded_and_forgotten_with_the_topic() -> None:
    files = make_files(open_files_max=3)
    queues = [make_queue(files, queue_id=number) for number in range(9)]
    for queue in queues:
        append(queue, 3)
        queue.write_tail()
    assert len(files._open) == 3
    for queue in queues:
        assert len(offsets(queue.units(0, 3))) == 3
        files.forget(queue)
    assert not files._open
    files.close()


def test_written_units_are_synced_file_by_file_or_all_at_once() -> None:
    disk = SimulatedDisk()
    files = make_files(disk)
    for number in range(3):
        queue = make_queue(files, queue_id=number)
        append(queue, 1)
        queue.write_tail()
    unsynced = files.take_unsynced()
    unsynced.sync()
    assert disk.sync_counts == {SyncSite.QUEUE_FILE: 3, SyncSite.QUEUE_DIRECTORY: 5}
    files.give_back(unsynced)
    for number in range(3, 100):
        queue = make_queue(files, queue_id=number)
        append(queue, 1)
        queue.write_tail()
    disk.sync_counts.clear()
    files.take_unsynced().sync()
    assert disk.sync_counts == {SyncSite.QUEUE_FILE: 1}
    assert not files.take_unsynced().files


def test_a_file_of_a_deleted_topic_is_not_missed() -> None:
    disk = SimulatedDisk()
    files = make_files(disk)
    queue = make_queue(files)
    append(queue, 1)
    queue.write_tail()
    unsynced = files.take_unsynced()
    disk.remove_tree("/cq/t")
    unsynced.sync()


def test_a_queue_is_small() -> None:
    """50 000 of them are idle in most brokers."""
    queue = make_queue(make_files())
    assert not hasattr(queue, "__dict__")
    assert queue.__sizeof__() + queue.tail.__sizeof__() < 200


def test_units_that_fall_back_in_the_log_are_not_written() -> None:
    queue = make_queue(make_files())
    append(queue, 2, start=1)
    queue.append_unit(50, 50, 0)
    with pytest.raises(AssertionError, match="physical offsets rise"):
        queue.write_tail()
    assert queue.tail_offset == 0, "no file has them"


def test_a_minimum_above_the_end_is_not_taken() -> None:
    queue = make_queue(make_files())
    append(queue, 5)
    with pytest.raises(AssertionError):
        queue.restart_at(3, min_offset=4)
