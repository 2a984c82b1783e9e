"""KeySearch: records of a topic by id or key, newest first, from index objects and the segments they do not cover.

    sources, newest first -> indexes in memory exclude most of them -> candidates: queue, offset -> records, each
    checked by key and store time -> at most `count_max`, and `bytes_max` unless the first alone is larger; older
    sources are not searched when they cannot matter

A unique id has its creation time within a month, but not the month. When a message is looked for by its id, sources of
the minute after that time are searched first, those of the newest month before others, unless the wanted times begin
with another one; then those of the hours around it, for producers in other time zones. Once the record is found, no
other source is searched. Messages with an id among their keys, as those of a trace, may be of any time: a lookup by key
searches all sources, whatever the key looks like.

Requests: one for an index object that its blooms do not exclude, none for what is newer and in memory
(`lookup_memory.py`), then those of the record. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.catalog import Catalog, PackPieces, TopicEntry
from thermocline.tiered.index_format import IndexEntry, IndexObject, QueuePlace
from thermocline.tiered.indexes import END_OF_LOG
from thermocline.tiered.lookups.birth_windows import SOON_MS, Window, birth_windows, soon_after
from thermocline.tiered.lookups.key_sources import (
    FreshSource,
    IndexSource,
    KeySource,
    PackTails,
    sources_between,
    sources_of_gaps,
)
from thermocline.tiered.lookups.lookup_memory import LookupMemory
from thermocline.tiered.objects import ObjectStore, run_all
from thermocline.tiered.segments import SegmentReaders

logger = logging.getLogger(__name__)

CONCURRENCY_MAX = 8
CANDIDATES_AT_ONCE = 256
"""Others of the loop are served between so many."""

Found = list[tuple[int, memoryview]]
"""Physical offset and bytes, newest first."""


class KeyWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a topic whose id is `key`, or one of whose keys it is, stored in [begin_ms, end_ms]. `is_unique`: the
    key is searched as an id, so that the records around its creation are enough if there are any."""

    topic: str
    key: str
    begin_ms: int
    end_ms: int
    count_max: int
    bytes_max: int = 1 << 62
    is_unique: bool = False


class KeyRecords(Protocol):
    """Reads the records of candidates."""

    def in_time(self, wanted: KeyWanted, places: list[QueuePlace]) -> list[QueuePlace]:
        """The places that are held, readable, and within the wanted time by their segments. Sends no request."""

    async def record_at(
        self, wanted: KeyWanted, place: QueuePlace, spans_read: set[tuple[int, int]]
    ) -> memoryview | None:
        """The record at a queue offset; None when it is not held, or outside the wanted time by its segment or frame.

        `spans_read`: the spans that this lookup has read, by queue and start, which grows. The first record of one is
        read by as few requests as possible, for the others of it what is fetched is kept.
        """


class KeySearch:
    """See the module's header."""

    def __init__(
        self, store: ObjectStore, *, readers: SegmentReaders, pieces: PackPieces, memory: LookupMemory
    ) -> None:
        self._store = store
        self._readers = readers
        self._tails = PackTails(store, pieces)
        self._memory = memory

    async def find(self, catalog: Catalog, wanted: KeyWanted, records: KeyRecords) -> Found:
        """At most `count_max` records. Raises the store's errors and CorruptDataError."""
        entry = catalog.topics[wanted.topic]
        found = [each for each in await self._sources(catalog, entry) if _overlaps(each.source, wanted)]
        if not found or wanted.count_max <= 0:
            return []
        search = _Search(self, catalog, entry, wanted, records)
        sources, times = [each.source for each in found], [each.store_times for each in found]
        if not wanted.is_unique:
            return await search.look_into(sources)
        windows = birth_windows(
            wanted.key, oldest_ms=min(least for least, _ in times), newest_ms=max(newest for _, newest in times)
        )

        def at(window: Window) -> list[KeySource]:
            return [
                source
                for source, (least, newest) in zip(sources, times, strict=True)
                if least <= window[1] and newest >= window[0]
            ]

        # The newest month first: objects follow one another in time, so mostly there is one source for each month. But
        # clients that search an id pass a begin time just before its creation, which gives the month.
        windows.sort(key=lambda window: not 0 <= soon_after(window)[0] - wanted.begin_ms <= SOON_MS)
        for window in windows:
            near = search.not_asked(at(soon_after(window)))
            if near and await search.look_into(near):
                return search.found
        likely = search.not_asked(list({source.name: source for each in windows for source in at(each)}.values()))
        if likely and await search.look_into(likely):
            return search.found
        await search.look_into(search.not_asked(sources))
        return search.found

    def forget(self, keys: Set[str]) -> None:
        """Drop the cached content of these objects."""
        self._tails.forget(keys)

    async def _sources(self, catalog: Catalog, entry: TopicEntry) -> list[_TimedSource]:
        sources: list[KeySource] = [
            IndexSource(index, self._store, entry.topic, entry.incarnation)
            for index in catalog.indexes.values()
            if index.page_count and index.may_hold(entry.topic)
        ]
        sources += await sources_of_gaps(catalog, entry, readers=self._readers, tails=self._tails)
        found = {source.name: _TimedSource(source, source.store_times) for source in sources}
        # Of a segment that is indexed in part, the rest was stored no earlier than what is indexed.
        indexed_ms = max((index.max_store_ms for index in catalog.indexes.values()), default=0)
        for source in await self._between(catalog, entry, catalog.indexed_to, END_OF_LOG):
            least, newest = source.store_times
            found.setdefault(source.name, _TimedSource(source, (max(least, min(indexed_ms, newest)), newest)))
        return list(found.values())

    async def fallback(self, catalog: Catalog, entry: TopicEntry, index: IndexEntry) -> list[KeySource]:
        """The sources that replace an unreadable index object."""
        return await self._between(catalog, entry, index.start, index.end)

    async def _between(
        self, catalog: Catalog, entry: TopicEntry, start: PhysicalOffset, end: PhysicalOffset
    ) -> list[KeySource]:
        return await sources_between(
            catalog,
            entry,
            start=start,
            end=end,
            readers=self._readers,
            tails=self._tails,
            memory=self._memory,
        )

    def excludes(self, source: KeySource, key: str) -> bool:
        """Whether the indexes in memory show that the source does not have the key."""
        if isinstance(source, FreshSource):
            return not source.records.has_key(source.life, key)
        if not isinstance(source, IndexSource):
            return False
        pages = self._memory.blooms_of(source.index)
        return pages is not None and not IndexObject(self._store, source.index).shape.may_hold(
            pages, source.hash_of(key)
        )


