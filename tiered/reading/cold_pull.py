"""Cold pull: the request of a pull from the cold tier, the records it collects, and its result.

Records are slices of decoded frames, not copies; adjacent records of one frame are one buffer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.segments import DecodedFrame

MATCH_RECORDS_AT_ONCE = 256


class ColdPullStatus(Enum):
    """What a pull found."""

    FOUND = "records"
    NO_MATCH = "no match below next_offset; continue there"
    BELOW_MINIMUM = "the offset has expired or never was; next_offset is the least visible one"
    ABOVE_END = "the cold tier does not hold the offset yet"
    NO_QUEUE = "the cold tier holds nothing visible of this queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPull:
    """Records of one queue from `offset` on, at most `count_max`, and `bytes_max` unless the first alone is larger.

    `tags_codes`: only records with one of these codes (32-bit hashes); None for all. `matches(property text)`: only
    records for which it is true. `group`: reads ahead for this consumer group; `reader`: the id for `reader_left`.
    """

    topic: str
    queue_id: int
    offset: QueueOffset
    count_max: int
    bytes_max: int
    cut_ms: int
    tags_codes: frozenset[int] | None = None
    matches: Callable[[bytes], bool] | None = None
    group: str = ""
    reader: str = ""


class ColdPullResult(msgspec.Struct, frozen=True, kw_only=True):
    """`buffers` are runs of whole records in order; `end_offset` is the queue's end in the cold tier."""

    status: ColdPullStatus
    next_offset: QueueOffset
    end_offset: QueueOffset
    buffers: tuple[memoryview, ...] = ()
    message_count: int = 0
    size_bytes: int = 0


class TakenRecords:
    """The records that a pull has collected so far."""

    def __init__(self, request: ColdPull) -> None:
        assert request.count_max > 0
        self._count_max = request.count_max
        self._bytes_max = request.bytes_max
        self._cut_ms = request.cut_ms
        self.reader = request.reader
        self.next_offset = request.offset
        self.has_room = True
        self.buffers: list[memoryview] = []
        self.message_count = 0
        self.size_bytes = 0
        self._last: tuple[DecodedFrame, QueueOffset, QueueOffset] | None = None

    def add_visible(self, frame: DecodedFrame, end_offset: QueueOffset) -> None:
        """Take the visible records of [next_offset, end_offset), all in `frame`, as far as there is room."""
        while self.has_room and self.next_offset < end_offset:
            start = self.next_offset
            if frame.min_store_ms < self._cut_ms and frame.store_timestamp_ms(start) < self._cut_ms:
                self.next_offset += 1
                continue
            # If the cut is within the frame, records are checked one by one, else all at once.
            visible_end = end_offset if frame.min_store_ms >= self._cut_ms else start + 1
            stop = min(visible_end, start + self._count_max - self.message_count)
            room_position = frame.position(start) + self._bytes_max - self.size_bytes
            fitting = bisect_right(frame.positions, room_position) - 1 + frame.start_offset
            if fitting < stop:
                stop = max(fitting, start + 1) if not self.message_count else fitting
                self.has_room = False
            if stop > start:
                self._add(frame, start, stop)
            if self.message_count >= self._count_max or self.size_bytes >= self._bytes_max:
                self.has_room = False

    def _add(self, frame: DecodedFrame, start: QueueOffset, stop: QueueOffset) -> None:
        """Add records [start, stop), joined to the buffer before if they follow it in the same frame."""
        if self._last is not None and self._last[0] is frame and self._last[2] == start:
            start_of_buffer = self._last[1]
            self.buffers[-1] = frame.slice(start_of_buffer, stop)
        else:
            start_of_buffer = start
            self.buffers.append(frame.slice(start, stop))
        self._last = (frame, start_of_buffer, stop)
        self.message_count += stop - start
        self.size_bytes += frame.position(stop) - frame.position(start)
        self.next_offset = stop


async def take_wanted(
    taken: TakenRecords, frame: DecodedFrame, end_offset: QueueOffset, matches: Callable[[bytes], bool]
) -> None:
    """Take the records of [next offset, end_offset) whose properties match, a few at a time."""
    looked_at = 0
    while taken.has_room and taken.next_offset < end_offset:
        queue_offset = taken.next_offset
        if matches(frame.properties_text(queue_offset)):
            taken.add_visible(frame, queue_offset + 1)
        else:
            taken.next_offset += 1
        looked_at += 1
        if looked_at % MATCH_RECORDS_AT_ONCE == 0:
            await asyncio.sleep(0)
