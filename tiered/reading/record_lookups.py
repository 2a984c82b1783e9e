"""RecordLookups: single records of the cold tier by physical offset, or by a key.

    place -> index object, or the index of newer records in memory -> queue and offset -> the record: two requests
          -> if neither has it, the parts of segments (`cold_query.py`)
    key   -> `lookups/key_search.py` -> queue and offset of candidates -> each record: one request

A record of a pack is read without its piece's entry in the pack's footer: with the whole `.log` part, or of a large
part the frames around the record; the ledger has their positions. Belongs to one event loop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Set

import numpy as np

from thermocline.remoting.errors import (
    CorruptDataError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    QueryNotFoundError,
)
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import store_timestamp_at
from thermocline.tiered.catalog import Catalog, PackedSpan, PackPieces, QueueIndex, QueueSpan
from thermocline.tiered.index_format import IndexedPlace, QueuePlace
from thermocline.tiered.lookups import KeySearch, KeyWanted, LookupMemory, PlaceAnswer, find_indexed_place
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.packs import group_in_pack, record_in_group, record_in_part, small_part
from thermocline.tiered.reading.cold_query import find_by_physical_offset, frame_at, lost_by_key, not_there
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments import QueueRun, SegmentReaders

logger = logging.getLogger(__name__)

END_OF_TIME_MS = 1 << 62


class RecordLookups:
    """See the module's header. `memory`: the indexes kept in memory."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        catalog: Callable[[], Catalog],
        readers: SegmentReaders,
        cache: FrameCache,
        pieces: PackPieces,
        memory: LookupMemory,
        queue_of: Callable[[str, int], QueueIndex | None],
        span_at: Callable[[QueueIndex, int], Awaitable[QueueSpan]],
    ) -> None:
        """`queue_of` returns a topic's queue in the newest catalog; `span_at` one of its spans, loaded."""
        self.memory = memory
        self._store = store
        self._catalog = catalog
        self._readers = readers
        self._cache = cache
        self._pieces = pieces
        self._queue_of = queue_of
        self._span_at = span_at
        self._key_search = KeySearch(store, readers=readers, pieces=pieces, memory=memory)

    async def view(self, physical_offset: PhysicalOffset, *, cut_ms: Callable[[str], int]) -> memoryview:
        """See ColdReader."""
        catalog = self._catalog()
        try:
            indexed = await find_indexed_place(self._store, catalog, physical_offset)
            if indexed is None and (place := self.memory.find_place(physical_offset)) is not None:
                indexed = PlaceAnswer(place)
            if indexed is not None:
                record = await self._record_of(indexed.place, cut_ms) if indexed.place is not None else None
                if record is None:
                    raise not_there(catalog, physical_offset)
                return record
            return await find_by_physical_offset(
                catalog,
                self._readers,
                self._cache,
                physical_offset=physical_offset,
                cut_ms=cut_ms,
                pieces=self._pieces,
                memory=self.memory,
            )
        except QueryNotFoundError:
            raise
        except ObjectNotFoundError as error:
            if self._catalog() is catalog:
                raise CorruptDataError("an object that the catalog names is missing") from error
            raise ObjectStoreUnavailableError("the catalog changes while it is read") from error

    async def find_by_key(self, wanted: KeyWanted) -> list[memoryview]:
        """The records, newest first. QuarantinedError when none is found and records of that time are lost."""
        catalog = self._catalog()
        if wanted.topic not in catalog.topics:
            return []
        found = await self._key_search.find(catalog, wanted, self)
        if not found:
            lost_by_key(catalog.topics[wanted.topic], key=wanted.key, begin_ms=wanted.begin_ms, end_ms=wanted.end_ms)
        return [record for _, record in found]

    def forget(self, keys: Set[str]) -> None:
        """Drop the cached content of these objects."""
        self._key_search.forget(keys)

    def in_time(self, wanted: KeyWanted, places: list[QueuePlace]) -> list[QueuePlace]:
        """See KeyRecords."""
        queue_ids, offsets = np.array(places, np.int64).reshape(-1, 2).T
        is_in_time = np.zeros(len(places), np.bool_)
        for queue_id in np.unique(queue_ids).tolist():
            queue = self._queue_of(wanted.topic, queue_id)
            if queue is not None:
                own = queue_ids == queue_id
                is_in_time[own] = queue.holds_between(offsets[own], wanted.begin_ms, wanted.end_ms)
        return list(itertools.compress(places, is_in_time.tolist()))

    async def record_at(
        self, wanted: KeyWanted, place: QueuePlace, spans_read: set[tuple[int, int]]
    ) -> memoryview | None:
        """See KeyRecords. None also of a lost record."""
        queue_id, offset = place
        queue = self._queue_of(wanted.topic, queue_id)
        if queue is None or not queue.start_offset <= offset < queue.end_offset:
            return None
        position = queue.position_of(offset)
        name = queue_id, int(queue.spans.starts[position])
        is_first = name not in spans_read
        spans_read.add(name)

        def is_there(run: QueueRun) -> bool:
            is_in_time = run.max_store_ms >= wanted.begin_ms and run.min_store_ms <= wanted.end_ms
            return run.start_offset <= offset and is_in_time

        found = queue.spans[position]
        if found.quarantine is not None or not is_there(found.run):
            return None
        if isinstance(found, PackedSpan) and is_first and not self._pieces.has(found.pack, found.topic):
            record = await self._record_in_pack(found, offset)
            if record is not None:
                return record
        span = await self._span_at(queue, position)
        if not is_there(span.run):
            return None
        if is_first:
            frame = await frame_at(span.segment, span.run, offset, self._readers, self._cache)
            return frame.slice(offset, offset + 1)
        reader = self._readers.of(span.segment)
        info = (await reader.frame_table()).frame_of(span.run, offset)
        if info.max_store_ms < wanted.begin_ms or info.min_store_ms > wanted.end_ms:
            return None
        return (await self._cache.get(reader, info)).slice(offset, offset + 1)

    async def _record_in_pack(self, span: PackedSpan, offset: QueueOffset) -> memoryview | None:
        """A record by the piece's position in the ledger; None when the ledger does not have it or the data there is
        damaged: the caller then reads by the piece's entry and the cache, which retries a damaged frame."""
        pack, topic, queue_id = span.pack, span.topic, span.run.queue_id
        table, name = self._pieces.table(pack), (queue_id, span.run.start_offset)
        for index in pack.indexes_of(topic):
            piece = table.piece(index)
            if not any((each.queue_id, each.start_offset) == name for each in piece.queues):
                continue
            part = small_part(pack, index)
            group = group_in_pack(pack, index, piece, queue_id=queue_id, offset=offset) if part is None else None
            try:
                if part is not None:
                    return await record_in_part(
                        self._store, pack, part, topic=topic, queue_id=queue_id, queue_offset=offset
                    )
                if group is not None:
                    return await record_in_group(
                        self._store, pack, group, topic=topic, queue_id=queue_id, queue_offset=offset
                    )
            except CorruptDataError as error:
                logger.debug("a record is not where the ledger says: %s", error)
        return None

    async def _record_of(self, place: IndexedPlace, cut_ms: Callable[[str], int]) -> memoryview | None:
        """The visible record of an indexed place; None when its topic has ended, it has expired, or it is lost."""
        topic, incarnation = place.life
        entry = self._catalog().topics.get(topic)
        if entry is None or entry.deleted or entry.incarnation != incarnation:
            return None
        wanted = KeyWanted(topic=topic, key="", begin_ms=cut_ms(topic), end_ms=END_OF_TIME_MS, count_max=1)
        record = await self.record_at(wanted, (place.queue_id, place.offset), set())
        return record if record is not None and store_timestamp_at(record, 0) >= wanted.begin_ms else None