class _TimedSource(msgspec.Struct, frozen=True):
    """A source, and the bounds of the store times of the records it is likely searched for."""

    source: KeySource
    store_times: tuple[int, int]


class _Search:
    """One lookup under way. `found` is never longer than wanted."""

    def __init__(
        self, owner: KeySearch, catalog: Catalog, entry: TopicEntry, wanted: KeyWanted, records: KeyRecords
    ) -> None:
        self._owner = owner
        self._catalog = catalog
        self._entry = entry
        self._wanted = wanted
        self._records = records
        self._spans_read: set[tuple[int, int]] = set()
        self._asked: set[str] = set()
        self._looked_into: set[str] = set()
        self._seen: set[QueuePlace] = set()
        self._is_full = False
        """No record that is older than those found belongs to the answer."""
        self.found: Found = []

    def not_asked(self, sources: list[KeySource]) -> list[KeySource]:
        """The sources that were not searched before."""
        return [source for source in sources if source.name not in self._looked_into]

    async def look_into(self, sources: list[KeySource]) -> Found:
        """Search sources, the newest first, a few at a time, until older ones cannot matter; returns all results."""
        wanted = self._wanted
        self._looked_into.update(source.name for source in sources)
        waiting = [source for source in sources if not self._owner.excludes(source, wanted.key)]
        waiting.sort(key=lambda source: source.end_place, reverse=True)
        while waiting:
            if self._is_full and self.found[-1][0] >= waiting[0].end_place:
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
            newest = heapq.nlargest(wanted.count_max, [*self.found, *records], key=lambda item: item[0])
            self.found = newest[: _fitting(newest, wanted.bytes_max)]
            self._is_full |= len(self.found) < len(newest) or len(newest) == wanted.count_max
        return self.found

    def _is_new(self, source: KeySource) -> bool:
        return source.name not in self._asked and _overlaps(source, self._wanted)

    async def _ask(self, source: KeySource) -> _Answer:
        """Matching records of one source, newest first; of an unreadable index object, those read so far."""
        answer = _Answer()
        candidates = source.find(self._wanted.key)
        while not answer.is_full:
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
            await self._look_at(batch, answer)
        return answer

    async def _look_at(self, candidates: list[QueuePlace], answer: _Answer) -> None:
        wanted, found = self._wanted, answer.found
        # Of a key that very many records have, most may be of other times than the wanted.
        for number, candidate in enumerate(self._records.in_time(wanted, candidates), start=1):
            if number % CANDIDATES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if candidate in self._seen:
                continue
            self._seen.add(candidate)
            record = await self._records.record_at(wanted, candidate, self._spans_read)
            if record is None:
                self._seen.discard(candidate)
                continue
            message = decode_record(record, check_crc=False)
            is_in_time = wanted.begin_ms <= message.store_timestamp_ms <= wanted.end_ms
            # Other keys may share the hash.
            if is_in_time and (wanted.key == message.unique_key or wanted.key in (message.keys or "").split(" ")):
                # A copy: a view would keep the frame or the part that it was read with, of up to some MiB, in memory.
                found.append((message.physical_offset, memoryview(bytes(record))))
                answer.size_bytes += len(record)
                if len(found) == wanted.count_max or answer.size_bytes > wanted.bytes_max:
                    answer.is_full = True
                    return


@dataclass(slots=True)
class _Answer:
    """Records of one source, and the sources to search in its place if it is unreadable. `is_full`: its older records
    are not needed."""

    found: Found = field(default_factory=list)
    instead: list[KeySource] = field(default_factory=list)
    size_bytes: int = 0
    is_full: bool = False


def _fitting(found: Found, bytes_max: int) -> int:
    """How many records fit, at least one if there is any."""
    size_bytes = 0
    for count, (_, record) in enumerate(found):
        size_bytes += len(record)
        if count and size_bytes > bytes_max:
            return count
    return len(found)


def _overlaps(source: KeySource, wanted: KeyWanted) -> bool:
    least, newest = source.store_times
    return least <= wanted.end_ms and newest >= wanted.begin_ms
