"""Log scan: walk the records of a log from a border on, to the end or to the first that is not sound.

What makes a record sound: its magic, a size that is the sum of its fields, its own physical offset in it, a body that
matches its checksum. From `tears_from` on also the part that no checksum covers, as what is lost reads as zeroes: a
power cut may lose a 512-byte sector, so topic or properties that are zero from one sector border to the next are torn;
the last record may have been cut off anywhere, so it does not end with a zero. No record that is put looks so
(`looks_torn`).

A blank leads to the next file. Recovery walks so from its position; the index reads what is flushed in another way,
see log_columns.py.
Source: CommitLog.checkMessageAndReturnSize, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import msgspec

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import (
    BLANK,
    CHECKSUM_MASK,
    INT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    POSITION_SYS_FLAG,
    RECORD_BYTES_MIN,
    SHORT,
)
from thermocline.remoting.records.record_layout import HOSTS_V6, head_struct
from thermocline.remoting.records.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from thermocline.store.files import MappedFileQueue

SECTOR_BYTES = 512
_NO_SECTOR = bytes(SECTOR_BYTES)
ZERO_BYTES_MAX = 255
"""In a row in properties. Two zeroes of their size may stand before them; more would make a sector."""
_TOO_MANY_ZEROES = bytes(ZERO_BYTES_MAX + 1)

_SCAN_FIELDS = (
    "size_bytes",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "store_timestamp_ms",
    "body_bytes",
)
_SCAN_HEADS = {hosts: head_struct(hosts, fields=_SCAN_FIELDS) for hosts in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)}


class ScannedRecord(msgspec.Struct, gc=False):
    """The fields of a record that dispatch needs."""

    physical_offset: PhysicalOffset
    size_bytes: int
    queue_id: int
    queue_offset: QueueOffset
    sys_flag: int
    store_timestamp_ms: int
    topic: str
    properties_text: bytes

    @property
    def end_offset(self) -> PhysicalOffset:
        """The physical offset just behind it."""
        return self.physical_offset + self.size_bytes


class RecordScan:
    """A walk through bytes of the log; `end_offset` is how far they are sound."""

    def __init__(self, start_offset: PhysicalOffset, *, tears_from: PhysicalOffset | None = None) -> None:
        """`start_offset` is a record's border, or a file's. `tears_from`: records below it are durable; None: all."""
        self.end_offset = start_offset
        self._tears_from = tears_from
        self._topics: dict[bytes, str] = {}

    def records(self, view: memoryview, base_offset: PhysicalOffset) -> Iterator[ScannedRecord]:
        """Sound records from `end_offset` on in a part of the log, whose first byte is at `base_offset`: a file, or
        bytes that no file holds yet."""
        stop = len(view)
        position = self.end_offset - base_offset
        while position + RECORD_BYTES_MIN <= stop:
            size_bytes, magic = BLANK.unpack_from(view, position)
            end = position + size_bytes
            if (magic != MAGIC_V1 and magic != MAGIC_V2) or size_bytes < RECORD_BYTES_MIN or end > stop:
                return
            record = self._record(view, position, end, base_offset + position)
            if record is None:
                return
            self.end_offset = base_offset + end
            yield record
            position = end

    def _record(
        self, view: memoryview, position: int, end: int, physical_offset: PhysicalOffset
    ) -> ScannedRecord | None:
        """The record at `position`, if it is sound."""
        (sys_flag,) = INT.unpack_from(view, position + POSITION_SYS_FLAG)
        head = _SCAN_HEADS[sys_flag & HOSTS_V6]
        body_start = position + head.size
        if body_start > end:
            return None
        fields = head.unpack_from(view, position)
        size_bytes, magic, body_crc, queue_id, queue_offset, own_offset, _, store_timestamp_ms, body_bytes = fields
        topic_start = body_start + body_bytes + (1 if magic == MAGIC_V1 else SHORT.size)
        if own_offset != physical_offset or body_bytes < 0 or topic_start > end:
            return None
        body_end = body_start + body_bytes
        topic_bytes = view[body_end] if magic == MAGIC_V1 else SHORT.unpack_from(view, body_end)[0]
        properties_start = topic_start + topic_bytes + SHORT.size
        if topic_bytes <= 0 or properties_start > end:
            return None
        (properties_bytes,) = SHORT.unpack_from(view, properties_start - SHORT.size)
        if properties_start + properties_bytes != end or queue_id < 0 or queue_offset < 0:
            return None
        if body_bytes and crc32(view[body_start:body_end]) & CHECKSUM_MASK != body_crc:
            return None
        # Without properties the record itself ends with zeroes: their size.
        text_end = end if properties_bytes else properties_start - SHORT.size
        may_be_torn = self._tears_from is not None and physical_offset >= self._tears_from
        if may_be_torn and (_lost_sector(view, body_end, text_end) or _cut_off(view, text_end)):
            return None
        return ScannedRecord(
            physical_offset,
            size_bytes,
            queue_id,
            queue_offset,
            sys_flag,
            store_timestamp_ms,
            self._topic(bytes(view[topic_start : topic_start + topic_bytes])),
            bytes(view[properties_start:end]),
        )

    def _topic(self, name: bytes) -> str:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = name.decode("utf-8", "replace")
        return topic


class LogScan(RecordScan):
    """One walk through files. Iterate it once; afterwards `end_offset` says how far the log is sound."""

    def __init__(
        self, files: MappedFileQueue, start_offset: PhysicalOffset, *, tears_from: PhysicalOffset | None = None
    ) -> None:
        super().__init__(start_offset, tears_from=tears_from)
        self._files = files

    def __iter__(self) -> Iterator[ScannedRecord]:
        while self.end_offset < self._files.end_offset:
            file = self._files.find(self.end_offset)
            yield from self.records(file.view, file.base_offset)
            if not is_whole_blank(file.view, self.end_offset - file.base_offset):
                return
            self.end_offset = file.end_offset


def looks_torn(properties_text: bytes) -> bool:
    """Whether a record with these properties could be taken for a torn one, and the log be cut there."""
    return b"\0" in properties_text and (properties_text.endswith(b"\0") or _TOO_MANY_ZEROES in properties_text)


def is_whole_blank(view: memoryview, position: int) -> bool:
    """Whether the rest of the file is a blank."""
    remaining = len(view) - position
    return remaining >= BLANK.size and BLANK.unpack_from(view, position) == (remaining, MAGIC_BLANK)


def _cut_off(view: memoryview, end: int) -> bool:
    """Whether a text that ends here looks cut off: its last byte is zero, and so is what follows it."""
    return view[end - 1] == 0 and view[end : end + BLANK.size] == _NO_SECTOR[: min(BLANK.size, len(view) - end)]


def _lost_sector(view: memoryview, start: int, end: int) -> bool:
    """Whether [start, end) is all zero from some sector border to the next, or to the end."""
    border = start - start % -SECTOR_BYTES if start % SECTOR_BYTES else start
    while border < end:
        stop = min(border + SECTOR_BYTES, end)
        if view[border:stop] == _NO_SECTOR[: stop - border]:
            return True
        border = stop
    return False
