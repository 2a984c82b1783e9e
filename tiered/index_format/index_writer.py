"""IndexWriter: writes one index object from front to back, into a file if a folder is given, otherwise into memory.

    8 bytes    INDEX_MAGIC
    frames     zstd frames of key entries, page by page (key_pages.py)
    blooms     the bloom pages, one for each page of key entries (key_pages.py)
    chapters   records in the order of the log, end to end (chapters.py)
    footer     one zstd frame around the JSON of the IndexEntry; its `object_bytes` and `crc32` are 0 here, because
               they cover the footer
    trailer    as in every part (segment_format.py)

An object indexes either keys (no chapters) or places (no frames, no blooms). A place is a record's physical offset.
IndexBuilder and IndexMerger call, for each page in order, `add_pages` (several whole pages at once) or `add_to_page`
and `end_page` (one page in portions); then `end_pages`, `add_chapter` for each chapter, and `finish`.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import msgspec

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.index_format.chapters import CHAPTER_RECORDS, PlaceRows, encode_chapter
from thermocline.tiered.index_format.index_directory import DirectoryRows, encode_directory
from thermocline.tiered.index_format.index_entry import IndexEntry, IndexGap
from thermocline.tiered.index_format.key_pages import (
    FRAMES_OF_PAGE_MAX,
    KeyEntries,
    PageEncoder,
    PageShape,
    encode_pages,
)
from thermocline.tiered.objects import SegmentFormatError, SegmentOffset, Spool
from thermocline.tiered.segments import PartKind, SegmentId, decode_footer, encode_footer

INDEX_MAGIC = b"THERMKEY"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(IndexEntry)


class IndexDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an index object before it is written; its IndexEntry has the same fields.

    `key`: of the object in the bucket. Places [start, end) of the log. `topics`: as `encode_topics` returns them.
    `record_count` counts only for an object without chapters. `level`: how often its content was merged.
    """

    index_id: SegmentId
    ttl_class: str
    key: str
    start: PhysicalOffset
    end: PhysicalOffset
    topics: bytes
    min_store_ms: int
    max_store_ms: int
    record_count: int
    level: int
    gaps: tuple[IndexGap, ...] = ()


class FinishedIndex:
    """A complete index object: the caller uploads `data`, its bytes, and commits `entry`. `__exit__` frees them."""

    def __init__(self, entry: IndexEntry, spool: Spool) -> None:
        self.entry = entry
        self._spool = spool
        self.data = spool.finish()

    @property
    def blooms(self) -> bytes:
        """All bloom pages."""
        return bytes(self.data[self.entry.blooms_start : self.entry.chapters_start])

    def __enter__(self) -> FinishedIndex:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._spool.close()


