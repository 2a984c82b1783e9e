"""IndexMerger: makes one index object of several that follow one another in the log. Commits nothing.

    keys      slice by slice of the hashes: the entries of each input, the newest input first, sorted by hash (stably);
              a page with a key of very many records is a slice that goes frame by frame
    places    chapter by chapter; small ones are joined, and expired records are omitted, as far as chapters show it

Each input is fetched once, into the spool folder. A merge uses memory for one slice, a few frames of each input, or one
chapter. Belongs to the tier
process's loop; decoding, sorting and compressing run in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.index_format import (
    BLOOM_BITS_PER_KEY,
    CHAPTER_RECORDS,
    FRAME_ENTRIES,
    FinishedIndex,
    IndexDescription,
    IndexEntry,
    IndexObject,
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
SLICE_ENTRIES_MAX = 8 * SLICE_ENTRIES
"""Of a slice that is sorted in memory: slices are cut as if all keys had as many records."""
FRAMES_AT_ONCE = 8
"""Of one input, where entries go frame by frame."""


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
            description = IndexDescription(
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
        self, description: IndexDescription, objects: list[IndexObject], cuts_ms: Mapping[str, int]
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
                await self._write_pages(writer, shape, objects, page_start=page_start, page_end=page_end)
            writer.end_pages()
            await self._write_chapters(writer, objects, cuts_ms)
            return await asyncio.to_thread(writer.finish, created_ms=self._clock())
        except BaseException:
            writer.close()
            raise

    async def _write_pages(
        self, writer: IndexWriter, shape: PageShape, objects: list[IndexObject], *, page_start: int, page_end: int
    ) -> None:
        first_hash, end_hash = shape.first_hash(page_start), shape.first_hash(page_end)
        frame_count = sum(len(_frames_between(each, first_hash, end_hash)) for each in objects)
        if frame_count * FRAME_ENTRIES <= SLICE_ENTRIES_MAX:
            parts = [await _entries_between(each, first_hash, end_hash) for each in reversed(objects)]
            await asyncio.to_thread(_add_slice, writer, parts, page_end)
        elif page_end - page_start > 1:
            middle = (page_start + page_end) // 2
            await self._write_pages(writer, shape, objects, page_start=page_start, page_end=middle)
            await self._write_pages(writer, shape, objects, page_start=middle, page_end=page_end)
        else:
            async for entries in _in_order([_Entries(each, first_hash, end_hash) for each in reversed(objects)]):
                await asyncio.to_thread(writer.add_to_page, entries)
            await asyncio.to_thread(writer.end_page)

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


class _Entries:
    """The entries of one input of hashes [first_hash, end_hash), some frames at a time. `waiting`: those that were read
    and not taken; none once all were taken."""

    def __init__(self, index: IndexObject, first_hash: int, end_hash: int) -> None:
        self.waiting = KeyEntries.empty()
        self._index = index
        self._hashes = first_hash, end_hash
        self._frames = _frames_between(index, first_hash, end_hash)

    @property
    def has_more(self) -> bool:
        """Whether some are not read yet."""
        return bool(self._frames)

    @property
    def last_hash(self) -> int:
        """Of those that wait; entries of the same hash may follow."""
        return int(self.waiting.hashes[-1])

    async def fill(self) -> None:
        """Read on if none waits."""
        while not len(self.waiting) and self._frames:
            frames, self._frames = self._frames[:FRAMES_AT_ONCE], self._frames[FRAMES_AT_ONCE:]
            self.waiting = _cut(await self._index.frames(frames), *self._hashes)

    def take_below(self, end_hash: int) -> KeyEntries:
        """Take those that wait with a hash below this."""
        taken, self.waiting = _cut(self.waiting, 0, end_hash), _cut(self.waiting, end_hash, 1 << 32)
        return taken


async def _in_order(inputs: list[_Entries]) -> AsyncIterator[KeyEntries]:
    """All entries by hash, those of one hash in the order of the inputs, in portions of some frames."""
    while True:
        for each in inputs:
            await each.fill()
        waiting = [each for each in inputs if len(each.waiting)]
        if not waiting:
            return
        border = min((each.last_hash for each in waiting if each.has_more), default=1 << 32)
        parts = [each.take_below(border) for each in waiting]
        if any(map(len, parts)):
            yield _sorted(parts)
            continue
        # The first entries are of one hash, and go on in the next block of an input: one input after the other.
        for each in inputs:
            while len(entries := each.take_below(border + 1)):
                yield entries
                await each.fill()


def _frames_between(index: IndexObject, first_hash: int, end_hash: int) -> range:
    """The frames with the entries of hashes [first_hash, end_hash), and perhaps others."""
    shape, directory = index.shape, directory_of(index.entry)
    if not shape.page_count:
        return range(0)
    first = directory.frames_of_hash(shape.page_of(first_hash), first_hash)
    last = directory.frames_of_hash(shape.page_of(end_hash - 1), end_hash - 1)
    return range(first.start, last.stop)


async def _entries_between(index: IndexObject, first_hash: int, end_hash: int) -> KeyEntries:
    """Entries of hashes [first_hash, end_hash)."""
    frames = _frames_between(index, first_hash, end_hash)
    return _cut(await index.frames(frames), first_hash, end_hash) if len(frames) else KeyEntries.empty()


def _cut(entries: KeyEntries, first_hash: int, end_hash: int) -> KeyEntries:
    """Those of hashes [first_hash, end_hash)."""
    start, end = np.searchsorted(entries.hashes.astype(np.int64), [first_hash, end_hash])
    return entries.rows(slice(int(start), int(end)))


def _add_slice(writer: IndexWriter, parts: list[KeyEntries], page_end: int) -> None:
    """Add the entries of one slice, those of the newest input first."""
    writer.add_pages(_sorted(parts), page_end=page_end)


def _sorted(parts: list[KeyEntries]) -> KeyEntries:
    """By hash; a stable sort keeps the order of the parts, and within each."""
    joined = KeyEntries.joined(parts)
    return joined.rows(np.argsort(joined.hashes, kind="stable"))


def _distinct_keys(entry: IndexEntry) -> int:
    """How many different keys an object has, by the size of its blooms: no less, and at most one page more."""
    return min(entry.key_count, entry.bloom_bytes * 8 // BLOOM_BITS_PER_KEY)
