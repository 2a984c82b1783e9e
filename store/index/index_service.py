"""IndexService: follows the log and files every record under its keys; answers where the records with a key are.

    log -> build(up to the flush offset) -> entries in index files -> checkpoint() durable -> the log file may go

Files: index/{yyyyMMddHHmmssSSS}, see index_file.py. Checkpoint: thermocline/indexCheckpoint.json

    {"nextOffset": 81920, "fileName": "20260102030405006", "entryCount": 1234}

Rules
  - Only what is flushed is indexed, so no power cut takes back a record that an entry points at.
  - Valid are the entries that the checkpoint covers: those below `entryCount` of its file, and all older files. Later
    entries are dropped at the next start and made again from `nextOffset`, a record's border. So each record is indexed
    once, whenever the process is killed or the power fails.
  - Index files are derived: when one that the checkpoint names is missing, all are made anew from the oldest log file.
  - Index files that Apache RocketMQ wrote are taken over; after an unclean stop only those that its checkpoint covers.
    The last record may have only some of its entries: those that are there are not made again.
  - The log is read through maps, each page once: what was read is let go of, or a whole log file would count as memory.
Owner: the index process, one thread.
Source: IndexService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import datetime

import msgspec
import numpy as np

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk, MappedFileQueue, SyncSite, make_durable_directory, replace_file
from thermocline.store.index.index_entries import IndexEntries, entries_of
from thermocline.store.index.index_file import IndexFile
from thermocline.store.index.index_keys import key_hash, query_text
from thermocline.store.log import read_columns
from thermocline.store.state import StoreCheckpoint

logger = logging.getLogger(__name__)

FILE_NAME_DIGITS = 17
RECORDS_PER_BUILD = 4_096
TAG_INDEX_TYPE = "T"
LEAVE_BYTES = 1 << 20
FOLIO_BYTES_MAX = 2 << 20
"""So much around a page that is read the kernel may map with it: what was left before comes back with its neighbour."""
"""How much of the log is read before its pages are let go of."""


class IndexCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far the index reaches, durably."""

    next_offset: PhysicalOffset
    file_name: str | None
    entry_count: int

    @classmethod
    def load(cls, disk: Disk, path: str) -> IndexCheckpoint | None:
        """Read it; None when there is none, or it is damaged: the index is derived."""
        if not disk.exists(path):
            return None
        try:
            return msgspec.json.decode(disk.read(path), type=cls)
        except msgspec.DecodeError as error:
            logger.warning("index checkpoint not usable path=%s error=%s", path, error)
            return None

    def is_of(self, file: IndexFile) -> bool:
        """Whether it can say how many entries of a file count."""
        return 1 <= self.entry_count <= file.entry_count_max


class _Mark(msgspec.Struct, frozen=True):
    """A state to go back to: how many files there are, and entries in the last of them."""

    file_count: int
    entry_count: int


