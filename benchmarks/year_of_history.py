"""The bucket of a broker after a year: as many segments as are wanted, index objects as merges leave them, and a few
real segments and index objects among these, so that there is something to read and to look up.

Committing a million segments would write thousands of checkpoints. Here the catalog is made in memory and saved once,
by what saves every checkpoint (`tiered/ledger/checkpoint.py`); entries, segments and index objects are encoded by the
product's own parts. The objects of the other segments are not real: the catalog names them, and they are not there.

    log        --------------------------------------------------------------> a year, SEGMENT_BYTES for each segment
    topics     each has a segment of every stretch of the log, eight queues in it, two coarse frames a queue, numbers
               that follow no pattern: how well they pack does not depend on how they were made
    `First`    32 messages of one queue at the beginning of each index object's range, and 32 that no object covers
    objects    of a broker that keeps messages for ever, an index object of keys for each quarter of a million records:
               those that the merge policy leaves after a year, each with the keys of `First` in its range
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import msgspec
import numpy as np

from benchmarks.recovery import BROKER, CLUSTER, KEYS, SEGMENT_BYTES, save_state, topic_name
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.catalog import LedgerChanges, TopicEntry
from thermocline.tiered.index_format import encode_topics
from thermocline.tiered.indexes import FAN_IN, IndexBuilder, LogItems, choose_of_class
from thermocline.tiered.ledger import HeadHint, LedgerIdentity, LedgerWriter, write_checkpoint, write_hint
from thermocline.tiered.objects import SegmentOffset
from thermocline.tiered.packs import upload_segment
from thermocline.tiered.segments import (
    CoarseRows,
    PartLocator,
    RunRows,
    SegmentEntry,
    SegmentId,
    SegmentList,
    SegmentOptions,
    SegmentWriter,
)
from thermocline.tiered.stores import open_object_store

FIRST = "First"
RECORDS = 32
QUEUES = 8
FRAMES_OF_RUN = 16
START_MS = 1_790_000_000_000
YEAR_MS = 365 * 24 * 3_600_000
UNINDEXED_MS = 60_000
SEGMENTS_OF_RANGE = 2
"""A range of a quarter of a million records, of segments of 131 072 each."""
IDENTITY = LedgerIdentity(store_uuid="benchmark", cluster=CLUSTER, broker_name=BROKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Of one index object, as far as the merge policy looks at it."""

    start_ms: int
    max_store_ms: int
    level: int
    object_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentKey:
    """A message of `First` that can be looked up; `number`: of the index object that has it, the oldest first."""

    number: int
    unique_key: str
    key: str
    store_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YearOfHistory:
    """What was made. `objects`: how many index objects of keys there are."""

    segments: int
    objects: int
    keys: list[SentKey]


def merged_ranges(*, start_ms: int, end_ms: int, count: int) -> list[Range]:
    """The index objects of keys that are left of `count` ranges of the log: of each level as many as are too few to be
    merged, the largest and oldest first."""
    range_ms = (end_ms - start_ms) / count
    ranges: list[Range] = []
    begin = 0
    for level in reversed(range(count.bit_length())):
        while count - begin >= FAN_IN**level:
            end = begin + FAN_IN**level
            ranges.append(
                Range(
                    start_ms=start_ms + int(begin * range_ms),
                    max_store_ms=start_ms + int(end * range_ms) - 1,
                    level=level,
                    object_bytes=FAN_IN**level,
                )
            )
            begin = end
    assert choose_of_class(ranges, None) is None, "the merge policy would leave fewer"
    return ranges


