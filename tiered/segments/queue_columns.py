"""`.cq`: for every record of a segment its size, its physical offset in the original log, and its tags code.

From it offsets are looked up, tags filtered and queues rebuilt without touching the records. Shared layout of parts:
`segment_format.py`; whole specification: docs/cold-format.md.

    8 bytes   CQ_MAGIC
    blocks    one zstd frame each: up to BLOCK_RECORDS records of one run
    footer    CQ_HEAD, CQ_BLOCK x block_count
    trailer

Content of a block of n records, d different tags codes among them (byte plane k of a column: byte k of each number)
    BLOCK_HEAD
    d x 8 bytes   the different tags codes, rising
    4 planes      record sizes, uint32
    8 planes      gaps, uint64: physical offset minus the end of the record before, modulo 2^64; 0 for the first
    2 planes      which tags code, uint16
A plane that is nearly constant costs nearly nothing, so a message takes 2 to 6 bytes.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.objects import SegmentFormatError
from thermocline.tiered.segments.part_kind import PartKind
from thermocline.tiered.segments.segment_format import (
    CQ_MAGIC,
    SegmentId,
    Table,
    decode_footer,
    decompress,
    encode_footer,
)

BLOCK_RECORDS = 8192

CQ_HEAD = struct.Struct(
    "<Q"  # epoch of the segment's id
    "Q"  # sequence of the segment's id
    "Q"  # records
    "I"  # blocks
)
assert CQ_HEAD.size == 28, "cold format version 1"

CQ_BLOCK = np.dtype(
    [
        ("queue_id", "<i4"),
        ("position", "<u8"),
        ("stored_bytes", "<u4"),
        ("raw_bytes", "<u4"),
        ("start_offset", "<i8"),
        ("end_offset", "<i8"),
        ("min_physical_offset", "<i8"),
        ("end_physical_offset", "<i8"),
    ]
)
assert CQ_BLOCK.itemsize == 52, "cold format version 1"

BLOCK_HEAD = struct.Struct(
    "<I"  # records
    "I"  # different tags codes
    "q"  # physical offset of the first record
)
assert BLOCK_HEAD.size == 16, "cold format version 1"

Sizes: TypeAlias = npt.NDArray[np.uint32]
Longs: TypeAlias = npt.NDArray[np.int64]


class QueueColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of consecutive records of one queue, the first at `start_offset`."""

    queue_id: int
    start_offset: QueueOffset
    sizes: Sizes
    physical_offsets: Longs
    tags_codes: Longs

    @property
    def end_offset(self) -> QueueOffset:
        """Queue offset after the last record."""
        return self.start_offset + len(self.sizes)

    def slice(self, start_offset: QueueOffset, end_offset: QueueOffset) -> QueueColumns:
        """The columns of [start_offset, end_offset), which must be within these."""
        assert self.start_offset <= start_offset <= end_offset <= self.end_offset
        part = slice(start_offset - self.start_offset, end_offset - self.start_offset)
        return QueueColumns(
            queue_id=self.queue_id,
            start_offset=start_offset,
            sizes=self.sizes[part],
            physical_offsets=self.physical_offsets[part],
            tags_codes=self.tags_codes[part],
        )


def join_columns(parts: list[QueueColumns]) -> QueueColumns:
    """One stretch from several that follow each other."""
    assert parts
    assert all(after.start_offset == before.end_offset for before, after in itertools.pairwise(parts))
    return QueueColumns(
        queue_id=parts[0].queue_id,
        start_offset=parts[0].start_offset,
        sizes=np.concatenate([part.sizes for part in parts]),
        physical_offsets=np.concatenate([part.physical_offsets for part in parts]),
        tags_codes=np.concatenate([part.tags_codes for part in parts]),
    )


