"""IndexMerger: makes one index object of several that follow one another in the log. Commits nothing.

    keys      slice by slice of the hashes: the entries of each input, the newest input first, sorted by hash (stably)
    places    chapter by chapter; small ones are joined, and expired records are omitted, as far as chapters show it

Each input is fetched once, into the spool folder. A merge uses memory for one slice or one chapter. Belongs to the tier
process's loop; decoding, sorting and compressing run in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.index_format import (
    BLOOM_BITS_PER_KEY,
    CHAPTER_RECORDS,
    FinishedIndex,
    IndexEntry,
    IndexObject,
    IndexRange,
    IndexWriter,
    KeyEntries,
    Life,
    PageShape,
    PlaceRows,
    directory_of,
    encode_checksums,
)
from thermocline.tiered.indexes.index_builder import IndexResult, IndexUploads
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import SegmentFormatError
from thermocline.tiered.wrappers import SpooledObject

SLICE_ENTRIES = 1 << 18


class IndexMerger:
    """See the module's header."""

    def __init__(self, writer: LedgerWriter, *, spool_folder: Path | None, clock: Callable[[], int]) -> None:
        self._writer = writer
        self._folder = spool_folder
        self._clock = clock

    async def merge(self, inputs: Sequence[IndexEntry], *, cuts_ms: Mapping[str, int]) -> IndexResult:
        """Write one object in place of adjacent ones of a class, in the order of the log.

        Raises:
            ObjectStoreUnavailableError: No answer; what was written has been given up.
            ObjectNotFoundError: An input has been collected meanwhile.
            CorruptDataError: An input is damaged.
        """
        assert len(inputs) > 1
        assert all(before.end <= after.start for before, after in itertools.pairwise(inputs))
        uploads = IndexUploads(self._writer)
        async with contextlib.AsyncExitStack() as stack:
            objects: list[IndexObject] = []
            for entry in inputs:
                spooled = await SpooledObject.fetch(self._writer.store, entry.key, folder=self._folder)
                await stack.enter_async_context(spooled)
                if not spooled.is_there:
                    raise ObjectNotFoundError("an index object has gone", key=entry.key)
                if spooled.size_bytes != entry.object_bytes or spooled.crc32 != entry.crc32:
                    raise SegmentFormatError("an index object is not what was stored", key=entry.key)
                objects.append(IndexObject(spooled, entry))
            index_id, key = uploads.new(inputs[0].ttl_class)
            first = inputs[0]
            description = IndexRange(
                index_id=index_id,
                ttl_class=first.ttl_class,
                key=key,
                start=first.start,
                end=inputs[-1].end,
                topics=encode_checksums({crc for each in inputs for crc in each.topic_checksums()}),
                min_store_ms=min(each.min_store_ms for each in inputs),
                max_store_ms=max(each.max_store_ms for each in inputs),
                record_count=sum(each.record_count for each in inputs),
                level=max(each.level for each in inputs) + 1,
                gaps=tuple(dict.fromkeys(gap for each in inputs for gap in each.gaps)),
            )
            try:
                finished = await self._write(description, objects, cuts_ms)
            except BaseException:
                self._writer.abandon(index_id, ())
                raise
            with finished:
                await uploads.put(finished)
        uploads.result.indexes_out = tuple(each.index_id for each in inputs)
        return uploads.result

    async def _write(
        self, description: IndexRange, objects: list[IndexObject], cuts_ms: Mapping[str, int]
    ) -> FinishedIndex:
        # A key in two inputs counts twice: slightly too much room.
        shape = PageShape.for_keys(sum(_distinct_keys(each.entry) for each in objects))
        writer = IndexWriter(description, shape, folder=self._folder)
        try:
            total = sum(each.entry.key_count for each in objects)
            slices = max(1, -(-total // SLICE_ENTRIES))
            pages = -(-shape.page_count // slices)
            for page_start in range(0, shape.page_count, max(1, pages)):
                page_end = min(page_start + pages, shape.page_count)
                bounds = shape.first_hash(page_start), shape.first_hash(page_end)
                parts = [await _entries_between(each, *bounds) for each in reversed(objects)]
                await asyncio.to_thread(_add_slice, writer, parts, page_end)
            writer.end_pages()
            await self._write_chapters(writer, objects, cuts_ms)
            return await asyncio.to_thread(writer.finish, created_ms=self._clock())
        except BaseException:
            writer.close()
            raise

    async def _write_chapters(
        self, writer: IndexWriter, objects: list[IndexObject], cuts_ms: Mapping[str, int]
    ) -> None:
        joiner = _ChapterJoiner(writer)
        for each in objects:
            directory = directory_of(each.entry)
            for number in range(directory.chapter_count):
                row = directory.chapter(number, chapters_start=each.entry.chapters_start)
                rows = await each.chapter(row)
                await asyncio.to_thread(joiner.add, rows, row.max_store_ms, cuts_ms)
        await asyncio.to_thread(joiner.finish)


class _ChapterJoiner:
    """Collects records, and writes a chapter whenever there are enough for one."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._incarnations: dict[Life, int] = {}
        self._waiting: list[PlaceRows] = []
        self._count = 0
        self._newest_ms = 0

    def add(self, rows: PlaceRows, newest_ms: int, cuts_ms: Mapping[str, int]) -> None:
        """Add the unexpired records of a chapter."""
        expired = np.array([cuts_ms.get(topic, 0) > newest_ms for topic, _ in rows.incarnations])
        if expired.any():
            rows = rows.rows(~expired[rows.life])
        if not len(rows):
            return
        numbers = np.array(
            [self._incarnations.setdefault(life, len(self._incarnations)) for life in rows.incarnations], np.int64
        )
        if self._count + len(rows) > CHAPTER_RECORDS:
            self.finish()
            numbers = np.array(
                [self._incarnations.setdefault(life, len(self._incarnations)) for life in rows.incarnations], np.int64
            )
        self._waiting.append(
            PlaceRows(
                incarnations=(),
                places=rows.places,
                sizes=rows.sizes,
                life=numbers[rows.life],
                queue_ids=rows.queue_ids,
                offsets=rows.offsets,
            )
        )
        self._count += len(rows)
        self._newest_ms = max(self._newest_ms, newest_ms)

    def finish(self) -> None:
        """Write the remaining records."""
        if not self._waiting:
            return
        waiting = self._waiting
        rows = PlaceRows(
            incarnations=list(self._incarnations),
            places=np.concatenate([each.places for each in waiting]),
            sizes=np.concatenate([each.sizes for each in waiting]),
            life=np.concatenate([each.life for each in waiting]),
            queue_ids=np.concatenate([each.queue_ids for each in waiting]),
            offsets=np.concatenate([each.offsets for each in waiting]),
        )
        self._writer.add_chapter(rows, newest_ms=self._newest_ms)
        self._waiting, self._incarnations, self._count, self._newest_ms = [], {}, 0, 0


async def _entries_between(index: IndexObject, first_hash: int, end_hash: int) -> KeyEntries:
    """Entries of hashes [first_hash, end_hash)."""
    shape, directory = index.shape, directory_of(index.entry)
    empty = KeyEntries(hashes=np.empty(0, np.uint32), queue_ids=np.empty(0, np.uint32), offsets=np.empty(0, np.int64))
    if not shape.page_count:
        return empty
    frames = directory.frames_of_pages(shape.page_of(first_hash), shape.page_of(end_hash - 1) + 1)
    if not len(frames):
        return empty
    entries = await index.frames(frames)
    start, end = np.searchsorted(entries.hashes.astype(np.int64), [first_hash, end_hash])
    return entries.rows(slice(int(start), int(end)))


def _add_slice(writer: IndexWriter, parts: list[KeyEntries], page_end: int) -> None:
    """Add the entries of one slice, those of the newest input first: a stable sort keeps this order."""
    joined = KeyEntries.joined(parts)
    writer.add_pages(joined.rows(np.argsort(joined.hashes, kind="stable")), page_end=page_end)


def _distinct_keys(entry: IndexEntry) -> int:
    """How many different keys an object has, by the size of its blooms: no less, and at most one page more."""
    return min(entry.key_count, entry.bloom_bytes * 8 // BLOOM_BITS_PER_KEY)
