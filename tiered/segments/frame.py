"""One decoded frame of a `.log` part: consecutive records of one queue, byte for byte as the commit log held them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec
import numpy as np
import zstandard

from thermocline.remoting.offsets import QueueOffset, offset_range
from thermocline.remoting.records.message_record import (
    LONG,
    POSITION_QUEUE_OFFSET,
    read_properties_text,
    store_timestamp_at,
)
from thermocline.remoting.records.record_heads import find_records
from thermocline.tiered.objects import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments.segment_format import FRAME_RAW_BYTES_MAX, FrameInfo, decompress


class DecodedFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Records [start_offset, start_offset + count) in `data`; record i is data[positions[i]:positions[i + 1]]."""

    data: bytes
    start_offset: QueueOffset
    positions: array[int]
    min_store_ms: int
    """No record is older than this."""

    @property
    def end_offset(self) -> QueueOffset:
        """Queue offset after the last record."""
        return self.start_offset + len(self.positions) - 1

    @property
    def memory_bytes(self) -> int:
        """About what keeping this frame costs."""
        return len(self.data) + 4 * len(self.positions) + 300

    def position(self, queue_offset: QueueOffset) -> int:
        """Where the record at `queue_offset` starts; for `end_offset`, where the last one ends."""
        assert self.start_offset <= queue_offset <= self.end_offset
        return self.positions[queue_offset - self.start_offset]

    def slice(self, start_offset: QueueOffset, end_offset: QueueOffset) -> memoryview:
        """The records of offsets [start_offset, end_offset), uncopied."""
        return memoryview(self.data)[self.position(start_offset) : self.position(end_offset)]

    def records(self, start_offset: QueueOffset, end_offset: QueueOffset) -> Iterator[memoryview]:
        """Each record of offsets [start_offset, end_offset)."""
        view = memoryview(self.data)
        for queue_offset in offset_range(start_offset, end_offset):
            yield view[self.position(queue_offset) : self.position(queue_offset + 1)]

    def properties_text(self, queue_offset: QueueOffset) -> bytes:
        """The property text of one record; RecordSizeError when the record is damaged."""
        return read_properties_text(self.data, self.position(queue_offset))

    def store_timestamp_ms(self, queue_offset: QueueOffset) -> int:
        """The store time of one record."""
        return store_timestamp_at(self.data, self.position(queue_offset))


def decode_frame(stored: bytes | memoryview, info: FrameInfo) -> DecodedFrame:
    """Decompress a frame and find its records.

    Raises:
        FrameChecksumError: The frame is damaged.
        CorruptDataError: It does not hold whole records, or not those that the footer speaks of.
    """
    data = decompress(stored, raw_bytes=info.raw_bytes)
    frame = _frame_of(data, start_offset=info.start_offset, min_store_ms=info.min_store_ms)
    if frame.end_offset != info.end_offset:
        raise SegmentFormatError("the frame's records are not those of the footer", end_offset=frame.end_offset)
    return frame


def decode_next_frame(stored: memoryview, *, start_offset: QueueOffset) -> tuple[DecodedFrame, int]:
    """The frame that `stored` begins with, whatever follows it, and how many bytes it takes there; raises as above."""
    try:
        raw_bytes = zstandard.frame_content_size(stored)
        if not 0 < raw_bytes <= FRAME_RAW_BYTES_MAX:
            raise SegmentFormatError("impossible frame size", raw_bytes=raw_bytes)
        walker = zstandard.ZstdDecompressor().decompressobj()
        data = walker.decompress(stored)
    except zstandard.ZstdError as error:
        raise FrameChecksumError("the frame does not decompress", size_bytes=len(stored)) from error
    if len(data) != raw_bytes or not walker.eof:
        raise FrameChecksumError("the frame's content is cut short", raw_bytes=raw_bytes, found_bytes=len(data))
    frame = _frame_of(data, start_offset=start_offset, min_store_ms=store_timestamp_at(data, 0))
    return frame, len(stored) - len(walker.unused_data)


def _frame_of(data: bytes, *, start_offset: QueueOffset, min_store_ms: int) -> DecodedFrame:
    starts, _ = find_records(np.frombuffer(data, np.uint8))
    positions = array("I", starts.astype(np.uint32).tobytes())
    positions.append(len(data))
    (first_offset,) = LONG.unpack_from(data, POSITION_QUEUE_OFFSET)
    if first_offset != start_offset:
        raise SegmentFormatError("the frame starts at another offset", found=first_offset, expected=start_offset)
    return DecodedFrame(data=data, start_offset=start_offset, positions=positions, min_store_ms=min_store_ms)
