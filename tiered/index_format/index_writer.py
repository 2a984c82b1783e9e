"""IndexWriter: one index object, front to back, without holding it in memory when a folder is given.

    8 bytes    INDEX_MAGIC
    frames     of entries, page by page (key_pages.py)
    blooms     the bloom pages
    chapters   end to end (chapters.py)
    footer     one zstd frame around the JSON of the entry (index_entry.py), without the sizes that include itself
    trailer    as every part has it (segment_format.py)

An object is of keys or of places: the other half is empty.
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


class IndexRange(msgspec.Struct, frozen=True, kw_only=True):
    """What an object is to be: its name, its class and range, and what bounds its records."""

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
    """An index object to upload: `entry` is to be committed, `data` its bytes, `blooms` its bloom pages."""

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
    """First keys in order of pages, then records in order of the log. `close` it if it is not finished."""

    def __init__(self, wanted: IndexRange, shape: PageShape, *, folder: Path | None) -> None:
        self._wanted = wanted
        self._shape = shape
        self._spool = Spool(folder)
        self._spool.write(INDEX_MAGIC)
        self._blooms = Spool(folder)
        self._rows = DirectoryRows([], [], [], [], [], [], [])
        self._key_count = 0
        self._next_page = 0
        self._page: PageEncoder | None = None
        """Of the page whose entries come in portions."""

    def add_pages(self, entries: KeyEntries, *, page_end: int) -> None:
        """All entries of the pages up to `page_end`, by hash; those of one hash newest first."""
        rows, start = self._rows, self._next_page
        assert self._page is None
        assert start < page_end <= self._shape.page_count
        for page in encode_pages(self._shape, entries, page_start=start, page_end=page_end):
            for frame in page.frames:
                self._spool.write(frame)
            _of(rows.frames_of_page).append(len(page.frames))
            _of(rows.frame_bytes).extend(map(len, page.frames))
            _of(rows.first_hashes).extend(page.first_hashes)
        self._blooms.write(self._shape.build_blooms(entries.hashes, page_start=start, page_end=page_end))
        self._key_count += len(entries)
        self._next_page = page_end

    def add_to_page(self, entries: KeyEntries) -> None:
        """Some entries of the next page alone, in order as those of `add_pages`; `end_page` follows the last ones."""
        if self._page is None:
            self._page = PageEncoder()
        for frame in self._page.add(entries):
            self._write_frame(frame)

    def end_page(self) -> None:
        """All entries of the page are in. SegmentFormatError if they are more than a page can have."""
        page, self._page = self._page or PageEncoder(), None
        for frame in page.finish():
            self._write_frame(frame)
        if len(page.first_hashes) > FRAMES_OF_PAGE_MAX:
            raise SegmentFormatError("a page cannot have so many entries", entry_count=page.entry_count)
        number = self._next_page
        _of(self._rows.frames_of_page).append(len(page.first_hashes))
        _of(self._rows.first_hashes).extend(page.first_hashes)
        self._blooms.write(self._shape.build_blooms(page.hashes, page_start=number, page_end=number + 1))
        self._key_count += page.entry_count
        self._next_page += 1

    def _write_frame(self, frame: bytes) -> None:
        self._spool.write(frame)
        _of(self._rows.frame_bytes).append(len(frame))

    def end_pages(self) -> None:
        """All keys are in; what follows are records."""
        assert self._page is None
        assert self._next_page == self._shape.page_count
        self._blooms_start = self._spool.size_bytes
        if self._shape.page_count:
            self._spool.write(self._blooms.finish())
        self._blooms.close()
        self._chapters_start = self._spool.size_bytes

    def add_chapter(self, rows: PlaceRows, *, newest_ms: int) -> None:
        """Up to CHAPTER_RECORDS records that follow the last ones; none of them was stored after `newest_ms`."""
        assert len(rows) <= CHAPTER_RECORDS
        stored = encode_chapter(rows)
        self._spool.write(stored)
        _of(self._rows.chapter_records).append(len(rows))
        _of(self._rows.chapter_bytes).append(len(stored))
        _of(self._rows.chapter_places).append(int(rows.places[0]))
        _of(self._rows.chapter_newest_ms).append(newest_ms)

    def finish(self, *, created_ms: int) -> FinishedIndex:
        """Complete the object; `record_count` of an object of places is what its chapters have."""
        wanted, spool, rows = self._wanted, self._spool, self._rows
        entry = IndexEntry(
            index_id=str(wanted.index_id),
            ttl_class=wanted.ttl_class,
            key=wanted.key,
            object_bytes=0,
            crc32=0,
            start=wanted.start,
            end=wanted.end,
            topics=wanted.topics,
            min_store_ms=wanted.min_store_ms,
            max_store_ms=wanted.max_store_ms,
            record_count=sum(rows.chapter_records) or wanted.record_count,
            key_count=self._key_count,
            page_bytes=self._shape.page_bytes,
            page_count=self._shape.page_count,
            blooms_start=SegmentOffset(self._blooms_start),
            chapters_start=SegmentOffset(self._chapters_start),
            footer_start=SegmentOffset(spool.size_bytes),
            directory=encode_directory(rows, start=wanted.start, min_store_ms=wanted.min_store_ms),
            created_ms=created_ms,
            level=wanted.level,
            gaps=wanted.gaps,
            format_version=INDEX.version,
        )
        spool.write(encode_footer(_encoder.encode(entry), kind=INDEX, body_end=spool.size_bytes))
        entry = msgspec.structs.replace(entry, object_bytes=spool.size_bytes, crc32=spool.crc32)
        return FinishedIndex(entry, spool)

    def close(self) -> None:
        """Give it up; idempotent."""
        self._spool.close()
        self._blooms.close()


def decode_index_footer(tail: bytes | memoryview) -> IndexEntry:
    """The entry in the footer of an index object, of which `tail` is the end. Raises as `decode_footer`."""
    return decode_footer(tail, kind=INDEX)


def _decode_footer_1(content: bytes) -> IndexEntry:
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise SegmentFormatError("an index object's footer cannot be decoded") from error


INDEX: PartKind[IndexEntry] = PartKind(
    name="index object", magic=INDEX_MAGIC, version=1, decoders={1: _decode_footer_1}
)


def _of(column: object) -> list[int]:
    assert isinstance(column, list)
    return column
