"""Timer log: one unit for each message that waits, in the order in which they were enqueued.

Files: timerlog/{position of the first byte, 20 digits}, all of one length, sparse. Units lie at multiples of 52 from a
file's start; where a unit and a blank (16 bytes) do not fit any more, a blank ends the file:

    int32 size, 52 | int64 previous unit of the slot, -1 for none | int32 magic | int64 base, ms | int32 delay, ms
    int64 physical offset of the record | int32 record size | int32 Java hash of the real topic | int64 reserved
    blank: int32 bytes that remain | int64 0 | int32 BLANK_MAGIC

Base plus delay is the unit's slot time: when it is due, or when it is to be rolled. The reserved field holds the exact
time of delivery in ms, 0 when it is not known, as in what RocketMQ writes.

Invariants
  - Units are written once, one behind the other; physical offsets rise with the position (the timer topic's queue is
    enqueued in order).
  - What is durable says the checkpoint: units carry no checksum, so what only looks like one is not taken for one.
  - The newest units are in memory until `write`; reads are served from both.
Owner: the loop thread, save `sync` and `delete_forgotten`.
Source: TimerLog.java, MappedFileQueue.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import msgspec

from thermocline.remoting.errors import CorruptDataError, DiskFullError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files import Disk, DiskFile, base_offset_of, file_name
from thermocline.timers.sync_site import TimerSyncSite

UNIT = struct.Struct(
    ">i"  # unit size, bytes
    "q"  # position of the slot's unit before, -1 for none
    "i"  # magic
    "q"  # base: when it was enqueued, ms
    "i"  # delay: from the base to the slot's time, ms
    "q"  # physical offset of the record
    "i"  # record size, bytes
    "i"  # Java hash of the real topic's name
    "q"  # reserved; here the exact time of delivery in ms, or 0
)
assert UNIT.size == 52, "on-disk format shared with Apache RocketMQ"
UNIT_BYTES = UNIT.size
BLANK = struct.Struct(
    ">i"  # bytes that remain in the file
    "q"  # 0
    "i"  # BLANK_MAGIC
)
assert BLANK.size == 16, "on-disk format shared with Apache RocketMQ"
BLANK_MAGIC = -875_286_124  # 0xCBD43194

MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
MAGIC_MASK = 0xF
NO_POSITION = -1
DELAY_MS_MAX = (1 << 31) - 1
"""The content of the unit's delay field."""

BLOCK_BYTES = 32 * 1024
"""How much one read takes in; units of one slot mostly lie near each other."""
BUFFER_BYTES = 32 * 1024
"""How many units are kept in memory, but for one slice more, before they are written. Rounds write them, too."""


