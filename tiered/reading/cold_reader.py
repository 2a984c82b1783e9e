"""ColdReader: pulls and lookups on the cold tier, by one catalog, as if it were one endless log.

Every read names its cut: records with a store time before `cut_ms` have expired and are skipped. Within a queue store
times rise, so the least visible offset is found by the frames' times and, if the cut is within a frame, by reading it.

    pull: offset -> segment and run (TopicIndex) -> frame (footer) -> FrameCache -> slices of the frame, uncopied
          in a pack: its piece is loaded first (PackPieces), and read whole when it is small
          with tags: the columns of `.cq` say which offsets match, only their frames are read
          with a condition on properties: every frame is read, as without a filter, and every record is checked

A read of a record in quarantine raises QuarantinedError; reads of other records are not affected.

Belongs to one event loop. Bounded: frames (FrameCache), footers (SegmentReaders, PackPieces), one pull's records and
its read-ahead (SpanTaker). Cancelling any call is safe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Set
from enum import Enum
from typing import TypeVar

import numpy as np

from thermocline.remoting.errors import (
    CorruptDataError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
)
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset, offset_range
from thermocline.tiered.catalog import Catalog, PackedSpan, PackPieces, QueueIndex, QueueSpan, TopicEntry, TopicIndex
from thermocline.tiered.indexes import BloomCache, FreshIndex
from thermocline.tiered.lookups import KeyWanted, LookupMemory
from thermocline.tiered.objects import ObjectStore, SegmentFormatError
from thermocline.tiered.packs import PackedTopic
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullResult, ColdPullStatus, TakenRecords
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.reading.read_ahead import WINDOW_FRAMES_MAX
from thermocline.tiered.reading.record_lookups import RecordLookups
from thermocline.tiered.reading.span_taker import SpanTaker
from thermocline.tiered.segments import DecodedFrame, SegmentReaders

TOPIC_INDEX_COUNT_MAX = 256
TOPIC_INDEX_SPANS_MAX = 1 << 20
"""The sum over all topics kept: 40 MB."""

Result = TypeVar("Result")


class Boundary(Enum):
    """Which of the offsets around a time is returned."""

    LOWER = "the first offset at or after it"
    UPPER = "the last offset at or before it"


class ColdReader:
    """See the module's header. `catalog` returns the newest catalog; each call uses the same one throughout.

    Every call may raise ObjectStoreUnavailableError (try again) and CorruptDataError.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        catalog: Callable[[], Catalog],
        cache: FrameCache,
        read_ahead_frames_max: int = WINDOW_FRAMES_MAX,
        blooms: BloomCache | None = None,
        fresh: FreshIndex | None = None,
    ) -> None:
        """`blooms`, `fresh`: the indexes that lookups keep in memory, if any."""
        self._store = store
        self._catalog = catalog
        self._cache = cache
        self._readers = SegmentReaders(store)
        self._taker = SpanTaker(
            cache=cache, readers=self._readers, window_frames_max=read_ahead_frames_max, span_at=self._span
        )
        self._pieces = PackPieces(store)
        self._lookups = RecordLookups(
            store,
            catalog=catalog,
            readers=self._readers,
            cache=cache,
            pieces=self._pieces,
            memory=LookupMemory(store, catalog=catalog, blooms=blooms, fresh=fresh),
            queue_of=self._queue,
            span_at=self._span,
        )
        self._indexes: dict[str, tuple[PackedTopic | None, TopicIndex]] = {}

    async def pull(self, request: ColdPull) -> ColdPullResult:
        """Return records from an offset on. The buffers stay valid as long as they are referenced."""
        return await self._checked(request.topic, lambda: self._pull(request))

    async def min_offset(self, topic: str, queue_id: int, *, cut_ms: int) -> QueueOffset | None:
        """The least visible offset; None when the cold tier holds no visible record of the queue."""

        async def find() -> QueueOffset | None:
            queue = self._queue(topic, queue_id)
            return None if queue is None else await self._first_at_or_after(queue, cut_ms)

        return await self._checked(topic, find)

    async def visible_count(self, topic: str, *, cut_ms: int) -> int:
        """The number of readable records of a topic: not expired and not in quarantine. Sends requests only for
        segments and pieces that contain the cut."""

        async def count() -> int:
            index = self._index(topic)
            found = 0
            for queue in index.queues.values() if index is not None else ():
                first = await self._first_at_or_after(queue, cut_ms)
                if first is not None:
                    found += queue.count_from(first)
            return found

        return await self._checked(topic, count)

    def end_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """The offset after the last one held, visible or not; None when there is none. Sends no request."""
        return self._end_offset(topic, queue_id) or None

    async def earliest_time(self, topic: str, queue_id: int, *, cut_ms: int) -> int | None:
        """The store time of the record at the least visible offset; None when nothing is visible."""

        async def find() -> int | None:
            queue = self._queue(topic, queue_id)
            offset = None if queue is None else await self._first_at_or_after(queue, cut_ms)
            if queue is None or offset is None:
                return None
            span = await self._span(queue, queue.position_of(offset))
            if span.quarantine is not None:
                return max(span.run.min_store_ms, cut_ms)
            if offset == span.run.start_offset:
                return span.run.min_store_ms
            return (await self._frame_at(span, offset)).store_timestamp_ms(offset)

        return await self._checked(topic, find)

    async def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, boundary: Boundary, cut_ms: int
    ) -> QueueOffset | None:
        """LOWER: the first visible offset at or after the time; UPPER: the last at or before it; None without one."""

        async def find() -> QueueOffset | None:
            queue = self._queue(topic, queue_id)
            if queue is None:
                return None
            if boundary is Boundary.LOWER:
                return await self._first_at_or_after(queue, max(timestamp_ms, cut_ms))
            return await self._last_at_or_before(queue, timestamp_ms, cut_ms=cut_ms)

        return await self._checked(topic, find)

    async def message_time(self, topic: str, queue_id: int, queue_offset: QueueOffset, *, cut_ms: int) -> int | None:
        """The store time of one record; None when it is not held or not visible."""

        async def find() -> int | None:
            queue = self._queue(topic, queue_id)
            if queue is None or not queue.start_offset <= queue_offset < queue.end_offset:
                return None
            span = await self._span(queue, queue.position_of(queue_offset))
            if queue_offset < span.run.start_offset:
                return None
            timestamp_ms = (await self._frame_at(span, queue_offset)).store_timestamp_ms(queue_offset)
            return timestamp_ms if timestamp_ms >= cut_ms else None

        return await self._checked(topic, find)

    async def view(self, physical_offset: PhysicalOffset, *, cut_ms: Callable[[str], int]) -> memoryview:
        """The record stored at `physical_offset` of the log; `cut_ms` returns a topic's cut.

        Raises:
            QueryNotFoundError: The cold tier holds no visible record of that offset.
        """
        return await self._lookups.view(physical_offset, cut_ms=cut_ms)

    async def query_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int,
        end_ms: int,
        count_max: int,
        cut_ms: int,
        bytes_max: int = 1 << 62,
        is_unique: bool = False,
    ) -> list[memoryview]:
        """Records with that id or key and a store time in [begin_ms, end_ms], newest first, at most `count_max`, and
        `bytes_max` unless the first alone is larger.

        `is_unique`: the key is searched as an id, and not all records need be found: see `lookups/key_search.py`.
        """
        wanted = KeyWanted(
            topic=topic,
            key=key,
            begin_ms=max(begin_ms, cut_ms),
            end_ms=end_ms,
            count_max=count_max,
            bytes_max=bytes_max,
            is_unique=is_unique,
        )
        return await self._checked(topic, lambda: self._lookups.find_by_key(wanted))

    async def load_lookups(self) -> None:
        """Fetch the missing indexes that lookups keep in memory, up to the memory bound; see LookupMemory."""
        await self._lookups.memory.load()

    def load_lookups_soon(self) -> None:
        """Run `load_lookups` in the background, ignoring failures. Call after opening or advancing a catalog."""
        self._lookups.memory.load_soon()

    def forget(self, keys: Set[str]) -> None:
        """Drop the cached content of these objects, which the catalog no longer names."""
        self._cache.forget(keys)
        self._readers.forget(keys)
        self._lookups.forget(keys)

    def reader_left(self, reader: str) -> None:
        """The reader is gone: stop fetching for it alone. Callers cancel its pulls."""
        self._taker.reader_left(reader)

    async def close(self) -> None:
        """Stop reading ahead. The owner of the cache closes the cache."""
        await self._lookups.memory.close()
        await self._taker.close()

    async def _checked(self, topic: str, read: Callable[[], Awaitable[Result]]) -> Result:
        """Do `read`; if an object is missing, once more with the newest catalog: it may have been dropped meanwhile."""
        entry, packed = self._catalog_entry(topic)
        try:
            return await read()
        except ObjectNotFoundError as error:
            now = self._catalog_entry(topic)
            if now[0] is entry and now[1] is packed:
                raise CorruptDataError("an object that the catalog names is missing", topic=topic) from error
        try:
            return await read()
        except ObjectNotFoundError as error:
            raise ObjectStoreUnavailableError("the catalog changes while it is read", topic=topic) from error

    def _catalog_entry(self, topic: str) -> tuple[TopicEntry | None, PackedTopic | None]:
        """The topic's entries in the newest catalog; the same objects until one of them changes."""
        catalog = self._catalog()
        entry, packed = catalog.topics.get(topic), catalog.packed.get(topic)
        return (
            entry,
            packed if entry is not None and packed is not None and packed.incarnation == entry.incarnation else None,
        )

    def _queue(self, topic: str, queue_id: int) -> QueueIndex | None:
        index = self._index(topic)
        return None if index is None else index.queues.get(queue_id)

    def _end_offset(self, topic: str, queue_id: int) -> QueueOffset:
        index = self._index(topic)
        return QUEUE_START if index is None else index.end_offset(queue_id)

    def _index(self, topic: str) -> TopicIndex | None:
        entry, packed = self._catalog_entry(topic)
        if entry is None:
            return None
        cached = self._indexes.get(topic)
        if cached is None or cached[1].entry is not entry or cached[0] is not packed:
            self._indexes.pop(topic, None)
            packs = self._catalog().packs
            lived_in = [packs[pack_id] for pack_id in packed.packs] if packed is not None else []
            cached = packed, TopicIndex(entry, packed=packed, packs=lived_in, table_of=self._pieces.table)
            self._indexes[topic] = cached
            span_count = sum(index.span_count for _, index in self._indexes.values())
            while len(self._indexes) > 1 and (
                len(self._indexes) > TOPIC_INDEX_COUNT_MAX or span_count > TOPIC_INDEX_SPANS_MAX
            ):
                span_count -= self._indexes.pop(next(iter(self._indexes)))[1].span_count
        return cached[1]

    async def _span(self, queue: QueueIndex, position: int) -> QueueSpan:
        """The span at a position, loaded if it is in a pack."""
        span = queue.spans[position]
        if isinstance(span, PackedSpan):
            loaded = await self._loaded(span)
            queue.spans[position] = span = loaded
        return span

    async def _loaded(self, span: PackedSpan) -> QueueSpan:
        for segment in await self._pieces.of_topic(span.pack, span.topic):
            run = segment.run(span.run.queue_id)
            if run is not None and run.start_offset == span.run.start_offset and run.end_offset == span.run.end_offset:
                return QueueSpan(segment, run)
        raise SegmentFormatError(
            "pack and ledger speak of different runs",
            key=span.pack.key,
            topic=span.topic,
            queue_id=span.run.queue_id,
            start_offset=span.run.start_offset,
        )

    async def _pull(self, request: ColdPull) -> ColdPullResult:
        queue = self._queue(request.topic, request.queue_id)
        end = self._end_offset(request.topic, request.queue_id)

        def nothing(status: ColdPullStatus, next_offset: QueueOffset) -> ColdPullResult:
            return ColdPullResult(status=status, next_offset=next_offset, end_offset=end)

        if queue is None:
            return nothing(ColdPullStatus.NO_QUEUE, end)
        position = queue.position_of(request.offset)
        if not await self._is_visible(queue, position, request):
            minimum = await self._first_at_or_after(queue, request.cut_ms)
            if minimum is None:
                return nothing(ColdPullStatus.NO_QUEUE, end)
            if request.offset >= end:
                return nothing(ColdPullStatus.ABOVE_END, end)
            if request.offset < minimum:
                return nothing(ColdPullStatus.BELOW_MINIMUM, minimum)
            if position == len(queue.spans):
                return nothing(ColdPullStatus.NO_MATCH, end)  # the packs with these offsets have expired
            span_start = queue.spans[position].run.start_offset
            if request.offset < span_start:
                queue.check_hole(request.offset, span_start)
                return nothing(ColdPullStatus.NO_MATCH, span_start)
        span = await self._span(queue, position)
        if span.quarantine is not None:
            raise span.lost_error(queue_offset=request.offset)
        taken = TakenRecords(request)
        await self._taker.take_span(taken, queue, position, request)
        return ColdPullResult(
            status=ColdPullStatus.FOUND if taken.message_count else ColdPullStatus.NO_MATCH,
            next_offset=taken.next_offset,
            buffers=tuple(taken.buffers),
            message_count=taken.message_count,
            size_bytes=taken.size_bytes,
            end_offset=end,
        )

    async def _is_visible(self, queue: QueueIndex, position: int, request: ColdPull) -> bool:
        """Whether the offset has a visible record, using only requests that the pull sends anyway. A pull by tags may
        not need the offset's frame, so a frame that contains the cut counts as visible: its expired records are
        skipped later."""
        if position == len(queue.spans) or request.offset < queue.spans[position].run.start_offset:
            return False
        if queue.spans[position].run.max_store_ms < request.cut_ms:
            return False
        span = await self._span(queue, position)
        if span.quarantine is not None or span.run.max_store_ms < request.cut_ms:
            return False
        if span.run.min_store_ms >= request.cut_ms:
            return True
        reader = self._readers.of(span.segment)
        footer = await reader.frames_for_records()
        info = footer.frame_of(span.run, request.offset)
        if info.min_store_ms >= request.cut_ms or info.max_store_ms < request.cut_ms:
            return info.min_store_ms >= request.cut_ms
        if request.tags_codes is not None:
            return True
        frame = await self._taker.frame_of(span, request.offset, owner=request.reader)
        return frame.store_timestamp_ms(request.offset) >= request.cut_ms

    async def _first_at_or_after(self, queue: QueueIndex, timestamp_ms: int) -> QueueOffset | None:
        """The first offset stored at or after a time: with the cut, the least visible one. None when all are older."""
        position = queue.first_reaching(timestamp_ms, start=0)
        while position is not None:
            if queue.spans.min_store_ms[position] >= timestamp_ms:
                return QueueOffset(queue.spans.starts[position])
            span = await self._span(queue, position)  # its own times, where they were the piece's
            if span.run.min_store_ms >= timestamp_ms:
                return span.run.start_offset
            if span.run.max_store_ms >= timestamp_ms:
                return await self._first_in_span(span, timestamp_ms)
            position = queue.first_reaching(timestamp_ms, start=position + 1)
        return None

    async def _first_in_span(self, span: QueueSpan, timestamp_ms: int) -> QueueOffset:
        """The first record of a run at or after a time, which the run's last one is. If the records are lost, the first
        offset is returned."""
        run = span.run
        if span.quarantine is not None:
            return run.start_offset
        reader = self._readers.of(span.segment)
        footer = await reader.frame_table()
        newest = footer.frames["max_store_ms"][run.frame_start : run.frame_end]
        info = footer.frame(run.frame_start + int(np.argmax(newest >= timestamp_ms)))
        if info.min_store_ms >= timestamp_ms:
            return info.start_offset
        frame = await self._cache.get(reader, info)
        offsets = offset_range(frame.start_offset, frame.end_offset)
        return frame.start_offset + bisect_left(offsets, timestamp_ms, key=frame.store_timestamp_ms)

    async def _last_at_or_before(self, queue: QueueIndex, timestamp_ms: int, *, cut_ms: int) -> QueueOffset | None:
        """The last offset stored at or before a time; None when all are newer, or the cut hides that one."""
        end = len(queue.spans)
        while (position := queue.last_reaching(timestamp_ms, end=end)) is not None:
            end = position
            run = queue.spans[position].run
            if run.max_store_ms <= timestamp_ms and run.min_store_ms >= cut_ms:
                return run.end_offset - 1
            span = await self._span(queue, position)
            run = span.run
            if run.min_store_ms > timestamp_ms:
                continue
            if span.quarantine is not None or run.max_store_ms <= timestamp_ms:
                return run.end_offset - 1 if run.max_store_ms >= cut_ms else None
            if timestamp_ms < cut_ms:
                return None
            found, found_ms = await self._last_in_span(span, timestamp_ms)
            return found if found_ms >= cut_ms else None
        return None

    async def _last_in_span(self, span: QueueSpan, timestamp_ms: int) -> tuple[QueueOffset, int]:
        """The last record of a run at or before a time, which the run's first one is, and its store time."""
        run, reader = span.run, self._readers.of(span.segment)
        footer = await reader.frame_table()
        oldest = footer.frames["min_store_ms"][run.frame_start : run.frame_end]
        info = footer.frame(run.frame_end - 1 - int(np.argmax(oldest[::-1] <= timestamp_ms)))
        frame = await self._cache.get(reader, info)
        offsets = offset_range(frame.start_offset, frame.end_offset)
        found = frame.start_offset + bisect_right(offsets, timestamp_ms, key=frame.store_timestamp_ms) - 1
        return found, frame.store_timestamp_ms(found)

    async def _frame_at(self, span: QueueSpan, queue_offset: QueueOffset) -> DecodedFrame:
        if span.quarantine is not None:
            raise span.lost_error(queue_offset=queue_offset)
        reader = self._readers.of(span.segment)
        return await self._cache.get(reader, (await reader.frame_table()).frame_of(span.run, queue_offset))
