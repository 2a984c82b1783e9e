"""Lookups of single records in the cold tier by physical offset, from the parts of segments: the fallback where neither
index objects nor indexes in memory answer. Lookups by key: `lookups/key_search.py`."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.remoting.errors import QueryNotFoundError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.catalog import Catalog, PackPieces, Quarantine, TopicEntry, find_in_pack
from thermocline.tiered.lookups import LookupMemory
from thermocline.tiered.objects import QuarantinedError, run_all
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments import DecodedFrame, QueueRun, SegmentEntry, SegmentReaders

CONCURRENCY_MAX = 8


async def find_by_physical_offset(
    catalog: Catalog,
    readers: SegmentReaders,
    cache: FrameCache,
    *,
    physical_offset: PhysicalOffset,
    cut_ms: Callable[[str], int],
    pieces: PackPieces,
    memory: LookupMemory,
) -> memoryview:
    """Return the record stored at `physical_offset`. Searches every segment and pack whose range contains it, except
    those indexed in memory, which the caller has searched already.

    Raises:
        QueryNotFoundError: No visible record was stored there.
        QuarantinedError: No readable record was stored there, but a lost one may have been.
    """
    segments = [
        segment
        for topic in catalog.topics.values()
        for segment in topic.segments.between(physical_offset, physical_offset + 1)
        if any(run.min_physical_offset <= physical_offset < run.end_physical_offset for run in segment.runs)
        and memory.records_of(segment, start=physical_offset) is None
    ]
    # At this time: segments indexed in memory during the search were not there when the caller searched.
    packs = [
        pack
        for pack in catalog.packs.values()
        if pack.min_physical_offset <= physical_offset < pack.end_physical_offset
        and memory.records_of(pack, start=physical_offset) is None
    ]
    for start in range(0, len(segments), CONCURRENCY_MAX):
        batch = segments[start : start + CONCURRENCY_MAX]
        places = await run_all([readers.of(segment).find_physical_offset(physical_offset) for segment in batch])
        for segment, place in zip(batch, places, strict=True):
            run = segment.run(place[0]) if place is not None else None
            if place is None or run is None:
                continue
            timestamp_ms, record = await _record(segment, run, place[1], readers, cache)
            if timestamp_ms >= cut_ms(segment.topic):
                return record
    for pack in packs:
        found = await find_in_pack(pieces, readers.store, catalog, pack, physical_offset)
        if found is not None:
            timestamp_ms, record = await _record(found.segment, found.run, found.queue_offset, readers, cache)
            if timestamp_ms >= cut_ms(found.segment.topic):
                return record
    raise not_there(catalog, physical_offset)


def not_there(catalog: Catalog, physical_offset: PhysicalOffset) -> QueryNotFoundError | QuarantinedError:
    """The error for a physical offset without a record: not found, or perhaps lost."""
    for topic in catalog.topics.values():
        for kept in topic.quarantine:
            runs = [kept.segment.run(lost.queue_id) for lost in kept.lost]
            if any(run and run.min_physical_offset <= physical_offset < run.end_physical_offset for run in runs):
                return _may_be_lost(kept, physical_offset=physical_offset)
    return QueryNotFoundError("no record of the cold tier lay there", physical_offset=physical_offset)


def lost_by_key(entry: TopicEntry, *, key: str, begin_ms: int, end_ms: int) -> None:
    """After a search without result: raise QuarantinedError if records of that time are lost."""
    for kept in entry.quarantine:
        if kept.segment.key_count and kept.segment.min_store_ms <= end_ms and kept.segment.max_store_ms >= begin_ms:
            raise _may_be_lost(kept, key=key)


def _may_be_lost(kept: Quarantine, **wanted: object) -> QuarantinedError:
    segment = kept.segment
    return QuarantinedError(
        "the record may be one of those that are lost",
        **wanted,
        topic=segment.topic,
        segment_id=segment.segment_id,
        objects=", ".join(f"{part.key} ({part.problem})" for part in kept.damage),
    )


async def _record(
    segment: SegmentEntry, run: QueueRun, queue_offset: QueueOffset, readers: SegmentReaders, cache: FrameCache
) -> tuple[int, memoryview]:
    """Store time and bytes of one record."""
    frame = await frame_at(segment, run, queue_offset, readers, cache)
    return frame.store_timestamp_ms(queue_offset), frame.slice(queue_offset, queue_offset + 1)


async def frame_at(
    segment: SegmentEntry, run: QueueRun, queue_offset: QueueOffset, readers: SegmentReaders, cache: FrameCache
) -> DecodedFrame:
    """The frame with one record: one request if the catalog has the frame's position, else two; none if cached."""
    reader = readers.of(segment)
    frame = await reader.frame_at(run, queue_offset)
    if frame is None:
        frame = await cache.get(reader, (await reader.frame_table()).frame_of(run, queue_offset))
    return frame