class TimerUnit(msgspec.Struct, frozen=True, gc=False):
    """One unit."""

    position: int
    previous_position: int
    magic: int
    base_ms: int
    slot_ms: int
    """Base plus delay; RocketMQ rounds it down to a tick."""
    physical_offset: PhysicalOffset
    record_bytes: int
    topic_hash: int
    deliver_ms: int

    @property
    def is_roll(self) -> bool:
        """Whether it is to be put into the timer topic again."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def is_marker(self) -> bool:
        """Whether it recalls another message."""
        return bool(self.magic & MAGIC_DELETE)


class TimerLog:
    """The units. Made by `open`, which only looks; recovery then says where it ends (`start`)."""

    def __init__(self, disk: Disk, directory: str, *, file_bytes: int) -> None:
        """Use `open`."""
        self.directory = directory
        self.file_bytes = file_bytes
        self.append_position = 0
        """Where the next unit goes."""
        self.has_gap = False
        """Whether a file is missing between others."""
        self._units_per_file = (file_bytes - BLANK.size) // UNIT_BYTES
        assert self._units_per_file > 0
        self._disk = disk
        self._files: dict[int, DiskFile] = {}
        """By first position, ascending."""
        self._buffer = bytearray()
        self._buffer_position = 0
        """Where the buffer's first unit goes."""
        self._block = b""
        self._block_position = 0
        self._unsynced: dict[int, DiskFile] = {}
        self._has_new_name = False
        self._forgotten: list[DiskFile] = []

    @classmethod
    def open(cls, disk: Disk, directory: str, *, file_bytes: int, start: int = 0, end: int | None = None) -> TimerLog:
        """Open the files of the folder that hold units of [start, end), and remove the others: after a power cut names
        may be back that were removed, and names be missing before others that are there, but none in between.

        Raises:
            CorruptDataError: A file has another length, or is missing in the middle while `end` is not known.
        """
        log = cls(disk, directory, file_bytes=file_bytes)
        names = disk.list_directory(directory) if disk.exists(directory) else []
        for base in [base for base in map(base_offset_of, names) if base is not None]:
            is_empty = end is None and disk.size_bytes(log._path(base)) == 0  # RocketMQ died while it made the file
            if base + file_bytes <= start or (end is not None and base >= end) or is_empty:
                disk.remove(log._path(base))
            else:
                log._open_file(base)
        bases = list(log._files)
        log.has_gap = bases != list(range(bases[0], bases[0] + len(bases) * file_bytes, file_bytes)) if bases else False
        if log.has_gap and end is None:
            log.close()
            raise CorruptDataError("timer log file is missing", path=directory, files=len(bases))
        return log

    def _open_file(self, base: int) -> None:
        file = self._disk.open(self._path(base))
        self._files[base] = file
        if file.size_bytes != self.file_bytes or base % self.file_bytes:
            self.close()
            raise CorruptDataError("impossible timer log file", path=file.path, expected_bytes=self.file_bytes)

    def start(self, append_position: int) -> None:
        """Go on at this position: bytes from there on are no units, and are made zero."""
        assert not self._buffer
        self._block = b""
        self.append_position = self._buffer_position = self._border(append_position)
        for base in [base for base in self._files if base >= append_position]:
            self._files.pop(base).close()
            self._disk.remove(self._path(base))
        for base, file in self._files.items():
            if append_position < base + self.file_bytes:
                file.punch_from(append_position - base)
                self._unsynced[base] = file

    def clear(self, position: int) -> None:
        """Remove all files and go on with a new one at or behind `position`, and behind all that were there."""
        end = max(self.files_end, position)
        for base in list(self._files):
            self._files.pop(base).close()
            self._disk.remove(self._path(base))
        self._buffer.clear()
        self.start(-(-end // self.file_bytes) * self.file_bytes)

    def close(self) -> None:
        """Close the files; nothing is written here. Idempotent."""
        for file in (*self._files.values(), *self._forgotten):
            file.close()
        self._files.clear()
        self._forgotten.clear()
        self._unsynced.clear()

    @property
    def start_position(self) -> int:
        """The first position that is still there."""
        return next(iter(self._files), self._buffer_position)

    @property
    def files_end(self) -> int:
        """Behind the newest file; 0 without files."""
        return next(reversed(self._files), -self.file_bytes) + self.file_bytes

    # -- writing ---------------------------------------------------------------------------------------------------

    def make_room(self) -> bool:
        """Whether units may be appended: not when those before find no room on the disk."""
        if len(self._buffer) < BUFFER_BYTES:
            return True
        with contextlib.suppress(DiskFullError):
            self.write()
        return len(self._buffer) < BUFFER_BYTES

    def append(
        self,
        *,
        previous_position: int,
        magic: int,
        base_ms: int,
        slot_ms: int,
        physical_offset: PhysicalOffset,
        record_bytes: int,
        topic_hash: int,
        deliver_ms: int,
    ) -> int:
        """Append one unit; its position. In memory until `write`."""
        assert previous_position < self.append_position
        position = self.append_position
        self._buffer += UNIT.pack(
            UNIT_BYTES,
            previous_position,
            magic,
            base_ms,
            slot_ms - base_ms,
            physical_offset,
            record_bytes,
            topic_hash,
            deliver_ms,
        )
        following = position + UNIT_BYTES
        if following % self.file_bytes >= self._units_per_file * UNIT_BYTES:
            border = self._border(following)
            blank = BLANK.pack(border - following, 0, BLANK_MAGIC)
            self._buffer += blank + bytes(border - following - len(blank))
            following = border
        self.append_position = following
        return position

    def write(self) -> int:
        """Write what is in memory to the files; how far they reach now.

        Raises:
            DiskFullError: There is no room; what is not written stays, the same call may work later.
        """
        while self._buffer:
            position = self._buffer_position
            base = position - position % self.file_bytes
            data = bytes(self._buffer[: base + self.file_bytes - position])
            file = self._files.get(base) or self._make_file(base)
            file.write_at(data, position - base)
            self._unsynced[base] = file
            del self._buffer[: len(data)]
            self._buffer_position += len(data)
        return self._buffer_position

    def _make_file(self, base: int) -> DiskFile:
        assert not self._files or base == self.files_end
        self._disk.make_directory(self.directory)
        file = self._disk.open(self._path(base), create=True)
        file.truncate(self.file_bytes)
        self._files[base] = file
        self._has_new_name = True
        return file

    def take_unsynced(self) -> UnsyncedTimerLog:
        """The files changed since the last call, to be made durable."""
        unsynced = UnsyncedTimerLog(
            self._disk, self.directory, tuple(self._unsynced.values()), has_new_name=self._has_new_name
        )
        self._unsynced.clear()
        self._has_new_name = False
        return unsynced

    # -- reading ---------------------------------------------------------------------------------------------------

    def unit(self, position: int) -> TimerUnit:
        """The unit at a position from `start_position` on.

        Raises:
            CorruptDataError: None is there.
        """
        assert self.start_position <= position < self.append_position
        if position >= self._buffer_position:
            offset = position - self._buffer_position
            return self._decode(bytes(self._buffer[offset : offset + UNIT_BYTES]), 0, position)
        offset = self._find(position, limit=self._buffer_position)
        return self._decode(self._block, offset, position)

    def next_position(self, position: int) -> int:
        """The position of the unit behind the one at `position`."""
        return self._border(position + UNIT_BYTES)

    def units(self, start: int, end: int) -> Iterator[TimerUnit]:
        """The units of positions [start, end), oldest first. Raises as `unit`."""
        position = start
        while position < end:
            yield self.unit(position)
            position = self.next_position(position)

    def first_impossible(self, start: int) -> int:
        """The first position from `start` on without a unit, as far as files go: the end by RocketMQ's rule."""
        position = start
        while position < self.files_end:
            offset = self._find(position, limit=self.files_end)
            size_bytes, _, magic = struct.unpack_from(">iqi", self._block, offset)
            if size_bytes != UNIT_BYTES or not 0 < magic <= MAGIC_MASK:
                break
            position = self.next_position(position)
        return position

    def _border(self, position: int) -> int:
        """`position`, or the next file's start where no unit begins in this one any more."""
        within = position % self.file_bytes
        return position if within < self._units_per_file * UNIT_BYTES else position + self.file_bytes - within

    def _find(self, position: int, *, limit: int) -> int:
        """The place of the unit at `position` in the block; reads the block if needed. `limit`: the units' end."""
        offset = position - self._block_position
        if 0 <= offset <= len(self._block) - UNIT_BYTES:
            return offset
        base = position - position % self.file_bytes
        file = self._files.get(base)
        if file is None:
            raise CorruptDataError("timer log file is missing", path=self.directory, position=position)
        # Half before it: chains are walked backwards, scans and deliveries go forwards.
        start = max(base, position - BLOCK_BYTES // 2)
        end = min(base + self.file_bytes, start + BLOCK_BYTES, limit)
        self._block = file.read_at(end - start, start - base)
        self._block_position = start
        if position + UNIT_BYTES > start + len(self._block):
            raise CorruptDataError("timer log file is cut short", path=file.path, position=position)
        return position - start

    def _decode(self, data: bytes, start: int, position: int) -> TimerUnit:
        size_bytes, previous, magic, base_ms, delay_ms, physical_offset, record_bytes, topic_hash, deliver_ms = (
            UNIT.unpack_from(data, start)
        )
        if size_bytes != UNIT_BYTES or not 0 < magic <= MAGIC_MASK or previous >= position:
            raise CorruptDataError("no timer log unit", path=self.directory, position=position)
        return TimerUnit(
            position,
            previous,
            magic,
            base_ms,
            base_ms + delay_ms,
            physical_offset,
            record_bytes,
            topic_hash,
            deliver_ms,
        )

    # -- deleting --------------------------------------------------------------------------------------------------

    def forget_before(self, position: int) -> None:
        """Take out the files that end at or below `position`; `delete_forgotten` removes them afterwards."""
        while self._files and self.start_position + self.file_bytes <= min(position, self._buffer_position):
            self._forgotten.append(self._files.pop(self.start_position))
            self._block = b""

    def delete_forgotten(self) -> None:
        """Remove the files that were taken out, oldest first. Helper thread.

        Raises:
            OSError: The disk failed; the rest goes with the next call, or after a restart.
        """
        while self._forgotten:
            file = self._forgotten[0]
            file.close()
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(file.path)
            self._forgotten.pop(0)

    def _path(self, base: int) -> str:
        return f"{self.directory}/{file_name(base)}"


class UnsyncedTimerLog:
    """Files of the timer log that changed since they were last synced."""

    def __init__(self, disk: Disk, directory: str, files: tuple[DiskFile, ...], *, has_new_name: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._files = files
        self._has_new_name = has_new_name

    def sync(self) -> None:
        """Make them durable, contents before names. Helper thread. OSError when the disk fails."""
        for file in self._files:
            file.sync(site=TimerSyncSite.LOG_FILE)
        if self._has_new_name:
            self._disk.sync_directory(self._directory, site=TimerSyncSite.LOG_DIRECTORY)