class BlockDecoder(Protocol):
    """Decodes the content of a block of one version."""

    def __call__(self, content: bytes, *, queue_id: int, start_offset: QueueOffset) -> QueueColumns: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsFooter:
    """The footer of a `.cq` part: rows of CQ_BLOCK, in order of queue and offset, and the block decoder of its
    version."""

    segment_id: SegmentId
    record_count: int
    blocks: Table
    decode_content: BlockDecoder

    def decode_block(self, stored: bytes | memoryview, block: np.void) -> QueueColumns:
        """The columns in a stored block, whose row in `blocks` is `block`. CorruptDataError leaves when damaged."""
        content = decompress(stored, raw_bytes=int(block["raw_bytes"]))
        columns = self.decode_content(
            content, queue_id=int(block["queue_id"]), start_offset=QueueOffset(block["start_offset"])
        )
        if columns.end_offset != int(block["end_offset"]):
            raise SegmentFormatError("the block holds another number of records", end_offset=columns.end_offset)
        return columns

    def blocks_of(self, queue_id: int, *, start_offset: QueueOffset, end_offset: QueueOffset) -> Table:
        """The blocks that hold any of [start_offset, end_offset) of the queue; they lie end to end."""
        blocks = self.blocks
        hits = (blocks["queue_id"] == queue_id) & (blocks["start_offset"] < end_offset)
        found: Table = blocks[hits & (blocks["end_offset"] > start_offset)]
        return found

    def blocks_at(self, physical_offset: PhysicalOffset) -> Table:
        """The blocks that may hold the record at `physical_offset`: at most one a queue."""
        blocks = self.blocks
        hits = (blocks["min_physical_offset"] <= physical_offset) & (physical_offset < blocks["end_physical_offset"])
        found: Table = blocks[hits]
        return found

    @property
    def memory_bytes(self) -> int:
        """About what keeping this footer costs."""
        return int(self.blocks.nbytes) + 300


class ColumnsWriter:
    """Collects the columns of a segment, run by run, and gives the bytes of `.cq`; keeps one block uncompressed."""

    def __init__(self, segment_id: SegmentId) -> None:
        self._segment_id = segment_id
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._body = bytearray(CQ_MAGIC)
        self._rows: list[tuple[int, ...]] = []
        self._pending: list[QueueColumns] = []
        self._pending_count = 0
        self._record_count = 0

    def append(self, columns: QueueColumns) -> None:
        """Add what follows in the run, or the beginning of the next run."""
        if self._pending and self._pending[0].queue_id != columns.queue_id:
            self._flush()
        self._record_count += len(columns.sizes)
        while len(columns.sizes):
            count = min(len(columns.sizes), BLOCK_RECORDS - self._pending_count)
            cut = columns.start_offset + count
            self._pending.append(columns.slice(columns.start_offset, cut))
            self._pending_count += count
            columns = columns.slice(cut, columns.end_offset)
            if self._pending_count == BLOCK_RECORDS:
                self._flush()

    def finish(self) -> bytes:
        """The whole part."""
        self._flush()
        head = CQ_HEAD.pack(self._segment_id.epoch, self._segment_id.sequence, self._record_count, len(self._rows))
        rows = np.array(self._rows, CQ_BLOCK)
        assert int((rows["end_offset"] - rows["start_offset"]).sum()) == self._record_count
        content = head + rows.tobytes()
        return bytes(self._body) + encode_footer(content, kind=COLUMNS, body_end=len(self._body))

    def _flush(self) -> None:
        if not self._pending:
            return
        columns = join_columns(self._pending)
        self._pending.clear()
        self._pending_count = 0
        content = encode_columns(columns)
        stored = self._compressor.compress(content)
        ends = columns.physical_offsets + columns.sizes
        row = (
            columns.queue_id,
            len(self._body),
            len(stored),
            len(content),
            columns.start_offset,
            columns.end_offset,
            int(columns.physical_offsets.min()),
            int(ends.max()),
        )
        self._rows.append(row)
        self._body += stored


