"""IndexFile: a hash table on disk, from a key's hash to the records that have it.

    40 bytes   header: int64 first store time, int64 last store time (ms), int64 first, int64 last physical offset,
               int32 slots in use, int32 entry count + 1 (entry 0 is never used)
    4 bytes    per slot: number of the newest entry whose hash falls there, 0 for none; slot = hash mod slots
    20 bytes   per entry: int32 hash, int64 physical offset, int32 seconds since the first store time,
               int32 number of the entry that was in the slot before

Name: time of making, yyyyMMddHHmmssSSS. Files have their full length from the start, sparse.

Rules
  - Entries are written one after the other and never changed; they are the truth. The slots of the file that is being
    filled are kept in memory and worked out anew from the entries when it is opened, so neither a kill nor a power cut
    can leave a chain that leads astray. They are written when the file is full, and at times, for Apache RocketMQ.
  - What counts of a file is the number of entries that its owner has written down durably (index_service.py).
Owner: the index process, one thread.
Source: IndexFile.java, IndexHeader.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.files import Disk, DiskFile, SyncSite
from thermocline.store.index.index_keys import Hashes

HEADER = struct.Struct(
    ">q"  # first store time, ms
    "q"  # last store time, ms
    "q"  # first physical offset
    "q"  # last physical offset
    "i"  # slots in use
    "i"  # entry count + 1
)
assert HEADER.size == 40, "on-disk format shared with Apache RocketMQ"
SLOT_BYTES = 4
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
ENTRIES = np.dtype([("hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert ENTRY.size == ENTRIES.itemsize == 20, "on-disk format shared with Apache RocketMQ"
ENTRIES_READ = 1 << 16
INT_MAX = (1 << 31) - 1


class IndexHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of an index file."""

    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0
    first_physical_offset: PhysicalOffset = LOG_START
    last_physical_offset: PhysicalOffset = LOG_START
    used_slot_count: int = 0
    entry_count: int = 1
    """Counts the unused entry 0: the number that the next entry gets."""

    @classmethod
    def read(cls, file: DiskFile) -> IndexHeader:
        """Read it; CorruptDataError when the file is too short to have one."""
        data = file.read_at(HEADER.size, 0)
        if len(data) != HEADER.size:
            raise CorruptDataError("index file without a header", path=file.path)
        first_ms, last_ms, first_offset, last_offset, used_slot_count, entry_count = HEADER.unpack(data)
        return cls(
            first_timestamp_ms=first_ms,
            last_timestamp_ms=last_ms,
            first_physical_offset=first_offset,
            last_physical_offset=last_offset,
            used_slot_count=used_slot_count,
            entry_count=max(entry_count, 1),
        )


