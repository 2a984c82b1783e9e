"""IndexObject: reads one index object by ranges; which, its ledger entry says. Keeps nothing.

A key costs one request (its frames), a place one (its chapter), all bloom pages one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec
import numpy as np

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.index_format.chapters import Life, PlaceRows, decode_chapter
from thermocline.tiered.index_format.index_directory import ChapterRow, directory_of
from thermocline.tiered.index_format.index_entry import IndexEntry
from thermocline.tiered.index_format.index_writer import INDEX
from thermocline.tiered.index_format.key_pages import KeyEntries, PageShape, decode_frame
from thermocline.tiered.objects import ObjectStore, SegmentFormatError

FRAMES_AT_ONCE = 8

QueuePlace = tuple[int, QueueOffset]
"""Queue id and queue offset."""


class BodyDecoders(NamedTuple):
    """How the key frames and the chapters of an index object of one version are decoded."""

    frame: Callable[[bytes | memoryview], KeyEntries]
    chapter: Callable[[bytes | memoryview], PlaceRows]


BODY_DECODERS = {1: BodyDecoders(decode_frame, decode_chapter)}
"""By the version of the index object, which its ledger entry says."""


class IndexedPlace(msgspec.Struct, frozen=True):
    """The topic, queue and offset of the record at a place."""

    life: Life
    queue_id: int
    offset: QueueOffset


class IndexObject(msgspec.Struct, frozen=True):
    """See the module's header. Reads may raise the store's errors and CorruptDataError."""

    store: ObjectStore
    entry: IndexEntry

    @property
    def shape(self) -> PageShape:
        """Of its pages."""
        return PageShape(page_bytes=self.entry.page_bytes, page_count=self.entry.page_count)

    @property
    def decoders(self) -> BodyDecoders:
        """Of its version. FormatTooNewError when that is not read."""
        return INDEX.of_version(BODY_DECODERS, self.entry.format_version)

    async def blooms(self) -> bytes:
        """All bloom pages, by one request."""
        entry = self.entry
        INDEX.decoder(entry.format_version)
        return await self.store.get_range(entry.key, start=entry.blooms_start, end=entry.chapters_start)

    async def find_key(self, hash_value: int) -> AsyncIterator[list[QueuePlace]]:
        """Queue and offset of each record that may have a key of the hash, newest first, a few at a time."""
        if not self.entry.page_count:
            return
        directory = directory_of(self.entry)
        frames = directory.frames_of_hash(self.shape.page_of(hash_value), hash_value)
        for start in range(frames.start, frames.stop, FRAMES_AT_ONCE):
            part = range(start, min(start + FRAMES_AT_ONCE, frames.stop))
            found = await self.frames(part)
            hits = np.flatnonzero(found.hashes == hash_value)
            if len(hits):
                yield list(zip(found.queue_ids[hits].tolist(), found.offsets[hits].tolist(), strict=True))

    async def frames(self, frames: range) -> KeyEntries:
        """The entries of frames that follow one another, by one request."""
        directory, decode = directory_of(self.entry), self.decoders.frame
        start, end = directory.frame_range(frames)
        if end > self.entry.blooms_start:
            raise SegmentFormatError("the directory points outside the frames", key=self.entry.key, end=end)
        stored = memoryview(await self.store.get_range(self.entry.key, start=start, end=end))
        parts: list[KeyEntries] = []
        for number in frames:
            first, last = directory.frame_range(range(number, number + 1))
            parts.append(decode(stored[first - start : last - start]))
        return KeyEntries.joined(parts)

    async def find_place(self, place: PhysicalOffset) -> IndexedPlace | None:
        """The record stored at a place, by one request."""
        directory = directory_of(self.entry)
        index = directory.chapter_at(place)
        if index is None:
            return None
        rows = await self.chapter(directory.chapter(index, chapters_start=self.entry.chapters_start))
        found = int(np.searchsorted(rows.places, place))
        if found == len(rows) or int(rows.places[found]) != place:
            return None
        return IndexedPlace(
            rows.incarnations[int(rows.life[found])], int(rows.queue_ids[found]), QueueOffset(rows.offsets[found])
        )

    async def chapter(self, row: ChapterRow) -> PlaceRows:
        """The records of one chapter, by one request."""
        if row.end > self.entry.footer_start:
            raise SegmentFormatError("the directory points outside the chapters", key=self.entry.key, end=row.end)
        decode = self.decoders.chapter
        rows = decode(await self.store.get_range(self.entry.key, start=row.start, end=row.end))
        if len(rows) != row.record_count or int(rows.places[0]) != row.first_place:
            raise SegmentFormatError("directory and chapter speak of different records", key=self.entry.key)
        return rows
