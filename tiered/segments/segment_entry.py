"""SegmentEntry: the catalog's entry of one cold segment, enough to plan reads without opening it.

In JSON (ledger entries, checkpoints) the small types are arrays in the order of their fields; see docs/cold-format.md.
There are as many of these in memory as there are segments: runs and coarse frames are packed, names are shared.
"""

from __future__ import annotations

import sys
import zlib

import msgspec

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.objects import FrameChecksumError, PackedRows, SegmentOffset
from thermocline.tiered.segments.key_index import BloomShape
from thermocline.tiered.segments.segment_format import QueueRun, SegmentId

RUN_MIN_STORE_MS, RUN_MAX_STORE_MS, RUN_MIN_PHYSICAL_OFFSET, RUN_END_PHYSICAL_OFFSET = 3, 4, 7, 8
assert QueueRun.__struct_fields__[RUN_MIN_STORE_MS] == "min_store_ms"
assert QueueRun.__struct_fields__[RUN_MAX_STORE_MS] == "max_store_ms"
assert QueueRun.__struct_fields__[RUN_MIN_PHYSICAL_OFFSET] == "min_physical_offset"
assert QueueRun.__struct_fields__[RUN_END_PHYSICAL_OFFSET] == "end_physical_offset"


class PartLocator(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a part: bytes [start, end) of the object `key`; its footer and trailer are [footer_start, end)."""

    key: str
    start: SegmentOffset
    end: SegmentOffset
    footer_start: SegmentOffset
    crc32: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "key", sys.intern(self.key))

    @property
    def size_bytes(self) -> int:
        """Size of the part."""
        return self.end - self.start

    def check(self, data: bytes | memoryview) -> None:
        """FrameChecksumError unless `data` is the whole part. Needed where bloom pages are used: they have no checksum
        of their own, and a bit that is lost hides a key."""
        if zlib.crc32(data) != self.crc32:
            raise FrameChecksumError("the part's checksum does not match", key=self.key, start=self.start, end=self.end)


class CoarseFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first frame of each run and every few after it: from which byte of the part to read for an offset."""

    frame_index: int
    start_offset: QueueOffset
    position: int
    raw_position: int
    min_store_ms: int


class RunRows(PackedRows[QueueRun]):
    """The runs of a segment."""

    __slots__ = ()
    ROW = QueueRun
    WIDTH = 9


class CoarseRows(PackedRows[CoarseFrame]):
    """The coarse frames of a segment."""

    __slots__ = ()
    ROW = CoarseFrame
    WIDTH = 5


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One cold segment. `coarse` is by rising frame index; times in ms, sizes in bytes, offsets half-open."""

    segment_id: str
    topic: str
    incarnation: int
    log: PartLocator
    cq: PartLocator
    idx: PartLocator
    runs: RunRows
    coarse: CoarseRows
    record_count: int
    raw_bytes: int
    key_count: int
    bloom_page_bytes: int
    bloom_page_count: int
    created_ms: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "topic", sys.intern(self.topic))

    @property
    def id(self) -> SegmentId:
        """The id as numbers."""
        return SegmentId.parse(self.segment_id)

    @property
    def keys(self) -> tuple[str, ...]:
        """The objects that its parts lie in, each once."""
        return tuple(dict.fromkeys((self.log.key, self.cq.key, self.idx.key)))

    @property
    def stored_bytes(self) -> int:
        """The parts together."""
        return self.log.size_bytes + self.cq.size_bytes + self.idx.size_bytes

    @property
    def bloom(self) -> BloomShape:
        """Shape of the key index's bloom pages."""
        return BloomShape(page_bytes=self.bloom_page_bytes, page_count=self.bloom_page_count)

    @property
    def min_store_ms(self) -> int:
        """Store time of the oldest record."""
        return min(self.runs.column(RUN_MIN_STORE_MS))

    @property
    def max_store_ms(self) -> int:
        """Store time of the newest record."""
        return max(self.runs.column(RUN_MAX_STORE_MS))

    @property
    def min_physical_offset(self) -> PhysicalOffset:
        """Physical offset of the first record in the log."""
        return PhysicalOffset(min(self.runs.column(RUN_MIN_PHYSICAL_OFFSET)))

    @property
    def end_physical_offset(self) -> PhysicalOffset:
        """Physical offset after the last record in the log."""
        return PhysicalOffset(max(self.runs.column(RUN_END_PHYSICAL_OFFSET)))

    def run(self, queue_id: int) -> QueueRun | None:
        """The run of a queue, if the segment has one."""
        for run in self.runs:
            if run.queue_id == queue_id:
                return run
        return None

    def place_of_ordinal(self, ordinal: int) -> tuple[QueueRun, QueueOffset]:
        """Run and queue offset of the segment's record number `ordinal`, runs counted one after another."""
        assert 0 <= ordinal < self.record_count
        for run in self.runs:
            if ordinal < run.record_count:
                return run, run.start_offset + ordinal
            ordinal -= run.record_count
        raise AssertionError("runs hold as many records as the segment")
