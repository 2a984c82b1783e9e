"""KeySearch: records of a topic by id or key, newest first, from index objects and what they do not cover.

    sources, newest first -> blooms in memory leave most of them out -> candidates: queue, offset -> records, each
    looked at: its key, its store time -> at most `count_max`; older sources are not asked when they cannot matter

A unique id tells when it was made: sources of that time are asked first, and if it is there nobody else is.

Requests: one for a source that blooms do not exclude, then those of the record. Bloom pages that were missed are
fetched afterwards, in the background. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field

from thermocline.remoting.errors import CorruptDataError, MQError, ObjectNotFoundError
from thermocline.remoting.message_record import decode_record
from thermocline.tiered.catalog import Catalog, TopicEntry
from thermocline.tiered.indexes.birth_windows import birth_windows
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.index_entry import IndexEntry
from thermocline.tiered.indexes.index_object import IndexObject, QueueOffset
from thermocline.tiered.indexes.key_sources import (
    IndexSource,
    KeySource,
    PackTails,
    sources_between,
    sources_of_gaps,
)
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.packs.pack_pieces import PackPieces
from thermocline.tiered.parallel import run_all
from thermocline.tiered.segment_readers import SegmentReaders

logger = logging.getLogger(__name__)

CONCURRENCY_MAX = 8
END_OF_LOG = 1 << 62

Found = list[tuple[int, memoryview]]
"""Physical offset and bytes, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWanted:
    """Records of a topic whose id is `key`, or one of whose keys it is, stored in [begin_ms, end_ms]."""

    topic: str
    key: str
    begin_ms: int
    end_ms: int
    count_max: int


RecordAt = Callable[[KeyWanted, QueueOffset], Awaitable[memoryview | None]]
"""The record at a queue offset; None when it is not there, or its segment says that it was stored at another time."""