async def fill_year(url: str, *, segments: int, topics: int, now_ms: int) -> YearOfHistory:
    """Make the bucket, which is empty."""
    store = await open_object_store(url)
    writer = await LedgerWriter.open(store, KEYS, identity=IDENTITY, clock_ms=lambda: now_ms, random=Random())
    start_ms = now_ms - YEAR_MS
    log_bytes = segments * SEGMENT_BYTES

    def place_at(time_ms: int) -> int:
        return (time_ms - start_ms) * log_bytes // YEAR_MS

    newest_ms = now_ms - UNINDEXED_MS
    ranges = merged_ranges(start_ms=start_ms, end_ms=newest_ms, count=max(1, segments // SEGMENTS_OF_RANGE))
    hot = SyntheticHotTier(seed=7, dated_ids=True)
    keys: list[SentKey] = []
    names = [FIRST, *(topic_name(number) for number in range(topics))]
    for number, each in enumerate(ranges):
        segment = await _real_segment(writer, hot, keys, number=number, store_ms=each.start_ms + 1, place_at=place_at)
        await writer.commit(LedgerChanges(segments_in=(segment,)))
        end = place_at(each.max_store_ms + 1)
        built = await IndexBuilder(writer, spool_folder=None, clock=lambda: now_ms).build(
            writer.catalog, LogItems.of([segment]), start=writer.catalog.indexed_to, end=PhysicalOffset(end)
        )
        indexes = [
            msgspec.structs.replace(
                index,
                level=each.level,
                topics=encode_topics(names),
                min_store_ms=each.start_ms,
                max_store_ms=each.max_store_ms,
            )
            for index in built.indexes_in
        ]
        await writer.commit(LedgerChanges(indexes_in=tuple(indexes), indexed_to=PhysicalOffset(end)))
    newest = await _real_segment(writer, hot, keys, number=len(ranges), store_ms=newest_ms + 1, place_at=place_at)
    await writer.commit(LedgerChanges(segments_in=(newest,)))
    topic_entries = dict(writer.catalog.topics)
    indexed_to = writer.catalog.indexed_to
    for number in range(topics):
        name, numbers = topic_name(number), range(number + 1, segments + 1, topics)
        own = _segments_of(
            [writer.next_segment_id() for _ in numbers],
            name,
            seed=number,
            numbers=numbers,
            width=topics,
            step_ms=(newest_ms - start_ms) // segments,
            start_ms=start_ms,
            step_bytes=indexed_to // segments,
        )
        topic_entries[name] = TopicEntry(topic=name, incarnation=1, segments=SegmentList.of(own))
    catalog = msgspec.structs.replace(writer.catalog, topics=topic_entries)
    # For readers the same catalog as its last entry makes: they start from this checkpoint.
    head = await write_checkpoint(store, KEYS, catalog, previous=None, previous_catalog=None)
    writer.catalog, writer.checkpoint = catalog, head
    await save_state(writer, names=names, end=segments // topics * 17_000 + 1_000, log_offset=log_bytes, groups=2)
    await writer.close()
    await write_hint(store, KEYS, HeadHint(version=catalog.version, checkpoint=head.version))
    await store.close()
    return YearOfHistory(segments=catalog.segment_count, objects=len(ranges), keys=keys)


async def _real_segment(
    writer: LedgerWriter,
    hot: SyntheticHotTier,
    keys: list[SentKey],
    *,
    number: int,
    store_ms: int,
    place_at: Callable[[int], int],
) -> SegmentEntry:
    """A segment of RECORDS messages of `First`, which are there."""
    hot.now_ms = store_ms
    hot.append_offset = max(hot.append_offset, PhysicalOffset(place_at(store_ms)))
    start = number * RECORDS
    records: list[memoryview] = []
    for offset in range(start, start + RECORDS):
        hot.now_ms += 1
        key = f"order-{offset}"
        records.append(memoryview(hot.append(FIRST, 0, body_bytes=1_000, keys=key)))
        keys.append(SentKey(number=number, unique_key=hot.last_key, key=key, store_ms=hot.now_ms))
    segment = SegmentWriter(
        segment_id=writer.next_segment_id(), topic=FIRST, incarnation=1, folder=None, options=SegmentOptions()
    )
    segment.append(0, QueueOffset(start), iter(records), [0] * RECORDS)
    with segment.finish() as finished:
        return await upload_segment(writer.store, KEYS, finished, created_ms=store_ms)


def made_segments(topic: str, *, count: int, seed: int) -> list[SegmentEntry]:
    """Segments of one topic, one after another in a log of its own."""
    ids = [SegmentId(1, number + 1) for number in range(count)]
    return _segments_of(ids, topic, seed=seed, numbers=range(1, count + 1), width=1, step_ms=60_000, start_ms=START_MS)


def _segments_of(
    ids: Sequence[SegmentId],
    topic: str,
    *,
    seed: int,
    numbers: range,
    width: int,
    step_ms: int,
    start_ms: int,
    step_bytes: int = SEGMENT_BYTES,
) -> list[SegmentEntry]:
    """The segments of one topic, in the order in which they were sealed. Each ends with a step of the log, one of
    `numbers`, and goes back `width` steps."""
    count = len(ids)
    random = np.random.default_rng(seed)
    ends = np.array(numbers)[:, None]
    first_ms, last_ms = start_ms + np.maximum(0, ends - width) * step_ms, start_ms + ends * step_ms
    runs = np.empty((count, QUEUES, RunRows.WIDTH), np.int64)
    sizes = random.integers(16_000, 16_800, (count, QUEUES))
    runs[:, :, 0] = np.arange(QUEUES)
    runs[:, :, 2] = np.cumsum(sizes, axis=0)
    runs[:, :, 1] = runs[:, :, 2] - sizes
    runs[:, :, 3] = first_ms + random.integers(0, 9_000, sizes.shape)
    runs[:, :, 4] = last_ms - random.integers(1, 9_000, sizes.shape)
    runs[:, :, 5] = np.arange(QUEUES) * FRAMES_OF_RUN
    runs[:, :, 6] = runs[:, :, 5] + FRAMES_OF_RUN
    runs[:, :, 7] = np.maximum(0, ends - width) * step_bytes + random.integers(0, 1 << 20, sizes.shape)
    runs[:, :, 8] = ends * step_bytes - random.integers(0, 1 << 20, sizes.shape)
    coarse = np.empty((count, QUEUES, 2, CoarseRows.WIDTH), np.int64)
    half = sizes // 2 + random.integers(0, 200, sizes.shape)
    coarse[:, :, 0, 0], coarse[:, :, 1, 0] = runs[:, :, 5], runs[:, :, 5] + FRAMES_OF_RUN // 2
    coarse[:, :, 0, 1], coarse[:, :, 1, 1] = runs[:, :, 1], runs[:, :, 1] + half
    shape = (count, QUEUES * 2)
    stored = np.cumsum(random.integers(2_800_000, 3_000_000, shape), axis=1)
    raw = np.cumsum(random.integers(8 << 20, (8 << 20) + 900, shape), axis=1)
    coarse[..., 2] = (stored - stored[:, :1]).reshape(count, QUEUES, 2)
    coarse[..., 3] = (raw - raw[:, :1]).reshape(count, QUEUES, 2)
    coarse[:, :, 0, 4] = runs[:, :, 3]
    coarse[:, :, 1, 4] = runs[:, :, 3] + (runs[:, :, 4] - runs[:, :, 3]) // 2 + random.integers(0, 900, sizes.shape)
    checksums = random.integers(0, 1 << 32, (count, 3)).tolist()
    tails = random.integers(400, 4_000, (count, 3)).tolist()
    part_bytes = np.stack([stored[:, -1], *random.integers(300_000, 600_000, (2, count))], axis=1).tolist()
    keys = sizes.sum(axis=1).tolist()
    entries: list[SegmentEntry] = []
    for row, segment_id in enumerate(ids):
        log, cq, idx = (
            PartLocator(key, SegmentOffset(0), size, size - tail, checksum)
            for key, size, tail, checksum in zip(
                KEYS.segment(topic, segment_id), part_bytes[row], tails[row], checksums[row], strict=True
            )
        )
        entries.append(
            SegmentEntry(
                segment_id=str(segment_id),
                topic=topic,
                incarnation=1,
                log=log,
                cq=cq,
                idx=idx,
                runs=RunRows(runs[row].tobytes()),
                coarse=CoarseRows(coarse[row].tobytes()),
                record_count=keys[row],
                raw_bytes=int(raw[row, -1]),
                key_count=keys[row],
                bloom_page_bytes=4_096,
                bloom_page_count=40,
                created_ms=int(last_ms[row, 0]) + 40_000,
            )
        )
    return entries


def wall_ms() -> int:
    """Milliseconds of the wall clock."""
    return time.time_ns() // 1_000_000
