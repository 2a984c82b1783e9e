"""Local files as the tier process reads them: the queue units and log records that the hot process writes.

The hot process owns `commitlog/` and `consumequeue/`; this side only reads, through the page cache. A unit is read
only below the queue end that the hot process reported after writing it, a record only below the flush offset, so that
neither is ever met half written. Files that the hot process deletes while they are mapped stay readable here.

    commitlog/{base offset, 20 digits}                       records, see remoting/records/message_record.py
    consumequeue/{topic}/{queue id}/{base position, 20 digits}  20-byte units: physical offset, size, tags code
"""

import threading
from collections import OrderedDict
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.files import Disk, DiskFile, base_offset_of

UNIT = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
assert UNIT.itemsize == 20, "on-disk format shared with Apache RocketMQ"
Units: TypeAlias = npt.NDArray[np.void]

STORE_TIMESTAMP_POSITION = 56
STORE_TIMESTAMP_POSITION_IPV6 = 68
SYS_FLAG_POSITION = 36
BORN_HOST_IPV6 = 0x10
OPEN_LOG_FILES_MAX = 16
FAULT_BYTES = 1 << 16
"""Bytes that the kernel maps around a touched page."""
LEAVE_FAULTS = 384
"""After so many the maps' pages are let go of: 24 MiB, of whatever size the log's files are."""


class LocalQueues:
    """Reads consume queue units by offset."""

    def __init__(self, disk: Disk, *, path: str, file_bytes: int) -> None:
        assert file_bytes % UNIT.itemsize == 0
        self._disk = disk
        self._path = path
        self._file_bytes = file_bytes

    def units(self, topic: str, queue_id: int, *, start: QueueOffset, end: QueueOffset) -> Units:
        """Return the units of queue offsets [start, end), all of them.

        Raises:
            ObjectNotFoundError: A file of the range is gone (deleted locally, or the topic was).
            CorruptDataError: A unit in the range is empty.
        """
        parts: list[Units] = []
        position, end_position = start * UNIT.itemsize, end * UNIT.itemsize
        while position < end_position:
            base = position - position % self._file_bytes
            stop = min(end_position, base + self._file_bytes)
            path = f"{self._path}/{topic}/{queue_id}/{base:020d}"
            try:
                file = self._disk.open(path)
            except FileNotFoundError as error:
                raise ObjectNotFoundError("queue file is gone", topic=topic, queue_id=queue_id, path=path) from error
            try:
                data = file.read_at(stop - position, position - base)
            finally:
                file.close()
            parts.append(np.frombuffer(data, UNIT))
            position = stop
        units = np.concatenate(parts) if parts else np.empty(0, UNIT)
        if len(units) != end - start or (units["size_bytes"] <= 0).any():
            raise CorruptDataError("empty unit below the queue's end", topic=topic, queue_id=queue_id, start=start)
        return units

    def first_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """Return the queue offset at which the queue's oldest file starts; None when it has none."""
        try:
            names = self._disk.list_directory(f"{self._path}/{topic}/{queue_id}")
        except FileNotFoundError:
            return None
        positions = [position for position in map(base_offset_of, names) if position is not None]
        return QueueOffset(min(positions) // UNIT.itemsize) if positions else None


class LocalLog:
    """Reads log records by physical offset; keeps a few files mapped. Any thread: sealing reads in several.

    Pages that were read count as this process's memory until they are released, which happens now and then; a slice
    that is still in use finds them in the page cache."""

    def __init__(self, disk: Disk, *, path: str, file_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._file_bytes = file_bytes
        self._files: OrderedDict[int, tuple[DiskFile, memoryview]] = OrderedDict()
        self._lock = threading.Lock()
        self._last_block = -1
        self._fault_count = 0

    def record(self, physical_offset: PhysicalOffset, size_bytes: int) -> memoryview:
        """Return one record's bytes; valid until `close`. ObjectNotFoundError when its file is gone."""
        base = physical_offset - physical_offset % self._file_bytes
        view = self._view(base)
        position = physical_offset - base
        block = (physical_offset + size_bytes) // FAULT_BYTES
        if block != self._last_block:
            self._faulted(1 + size_bytes // FAULT_BYTES)
            self._last_block = block
        return view[position : position + size_bytes]

    def store_timestamp_ms(self, physical_offset: PhysicalOffset) -> int:
        """Return a record's store time. ObjectNotFoundError when its file is gone."""
        head = self.record(physical_offset, STORE_TIMESTAMP_POSITION_IPV6 + 8)
        sys_flag = int.from_bytes(head[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4], "big")
        position = STORE_TIMESTAMP_POSITION_IPV6 if sys_flag & BORN_HOST_IPV6 else STORE_TIMESTAMP_POSITION
        return int.from_bytes(head[position : position + 8], "big")

    def _faulted(self, count: int) -> None:
        """Count `count` more mapped pieces; release pages when there are too many."""
        self._fault_count += count
        if self._fault_count < LEAVE_FAULTS:
            return
        with self._lock:
            self._fault_count = 0
            for file, view in self._files.values():
                file.leave_pages(0, len(view))

    def close(self) -> None:
        """Release every file; a mapping ends with the last slice of it. Idempotent."""
        with self._lock:
            for file, _ in self._files.values():
                file.close()
            self._files.clear()

    def _view(self, base: int) -> memoryview:
        with self._lock:
            entry = self._files.get(base)
            if entry is None:
                path = f"{self._path}/{base:020d}"
                try:
                    file = self._disk.open(path)
                except FileNotFoundError as error:
                    raise ObjectNotFoundError("log file is gone", path=path) from error
                entry = (file, file.view())
                self._files[base] = entry
                while len(self._files) > OPEN_LOG_FILES_MAX:
                    # A reader may still hold slices of it; the mapping ends with the last of them.
                    _, (old_file, _) = self._files.popitem(last=False)
                    old_file.close()
            self._files.move_to_end(base)
            return entry[1]
