"""ConsumeQueue: from a queue offset to a place in the commit log.

File: consumequeue/{topic}/{queue_id}/{first byte position, 20 digits}; fixed 20-byte units; sparse, of full length.

    int64 physical offset | int32 record size | int64 tags code

Invariants
  - Unit i belongs to queue offset i, at byte i * 20 of the queue; files go from the front, units are never rewritten.
  - Physical offsets rise with the queue offset and stay below the log's append offset: the log is written first.
  - The newest units are in `tail`, not yet in a file: those of queue offsets [tail_offset, next_offset). Each tick
    writes tails to their files; reads are served from both.
  - A filler unit (0, FILLER_SIZE_BYTES, 0) stands for an offset without a message, where a queue does not start at a
    file's start or was made to jump. A reader steps over it.
Minimum: the first unit whose record is still in the log. It is looked for when asked after the log's minimum has risen,
so that deleting a log file costs nothing per queue.
Tags code: hash of the tag; in SCHEDULE_TOPIC_XXXX the time of delivery in ms.
Crash: units behind the recovery position are made anew from the log.

An idle queue costs about 300 bytes: no descriptor, no map. Everything belongs to the loop thread.
Source: ConsumeQueue.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset

if TYPE_CHECKING:
    from thermocline.store.queues.consume_queue_files import ConsumeQueueFiles

UNIT = struct.Struct(
    ">q"  # physical offset of the record, bytes
    "i"  # record size, bytes
    "q"  # tags code
)
assert UNIT.size == 20, "on-disk format shared with Apache RocketMQ"

FILLER_SIZE_BYTES = 0x7FFF_FFFF
FILLER = UNIT.pack(0, FILLER_SIZE_BYTES, 0)

_UNITS_LOOKED_AT = 64
_UNIT_BYTES = UNIT.size
_pack_unit = UNIT.pack


class ConsumeQueueUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One message's place in the commit log, as one queue sees it."""

    physical_offset: PhysicalOffset
    size_bytes: int
    tags_code: int

    @property
    def is_empty(self) -> bool:
        """Whether there is no message at this offset: a filler, or bytes that were never written."""
        return self.size_bytes == FILLER_SIZE_BYTES or self.size_bytes <= 0

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where the message's record ends in the log; 0 without a message."""
        return LOG_START if self.is_empty else PhysicalOffset(self.physical_offset + self.size_bytes)


