"""MappedFileQueue: the files of a log and the file of an offset.

Covers `store/files/mapped_file.py`.
"""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.store.files.mapped_file import MappedFile, base_offset_of, file_name
from thermocline.store.files.mapped_file_queue import MappedFileQueue

FILE_BYTES = 100


def make_files(*offsets: int, size_bytes: int = FILE_BYTES) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    for offset in offsets:
        file = disk.open(f"/log/{file_name(offset)}", create=True)
        file.allocate(size_bytes)
        file.write_at(b"%d" % offset, 0)
        file.close()
    return disk


def queue_of(disk: SimulatedDisk) -> MappedFileQueue:
    return MappedFileQueue(disk, "/log", file_bytes=FILE_BYTES)


def test_names() -> None:
    assert file_name(1_073_741_824) == "00000000001073741824"
    assert base_offset_of("00000000001073741824") == 1_073_741_824
    assert base_offset_of("x") is None
    assert base_offset_of("123") is None


def test_load_and_find() -> None:
    queue = queue_of(make_files(200, 300, 400))
    queue.load()
    assert (queue.start_offset, queue.end_offset, len(queue)) == (200, 500, 3)
    assert queue.find(300).base_offset == 300
    assert queue.find(399).base_offset == 300
    assert bytes(queue.find(300).view[:3]) == b"300"
    for offset in (199, 500, -1):
        with pytest.raises(OffsetOutOfRangeError):
            queue.find(offset)
    assert [file.base_offset for file in queue.between(250, 300)] == [200]
    assert [file.base_offset for file in queue.between(250, 301)] == [200, 300]
    queue.close()


def test_nothing_there() -> None:
    queue = queue_of(make_files())
    queue.load()
    assert (queue.start_offset, queue.end_offset) == (0, 0)
    with pytest.raises(OffsetOutOfRangeError):
        queue.find(0)


@pytest.mark.parametrize("offsets", [(0, 200), (0, 150)])
def test_a_hole_or_an_odd_start_is_damage(offsets: tuple[int, ...]) -> None:
    with pytest.raises(CorruptDataError):
        queue_of(make_files(*offsets)).load()


def test_an_empty_last_file_is_removed() -> None:
    """It is what a crash left of making it; Apache RocketMQ removes it, too."""
    disk = make_files(0, 100, 200)
    disk.open(f"/log/{file_name(200)}").truncate(0)
    queue = queue_of(disk)
    queue.load()
    assert queue.end_offset == 200
    assert not disk.exists(f"/log/{file_name(200)}")


@pytest.mark.parametrize(("offset", "size_bytes"), [(0, 50), (0, 0), (100, 50), (100, 150)])
def test_a_file_of_another_length_is_damage_and_stays(offset: int, size_bytes: int) -> None:
    """Perhaps it is the setting that is wrong: what is in the file must be there when it is right again."""
    disk = make_files(0, 100)
    file = disk.open(f"/log/{file_name(offset)}")
    file.truncate(size_bytes)
    with pytest.raises(CorruptDataError, match="length"):
        queue_of(disk).load()
    assert disk.size_bytes(f"/log/{file_name(offset)}") == size_bytes


def test_files_are_taken_out_at_both_ends() -> None:
    queue = queue_of(make_files(0, 100, 200, 300))
    queue.load()
    assert [file.base_offset for file in queue.take_before(199)] == [0]
    assert [file.base_offset for file in queue.take_after(201)] == [300]
    assert [file.base_offset for file in queue.take_after(200)] == [200]
    assert queue.start_offset == 100


def test_refresh_follows_another_process() -> None:
    disk = make_files(0, 100)
    queue = queue_of(disk)
    queue.refresh()
    removed, held = queue.find(0), queue.find(100)
    disk.remove(f"/log/{file_name(0)}")
    other = disk.open(f"/log/{file_name(200)}", create=True)
    other.allocate(FILE_BYTES)
    queue.refresh()
    assert (queue.start_offset, queue.end_offset) == (100, 300)
    assert queue.find(100) is held
    with pytest.raises(AssertionError, match="is closed"):
        removed.file.write_at(b"x", 0)  # no descriptor of it stays open


def test_a_write_stays_within_its_file() -> None:
    disk = make_files(100)
    file = MappedFile.open(disk, "/log", 100, size_bytes=FILE_BYTES)
    file.write(b"abc", 197)
    with pytest.raises(AssertionError):
        file.write(b"abcd", 197)
    assert bytes(file.view[97:]) == b"abc"