class KeySearch:
    """See the module's header. Without `blooms` nothing is excluded without a request."""

    def __init__(
        self, store: ObjectStore, *, readers: SegmentReaders, pieces: PackPieces, blooms: BloomCache | None
    ) -> None:
        self._store = store
        self._readers = readers
        self._tails = PackTails(store, pieces)
        self._blooms = blooms
        self._missed: dict[str, IndexEntry] = {}
        self._live: dict[str, IndexEntry] | None = None
        self._loading: asyncio.Task[None] | None = None

    async def find(self, catalog: Catalog, wanted: KeyWanted, record_at: RecordAt) -> Found:
        """At most `count_max` records. Raises what the store raises, and CorruptDataError leaves."""
        entry = catalog.topics[wanted.topic]
        self._forget_merged(catalog)
        sources = [source for source in await self._sources(catalog, entry) if _overlaps(source, wanted)]
        if not sources or wanted.count_max <= 0:
            return []
        search = _Search(self, catalog, entry, wanted, record_at)
        times = [source.store_times for source in sources]
        windows = birth_windows(
            wanted.key, oldest_ms=min(least for least, _ in times), newest_ms=max(newest for _, newest in times)
        )
        likely = [
            source
            for source, (least, newest) in zip(sources, times, strict=True)
            if any(least <= end and newest >= begin for begin, end in windows)
        ]
        if likely and await search.look_into(likely):
            return search.found
        await search.look_into([source for source in sources if source not in likely])
        return search.found

    async def load_blooms(self, catalog: Catalog) -> None:
        """Fetch the bloom pages of index objects, the newest first, as far as there is room: one request each."""
        blooms = self._blooms
        if blooms is None:
            return
        self._forget_merged(catalog)
        for index in sorted(catalog.indexes.values(), key=lambda each: each.end, reverse=True):
            if index.page_count and blooms.get(index) is None and blooms.has_room(index):
                blooms.add(index, await IndexObject(self._store, index).blooms())

    def forget(self, keys: Set[str]) -> None:
        """Let go of what is kept of these objects."""
        self._tails.forget(keys)

    async def close(self) -> None:
        """Stop fetching pages."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    async def _sources(self, catalog: Catalog, entry: TopicEntry) -> list[KeySource]:
        sources: list[KeySource] = [
            IndexSource(index, self._store, entry.topic, entry.incarnation)
            for index in catalog.indexes.values()
            if index.page_count and index.may_hold(entry.topic)
        ]
        behind = await sources_between(
            catalog, entry, start=catalog.indexed_to, end=END_OF_LOG, readers=self._readers, tails=self._tails
        )
        gaps = await sources_of_gaps(catalog, entry, readers=self._readers, tails=self._tails)
        return [*sources, *{source.name: source for source in (*gaps, *behind)}.values()]

    async def fallback(self, catalog: Catalog, entry: TopicEntry, index: IndexEntry) -> list[KeySource]:
        """What answers for an index object that cannot be read."""
        return await sources_between(
            catalog, entry, start=index.start, end=index.end, readers=self._readers, tails=self._tails
        )

    def excludes(self, source: KeySource, key: str) -> bool:
        """Whether pages in memory say that the source has no such key; pages that are not here are wished for."""
        if not isinstance(source, IndexSource) or self._blooms is None:
            return False
        pages = self._blooms.get(source.index)
        if pages is not None:
            return not IndexObject(self._store, source.index).shape.may_hold(pages, source.hash_of(key))
        if self._blooms.has_room(source.index):
            self._missed[source.name] = source.index
            if self._loading is None or self._loading.done():
                self._loading = asyncio.get_running_loop().create_task(self._load_missed())
        return False

    def _forget_merged(self, catalog: Catalog) -> None:
        """Pages of objects that have left the catalog make room for others."""
        if self._blooms is not None and self._live is not catalog.indexes:
            self._live = catalog.indexes
            self._blooms.keep_only(catalog.indexes)

    async def _load_missed(self) -> None:
        assert self._blooms is not None
        while self._missed:
            index = max(self._missed.values(), key=lambda each: each.end)
            del self._missed[index.index_id]
            try:
                self._blooms.add(index, await IndexObject(self._store, index).blooms())
            except MQError as error:
                logger.debug("bloom pages not loaded index_id=%s: %s", index.index_id, error)


class _Search:
    """One look-up under way. `found` is never longer than wanted."""

    def __init__(
        self, owner: KeySearch, catalog: Catalog, entry: TopicEntry, wanted: KeyWanted, record_at: RecordAt
    ) -> None:
        self._owner = owner
        self._catalog = catalog
        self._entry = entry
        self._wanted = wanted
        self._record_at = record_at
        self._asked: set[str] = set()
        self._seen: set[QueueOffset] = set()
        self.found: Found = []

    async def look_into(self, sources: list[KeySource]) -> Found:
        """Ask sources, the newest first, a few at a time, until older ones cannot matter; all that was found so far."""
        wanted = self._wanted
        waiting = [source for source in sources if not self._owner.excludes(source, wanted.key)]
        waiting.sort(key=lambda source: source.end_place, reverse=True)
        while waiting:
            if len(self.found) >= wanted.count_max and self.found[-1][0] >= waiting[0].end_place:
                break
            batch, waiting = waiting[:CONCURRENCY_MAX], waiting[CONCURRENCY_MAX:]
            # When one record is enough, the newest source alone may be: the others are asked if it is not.
            if wanted.count_max == 1:
                batch, waiting = batch[:1], batch[1:] + waiting
            self._asked.update(source.name for source in batch)
            answers = await run_all([self._ask(source) for source in batch])
            more = [source for answer in answers for source in answer.instead]
            waiting += [each for each in {source.name: source for source in more}.values() if self._is_new(each)]
            waiting.sort(key=lambda source: source.end_place, reverse=True)
            records = [item for answer in answers for item in answer.found]
            self.found = heapq.nlargest(wanted.count_max, [*self.found, *records], key=lambda item: item[0])
        return self.found

    def _is_new(self, source: KeySource) -> bool:
        return source.name not in self._asked and _overlaps(source, self._wanted)

    async def _ask(self, source: KeySource) -> _Answer:
        """Matching records of one source, newest first; of an index object that cannot be read, what there was."""
        answer = _Answer()
        candidates = source.find(self._wanted.key)
        while len(answer.found) < self._wanted.count_max:
            try:
                batch = await anext(candidates, None)
            except (CorruptDataError, ObjectNotFoundError) as error:
                if not isinstance(source, IndexSource):
                    raise
                logger.warning("index object cannot be read key=%s: %s", source.index.key, error)
                answer.instead = await self._owner.fallback(self._catalog, self._entry, source.index)
                break
            if batch is None:
                break
            await self._look_at(batch, answer.found)
        return answer

    async def _look_at(self, candidates: list[QueueOffset], found: Found) -> None:
        wanted = self._wanted
        for candidate in candidates:
            if candidate in self._seen:
                continue
            self._seen.add(candidate)
            record = await self._record_at(wanted, candidate)
            if record is None:
                continue
            message = decode_record(record, check_crc=False)
            is_in_time = wanted.begin_ms <= message.store_timestamp_ms <= wanted.end_ms
            # Other keys may share the hash.
            if is_in_time and (wanted.key == message.unique_key or wanted.key in (message.keys or "").split(" ")):
                found.append((message.physical_offset, record))
                if len(found) == wanted.count_max:
                    return


@dataclass(slots=True)
class _Answer:
    """Records of one source, and what is asked in its place if it cannot be read."""

    found: Found = field(default_factory=list)
    instead: list[KeySource] = field(default_factory=list)


def _overlaps(source: KeySource, wanted: KeyWanted) -> bool:
    least, newest = source.store_times
    return least <= wanted.end_ms and newest >= wanted.begin_ms