class ConsumeQueue:
    """One queue. `tail` and `next_offset` are plain: the fast path extends both, then marks the queue dirty."""

    __slots__ = ("_files", "_min_log_offset", "_min_offset", "next_offset", "queue_id", "tail", "topic")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        files: ConsumeQueueFiles,
        *,
        next_offset: QueueOffset = QUEUE_START,
        min_offset: QueueOffset = QUEUE_START,
    ) -> None:
        """`next_offset`: the queue's end; `min_offset`: no unit below it is of use, those above may not be either."""
        assert 0 <= min_offset <= next_offset
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.tail = bytearray()
        self._files = files
        self._min_offset = min_offset
        self._min_log_offset = -1

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, next_offset={self.next_offset})"

    # -- writing ---------------------------------------------------------------------------------------------------

    def append_unit(self, physical_offset: PhysicalOffset, size_bytes: int, tags_code: int) -> None:
        """Give the message that was just appended to the log the next queue offset."""
        tail = self.tail
        if not tail:
            self._files.dirty.add(self)
        tail += _pack_unit(physical_offset, size_bytes, tags_code)
        self.next_offset += 1

    def write_tail(self) -> None:
        """Write the tail to its files; the caller takes the queue off the dirty ones.

        Raises:
            DiskFullError: There is no room; the tail is kept, the same call may work later.
        """
        tail = self.tail
        if tail:
            assert len(tail) % _UNIT_BYTES == 0
            assert self.tail_offset >= 0
            first, last = UNIT.unpack_from(tail), UNIT.unpack_from(tail, len(tail) - _UNIT_BYTES)
            has_both = len(tail) > _UNIT_BYTES and FILLER_SIZE_BYTES not in (first[1], last[1])
            assert not has_both or first[0] < last[0], "physical offsets rise with the queue offset"
            self._files.write(self, self.tail_offset, bytes(tail))
            tail.clear()

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def tail_offset(self) -> QueueOffset:
        """The queue offset of the first unit that no file has yet."""
        return self.next_offset - len(self.tail) // _UNIT_BYTES

    @property
    def tail_log_end(self) -> PhysicalOffset:
        """Where the record of the last unit of the tail, which is not empty, ends in the log; 0 for a filler."""
        physical_offset, size_bytes, _ = UNIT.unpack_from(self.tail, len(self.tail) - _UNIT_BYTES)
        return LOG_START if size_bytes == FILLER_SIZE_BYTES else PhysicalOffset(physical_offset + size_bytes)

    @property
    def min_offset(self) -> QueueOffset:
        """The first queue offset whose record the local log still has; `next_offset` when it has none."""
        if self._min_log_offset != self._files.log_min_offset:
            self._raise_minimum()
        return self._min_offset

    @property
    def known_min_offset(self) -> QueueOffset:
        """The last computed `min_offset`: never above the present one, and costs nothing."""
        return self._min_offset

    def units(self, start: QueueOffset, count: int) -> bytes:
        """Units of queue offsets [start, start + count), fewer at the queue's end; `start` >= `min_offset`."""
        end = min(start + count, self.next_offset)
        if start >= end:
            return b""
        tail_offset = self.tail_offset
        if start >= tail_offset:
            position = (start - tail_offset) * _UNIT_BYTES
            return bytes(self.tail[position : position + (end - start) * _UNIT_BYTES])
        data = self._files.read(self, start, min(end, tail_offset))
        if end > tail_offset:
            data += self.tail[: (end - tail_offset) * _UNIT_BYTES]
        return data

    def unit(self, offset: QueueOffset) -> ConsumeQueueUnit:
        """The unit of one queue offset, which is below `next_offset`."""
        assert offset < self.next_offset
        physical_offset, size_bytes, tags_code = UNIT.unpack(self.units(offset, 1))
        return ConsumeQueueUnit(physical_offset=physical_offset, size_bytes=size_bytes, tags_code=tags_code)

    def skip_empty(self, offset: QueueOffset) -> QueueOffset:
        """The first queue offset from `offset` on that has a message; the queue's end when none has."""
        while offset < self.next_offset:
            units = self.units(offset, _UNITS_LOOKED_AT)
            for _physical_offset, size_bytes, _tags_code in UNIT.iter_unpack(units):
                if 0 < size_bytes != FILLER_SIZE_BYTES:
                    return offset
                offset += 1
        return offset

    def first_at_or_behind(self, physical_offset: PhysicalOffset, *, start: QueueOffset) -> QueueOffset:
        """The first queue offset from `start` whose record is at or behind `physical_offset`, else the end."""
        low, high = start, self.next_offset
        while low < high:
            middle = low + (high - low) // 2
            unit = self.unit(middle)
            if unit.is_empty or unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    # -- recovery and retention ------------------------------------------------------------------------------------

    def _raise_minimum(self) -> None:
        log_min_offset = self._files.log_min_offset
        if not self._has_record(self._min_offset, log_min_offset):
            start = max(self._min_offset, self._files.first_offset(self))
            self._min_offset = self.first_at_or_behind(log_min_offset, start=min(start, self.next_offset))
        assert self._min_offset <= self.next_offset
        self._min_log_offset = log_min_offset

    def _has_record(self, offset: QueueOffset, log_min_offset: PhysicalOffset) -> bool:
        """Whether there is a unit at `offset`, of a record at or behind the log's minimum."""
        if offset >= self.next_offset:
            return True  # nothing to look for: the queue's minimum is its end
        try:
            unit = self.unit(offset)
        except CorruptDataError:
            return False  # the file has gone with the records that it was for
        return not unit.is_empty and unit.physical_offset >= log_min_offset

    def restart_at(self, next_offset: QueueOffset, *, min_offset: QueueOffset | None = None) -> None:
        """Forget the units at or behind `next_offset`, tail included; recovery only. Files are not touched."""
        keep_bytes = max(0, next_offset - self.tail_offset) * _UNIT_BYTES
        if self.tail:
            del self.tail[keep_bytes:]
            if not self.tail:
                self._files.dirty.discard(self)
        self.next_offset = next_offset
        self._min_offset = min(self._min_offset, next_offset) if min_offset is None else min_offset
        assert 0 <= self._min_offset <= next_offset
        self._min_log_offset = -1