class IndexWriter:
    """Takes key entries in the order of pages, then records in the order of the log. `close` discards an unfinished
    object. Each method that writes raises DiskFullError when the folder's disk has no room."""

    def __init__(self, description: IndexDescription, shape: PageShape, *, folder: Path | None) -> None:
        self._description = description
        self._shape = shape
        self._spool = Spool(folder)
        self._spool.write(INDEX_MAGIC)
        self._blooms = Spool(folder)
        self._rows = DirectoryRows([], [], [], [], [], [], [])
        self._key_count = 0
        self._next_page = 0
        self._page: PageEncoder | None = None
        """Encodes the page that `add_to_page` has begun; None when no page is begun."""

    def add_pages(self, entries: KeyEntries, *, page_end: int) -> None:
        """Write the next pages, up to `page_end`. `entries`: all of theirs, by hash; those of one hash newest first."""
        rows, start = self._rows, self._next_page
        assert self._page is None
        assert start < page_end <= self._shape.page_count
        for page in encode_pages(self._shape, entries, page_start=start, page_end=page_end):
            for frame in page.frames:
                self._spool.write(frame)
            _as_list(rows.frames_of_page).append(len(page.frames))
            _as_list(rows.frame_bytes).extend(map(len, page.frames))
            _as_list(rows.first_hashes).extend(page.first_hashes)
        self._blooms.write(self._shape.build_blooms(entries.hashes, page_start=start, page_end=page_end))
        self._key_count += len(entries)
        self._next_page = page_end

    def add_to_page(self, entries: KeyEntries) -> None:
        """Add some entries of the next page, in the order that `add_pages` needs; `end_page` completes the page."""
        if self._page is None:
            self._page = PageEncoder()
        for frame in self._page.add(entries):
            self._write_frame(frame)

    def end_page(self) -> None:
        """Complete the page of `add_to_page`; without entries it is empty.

        Raises:
            SegmentFormatError: The page has more than FRAMES_OF_PAGE_MAX frames.
        """
        page, self._page = self._page or PageEncoder(), None
        for frame in page.finish():
            self._write_frame(frame)
        if len(page.first_hashes) > FRAMES_OF_PAGE_MAX:
            raise SegmentFormatError("too many entries for one page of an index object", entry_count=page.entry_count)
        number = self._next_page
        _as_list(self._rows.frames_of_page).append(len(page.first_hashes))
        _as_list(self._rows.first_hashes).extend(page.first_hashes)
        self._blooms.write(self._shape.build_blooms(page.hashes, page_start=number, page_end=number + 1))
        self._key_count += page.entry_count
        self._next_page += 1

    def _write_frame(self, frame: bytes) -> None:
        self._spool.write(frame)
        _as_list(self._rows.frame_bytes).append(len(frame))

    def end_pages(self) -> None:
        """Write the bloom pages. Call after the last page and before the first chapter."""
        assert self._page is None
        assert self._next_page == self._shape.page_count
        self._blooms_start = self._spool.size_bytes
        if self._shape.page_count:
            self._spool.write(self._blooms.finish())
        self._blooms.close()
        self._chapters_start = self._spool.size_bytes

    def add_chapter(self, rows: PlaceRows, *, newest_ms: int) -> None:
        """Write a chapter: up to CHAPTER_RECORDS records, behind those of the chapter before it in the log. None of
        them was stored after `newest_ms`."""
        assert len(rows) <= CHAPTER_RECORDS
        stored = encode_chapter(rows)
        self._spool.write(stored)
        _as_list(self._rows.chapter_records).append(len(rows))
        _as_list(self._rows.chapter_bytes).append(len(stored))
        _as_list(self._rows.chapter_places).append(int(rows.places[0]))
        _as_list(self._rows.chapter_newest_ms).append(newest_ms)

    def finish(self, *, created_ms: int) -> FinishedIndex:
        """Write footer and trailer; return the object, which from now on owns the bytes. With chapters, `record_count`
        is the number of their records."""
        description, spool, rows = self._description, self._spool, self._rows
        entry = IndexEntry(
            index_id=str(description.index_id),
            ttl_class=description.ttl_class,
            key=description.key,
            object_bytes=0,
            crc32=0,
            start=description.start,
            end=description.end,
            topics=description.topics,
            min_store_ms=description.min_store_ms,
            max_store_ms=description.max_store_ms,
            record_count=sum(rows.chapter_records) or description.record_count,
            key_count=self._key_count,
            page_bytes=self._shape.page_bytes,
            page_count=self._shape.page_count,
            blooms_start=SegmentOffset(self._blooms_start),
            chapters_start=SegmentOffset(self._chapters_start),
            footer_start=SegmentOffset(spool.size_bytes),
            directory=encode_directory(rows, start=description.start, min_store_ms=description.min_store_ms),
            created_ms=created_ms,
            level=description.level,
            gaps=description.gaps,
            format_version=INDEX.version,
        )
        spool.write(encode_footer(_encoder.encode(entry), kind=INDEX, body_end=spool.size_bytes))
        entry = msgspec.structs.replace(entry, object_bytes=spool.size_bytes, crc32=spool.crc32)
        return FinishedIndex(entry, spool)

    def close(self) -> None:
        """Discard the unfinished object; idempotent."""
        self._spool.close()
        self._blooms.close()


def decode_index_footer(tail: bytes | memoryview) -> IndexEntry:
    """Return the entry in the footer of an index object. `tail`: the object's last bytes, with at least footer and
    trailer. Raises as `decode_footer`."""
    return decode_footer(tail, kind=INDEX)


def _decode_footer_1(content: bytes) -> IndexEntry:
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise SegmentFormatError("an index object's footer cannot be decoded") from error


INDEX: PartKind[IndexEntry] = PartKind(
    name="index object", magic=INDEX_MAGIC, version=1, decoders={1: _decode_footer_1}
)


def _as_list(column: object) -> list[int]:
    assert isinstance(column, list)
    return column
