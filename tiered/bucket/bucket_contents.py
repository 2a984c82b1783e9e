"""What a bucket holds, by its catalogs: topics, the pieces of one topic, or index objects.

Costs a few requests, and one or two for each queue whose messages have expired up to the middle of a segment:
`messages` are those that readers get.

segment       objects of one topic
pack          an object that topics share; its times are those of all of them
quarantine    records that are lost, because their object is damaged and nothing else has them
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import CorruptDataError, TopicNotFoundError
from thermocline.tiered.bucket.opened_bucket import BrokerTier, opened_bucket
from thermocline.tiered.catalog import stored_by_topic, topic_visible_from_ms
from thermocline.tiered.packs import packed_record_counts
from thermocline.tiered.reading import ColdReader, catalog_reader
from thermocline.tiered.segments import NO_SEGMENTS

Row = dict[str, object]


def list_topics(url: str, *, broker: str | None = None) -> list[Row]:
    """A row for each topic of each broker. Raises as `opened_bucket`."""

    async def run() -> list[Row]:
        async with opened_bucket(url, broker=broker) as tiers:
            return [row for tier in tiers for row in await _topics(tier)]

    return asyncio.run(run())


def list_pieces(url: str, topic: str, *, broker: str | None = None) -> list[Row]:
    """A row for each queue of each segment and pack that holds a topic, by queue and offset.

    Raises as `opened_bucket`, and TopicNotFoundError when no broker has the topic.
    """

    async def run() -> list[Row]:
        async with opened_bucket(url, broker=broker, only_topics=frozenset([topic])) as tiers:
            if not any(topic in tier.catalog.topics or topic in tier.catalog.packed for tier in tiers):
                raise TopicNotFoundError("the bucket holds no topic of this name", topic=topic)
            return [row for tier in tiers for row in _pieces(tier, topic)]

    return asyncio.run(run())


def list_indexes(url: str, topic: str | None, *, broker: str | None = None) -> list[Row]:
    """A row for each index object, or each that holds a topic, by class and place. Raises as `opened_bucket`."""

    async def run() -> list[Row]:
        async with opened_bucket(url, broker=broker) as tiers:
            return [row for tier in tiers for row in _indexes(tier, topic)]

    return asyncio.run(run())


def _indexes(tier: BrokerTier, topic: str | None) -> Iterator[Row]:
    for index in sorted(tier.catalog.indexes.values(), key=lambda each: (each.ttl_class, each.start)):
        if topic is None or index.may_hold(topic):
            yield {
                "broker": tier.catalog.broker_name,
                "class": index.ttl_class,
                "index_id": index.index_id,
                "start": index.start,
                "end": index.end,
                "level": index.level,
                "records": index.record_count,
                "keys": index.key_count,
                "bloom_bytes": index.bloom_bytes,
                "stored_bytes": index.object_bytes,
                "oldest_timestamp_ms": index.min_store_ms,
                "newest_timestamp_ms": index.max_store_ms,
                "key": index.key,
            }


async def _topics(tier: BrokerTier) -> list[Row]:
    async with catalog_reader(tier.store, tier.catalog) as reader:
        return [await _readable(row, reader, tier) for row in _stored_topics(tier)]


async def _readable(row: Row, reader: ColdReader, tier: BrokerTier) -> Row:
    """The row with its messages divided into those that readers get and expired ones; all are the former when the
    objects are damaged, and `expired` is None."""
    topic, stored_count = str(row["topic"]), row["messages"]
    assert isinstance(stored_count, int)
    cut_ms = topic_visible_from_ms(tier.catalog, topic, now_ms=wall_clock_ms())
    try:
        readable_count = await reader.visible_count(topic, cut_ms=cut_ms) if cut_ms > 0 else stored_count
    except CorruptDataError:
        return row | {"expired": None}
    return row | {"messages": readable_count, "expired": stored_count - readable_count}


def _stored_topics(tier: BrokerTier) -> Iterator[Row]:
    catalog = tier.catalog
    stored = stored_by_topic(catalog)
    packed_counts = packed_record_counts(catalog.packs.values(), catalog.packed)
    for name in sorted(stored):
        entry, packed = catalog.topics.get(name), catalog.packed.get(name)
        if entry is not None and entry.deleted:
            continue
        segments = entry.segments if entry is not None else NO_SEGMENTS
        yield {
            "broker": catalog.broker_name,
            "topic": name,
            "queues": len(catalog.queue_bounds(name)),
            "messages": segments.record_count + packed_counts.get(name, 0),
            "expired": 0,
            "segments": len(segments),
            "packs": len(packed.packs) if packed is not None else 0,
            "quarantined": len(entry.quarantine) if entry is not None else 0,
            "raw_bytes": stored[name].raw_bytes,
            "stored_bytes": stored[name].stored_bytes,
            "ttl_ms": catalog.ttl_ms(name),
        }


def _pieces(tier: BrokerTier, topic: str) -> list[Row]:
    catalog = tier.catalog
    entry, packed = catalog.topics.get(topic), catalog.packed.get(topic)
    rows: list[tuple[int, int, Row]] = []

    def add(kind: str, name: str, queue_id: int, start: int, end: int, times: tuple[int, int], key: str) -> None:
        row: Row = {
            "broker": catalog.broker_name,
            "queue": queue_id,
            "start_offset": start,
            "end_offset": end,
            "kind": kind,
            "id": name,
            "oldest_timestamp_ms": times[0],
            "newest_timestamp_ms": times[1],
            "key": key,
        }
        rows.append((queue_id, start, row))

    for segment in entry.segments if entry is not None else ():
        for run in segment.runs:
            times = (run.min_store_ms, run.max_store_ms)
            add("segment", segment.segment_id, run.queue_id, run.start_offset, run.end_offset, times, segment.log.key)
    for kept in entry.quarantine if entry is not None else ():
        for lost in kept.lost:
            times = (kept.segment.min_store_ms, kept.segment.max_store_ms)
            name, key = kept.segment.segment_id, kept.segment.log.key
            add("quarantine", name, lost.queue_id, lost.start_offset, lost.end_offset, times, key)
    for pack_id in packed.packs if packed is not None else ():
        pack = catalog.packs[pack_id]
        table = pack.table()
        for index in pack.indexes_of(topic):
            for queue in table.piece(index).queues:
                times = (pack.min_store_ms, pack.max_store_ms)
                add("pack", pack_id, queue.queue_id, queue.start_offset, queue.end_offset, times, pack.key)
    return [row for _, _, row in sorted(rows, key=lambda each: each[:2])]
