"""IndexBuilder: makes index objects of a range of the log, from the parts of its segments. Commits nothing.

    parts -> columns of the records in [start, end) -> one object of keys for each TTL class, and one of places for all

At most RECORDS_MAX records or so at a time (`range_cut.py`). Everything is complete in the bucket before it is
returned. Belongs to the tier process's loop; decoding, sorting and compressing run in a worker thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.index_format import (
    CHAPTER_RECORDS,
    PLACES,
    FinishedIndex,
    IndexDescription,
    IndexEntry,
    IndexGap,
    IndexWriter,
    KeyEntries,
    Life,
    PageShape,
    PlaceRows,
    encode_topics,
)
from thermocline.tiered.indexes.indexed_parts import IndexedPart, PartBytes, decode_part, stored_parts
from thermocline.tiered.indexes.log_items import LogItems
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.packs import FOREVER
from thermocline.tiered.segments import SegmentId

PAGES_AT_ONCE = 64


@dataclass(slots=True)
class IndexResult:
    """The written objects, to be committed or given up, and the bloom pages of each."""

    indexes_in: list[IndexEntry] = field(default_factory=list)
    indexes_out: tuple[str, ...] = ()
    blooms: dict[str, bytes] = field(default_factory=dict)

    @property
    def written_bytes(self) -> int:
        """Sizes of the objects."""
        return sum(index.object_bytes for index in self.indexes_in)


class IndexUploads:
    """Uploads of one build or merge, all of which are given up if one fails."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self.result = IndexResult()

    def new(self, ttl_class: str) -> tuple[SegmentId, str]:
        """Id and key of a new object; `put` it, or `give_up`."""
        index_id = self._writer.next_segment_id()
        return index_id, self._writer.keys.index(ttl_class, index_id)

    async def put(self, finished: FinishedIndex) -> None:
        """Put one in the bucket."""
        entry = finished.entry
        try:
            await self._writer.store.put(entry.key, finished.data)
        except BaseException:
            self._writer.abandon(entry.id, (entry.key,))
            raise
        self.result.indexes_in.append(entry)
        self.result.blooms[entry.index_id] = finished.blooms

    def give_up(self) -> None:
        """Give up all uploads: none will be committed."""
        for entry in self.result.indexes_in:
            self._writer.abandon(entry.id, (entry.key,))
        self.result = IndexResult()


class _Wanted(msgspec.Struct, kw_only=True):
    """An object to write: its class and its content."""

    ttl_class: str
    index_id: SegmentId
    key: str
    parts: list[IndexedPart]


class IndexBuilder:
    """See the module's header."""

    def __init__(self, writer: LedgerWriter, *, spool_folder: Path | None, clock: Callable[[], int]) -> None:
        self._writer = writer
        self._folder = spool_folder
        self._clock = clock

    async def check_newest(self) -> None:
        """See `LedgerWriter`."""
        await self._writer.check_newest()

    async def build(
        self,
        catalog: Catalog,
        items: LogItems,
        *,
        start: PhysicalOffset,
        end: PhysicalOffset,
        class_of: Callable[[str], str] = lambda topic: FOREVER,
        wants: Callable[[str], bool] = lambda topic: True,
        only: str | None = None,
    ) -> IndexResult:
        """Write the objects of [start, end): one for each class of the wanted topics; or `only` one, of the named
        class, for all of them. `items`: of the catalog, at least those with places in the range.

        Raises:
            ObjectStoreUnavailableError: No answer; what was written has been given up.
            ObjectNotFoundError: A part has been collected meanwhile.
            CorruptDataError: A part is damaged.
        """
        parts: list[IndexedPart] = []
        for item in items.between(start, end).items:
            stored = await stored_parts(self._writer.store, catalog, item, wants=wants)
            parts += await asyncio.to_thread(_decode_all, stored, start, end)
        gaps = [kept for kept in gaps_between(catalog, start=start, end=end) if wants(kept.gap.topic)]

        def classes(topic: str) -> tuple[str, ...]:
            return (only,) if only is not None else (PLACES, class_of(topic))

        by_class: dict[str, list[IndexedPart]] = {}
        for part in parts:
            for name in classes(part.topic):
                by_class.setdefault(name, []).append(part)
        # A class with nothing but gaps in the range gets an object too, which lists them.
        for kept in gaps:
            for name in classes(kept.gap.topic):
                by_class.setdefault(name, [])
        own = {name: [kept for kept in gaps if name in classes(kept.gap.topic)] for name in by_class}
        return await self.write(by_class, start=start, end=end, gaps=own)

    async def write(
        self,
        by_class: dict[str, list[IndexedPart]],
        *,
        start: PhysicalOffset,
        end: PhysicalOffset,
        gaps: Mapping[str, Sequence[KeptGap]],
    ) -> IndexResult:
        """Write an object for each class, of parts within [start, end); `by_class` is used up.

        Raises:
            ObjectStoreUnavailableError: No answer; what was written has been given up.
        """
        uploads = IndexUploads(self._writer)
        try:
            for name in sorted(by_class):
                index_id, key = uploads.new(name)
                wanted = _Wanted(ttl_class=name, index_id=index_id, key=key, parts=by_class.pop(name))
                try:
                    finished = await asyncio.to_thread(self._write, wanted, start, end, gaps.get(name, ()))
                except BaseException:
                    self._writer.abandon(index_id, ())
                    raise
                with finished:
                    await uploads.put(finished)
        except BaseException:
            uploads.give_up()
            raise
        return uploads.result

    def give_up(self, result: IndexResult) -> None:
        """Give up the written objects: they will not be committed."""
        for entry in result.indexes_in:
            if self._writer.is_under_way(entry.id):
                self._writer.abandon(entry.id, (entry.key,))

    def _write(
        self, wanted: _Wanted, start: PhysicalOffset, end: PhysicalOffset, gaps: Sequence[KeptGap]
    ) -> FinishedIndex:
        parts = wanted.parts
        is_of_places = wanted.ttl_class == PLACES
        topics = {part.topic for part in parts} | {kept.gap.topic for kept in gaps}
        keys = _sorted_keys(parts) if parts and not is_of_places else None
        shape = PageShape.for_keys(_distinct(keys) if keys is not None else 0)
        description = IndexDescription(
            index_id=wanted.index_id,
            ttl_class=wanted.ttl_class,
            key=wanted.key,
            start=start,
            end=end,
            topics=encode_topics(topics),
            min_store_ms=min([*(part.oldest_ms for part in parts), *(kept.oldest_ms for kept in gaps)]),
            max_store_ms=max([*(int(part.newest_ms.max()) for part in parts), *(kept.newest_ms for kept in gaps)]),
            record_count=sum(len(part.places) for part in parts),
            level=0,
            gaps=tuple(kept.gap for kept in gaps),
        )
        writer = IndexWriter(description, shape, folder=self._folder)
        try:
            if keys is not None:
                _add_keys(writer, shape, keys)
            writer.end_pages()
            if is_of_places and parts:
                _add_places(writer, parts)
            return writer.finish(created_ms=self._clock())
        except BaseException:
            writer.close()
            raise


