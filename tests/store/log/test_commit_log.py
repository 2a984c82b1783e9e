"""CommitLog: appends, rolls, flushes, refusals, reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulated_disk import SimulatedDisk, SimulatedFile
from tests.store.inline_executor import InlineExecutor
from thermocline.remoting.errors import (
    DiskFullError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RecordMagicError,
    RecordSizeError,
    ServiceUnavailableError,
    StoreClosedError,
)
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_record import encode_record
from thermocline.store.files.file_allocator import FileAllocator
from thermocline.store.files.mapped_file_queue import MappedFileQueue
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.log import commit_log as commit_log_module
from thermocline.store.log.commit_log import CommitLog

FILE_BYTES = 1_024


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    disk.make_directory("/staging")
    return disk


@pytest.fixture
def log(disk: SimulatedDisk) -> Iterator[CommitLog]:
    log = make_log(disk)
    log.start(0)
    yield log
    log.close()


def make_log(disk: SimulatedDisk) -> CommitLog:
    files = MappedFileQueue(disk, "/log", file_bytes=FILE_BYTES)
    allocator = FileAllocator(
        disk, directory="/log", staging="/staging", file_bytes=FILE_BYTES, executor=InlineExecutor()
    )
    return CommitLog(disk, files, allocator)


def record_at(offset: int, *, body: bytes = b"body", born_host: str = "10.0.0.1") -> bytes:
    return encode_record(
        topic="t",
        queue_id=0,
        queue_offset=0,
        physical_offset=offset,
        body=body,
        properties_text=b"",
        born_timestamp_ms=1,
        born_host=(born_host, 1),
        store_timestamp_ms=77,
        store_host=("10.0.0.1", 1),
    )


def test_pages_are_loaded_ahead_of_the_end(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once each, a step at a time, up to the end of the file."""
    monkeypatch.setattr(commit_log_module, "LOADED_BYTES", 200)
    monkeypatch.setattr(commit_log_module, "LOAD_STEP_BYTES", 60)
    for _ in range(40):
        log.fit(50)
        log.append(bytes(50))
        file = log.files.last.file
        assert isinstance(file, SimulatedFile)
        loaded = [position for start, end in file.loaded for position in range(start, end)]
        position = log.append_offset - log.files.last.base_offset
        assert set(range(position, min(position + 140, FILE_BYTES))) <= set(loaded)
        assert len(loaded) == len(set(loaded))
        assert max(loaded) <= position + 200
    assert len(log.files) == 2


def test_appends_lie_one_behind_the_other(log: CommitLog) -> None:
    assert log.append(b"abc") == 0
    assert log.append(memoryview(b"defg")) == 3
    assert (log.append_offset, log.flush_offset, log.min_offset) == (7, 0, 0)
    assert bytes(log.record_view(3, 4)) == b"defg"
    assert log.room_bytes == FILE_BYTES - 7 - 8


def test_roll_leaves_a_blank(log: CommitLog) -> None:
    """RocketMQ's filler: what remains, and its magic."""
    log.append(b"x" * 1_000)
    assert log.room_bytes == 16
    assert log.fit(16) == 1_000
    assert log.fit(17) == 1_024
    assert bytes(log.record_view(1_000, 24)) == bytes.fromhex("00000018cbd43194") + bytes(16)
    assert log.append(b"y") == 1_024
    assert log.room_bytes == FILE_BYTES - 1 - 8


def test_a_file_can_be_filled_but_for_eight_bytes(log: CommitLog) -> None:
    log.append(b"x" * log.room_bytes)
    assert log.room_bytes == 0
    log.roll()
    assert bytes(log.record_view(FILE_BYTES - 8, 8)) == bytes.fromhex("00000008cbd43194")


def test_records_larger_than_a_file_are_refused(log: CommitLog) -> None:
    with pytest.raises(MessageTooLargeError):
        log.fit(FILE_BYTES - 7)
    assert log.append_offset == 0
    assert log.fit(FILE_BYTES - 8) == 0


def test_flush_covers_all_files_it_has_to(disk: SimulatedDisk, log: CommitLog) -> None:
    log.append(b"x" * 1_000)
    log.fit(100)
    log.append(b"y" * 100)
    log.fit(1_000)
    disk.sync_counts.clear()
    assert log.flush() == 2_048 == log.flush_offset
    assert disk.sync_counts[SyncSite.LOG_FLUSH] == 2
    log.flush()
    assert disk.sync_counts[SyncSite.LOG_FLUSH] == 2


