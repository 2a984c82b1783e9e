"""Lookups of single records in the cold tier: by their place in the log, and by id or key, newest first."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec

from thermocline.remoting.errors import QueryNotFoundError
from thermocline.remoting.message_record import decode_record
from thermocline.tiered.catalog import Catalog, TopicEntry
from thermocline.tiered.errors import QuarantinedError
from thermocline.tiered.frame import DecodedFrame
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.ledger_entry import Quarantine
from thermocline.tiered.packs.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.packs.pack_search import find_in_pack
from thermocline.tiered.parallel import run_all
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_format import QueueRun
from thermocline.tiered.segment_readers import SegmentReaders

CONCURRENCY_MAX = 8


async def find_by_physical_offset(
    catalog: Catalog,
    readers: SegmentReaders,
    cache: FrameCache,
    *,
    physical_offset: int,
    cut_ms: Callable[[str], int],
    pieces: PackPieces,
) -> memoryview:
    """The record that lay at `physical_offset`. Looks into every segment and pack whose range of places holds it.

    Raises:
        QueryNotFoundError: No visible record lay there.
        QuarantinedError: None that can be read; a record that is lost may have been there.
    """
    segments = [
        segment
        for topic in catalog.topics.values()
        for segment in topic.segments
        if any(run.min_physical_offset <= physical_offset < run.end_physical_offset for run in segment.runs)
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
    for pack in catalog.packs.values():
        found = await find_in_pack(pieces, readers.store, catalog, pack, physical_offset)
        if found is not None:
            timestamp_ms, record = await _record(found.segment, found.run, found.queue_offset, readers, cache)
            if timestamp_ms >= cut_ms(found.segment.topic):
                return record
    for topic in catalog.topics.values():
        for kept in topic.quarantine:
            runs = [kept.segment.run(lost.queue_id) for lost in kept.lost]
            if any(run and run.min_physical_offset <= physical_offset < run.end_physical_offset for run in runs):
                raise _may_be_lost(kept, physical_offset=physical_offset)
    raise QueryNotFoundError("no record of the cold tier lay there", physical_offset=physical_offset)


async def with_pieces_between(
    pieces: PackPieces, catalog: Catalog, topic: str, *, begin_ms: int, end_ms: int
) -> TopicEntry:
    """The topic's entry with the pieces of those packs that hold anything of the time."""
    packed = catalog.packed.get(topic)
    if packed is not None:
        packs = [catalog.packs[pack_id] for pack_id in packed.packs]
        times = {pack.pack_id: pieces.times(pack, topic) for pack in packs}
        wanted = tuple(
            pack_id for pack_id, (oldest, newest) in times.items() if oldest <= end_ms and newest >= begin_ms
        )
        catalog = msgspec.structs.replace(catalog, packed={topic: msgspec.structs.replace(packed, packs=wanted)})
    entry = await with_pieces(pieces, catalog, topic)
    assert entry is not None
    return entry


async def find_by_key(
    entry: TopicEntry,
    readers: SegmentReaders,
    cache: FrameCache,
    *,
    key: str,
    begin_ms: int,
    end_ms: int,
    count_max: int,
) -> list[memoryview]:
    """Records of a topic whose id is `key`, or one of whose keys it is, with a store time in [begin_ms, end_ms].

    Newest first, by their place in the log, at most `count_max`. Segments are asked from the newest on, a few at a
    time, until what is found cannot be overtaken by an older one.

    Raises:
        QuarantinedError: Nothing was found, and records of that time are lost.
    """
    found: list[tuple[int, memoryview]] = []
    segments = sorted(
        (
            segment
            for segment in entry.segments
            if segment.key_count and segment.min_store_ms <= end_ms and segment.max_store_ms >= begin_ms
        ),
        key=lambda segment: segment.end_physical_offset,
        reverse=True,
    )
    for start in range(0, len(segments), CONCURRENCY_MAX):
        batch = segments[start : start + CONCURRENCY_MAX]
        newest_left = batch[0].end_physical_offset
        if len(found) >= count_max and found[count_max - 1][0] >= newest_left:
            break
        parts = await run_all(
            [_find_in_segment(segment, readers, cache, key, begin_ms, end_ms, count_max) for segment in batch]
        )
        found = heapq.nlargest(
            count_max, [*found, *(item for part in parts for item in part)], key=lambda item: item[0]
        )
    if not found:
        for kept in entry.quarantine:
            if kept.segment.key_count and kept.segment.min_store_ms <= end_ms and kept.segment.max_store_ms >= begin_ms:
                raise _may_be_lost(kept, key=key)
    return [record for _, record in found]


def _may_be_lost(kept: Quarantine, **wanted: object) -> QuarantinedError:
    segment = kept.segment
    return QuarantinedError(
        "the record may be one of those that are lost",
        **wanted,
        topic=segment.topic,
        segment_id=segment.segment_id,
        objects=", ".join(f"{part.key} ({part.problem})" for part in kept.damage),
    )


async def _find_in_segment(
    segment: SegmentEntry,
    readers: SegmentReaders,
    cache: FrameCache,
    key: str,
    begin_ms: int,
    end_ms: int,
    count_max: int,
) -> list[tuple[int, memoryview]]:
    """Physical offset and bytes of matching records of one segment, newest first."""
    found: list[tuple[int, memoryview]] = []
    for run, queue_offset in await readers.of(segment).find_key(key.encode()):
        if run.max_store_ms < begin_ms or run.min_store_ms > end_ms:
            continue
        timestamp_ms, record = await _record(segment, run, queue_offset, readers, cache)
        if not begin_ms <= timestamp_ms <= end_ms:
            continue
        message = decode_record(record, check_crc=False)
        # Other keys may share the hash.
        if key == message.unique_key or key in (message.keys or "").split(" "):
            found.append((message.physical_offset, record))
            if len(found) == count_max:
                break
    return found


async def _record(
    segment: SegmentEntry, run: QueueRun, queue_offset: int, readers: SegmentReaders, cache: FrameCache
) -> tuple[int, memoryview]:
    """Store time and bytes of one record."""
    frame = await frame_at(segment, run, queue_offset, readers, cache)
    return frame.store_timestamp_ms(queue_offset), frame.slice(queue_offset, queue_offset + 1)


async def frame_at(
    segment: SegmentEntry, run: QueueRun, queue_offset: int, readers: SegmentReaders, cache: FrameCache
) -> DecodedFrame:
    """The frame with one record: one request where the catalog knows enough, else two; none for what is here."""
    reader = readers.of(segment)
    frame = await reader.frame_at(run, queue_offset)
    if frame is None:
        frame = await cache.get(reader, (await reader.frame_table()).frame_of(run, queue_offset))
    return frame
