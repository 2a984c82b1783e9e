"""Chapters of an index object: from a place in the log to the queue and offset of the record stored there.

A chapter is one zstd frame around up to CHAPTER_RECORDS records in the order of the log:

    CHAPTER_HEAD
    names        JSON array of [topic, incarnation]
    of r runs    4 planes   which of the names, u32     4 planes   queue id, u32     8 planes   first offset, u64
    of n records 4 planes   size, u32                   8 planes   gap, u64          4 planes   which run, u32

The gap of a record is its place less the end of the record before it, 0 for the first, as in `.cq` parts. The records
of one run have consecutive offsets of one queue; where offsets are missing, another run begins.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.tiered.objects import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments import decompress, from_planes, to_planes

CHAPTER_RECORDS = 65_536
CHAPTER_BYTES_MAX = 256 << 20

CHAPTER_HEAD = struct.Struct(
    "<I"  # records
    "I"  # runs
    "I"  # size of the names, bytes
    "q"  # place of the first record
)
assert CHAPTER_HEAD.size == 20, "cold format, index objects"

Longs = npt.NDArray[np.int64]
Life = tuple[str, int]
"""A topic under one incarnation."""

_names = msgspec.json.Decoder(list[Life])


class PlaceRows(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of records in the order of the log; `life` is an index into `incarnations`."""

    incarnations: Sequence[Life]
    places: Longs
    sizes: Longs
    life: Longs
    queue_ids: Longs
    offsets: Longs

    def __len__(self) -> int:
        return len(self.places)

    def rows(self, which: npt.NDArray[np.generic] | slice) -> PlaceRows:
        """Some of them."""
        return PlaceRows(
            incarnations=self.incarnations,
            places=self.places[which],
            sizes=self.sizes[which],
            life=self.life[which],
            queue_ids=self.queue_ids[which],
            offsets=self.offsets[which],
        )


def encode_chapter(rows: PlaceRows) -> bytes:
    """The chapter of some records, as stored."""
    count = len(rows)
    assert 0 < count <= CHAPTER_RECORDS
    assert bool(np.all(rows.places[1:] > rows.places[:-1])), "in the order of the log"
    order = np.lexsort((rows.places, rows.queue_ids, rows.life))
    life, queue_ids, offsets = rows.life[order], rows.queue_ids[order], rows.offsets[order]
    begins = np.ones(count, np.bool_)
    begins[1:] = (life[1:] != life[:-1]) | (queue_ids[1:] != queue_ids[:-1]) | (offsets[1:] != offsets[:-1] + 1)
    runs = np.empty(count, np.int64)
    runs[order] = np.cumsum(begins) - 1
    used, which = np.unique(life[begins], return_inverse=True)
    names = msgspec.json.encode([rows.incarnations[number] for number in used.tolist()])
    gaps = np.zeros(count, np.int64)
    gaps[1:] = rows.places[1:] - (rows.places[:-1] + rows.sizes[:-1])
    content = b"".join(
        (
            CHAPTER_HEAD.pack(count, int(begins.sum()), len(names), int(rows.places[0])),
            names,
            to_planes(which.astype("<u4")),
            to_planes(queue_ids[begins].astype("<u4")),
            to_planes(offsets[begins].astype("<u8")),
            to_planes(rows.sizes.astype("<u4")),
            to_planes(gaps.astype("<u8")),
            to_planes(runs.astype("<u4")),
        )
    )
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content)


def decode_chapter(stored: bytes | memoryview) -> PlaceRows:
    """The records of a chapter. FrameChecksumError or SegmentFormatError when it is damaged."""
    try:
        size_bytes = zstandard.frame_content_size(stored)
    except zstandard.ZstdError as error:
        raise FrameChecksumError("a chapter is no zstd frame", size_bytes=len(stored)) from error
    if not CHAPTER_HEAD.size <= size_bytes <= CHAPTER_BYTES_MAX:
        raise SegmentFormatError("impossible size of a chapter", size_bytes=size_bytes)
    content = decompress(stored, raw_bytes=size_bytes)
    count, run_count, names_bytes, first = CHAPTER_HEAD.unpack_from(content)
    position = CHAPTER_HEAD.size + names_bytes
    if not 0 < run_count <= count or len(content) != position + 16 * run_count + 16 * count:
        raise SegmentFormatError("a chapter's size is not the sum of its columns", size_bytes=len(content))
    try:
        incarnations = _names.decode(content[CHAPTER_HEAD.size : position])
    except msgspec.DecodeError as error:
        raise SegmentFormatError("a chapter's names cannot be decoded") from error

    columns: list[Longs] = []
    for dtype, rows in (("<u4", run_count), ("<u4", run_count), ("<u8", run_count), ("<u4", count), ("<u8", count)):
        columns.append(from_planes(content, dtype, rows, position).astype(np.int64))
        position += np.dtype(dtype).itemsize * rows
    which, run_queues, run_offsets, sizes, gaps = columns
    runs = from_planes(content, "<u4", count, position).astype(np.int64)
    if int(runs.max()) >= run_count or int(which.max()) >= len(incarnations):
        raise SegmentFormatError("a chapter names a run or a topic that it has not")
    steps = gaps.copy()
    steps[0] = first
    steps[1:] += sizes[:-1]
    return PlaceRows(
        incarnations=incarnations,
        places=np.cumsum(steps),
        sizes=sizes,
        life=which[runs],
        queue_ids=run_queues[runs],
        offsets=run_offsets[runs] + _numbers_in_run(runs),
    )


def _numbers_in_run(runs: Longs) -> Longs:
    """Each record's number within its run, from 0."""
    order = np.argsort(runs, kind="stable")
    ordered = runs[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    numbers = np.empty(len(runs), np.int64)
    numbers[order] = np.arange(len(runs)) - starts
    return numbers
