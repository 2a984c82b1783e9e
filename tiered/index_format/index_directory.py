"""IndexDirectory: where the frames and chapters of an index object lie, small enough for the ledger.

One zstd frame around columns, each as byte planes (plane k: byte k, the lowest first, of every number):

    of p pages       2 planes   frames of the page, u16
    of f frames      4 planes   stored size, u32        4 planes   first hash, u32; 0 for the first frame of its page
    of c chapters    4 planes   records, u32            4 planes   stored size, u32
                     8 planes   place of the first record, less the object's `start`, u64
                     8 planes   greatest store time, less the object's `min_store_ms`, u64

Frames lie end to end from byte 8 of the object, chapters from its `chapters_start`. About 2 bytes a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.index_format.index_entry import IndexEntry
from thermocline.tiered.objects import LedgerCorruptError, SegmentOffset, decompress_frame
from thermocline.tiered.segments import MAGIC_BYTES, from_planes, to_planes

Longs = npt.NDArray[np.int64]

DIRECTORY_BYTES_MAX = 256 << 20
CACHED = 64
_PAGE_BYTES, _FRAME_BYTES, _CHAPTER_BYTES = 2, 8, 24


class ChapterRow(msgspec.Struct, frozen=True):
    """One chapter: bytes [start, end) of the object, its first record's place, and when its newest was stored."""

    start: SegmentOffset
    end: SegmentOffset
    record_count: int
    first_place: PhysicalOffset
    max_store_ms: int


class DirectoryRows(msgspec.Struct, frozen=True):
    """What a writer has to say."""

    frames_of_page: Sequence[int]
    frame_bytes: Sequence[int]
    first_hashes: Sequence[int]
    chapter_records: Sequence[int]
    chapter_bytes: Sequence[int]
    chapter_places: Sequence[int]
    chapter_newest_ms: Sequence[int]


class IndexDirectory:
    """The decoded columns. Made by `directory_of`."""

    __slots__ = ("_chapter_ends", "_chapter_newest", "_chapter_places", "_chapter_records", "_first", "_page_starts",
                 "frame_ends")  # fmt: skip

    def __init__(self, frames_of_page: Longs, frame_bytes: Longs, first: Longs, chapters: Sequence[Longs]) -> None:
        self._page_starts: Longs = np.concatenate(([0], np.cumsum(frames_of_page)))
        self.frame_ends: Longs = MAGIC_BYTES + np.concatenate(([0], np.cumsum(frame_bytes)))
        self._first = first
        self._chapter_records, sizes, self._chapter_places, self._chapter_newest = chapters
        self._chapter_ends: Longs = np.concatenate(([0], np.cumsum(sizes)))

    @property
    def frame_count(self) -> int:
        """Frames of all pages."""
        return len(self._first)

    @property
    def chapter_count(self) -> int:
        """Chapters."""
        return len(self._chapter_records)

    def frames_of_pages(self, page_start: int, page_end: int) -> range:
        """The frames of pages [page_start, page_end)."""
        return range(int(self._page_starts[page_start]), int(self._page_starts[page_end]))

    def frames_of_hash(self, page: int, hash_value: int) -> range:
        """The frames of a page that may hold the hash: one, but for very frequent keys."""
        frames = self.frames_of_pages(page, page + 1)
        if len(frames) <= 1:
            return frames
        first = self._first[frames.start + 1 : frames.stop]
        start = frames.start + int(np.searchsorted(first, hash_value, side="left"))
        end = frames.start + int(np.searchsorted(first, hash_value, side="right")) + 1
        return range(start, end)

    def frame_range(self, frames: range) -> tuple[SegmentOffset, SegmentOffset]:
        """[start, end) in the object of frames that follow one another."""
        return SegmentOffset(self.frame_ends[frames.start]), SegmentOffset(self.frame_ends[frames.stop])

    def chapter(self, index: int, *, chapters_start: SegmentOffset) -> ChapterRow:
        """Chapter number `index`."""
        return ChapterRow(
            start=chapters_start + int(self._chapter_ends[index]),
            end=chapters_start + int(self._chapter_ends[index + 1]),
            record_count=int(self._chapter_records[index]),
            first_place=PhysicalOffset(self._chapter_places[index]),
            max_store_ms=int(self._chapter_newest[index]),
        )

    def chapter_at(self, place: PhysicalOffset) -> int | None:
        """Which chapter may hold the record at a place."""
        index = int(np.searchsorted(self._chapter_places, place, side="right")) - 1
        return index if index >= 0 else None

    def chapters_end(self, *, chapters_start: SegmentOffset) -> SegmentOffset:
        """Where in the object the last chapter ends."""
        return chapters_start + int(self._chapter_ends[-1])


def encode_directory(rows: DirectoryRows, *, start: int, min_store_ms: int) -> bytes:
    """The bytes that the ledger holds."""
    columns: list[npt.NDArray[np.unsignedinteger]] = [
        np.array(rows.frames_of_page, "<u2"),
        np.array(rows.frame_bytes, "<u4"),
        np.array(rows.first_hashes, "<u4"),
        np.array(rows.chapter_records, "<u4"),
        np.array(rows.chapter_bytes, "<u4"),
        (np.array(rows.chapter_places, np.int64) - start).astype("<u8"),
        (np.array(rows.chapter_newest_ms, np.int64) - min_store_ms).astype("<u8"),
    ]
    content = b"".join(to_planes(column) for column in columns if len(column))
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(content)


def directory_of(entry: IndexEntry) -> IndexDirectory:
    """The directory of an index object. LedgerCorruptError when what the ledger says is none."""
    return _decode(entry.directory, entry.page_count, entry.start, entry.min_store_ms)


@lru_cache(maxsize=CACHED)
def _decode(data: bytes, page_count: int, start: int, min_store_ms: int) -> IndexDirectory:
    try:
        size_bytes = zstandard.frame_content_size(data)
        if not 0 <= size_bytes <= DIRECTORY_BYTES_MAX:
            raise LedgerCorruptError("impossible size of an index object's directory", size_bytes=size_bytes)
        content = decompress_frame(data)
    except zstandard.ZstdError as error:
        raise LedgerCorruptError("an index object's directory does not decompress", size_bytes=len(data)) from error
    if len(content) < _PAGE_BYTES * page_count:
        raise LedgerCorruptError("an index object's directory is too short", size_bytes=len(content))
    frames_of_page = from_planes(content, "<u2", page_count, 0).astype(np.int64)
    frame_count, position = int(frames_of_page.sum()), _PAGE_BYTES * page_count
    chapter_count, rest = divmod(len(content) - position - _FRAME_BYTES * frame_count, _CHAPTER_BYTES)
    if rest or chapter_count < 0:
        raise LedgerCorruptError("an index object's directory is not the sum of its columns", size_bytes=len(content))
    columns: list[Longs] = []
    for dtype, count in (*(("<u4", frame_count),) * 2, *(("<u4", chapter_count),) * 2, *(("<u8", chapter_count),) * 2):
        columns.append(from_planes(content, dtype, count, position).astype(np.int64))
        position += np.dtype(dtype).itemsize * count
    frame_bytes, first, records, sizes, places, newest = columns
    return IndexDirectory(frames_of_page, frame_bytes, first, (records, sizes, places + start, newest + min_store_ms))