def test_a_failed_flush_ends_the_writing(disk: SimulatedDisk, log: CommitLog) -> None:
    """Nothing more is flushed or appended; the same flush is not tried again."""
    log.append(b"abc")
    disk.fail_syncs.add(SyncSite.LOG_FLUSH)
    with pytest.raises(StoreClosedError):
        log.flush()
    disk.fail_syncs.clear()
    for call in (log.flush, log.roll, lambda: log.append(b"d")):
        with pytest.raises(StoreClosedError):
            call()
    assert log.is_failed
    assert log.flush_offset == 0
    log.resume()
    log.pause("for now")
    assert log.is_failed
    assert bytes(log.record_view(0, 3)) == b"abc"


def test_a_failed_write_ends_the_writing(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr(type(log.files.last.file), "write_at", broken)
    with pytest.raises(StoreClosedError, match="broken"):
        log.append(b"abc")
    assert log.append_offset == 0


def test_a_pause_is_for_now(log: CommitLog) -> None:
    log.pause("the disk is nearly full")
    assert log.refusal == "the disk is nearly full"
    with pytest.raises(ServiceUnavailableError):
        log.append(b"abc")
    log.resume()
    assert log.append(b"abc") == 0
    log.pause("again")
    assert log.flush() == 3  # what is in the log is made durable all the same


def test_records_that_free_space_pass_a_pause(log: CommitLog) -> None:
    with log.let_through("the disk is nearly full"):
        assert log.append(b"abc") == 0
    log.pause("the disk is nearly full")
    with log.let_through("the disk is nearly full"):
        assert log.append(b"def") == 3
    assert log.refusal == "the disk is nearly full"
    with log.let_through("another reason"), pytest.raises(ServiceUnavailableError):
        log.append(b"ghi")
    assert log.refusal == "the disk is nearly full"


def test_a_failure_behind_a_pause_stays_one(log: CommitLog) -> None:
    log.pause("the disk is nearly full")
    with log.let_through("the disk is nearly full"):
        log.fail("broken")
    assert log.is_failed
    log.resume()
    with pytest.raises(StoreClosedError, match="broken"):
        log.append(b"abc")


def test_no_room_for_the_next_file_changes_nothing(disk: SimulatedDisk, log: CommitLog) -> None:
    """A full disk is an answer; when there is room again the same append works."""
    log.append(b"x" * 1_000)
    disk.is_full = True
    for _ in range(3):
        with pytest.raises(DiskFullError):
            log.fit(100)
    assert log.append(b"z") == 1_000
    disk.is_full = False
    assert log.fit(100) == 1_024
    assert disk.list_directory("/staging") == []


def test_the_next_file_is_made_ahead(disk: SimulatedDisk, log: CommitLog) -> None:
    log.append(b"x" * 300)
    log.prepare()
    assert disk.list_directory("/log") == [f"{0:020d}"]
    log.append(b"x" * 300)
    log.prepare()
    log.prepare()
    assert disk.list_directory("/log") == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert disk.size_bytes(f"/log/{FILE_BYTES:020d}") == FILE_BYTES
    assert log.fit(500) == FILE_BYTES


def test_a_torn_write_is_written_over(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that finds no block after all: what it has written is never met behind the next record."""
    kind = type(log.files.last.file)
    real_write = kind.write_at

    def half(self: object, data: bytes, position: int) -> None:
        real_write(self, data[: len(data) // 2], position)  # type: ignore[arg-type]
        raise DiskFullError

    monkeypatch.setattr(kind, "write_at", half)
    with pytest.raises(DiskFullError):
        log.append(b"x" * 100)
    monkeypatch.undo()
    assert log.append(b"abc") == 0
    assert bytes(log.record_view(0, 60)) == b"abc" + bytes(57)
    assert log.append(b"def") == 3


def test_records_are_read_back(log: CommitLog) -> None:
    log.append(record_at(0, body=b"first"))
    offset = log.append_offset
    log.append(record_at(offset, body=b"second", born_host="2001:db8::1"))
    assert log.read_record(0).body == b"first"
    assert log.read_record(offset).body == b"second"
    assert bytes(log.record_at(0)) == record_at(0, body=b"first")
    assert log.store_timestamp_ms(0) == 77
    assert log.store_timestamp_ms(offset) == 77


def test_reads_that_are_off(log: CommitLog) -> None:
    """Offsets that a client made up get an error of theirs, never bytes of another record."""
    log.append(record_at(0))
    end = log.append_offset
    for offset in (-1, end, end + FILE_BYTES):
        with pytest.raises(OffsetOutOfRangeError):
            log.read_record(offset)
    log.append(record_at(end + 1))
    with pytest.raises(RecordMagicError):
        log.read_record(3)
    with pytest.raises(RecordMagicError, match="another offset"):
        log.read_record(end)
    with pytest.raises(OffsetOutOfRangeError):
        log.record_view(5 * FILE_BYTES, 1)


def test_a_size_beyond_the_end_is_refused(log: CommitLog) -> None:
    record = bytearray(record_at(0))
    record[:4] = (1_000).to_bytes(4, "big")
    log.append(record)
    with pytest.raises(RecordSizeError):
        log.record_at(0)


def test_old_files_go_and_slices_stay(disk: SimulatedDisk, log: CommitLog) -> None:
    for _ in range(3):
        log.fit(900)
        log.append(b"x" * 900)
    log.flush()
    piece = log.record_view(10, 5)
    files = log.raise_minimum(FILE_BYTES)
    assert log.min_offset == FILE_BYTES
    with pytest.raises(OffsetOutOfRangeError):
        log.record_view(10, 5)
    for file in files:
        log.delete_file(file)
    assert disk.list_directory("/log")[0] == f"{FILE_BYTES:020d}"
    assert bytes(piece) == b"xxxxx"


def test_a_closed_log_refuses(log: CommitLog) -> None:
    log.close()
    log.close()
    with pytest.raises(StoreClosedError):
        log.append(b"x")


def test_start_within_a_file(disk: SimulatedDisk) -> None:
    first = make_log(disk)
    first.start(0)
    first.append(b"x" * 100)
    first.close()
    log = make_log(disk)
    log.files.load()
    log.start(100)
    assert (log.append_offset, log.flush_offset, log.room_bytes) == (100, 100, FILE_BYTES - 108)
    log.close()


def test_growth_is_reported_once(log: CommitLog) -> None:
    reports: list[int] = []
    log.notify_growth(lambda: reports.append(log.append_offset))
    assert reports == []
    log.append(b"x" * 100)
    log.append(b"x" * 100)
    assert reports == [100]


def test_a_log_that_refuses_all_lets_its_writer_through(log: CommitLog) -> None:
    """Also after it was paused for another reason, which holds for the writer too."""
    log.refuse_all("a copy")
    assert log.unwanted_refusal is None
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError, match="a copy"):
            log.append(b"x")
        with log.let_through("a copy"):
            log.append(b"x" * 10)
        log.pause("the disk is full")
        assert log.unwanted_refusal == "the disk is full"
        with log.let_through("a copy"), pytest.raises(ServiceUnavailableError, match="the disk is full"):
            log.append(b"x")
        log.resume()
    assert log.append_offset == 20


def test_an_empty_copy_begins_where_the_other_log_does(log: CommitLog, disk: SimulatedDisk) -> None:
    log.refuse_all("a copy")
    with log.let_through("a copy"):
        log.start_copy_at(PhysicalOffset(3 * FILE_BYTES))
        log.append(b"x" * 10)
        log.roll(b"\0" * (FILE_BYTES - 10))
    assert (log.min_offset, log.append_offset) == (3 * FILE_BYTES, 4 * FILE_BYTES)
    assert disk.list_directory("/log") == [f"{number * FILE_BYTES:020}" for number in (3, 4)]
    with pytest.raises(ServiceUnavailableError):
        log.append(b"x")


def test_a_copy_that_finds_no_room_for_its_first_file_fails(log: CommitLog, disk: SimulatedDisk) -> None:
    disk.is_full = True
    with pytest.raises(DiskFullError):
        log.start_copy_at(PhysicalOffset(3 * FILE_BYTES))
    with pytest.raises(StoreClosedError):
        log.append(b"x")