class IndexFile:
    """One file. `slots` is there while it is being filled."""

    def __init__(self, file: DiskFile, *, slot_count: int, entry_count_max: int, header: IndexHeader) -> None:
        self.path = file.path
        self.entry_count_max = entry_count_max
        self.slot_count = slot_count
        self.first_timestamp_ms = header.first_timestamp_ms
        self.last_timestamp_ms = header.last_timestamp_ms
        self.first_physical_offset = header.first_physical_offset
        self.last_physical_offset = header.last_physical_offset
        self.used_slot_count = header.used_slot_count
        self.entry_count = header.entry_count
        self._file = file
        self._slots: npt.NDArray[np.int32] | None = None
        self._entries_position = HEADER.size + slot_count * SLOT_BYTES

    @classmethod
    def create(cls, disk: Disk, path: str, *, slot_count: int, entry_count_max: int) -> IndexFile:
        """Make an empty file of full length; DiskFullError when there is no room for its name."""
        file = disk.open(path, create=True, random_access=True)
        file.truncate(0)
        file.truncate(HEADER.size + slot_count * SLOT_BYTES + entry_count_max * ENTRY.size)
        index_file = cls(file, slot_count=slot_count, entry_count_max=entry_count_max, header=IndexHeader())
        index_file._slots = np.zeros(slot_count, np.int32)
        return index_file

    @classmethod
    def open(cls, disk: Disk, path: str, *, slot_count: int, entry_count_max: int) -> IndexFile:
        """Open a file for queries.

        Raises:
            CorruptDataError: It has another length than its numbers of slots and entries ask for.
        """
        file = disk.open(path, random_access=True)
        size_bytes = HEADER.size + slot_count * SLOT_BYTES + entry_count_max * ENTRY.size
        if file.size_bytes != size_bytes:
            file.close()
            raise CorruptDataError("index file of another length", path=path, expected_bytes=size_bytes)
        header = IndexHeader.read(file)
        return cls(file, slot_count=slot_count, entry_count_max=entry_count_max, header=header)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return self.entry_count >= self.entry_count_max

    @property
    def room(self) -> int:
        """How many entries fit."""
        return self.entry_count_max - self.entry_count

    # -- filling ---------------------------------------------------------------------------------------------------

    def resume(self, entry_count: int) -> None:
        """Go on filling behind the first `entry_count` entries (entry 0 included), whatever header and slots say."""
        slots = np.zeros(self.slot_count, np.int32)
        header_counts = self.entry_count == entry_count
        last: npt.NDArray[np.void] | None = None
        for start in range(1, entry_count, ENTRIES_READ):
            entries = self.entries(start, min(entry_count, start + ENTRIES_READ))
            # Of several entries in one slot the last assignment stands: the newest.
            slots[entries["hash"].astype(np.int32) % self.slot_count] = np.arange(start, start + len(entries))
            if start == 1:
                self.first_physical_offset = PhysicalOffset(entries["physical_offset"][0])
            last = entries[-1:]
        if last is not None:
            self.last_physical_offset = PhysicalOffset(last["physical_offset"][0])
            if not header_counts:
                self.last_timestamp_ms = self.first_timestamp_ms + int(last["seconds"][0]) * 1_000
        self.entry_count = max(entry_count, 1)
        self.used_slot_count = int(np.count_nonzero(slots))
        self._slots = slots

    def append(
        self, hashes: Hashes, physical_offsets: npt.NDArray[np.int64], store_timestamps_ms: npt.NDArray[np.int64]
    ) -> None:
        """Add entries, in order; at most `room`.

        Raises:
            DiskFullError: There is no room. Nothing counts as added.
        """
        count = len(hashes)
        assert self._slots is not None
        assert 0 < count <= self.room
        assert bool(np.all(physical_offsets[1:] >= physical_offsets[:-1])), "in the order of the log"
        assert self.entry_count == 1 or physical_offsets[0] >= self.last_physical_offset
        if self.entry_count == 1:
            self.first_timestamp_ms = int(store_timestamps_ms[0])
            self.first_physical_offset = PhysicalOffset(physical_offsets[0])
        slots = hashes % self.slot_count
        order = np.argsort(slots, kind="stable")
        slots, numbers = slots[order], (self.entry_count + np.arange(count, dtype=np.int32))[order]
        is_first = np.ones(count, np.bool_)
        is_first[1:] = slots[1:] != slots[:-1]
        is_last = np.ones(count, np.bool_)
        is_last[:-1] = is_first[1:]
        previous = np.zeros(count, np.int32)
        previous[1:] = numbers[:-1]
        before = self._slots[slots[is_first]]
        previous[is_first] = before
        entries = np.empty(count, ENTRIES)
        entries["hash"] = hashes
        entries["physical_offset"] = physical_offsets
        seconds = (store_timestamps_ms - self.first_timestamp_ms) // 1_000
        entries["seconds"] = np.clip(seconds, 0, INT_MAX)
        entries["previous"][order] = previous
        self._file.write_at(entries.view(np.uint8).data, self._entries_position + self.entry_count * ENTRY.size)
        self._slots[slots[is_last]] = numbers[is_last]
        self.used_slot_count += int(np.count_nonzero(before == 0))
        self.entry_count += count
        self.last_physical_offset = PhysicalOffset(physical_offsets[-1])
        self.last_timestamp_ms = int(store_timestamps_ms[-1])

    def write_header(self) -> None:
        """Write the header."""
        header = HEADER.pack(
            self.first_timestamp_ms,
            self.last_timestamp_ms,
            self.first_physical_offset,
            self.last_physical_offset,
            self.used_slot_count,
            self.entry_count,
        )
        self._file.write_at(header, 0)

    def write_slots(self) -> None:
        """Write the slots, for Apache RocketMQ and for `open`. A sealed file has them."""
        if self._slots is not None:
            self._file.write_at(self._slots.astype(">i4").tobytes(), HEADER.size)

    def seal(self) -> None:
        """The file is full: from now on its slots are read where they are on disk."""
        self.write_header()
        self.write_slots()
        self._slots = None

    def sync(self) -> None:
        """Make what was written durable."""
        self._file.sync(site=SyncSite.INDEX_FILE)

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        self._file.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def entries(self, start: int, end: int) -> npt.NDArray[np.void]:
        """Entries of numbers [start, end)."""
        data = self._file.read_at((end - start) * ENTRY.size, self._entries_position + start * ENTRY.size)
        return np.frombuffer(data, ENTRIES)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may have records of this time, ends included."""
        return self.entry_count > 1 and self.first_timestamp_ms <= end_ms and begin_ms <= self.last_timestamp_ms + 999

    def find(self, hash_value: int, *, begin_ms: int, end_ms: int, count_max: int) -> list[PhysicalOffset]:
        """Physical offsets of records with a key of this hash stored within [begin, end], newest first.

        Entries know whole seconds only, so a record up to a second outside may be among them.
        """
        number = self._newest(hash_value % self.slot_count)
        found: list[PhysicalOffset] = []
        while 0 < number < self.entry_count and len(found) < count_max:
            data = self._file.read_at(ENTRY.size, self._entries_position + number * ENTRY.size)
            entry_hash, physical_offset, seconds, previous = ENTRY.unpack(data)
            stored_ms = self.first_timestamp_ms + seconds * 1_000
            if stored_ms + 999 < begin_ms:
                break
            if entry_hash == hash_value and stored_ms <= end_ms:
                found.append(physical_offset)
            if previous >= number:
                break  # not one of ours: a chain leads to older entries only
            number = previous
        return found

    def _newest(self, slot: int) -> int:
        if self._slots is not None:
            return int(self._slots[slot])
        (number,) = SLOT.unpack(self._file.read_at(SLOT.size, HEADER.size + slot * SLOT_BYTES))
        return int(number)