class KeptGap(msgspec.Struct, frozen=True):
    """Offsets in quarantine, and the bounds of their segment's store times."""

    gap: IndexGap
    oldest_ms: int
    newest_ms: int


def gaps_between(catalog: Catalog, *, start: PhysicalOffset, end: PhysicalOffset) -> list[KeptGap]:
    """The quarantined offsets of the range; their keys are unknown."""
    gaps: list[KeptGap] = []
    for topic in catalog.topics.values():
        for kept in topic.quarantine:
            segment = kept.segment
            for lost in kept.lost:
                run = segment.run(lost.queue_id)
                if run is None or (run.min_physical_offset < end and run.end_physical_offset > start):
                    gap = IndexGap(topic.topic, topic.incarnation, lost.queue_id, lost.start_offset, lost.end_offset)
                    gaps.append(KeptGap(gap, segment.min_store_ms, segment.max_store_ms))
    return gaps


def topic_filter(entry: IndexEntry) -> Callable[[str], bool]:
    """Whether an index object may hold anything of a topic."""
    checksums = entry.topic_checksums()
    return lambda topic: zlib.crc32(topic.encode()) in checksums


def _decode_all(stored: Iterable[PartBytes], start: PhysicalOffset, end: PhysicalOffset) -> list[IndexedPart]:
    decoded = [decode_part(part, start=start, end=end) for part in stored]
    return [part for part in decoded if part is not None]


def _sorted_keys(parts: list[IndexedPart]) -> KeyEntries:
    """By hash, those of one hash newest first; a key that a record names twice counts once."""
    places = np.concatenate([part.places[part.key_records] for part in parts])
    entries = KeyEntries(
        hashes=np.concatenate([part.key_hashes for part in parts]),
        queue_ids=np.concatenate([part.queue_ids[part.key_records] for part in parts]).astype(np.uint32),
        offsets=np.concatenate([part.offsets[part.key_records] for part in parts]),
    )
    order = np.lexsort((-places, entries.hashes))
    entries, places = entries.rows(order), places[order]
    keep = np.ones(len(entries), np.bool_)
    keep[1:] = (entries.hashes[1:] != entries.hashes[:-1]) | (places[1:] != places[:-1])
    return entries.rows(keep)


def _distinct(keys: KeyEntries) -> int:
    return int((keys.hashes[1:] != keys.hashes[:-1]).sum()) + 1 if len(keys) else 0


def _add_keys(writer: IndexWriter, shape: PageShape, keys: KeyEntries) -> None:
    for start in range(0, shape.page_count, PAGES_AT_ONCE):
        end = min(start + PAGES_AT_ONCE, shape.page_count)
        bounds = np.searchsorted(keys.hashes.astype(np.int64), [shape.first_hash(start), shape.first_hash(end)])
        writer.add_pages(keys.rows(slice(int(bounds[0]), int(bounds[1]))), page_end=end)


def _add_places(writer: IndexWriter, parts: list[IndexedPart]) -> None:
    incarnations: dict[Life, int] = {}
    life = [
        np.full(len(part.places), incarnations.setdefault((part.topic, part.incarnation), len(incarnations)), np.int64)
        for part in parts
    ]
    rows = PlaceRows(
        incarnations=list(incarnations),
        places=np.concatenate([part.places for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        life=np.concatenate(life),
        queue_ids=np.concatenate([part.queue_ids for part in parts]),
        offsets=np.concatenate([part.offsets for part in parts]),
    )
    order = np.argsort(rows.places, kind="stable")
    rows, newest_ms = rows.rows(order), np.concatenate([part.newest_ms for part in parts])[order]
    for start in range(0, len(rows), CHAPTER_RECORDS):
        chapter = slice(start, start + CHAPTER_RECORDS)
        writer.add_chapter(rows.rows(chapter), newest_ms=int(newest_ms[chapter].max()))