def encode_columns(columns: QueueColumns) -> bytes:
    """The content of one block."""
    count = len(columns.sizes)
    assert 0 < count <= BLOCK_RECORDS
    codes, which = np.unique(columns.tags_codes, return_inverse=True)
    ends = columns.physical_offsets + columns.sizes
    gaps = np.zeros(count, np.uint64)
    gaps[1:] = (columns.physical_offsets[1:] - ends[:-1]).astype(np.uint64)
    return b"".join(
        (
            BLOCK_HEAD.pack(count, len(codes), int(columns.physical_offsets[0])),
            codes.astype("<i8").tobytes(),
            to_planes(columns.sizes.astype("<u4")),
            to_planes(gaps.astype("<u8")),
            to_planes(which.astype("<u2")),
        )
    )


def decode_columns(content: bytes, *, queue_id: int, start_offset: QueueOffset) -> QueueColumns:
    """The columns in a block's content. SegmentFormatError when it is none."""
    if len(content) < BLOCK_HEAD.size:
        raise SegmentFormatError("the block is too short", size_bytes=len(content))
    count, code_count, first = BLOCK_HEAD.unpack_from(content)
    if not 0 < count <= BLOCK_RECORDS or len(content) != BLOCK_HEAD.size + 8 * code_count + 14 * count:
        raise SegmentFormatError("the block's size is not the sum of its fields", size_bytes=len(content))
    position = BLOCK_HEAD.size
    codes = np.frombuffer(content, "<i8", code_count, position)
    position += 8 * code_count
    sizes = from_planes(content, "<u4", count, position)
    gaps = from_planes(content, "<u8", count, position + 4 * count)
    which = from_planes(content, "<u2", count, position + 12 * count)
    if int(which.max()) >= code_count:
        raise SegmentFormatError("the block names a tags code that it has not")
    steps = gaps.copy()
    steps[1:] += sizes[:-1]
    steps[0] = np.uint64(first % 2**64)
    return QueueColumns(
        queue_id=queue_id,
        start_offset=start_offset,
        sizes=sizes.astype(np.uint32, copy=False),
        physical_offsets=np.cumsum(steps, dtype=np.uint64).astype(np.int64),
        tags_codes=codes[which].astype(np.int64, copy=False),
    )


def decode_columns_footer(tail: bytes | memoryview) -> ColumnsFooter:
    """The footer in `tail`, the end of a `.cq` part. Raises as `decode_footer`."""
    return decode_footer(tail, kind=COLUMNS)


def _decode_footer_1(content: bytes) -> ColumnsFooter:
    if len(content) < CQ_HEAD.size:
        raise SegmentFormatError("the footer is too short", size_bytes=len(content))
    epoch, sequence, record_count, block_count = CQ_HEAD.unpack_from(content)
    if len(content) != CQ_HEAD.size + block_count * CQ_BLOCK.itemsize:
        raise SegmentFormatError("the footer's size is not the sum of its fields", size_bytes=len(content))
    blocks = np.frombuffer(content, CQ_BLOCK, block_count, CQ_HEAD.size)
    if int((blocks["end_offset"] - blocks["start_offset"]).sum()) != record_count:
        raise SegmentFormatError("the blocks do not hold as many records as the footer says", record_count=record_count)
    return ColumnsFooter(
        segment_id=SegmentId(epoch, sequence),
        record_count=record_count,
        blocks=blocks,
        decode_content=decode_columns,
    )


COLUMNS: PartKind[ColumnsFooter] = PartKind(name="columns", magic=CQ_MAGIC, version=1, decoders={1: _decode_footer_1})


def to_planes(column: npt.NDArray[np.unsignedinteger]) -> bytes:
    """Byte 0 of every number, then byte 1 of every number, and so on."""
    return column.view(np.uint8).reshape(len(column), column.itemsize).T.tobytes()


def from_planes(content: bytes, dtype: str, count: int, position: int) -> npt.NDArray[np.unsignedinteger]:
    """The column whose planes start at `position`."""
    item_bytes = np.dtype(dtype).itemsize
    planes = np.frombuffer(content, np.uint8, count * item_bytes, position).reshape(item_bytes, count)
    column: npt.NDArray[np.unsignedinteger] = np.ascontiguousarray(planes.T).view(dtype).reshape(count)
    return column
