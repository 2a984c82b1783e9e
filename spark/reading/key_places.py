"""prune_by_keys: finds the queue offsets that may have the message keys of a read.

Each segment's `.idx` part (docs/cold-format.md) is asked at planning, side by side: a bloom page for each key, and for
a key that may be there the index's footer and the block of its hash; or, where that is cheaper, the whole part at once.
A segment that has none of the keys is in no task, of the others only frames are read that hold a place. Keys are
compared again in the task, by the records themselves.

An index is read where it costs less than half of what the records would, a request being reckoned as REQUEST_BYTES; the
other segments are read without it. Where an index is damaged or gone, all records of the segment are read.
The index holds the keys of records as they are stored: of an inner batch those of the whole batch, not those of the
messages in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.tiered.objects import ObjectStore, run_all
from thermocline.tiered.segments import (
    KeyIndexFooter,
    PartLocator,
    SegmentEntry,
    SegmentReader,
    decode_key_index_footer,
    key_hash,
)

logger = logging.getLogger(__name__)

REQUEST_BYTES = 128 << 10
"""Bytes that could be fetched in the time of one request more."""
INDEXES_SIDE_BY_SIDE_MAX = 32
PLACES_MAX = 20_000
"""More places than this in a slice are not carried to a task: nearly every frame holds one."""
FRAME_RAW_BYTES = 1 << 20

Places = dict[int, tuple[int, ...]]
"""Queue offsets, rising, by queue id."""


def prune_by_keys(
    store: BlockingStore,
    segments: Iterable[SegmentEntry],
    queues: Sequence[list[SegmentSlice]],
    keys: Sequence[frozenset[str]],
) -> list[list[SegmentSlice]]:
    """Remove the slices and frames of some queues that hold none of the keys; of each set in `keys` one must match.

    Raises:
        UnavailableError: The store gave no answer, or refused.
    """
    planned_bytes: dict[str, int] = {}
    for part in (part for slices in queues for part in slices):
        planned_bytes[part.segment_id] = planned_bytes.get(part.segment_id, 0) + part.raw_bytes
    asked = [
        segment
        for segment in segments
        if segment.segment_id in planned_bytes and _pays(segment, planned_bytes[segment.segment_id], keys)
    ]
    searches = [_places(store.store, segment, keys) for segment in asked]
    found = store.run(run_all(searches, concurrency_max=INDEXES_SIDE_BY_SIDE_MAX)) if searches else []
    places = {
        (each.segment_id, each.log): of_one for each, of_one in zip(asked, found, strict=True) if of_one is not None
    }
    return [[kept for part in slices if (kept := _pruned(part, places)) is not None] for slices in queues]


def _pruned(part: SegmentSlice, found: dict[tuple[str, PartLocator], Places]) -> SegmentSlice | None:
    places = found.get((part.segment_id, part.log))
    if places is None:
        return part
    wanted = tuple(place for place in places.get(part.queue_id, ()) if part.start_offset <= place < part.end_offset)
    if not wanted:
        return None
    if len(wanted) > PLACES_MAX:
        return part
    return replace(part, places=wanted, raw_bytes=min(part.raw_bytes, len(wanted) * FRAME_RAW_BYTES))


def _pays(segment: SegmentEntry, planned_bytes: int, keys: Sequence[frozenset[str]]) -> bool:
    stored_bytes = segment.log.size_bytes * planned_bytes // max(1, segment.raw_bytes)
    return min(_page_cost(segment, keys), _whole_cost(segment)) * 2 <= stored_bytes + REQUEST_BYTES


def _page_cost(segment: SegmentEntry, keys: Sequence[frozenset[str]]) -> int:
    return sum(map(len, keys)) * (segment.bloom_page_bytes + REQUEST_BYTES)


def _whole_cost(segment: SegmentEntry) -> int:
    return segment.idx.size_bytes + REQUEST_BYTES


async def _places(store: ObjectStore, segment: SegmentEntry, keys: Sequence[frozenset[str]]) -> Places | None:
    """Where in the segment records may have, of each set, one of the keys; None when the index cannot be read."""
    if not segment.bloom.page_count:
        return {}
    every_key = sorted(frozenset[str]().union(*keys))
    try:
        if _whole_cost(segment) <= _page_cost(segment, keys):
            found = await _find_in_whole(store, segment, every_key)
        else:
            reader = SegmentReader(store, segment)
            found = {key: {(run.queue_id, at) for run, at in await reader.find_key(key.encode())} for key in every_key}
    except (ObjectNotFoundError, CorruptDataError) as error:
        logger.warning(
            "records are read for want of a key index object=%s topic=%s reason=%s",
            *(segment.idx.key, segment.topic, error),
        )
        return None
    hits = [set[tuple[int, int]]().union(*(found[key] for key in each)) for each in keys]
    places: dict[int, list[int]] = {}
    for queue_id, queue_offset in sorted(set.intersection(*hits)):
        places.setdefault(queue_id, []).append(queue_offset)
    return {queue_id: tuple(offsets) for queue_id, offsets in places.items()}


async def _find_in_whole(
    store: ObjectStore, segment: SegmentEntry, keys: Sequence[str]
) -> dict[str, set[tuple[int, int]]]:
    """Queue and offset of each record that may have a key, by one request for the whole part."""
    part = segment.idx
    data = memoryview(await store.get_range(part.key, start=part.start, end=part.end))
    footer = decode_key_index_footer(data)
    return {key: _find_in(data, footer, segment, key) for key in keys}


def _find_in(data: memoryview, footer: KeyIndexFooter, segment: SegmentEntry, key: str) -> set[tuple[int, int]]:
    blocks = footer.blocks_of(key_hash(key.encode()))
    if not len(blocks):
        return set()
    ordinals = footer.find_ordinals(data[int(blocks["position"][0]) :], blocks, key_hash(key.encode()))
    places = map(segment.place_of_ordinal, ordinals)
    return {(run.queue_id, queue_offset) for run, queue_offset in places}