class IndexService:
    """The index files, oldest first; the last one is being filled."""

    def __init__(
        self, disk: Disk, config: StoreConfig, *, log_files: MappedFileQueue, clock: Callable[[], int]
    ) -> None:
        self.next_offset = LOG_START
        """Records below this physical offset are in the index."""
        self.durable_offset = LOG_START
        """Records below this are so durably."""
        self.slots_timestamp_ms = 0
        """Up to this store time Apache RocketMQ, too, would find all: `StoreCheckpoint.index_timestamp_ms`."""
        self._disk = disk
        self._config = config
        self._log_files = log_files
        self._clock = clock
        self._files: list[IndexFile] = []
        self._left_offset = LOG_START
        """Pages of the log below this one were let go of."""
        self._made_before: set[int] = set()
        """Hashes under which the record at `next_offset` is filed already."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        config: StoreConfig,
        *,
        log_end_offset: PhysicalOffset,
        was_clean: bool,
        clock: Callable[[], int],
    ) -> IndexService:
        """Open the index of a store that has been recovered.

        `log_end_offset`: where recovery found the log to end. `was_clean`: whether the stop before was; matters for
        index files of Apache RocketMQ. `clock`: milliseconds since 1970, for names of files.

        Raises:
            CorruptDataError: A log file is missing.
        """
        make_durable_directory(disk, config.index_path, site=SyncSite.INDEX_DIRECTORY)
        disk.sync_directory(config.index_path, site=SyncSite.INDEX_DIRECTORY)
        log_files = MappedFileQueue(disk, config.commit_log_path, file_bytes=config.log_file_bytes)
        log_files.refresh()
        service = cls(disk, config, log_files=log_files, clock=clock)
        checkpoint = IndexCheckpoint.load(disk, config.index_checkpoint_path)
        if checkpoint is None:
            service._take_over(was_clean=was_clean)
        else:
            service._resume(checkpoint)
        service._cut(log_end_offset)
        service.next_offset = max(service.next_offset, log_files.start_offset)
        service.checkpoint()
        logger.info("index open next_offset=%d files=%d", service.next_offset, len(service._files))
        return service

    def close(self) -> None:
        """Checkpoint with everything that Apache RocketMQ wants, and close. Idempotent."""
        if self._files:
            self.checkpoint(write_slots=True)
        for file in self._files:
            file.close()
        self._files.clear()
        self._log_files.close()

    # -- building --------------------------------------------------------------------------------------------------

    def build(self, end_offset: PhysicalOffset) -> int:
        """Index the next few thousand records, none that ends behind `end_offset` (the flush offset); how many.

        Raises:
            DiskFullError: There is no room; nothing of this call counts.
            CorruptDataError: The log cannot be read on.
        """
        if self.next_offset >= end_offset:
            return 0
        self._log_files.refresh()
        self.next_offset = max(self.next_offset, self._log_files.start_offset)
        if self.next_offset >= end_offset:
            return 0  # a copied log has just begun there, and is empty
        columns = read_columns(self._log_files, self.next_offset, end_offset=end_offset, count_max=RECORDS_PER_BUILD)
        if columns.end_offset == self.next_offset:
            raise CorruptDataError("the log cannot be read on", offset=self.next_offset, end_offset=end_offset)
        self._append(entries_of(columns.heads))
        assert columns.end_offset <= end_offset, "the index follows the flush offset"
        self.next_offset = columns.end_offset
        self._made_before.clear()
        self._leave_pages(columns.end_offset)
        return len(columns)

    def checkpoint(self, *, write_slots: bool = False) -> None:
        """Make durable what was built. `write_slots`: also what only Apache RocketMQ needs, 20 MB a time.

        Raises:
            OSError, DiskFullError: The checkpoint before stands.
        """
        current = self._files[-1] if self._files else None
        if current is not None:
            current.write_header()
            if write_slots:
                current.write_slots()
            current.sync()
        self._save_checkpoint(current, 1 if current is None else current.entry_count)
        if current is not None and write_slots:
            self.slots_timestamp_ms = current.last_timestamp_ms

    def delete_before(self, log_min_offset: PhysicalOffset) -> int:
        """Remove files whose records have all left the log, never the last one; how many."""
        count = 0
        while len(self._files) > 1 and self._files[0].last_physical_offset < log_min_offset:
            file = self._files.pop(0)
            file.close()
            self._disk.remove(file.path)
            count += 1
        return count

    # -- asking ----------------------------------------------------------------------------------------------------

    @property
    def last_timestamp_ms(self) -> int:
        """Store time of the last record that was filed; 0 for an empty index."""
        return self._files[-1].last_timestamp_ms if self._files else 0

    @property
    def last_physical_offset(self) -> PhysicalOffset:
        """The physical offset of the last indexed record; 0 for an empty index."""
        return self._files[-1].last_physical_offset if self._files else LOG_START

    def query(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int, index_type: str = "K"
    ) -> list[PhysicalOffset]:
        """Physical offsets of records of a topic with a key, stored within [begin, end], newest first, each once.

        `index_type`: `T` for a tag; keys and unique ids are filed alike. Other keys with the same hash, records of an
        earlier topic of that name and records up to a second outside the time may be among them: look at each.
        """
        hash_value = key_hash(query_text(topic, key, is_tag=index_type == TAG_INDEX_TYPE))
        found: dict[PhysicalOffset, None] = {}
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                # A record may be filed under one hash twice, as its unique id and as a key.
                offsets = file.find(hash_value, begin_ms=begin_ms, end_ms=end_ms, count_max=2 * count_max)
                found.update(dict.fromkeys(offsets))
            if len(found) >= count_max or file.first_timestamp_ms < begin_ms:
                break
        return list(found)[:count_max]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _save_checkpoint(self, current: IndexFile | None, entry_count: int) -> None:
        """Write down that so many entries of this file count, and all older files."""
        checkpoint = IndexCheckpoint(
            next_offset=self.next_offset,
            file_name=None if current is None else current.path.rpartition("/")[2],
            entry_count=entry_count,
        )
        replace_file(
            self._disk,
            self._config.index_checkpoint_path,
            msgspec.json.encode(checkpoint),
            keep_backup=False,
            file_site=SyncSite.INDEX_CHECKPOINT_FILE,
            directory_site=SyncSite.INDEX_CHECKPOINT_DIRECTORY,
        )
        self.durable_offset = self.next_offset

    def _leave_pages(self, end_offset: PhysicalOffset) -> None:
        """Drop the log's pages below this offset, now and then."""
        files = self._log_files.between(self._left_offset, end_offset)
        if end_offset - self._left_offset < LEAVE_BYTES and len(files) == 1:
            return
        for file in files:
            start = max(self._left_offset - FOLIO_BYTES_MAX, file.base_offset)
            file.file.leave_pages(start - file.base_offset, min(end_offset, file.end_offset) - start)
        self._left_offset = end_offset

    def _append(self, entries: IndexEntries) -> None:
        """File these, in as many files as it takes; all or nothing."""
        if self._made_before:
            is_of_last = entries.physical_offsets == self.next_offset
            entries = entries.only(~(is_of_last & np.isin(entries.hashes, list(self._made_before))))
        mark = _Mark(len(self._files), self._files[-1].entry_count if self._files else 1)
        start = 0
        try:
            while start < len(entries):
                file = self._file_with_room()
                some = entries.only(slice(start, start + file.room))
                file.append(some.hashes, some.physical_offsets, some.store_timestamps_ms)
                start += len(some)
        except Exception:
            self._go_back(mark)
            raise

    def _file_with_room(self) -> IndexFile:
        """The last file, or a new one when it is full."""
        if self._files and not self._files[-1].is_full:
            return self._files[-1]
        if self._files:
            # Durable before the checkpoint can name a newer file.
            self._files[-1].seal()
            self._files[-1].sync()
            self.slots_timestamp_ms = self._files[-1].last_timestamp_ms
        file = IndexFile.create(
            self._disk,
            f"{self._config.index_path}/{self._new_name()}",
            slot_count=self._config.index_slot_count,
            entry_count_max=self._config.index_entry_count,
        )
        self._files.append(file)
        self._disk.sync_directory(self._config.index_path, site=SyncSite.INDEX_DIRECTORY)
        return file

    def _new_name(self) -> str:
        """The time now, as Apache RocketMQ writes it; later than every name there is, whatever the clock says."""
        now_ms = self._clock()
        now = datetime.fromtimestamp(now_ms / 1_000).astimezone()
        name = int(now.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1_000:03d}")
        names = self._names()
        if names:
            name = max(name, int(names[-1]) + 1)
        return f"{name:0{FILE_NAME_DIGITS}d}"

    def _names(self) -> list[str]:
        names = self._disk.list_directory(self._config.index_path)
        return [name for name in names if len(name) == FILE_NAME_DIGITS and name.isdecimal()]

    def _go_back(self, mark: _Mark) -> None:
        """Drop the entries behind a mark."""
        self._drop_files(mark.file_count)
        if self._files:
            self._files[-1].resume(mark.entry_count)

    def _drop_files(self, file_count: int) -> None:
        """Remove the newest files until this many are left."""
        while len(self._files) > file_count:
            file = self._files.pop()
            file.close()
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(file.path)

    def _open_file(self, name: str) -> IndexFile | None:
        """An existing file; None when it is not whole."""
        try:
            return IndexFile.open(
                self._disk,
                f"{self._config.index_path}/{name}",
                slot_count=self._config.index_slot_count,
                entry_count_max=self._config.index_entry_count,
            )
        except (CorruptDataError, FileNotFoundError) as error:
            logger.warning("index file not usable name=%s error=%s", name, error)
            return None

    def _resume(self, checkpoint: IndexCheckpoint) -> None:
        """Take what the checkpoint covers; everything from the log when that is not there any more."""
        names = self._names()
        kept = [name for name in names if checkpoint.file_name is not None and name <= checkpoint.file_name]
        files = [self._open_file(name) for name in kept]
        is_whole = checkpoint.file_name is None or (bool(kept) and kept[-1] == checkpoint.file_name)
        self._files = [file for file in files if file is not None]
        is_whole = is_whole and (not self._files or checkpoint.is_of(self._files[-1]))
        if not is_whole or len(self._files) < len(kept):
            logger.warning("index is made anew: files are missing, or the checkpoint is not of them")
            self._drop_files(0)
            kept = []
            self.next_offset = LOG_START
        else:
            self.next_offset = checkpoint.next_offset
            if self._files:
                self._files[-1].resume(checkpoint.entry_count)
        for name in names[len(kept) :]:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(f"{self._config.index_path}/{name}")

    def _take_over(self, *, was_clean: bool) -> None:
        """Take the files of a store that has no checkpoint of ours."""
        durable_ms = StoreCheckpoint.load(self._disk, self._config.checkpoint_path).index_timestamp_ms
        names = self._names()
        for name in names:
            file = self._open_file(name)
            if file is None or not (was_clean or file.last_timestamp_ms <= durable_ms):
                break
            self._files.append(file)
        for name in names[len(self._files) :]:
            self._disk.remove(f"{self._config.index_path}/{name}")
        if not self._files:
            return
        last = self._files[-1]
        last.resume(min(last.entry_count, last.entry_count_max))
        self.next_offset = last.last_physical_offset
        newest = last.entries(max(1, last.entry_count - 1_024), last.entry_count)
        self._made_before = set(newest["hash"][newest["physical_offset"] == self.next_offset].tolist())

    def _cut(self, log_end_offset: PhysicalOffset) -> None:
        """Drop entries of records that the log does not have any more."""
        if self.next_offset <= log_end_offset:
            return
        count = len(self._files)
        while count and self._files[count - 1].first_physical_offset >= log_end_offset:
            count -= 1
        last, entry_count = (self._files[count - 1], self._files[count - 1].entry_count) if count else (None, 1)
        if last is not None and last.last_physical_offset >= log_end_offset:
            offsets = last.entries(1, last.entry_count)["physical_offset"]
            entry_count = 1 + int(np.searchsorted(offsets, log_end_offset))
        self.next_offset = log_end_offset
        self._made_before.clear()
        # Before any file is changed: one that was sealed is filled again, and what it says of itself counts no more.
        self._save_checkpoint(last, entry_count)
        self._drop_files(count)
        if last is not None:
            last.resume(entry_count)
