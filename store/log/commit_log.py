"""CommitLog: every message of every topic, one record after the other.

Files: commitlog/{base offset, 20 digits}, all of one length. Records: remoting/records/message_record.py.
A record is in one file. One that does not fit with 8 bytes to spare goes to the next file, and the rest of this one
becomes a blank: int32 bytes that remain, int32 MAGIC_BLANK, then whatever was there.

Invariants
  - min_offset <= flush_offset <= append_offset; append_offset is where the next record goes.
  - `room_bytes` is what fits the tail file with room for a blank left, so a reader always meets a record or a blank.
  - Bytes after the append offset are zero, or the rest of a blank. So a record that recovery did not accept, or a
    failed write, can never appear after a newer record.
  - Files are allocated before they are written to: see file_allocator.py.
Failures
  - No room for the next file: DiskFullError, nothing has changed, the same append may work later.
  - A failed write or flush: the kernel may have dropped pages and will report the next flush as good. So nothing more
    is appended or acknowledged until the store is opened again, which writes what it accepts anew (`fail`).
  - `pause`: the disk is nearly full, or a queue's units find no room. ServiceUnavailableError until `resume`, but for
    what makes room again (`let_through`).
  - `refuse_all`: this is a copy of another log. Only what copies it is let through. So for other reasons that last:
    each stands until it is taken back itself, the last one is shown.
Threads: everything belongs to the loop thread, save `flush`, which helper threads may call.
Source: CommitLog.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from thermocline.remoting.errors import (
    DiskFullError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RecordMagicError,
    RecordSizeError,
    ServiceUnavailableError,
    StoreClosedError,
)
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.records.message_record import (
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    MessageRecord,
    decode_record,
    store_timestamp_at,
)
from thermocline.store.files import Buffer, Disk, FileAllocator, MappedFile, MappedFileQueue, SyncSite

logger = logging.getLogger(__name__)

LOADED_BYTES, LOAD_STEP_BYTES = 1 << 23, 1 << 19
"""How far ahead of the append offset pages are loaded, and how many at a time."""
"""How many bytes later a field is for an IPv6 host before it."""


class CommitLog:
    """The log. `recovery.py` opens it; then one thread appends."""

    def __init__(self, disk: Disk, files: MappedFileQueue, allocator: FileAllocator) -> None:
        self.files = files
        self.file_bytes = files.file_bytes
        self.append_offset = LOG_START
        self.flush_offset = LOG_START
        self.min_offset = LOG_START
        self.room_bytes = 0
        self._disk = disk
        self._allocator = allocator
        self._tail: MappedFile | None = None
        self._tail_base_offset = LOG_START
        self._torn_end = 0
        self._loaded_offset = self._load_at = 0
        self._refusal: str | None = "not open"
        self._paused = False
        self._lasting_refusals: list[str] = []
        self._on_growth: Callable[[], None] | None = None
        self._flush_lock = threading.Lock()

    # -- opening and closing ---------------------------------------------------------------------------------------

    def start(self, append_offset: PhysicalOffset) -> None:
        """Begin to append at `append_offset`, which recovery found, with everything below it durable.

        Raises:
            DiskFullError: There is no room for the first file.
        """
        assert self._tail is None
        if append_offset >= self.files.end_offset:
            assert append_offset % self.file_bytes == 0
            self.files.add(self._allocator.take_file(append_offset))
        self._tail = self.files.last
        self._tail_base_offset = self._tail.base_offset
        assert self._tail_base_offset <= append_offset < self._tail.end_offset
        self.min_offset = self.files.start_offset
        assert self.min_offset <= append_offset
        self.append_offset = self.flush_offset = append_offset
        self.room_bytes = self._tail.end_offset - append_offset - BLANK.size
        self._refusal = None

    def start_copy_at(self, base_offset: PhysicalOffset) -> None:
        """Let an empty log begin at a file border, as the log does that it will be a copy of. A crash meanwhile leaves
        an empty log.

        Raises:
            DiskFullError: There is no room for the first file; nothing is appended until the store is opened again.
        """
        assert self.append_offset == self.min_offset == LOG_START
        assert base_offset % self.file_bytes == 0
        for file in self.files.take_after(LOG_START):
            self.delete_file(file)
        refusal, self._tail = self._refusal, None
        try:
            self.start(base_offset)
        except DiskFullError:
            self.fail("no room for the first file")
            raise
        if refusal is not None:
            self.pause(refusal)

    def close(self) -> None:
        """Close the files; nothing is flushed here. Idempotent."""
        self._refusal, self._paused = self._refusal or "closed", False
        self._allocator.discard()
        with self._flush_lock:
            self.files.close()
        self._tail = None

    @property
    def refusal(self) -> str | None:
        """Why nothing can be appended; None while it can."""
        return self._refusal

    @property
    def unwanted_refusal(self) -> str | None:
        """Why nothing can be appended, unless that is lasting."""
        return None if self._refusal in self._lasting_refusals else self._refusal

    @property
    def is_failed(self) -> bool:
        """Whether nothing will be appended or acknowledged until the store is opened again."""
        return self._refusal is not None and not self._paused

    @property
    def has_torn_end(self) -> bool:
        """Whether a write that failed may have left something behind the end."""
        return self.is_failed or bool(self._torn_end)

    def pause(self, reason: str) -> None:
        """Refuse writes for now."""
        if not self.is_failed:
            self._refusal = reason
            self._paused = True

    def resume(self) -> None:
        """Take writes again, unless the log has failed, is closed, or takes none for another reason."""
        if self._paused:
            self._refusal = self.lasting_refusal
            self._paused = self._refusal is not None

    def refuse_all(self, reason: str) -> None:
        """Refuse writes from now on, but those that are let through for this reason."""
        if reason in self._lasting_refusals:
            self._lasting_refusals.remove(reason)
        self._lasting_refusals.append(reason)
        self.pause(reason)

    def refuse_no_more(self, reason: str) -> None:
        """Take back `refuse_all` for this reason, if there is one; another one stays."""
        if reason in self._lasting_refusals:
            self._lasting_refusals.remove(reason)
            if self._refusal == reason:
                self.resume()

    @property
    def lasting_refusal(self) -> str | None:
        """The last reason of `refuse_all` that stands."""
        return self._lasting_refusals[-1] if self._lasting_refusals else None

    @contextlib.contextmanager
    def let_through(self, reason: str) -> Iterator[None]:
        """Take writes in this block although the log is paused for this reason: those that make room again, or copy.

        No other thread writes, and nothing is awaited in the block, so no other write gets through.
        """
        is_paused = self._paused and self._refusal == reason
        if is_paused:
            self._refusal, self._paused = None, False
        try:
            yield
        finally:
            if is_paused and self._refusal is None:
                self.pause(reason)

    def fail(self, reason: str) -> None:
        """Refuse writes for good."""
        logger.error("log is read-only until restart reason=%s append_offset=%d", reason, self.append_offset)
        self._refusal = reason
        self._paused = False

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, data: Buffer) -> PhysicalOffset:
        """Append whole encoded records, at most `room_bytes` of them; the offset that they were written at.

        The records carry their physical offsets already, so the caller reads `append_offset` before encoding. Durable
        once `flush` has passed their end.

        Raises:
            StoreClosedError: The log is closed, or an earlier write or flush failed.
            ServiceUnavailableError: It is paused.
            DiskFullError: The file system had no block for the write after all. Nothing was appended.
        """
        size_bytes = len(data)
        tail = self._tail
        if self._refusal is not None or tail is None:
            raise self._refused()
        assert size_bytes <= self.room_bytes
        physical_offset = self.append_offset
        assert self.flush_offset <= physical_offset, "only appended bytes are durable"
        if self._torn_end:
            data = self._over_torn(data)
        try:
            tail.file.write_at(data, physical_offset - self._tail_base_offset)
        except DiskFullError:
            self._torn_end = max(self._torn_end, physical_offset + len(data))
            raise
        except OSError as error:
            self.fail(f"write failed: {error}")
            raise self._refused() from error
        self._torn_end = 0
        self.append_offset = physical_offset + size_bytes
        self.room_bytes -= size_bytes
        if self.append_offset > self._load_at:
            self._load_ahead(tail)
        if self._on_growth is not None:
            on_growth, self._on_growth = self._on_growth, None
            on_growth()
        return physical_offset

    def notify_growth(self, callback: Callable[[], None]) -> None:
        """Call back once, in the next append, when its bytes are in the log. One callback; it must not append."""
        self._on_growth = callback

    def fit(self, size_bytes: int) -> PhysicalOffset:
        """Make sure that the next `size_bytes` fit the tail file, rolling when needed; the offset they will have.

        Raises:
            MessageTooLargeError: They would not fit an empty file.
            DiskFullError, StoreClosedError: See `roll`.
        """
        if size_bytes > self.room_bytes:
            size_bytes_max = self.file_bytes - BLANK.size
            if size_bytes > size_bytes_max:
                raise MessageTooLargeError(size_bytes=size_bytes, size_bytes_max=size_bytes_max)
            self.roll()
        return self.append_offset

    def roll(self, blank: Buffer | None = None) -> None:
        """Fill the tail file with a blank and go on in the next one. `blank`: the bytes of a copied log up to its
        file's end.

        Raises:
            DiskFullError: There is no room for the next file. Nothing has changed.
            StoreClosedError: The log is closed, or an earlier write or flush failed.
        """
        tail = self._tail
        if self._refusal is not None or tail is None:
            raise self._refused()
        following = self._allocator.take_file(tail.end_offset)
        assert following.base_offset == tail.end_offset, "files have no gap between them"
        if blank is None:
            blank = BLANK.pack(tail.end_offset - self.append_offset, MAGIC_BLANK)
        try:
            tail.write(self._over_torn(blank), self.append_offset)
        except (OSError, DiskFullError) as error:
            following.close()
            self.fail(f"write failed: {error}")
            raise self._refused() from error
        self._torn_end = 0
        self.files.add(following)
        self._tail = following
        self._tail_base_offset = self.append_offset = following.base_offset
        self.room_bytes = self.file_bytes - BLANK.size

    def border_at_or_below(self, offset: PhysicalOffset) -> PhysicalOffset:
        """The last border between records at or below an offset; the log's end if that is not behind it.

        Raises:
            OffsetOutOfRangeError: The offset is below the oldest file.
        """
        if not self.min_offset <= offset:
            raise OffsetOutOfRangeError(offset=offset, start_offset=self.min_offset, end_offset=self.append_offset)
        if offset >= self.append_offset:
            return self.append_offset
        file = self.files.find(offset)
        position, stop = 0, offset - file.base_offset
        while position < stop:
            size_bytes, magic = BLANK.unpack_from(file.view, position)
            assert size_bytes > 0, "the log has whole records up to its end"
            if magic == MAGIC_BLANK or position + size_bytes > stop:
                break
            position += size_bytes
        return PhysicalOffset(file.base_offset + position)

    def cut(self, end_offset: PhysicalOffset) -> None:
        """Take back what is behind a border between records; durable on return. A crash meanwhile leaves the log up to
        there, and perhaps some of what was behind it.

        Raises:
            StoreClosedError: The log is closed or has failed, now or before.
            OSError: A file could not be removed or changed; the log has failed.
        """
        self.flush()
        if self.is_failed:
            raise self._refused()
        assert self.min_offset <= end_offset <= self.append_offset
        with self._flush_lock:
            try:
                self._allocator.discard()
                self._disk.sync_directory(self.files.directory, site=SyncSite.LOG_TRUNCATE)
                for file in self.files.take_after(end_offset + 1):
                    file.close()
                    self._disk.remove(f"{self.files.directory}/{file.name}")
                    self._disk.sync_directory(self.files.directory, site=SyncSite.LOG_TRUNCATE)
                tail = self.files.last
                tail.file.zero_from(end_offset - tail.base_offset)
                tail.file.sync(site=SyncSite.LOG_RECOVER)
            except OSError as error:
                self.fail(f"not cut: {error}")
                raise
            self._tail = tail
            self._tail_base_offset = tail.base_offset
            self.append_offset = self.flush_offset = end_offset
        self.room_bytes = tail.end_offset - end_offset - BLANK.size
        self._torn_end = 0
        self._loaded_offset = self._load_at = 0

    def prepare(self) -> None:
        """Have the next file made by the helper thread once the tail is half full. Called by every tick."""
        if self._tail is not None and self.room_bytes < self.file_bytes // 2:
            self._allocator.prepare(self._tail.end_offset)

    def flush(self) -> PhysicalOffset:
        """Make durable what was appended before the call; the new flush offset. Any thread.

        Raises:
            StoreClosedError: The sync failed, now or before; it is not tried again.
        """
        with self._flush_lock:
            end_offset = self.append_offset
            assert self.min_offset <= self.flush_offset <= end_offset
            if self.flush_offset < end_offset:
                if self.is_failed:
                    raise self._refused()
                try:
                    for file in self.files.between(self.flush_offset, end_offset):
                        file.file.sync(site=SyncSite.LOG_FLUSH)
                except OSError as error:
                    self.fail(f"flush failed: {error}")
                    raise self._refused() from error
                self.flush_offset = end_offset
            return self.flush_offset

    def _load_ahead(self, tail: MappedFile) -> None:
        """Have the pages loaded that will be written to next, up to the end of the file."""
        start = max(self._loaded_offset, self.append_offset)
        end = min(self.append_offset + LOADED_BYTES, tail.end_offset)
        self._loaded_offset = end
        self._load_at = end if end == tail.end_offset else end - LOADED_BYTES + LOAD_STEP_BYTES
        self._allocator.load_pages(tail.file, position=start - tail.base_offset, size_bytes=end - start)

    def _over_torn(self, data: Buffer) -> Buffer:
        """The data, with zeroes over what is left of a write that failed."""
        rest = self._torn_end - self.append_offset - len(data)
        return bytes(data) + bytes(rest) if rest > 0 else data

    def _refused(self) -> StoreClosedError | ServiceUnavailableError:
        error_class = ServiceUnavailableError if self._paused else StoreClosedError
        return error_class("the log takes no writes", reason=self._refusal)

    # -- reading ---------------------------------------------------------------------------------------------------

    def record_view(self, physical_offset: PhysicalOffset, size_bytes: int) -> memoryview:
        """Bytes of the log in one file: a record, or a run of adjacent ones. Valid as long as it is held.

        Raises:
            OffsetOutOfRangeError: The offset is below the oldest file or behind the newest.
        """
        file = self.files.find(physical_offset)
        position = physical_offset - file.base_offset
        assert position + size_bytes <= self.file_bytes, "a record is in one file"
        return file.view[position : position + size_bytes]

    def record_at(self, physical_offset: PhysicalOffset) -> memoryview:
        """The bytes of the record that starts at `physical_offset`.

        Raises:
            OffsetOutOfRangeError: The offset is not between `min_offset` and `append_offset`.
            RecordMagicError, RecordSizeError: No record starts there.
        """
        if not self.min_offset <= physical_offset <= self.append_offset - RECORD_BYTES_MIN:
            raise OffsetOutOfRangeError(
                offset=physical_offset, start_offset=self.min_offset, end_offset=self.append_offset
            )
        file = self.files.find(physical_offset)
        position = physical_offset - file.base_offset
        view = file.view
        if position + RECORD_BYTES_MIN > len(view):
            raise RecordSizeError("the record is cut short", physical_offset=physical_offset)
        size_bytes, magic = BLANK.unpack_from(view, position)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise RecordMagicError("no message record starts here", physical_offset=physical_offset)
        if size_bytes < RECORD_BYTES_MIN or physical_offset + size_bytes > min(self.append_offset, file.end_offset):
            raise RecordSizeError("impossible record size", physical_offset=physical_offset, size_bytes=size_bytes)
        return view[position : position + size_bytes]

    def read_record(self, physical_offset: PhysicalOffset) -> MessageRecord:
        """Decode the record that starts at `physical_offset`.

        Raises:
            OffsetOutOfRangeError: See `record_at`.
            CorruptDataError: No sound record starts there.
        """
        record = decode_record(self.record_at(physical_offset))
        if record.physical_offset != physical_offset:
            raise RecordMagicError("the record names another offset", physical_offset=physical_offset)
        return record

    def store_timestamp_ms(self, physical_offset: PhysicalOffset) -> int:
        """The store time of the record that a queue unit points at; no checks beyond the offset's range."""
        file = self.files.find(physical_offset)
        position = physical_offset - file.base_offset
        return store_timestamp_at(file.view, position)

    # -- deleting --------------------------------------------------------------------------------------------------

    def raise_minimum(self, min_offset: PhysicalOffset) -> list[MappedFile]:
        """Forget the files below `min_offset`, a file border; `delete_file` removes them afterwards."""
        assert min_offset % self.file_bytes == 0
        assert min_offset <= self.flush_offset
        assert min_offset <= self._tail_base_offset
        files = self.files.take_before(min_offset)
        self.min_offset = self.files.start_offset
        return files

    def delete_file(self, file: MappedFile) -> None:
        """Unlink a file that `raise_minimum` gave back, durably: a cut must not leave a hole. Helper thread."""
        file.close()
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(f"{self.files.directory}/{file.name}")
        self._disk.sync_directory(self.files.directory, site=SyncSite.LOG_DELETE)
