"""Lookups: what is to be true of keys and places when a broker has come back, in the bucket and in its answers.

objects    every committed record below `indexed_to` that can be read is named by one object of places and, under
           key, by one object of keys; the place that they name in a topic's present life holds a record with that key
answers    by key: the topic's committed records, newest first, as many as wanted, of the times wanted; by place:
           the record that begins there
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from tests.crash.bucket import KEYS
from tests.crash.points.play import RETRY_DELAY_S
from tests.crash.points.promises import KEYS_USED, Message, Promises
from tests.crash.points.small_broker import SmallBroker
from thermocline.broker.cold.cold_reads import ColdKeyQuery
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.index_format.index_directory import directory_of
from thermocline.tiered.index_format.index_entry import IndexEntry
from thermocline.tiered.index_format.index_object import IndexObject
from thermocline.tiered.index_format.key_pages import index_hash
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.object_store import ObjectStore

COUNT_MAX = 64
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a promised record."""

    topic: str
    incarnation: int
    queue_id: int
    offset: int
    physical_offset: int
    store_ms: int
    key: str
    record: bytes

    @property
    def life(self) -> tuple[str, int]:
        """The topic under its incarnation."""
        return self.topic, self.incarnation


async def check_lookups(broker: SmallBroker, promises: Promises) -> None:
    """Keys and places, if anything is indexed; messages have been settled."""
    catalog = await open_catalog(broker.world.bucket, KEYS)
    if not catalog.indexed_to:
        return
    await broker.report()  # what has expired
    await _check_objects(broker, promises, catalog)
    for topic in promises.topics:
        await _check_keys(broker, promises, catalog, topic)
    await _check_places(broker, promises, catalog)


def _places(broker: SmallBroker, promises: Promises, catalog: Catalog, *, visible: bool = True) -> Iterator[Place]:
    """Committed records of topics in the incarnation of the ledger; only `visible` ones, or also expired ones."""
    now_ms = broker.world.now_ms()
    for name, topic in promises.topics.items():
        entry = catalog.topics.get(name)
        if entry is None or entry.deleted or entry.incarnation != broker.store.incarnations.find(name).id:
            continue
        cut_ms, ends = topic.cut_ms(now_ms), catalog.queue_ends(name)
        for queue_id, messages in topic.queues.items():
            for message in messages:
                place = _place(message, name, entry.incarnation, queue_id)
                if place.offset < ends.get(queue_id, 0) and (place.store_ms >= cut_ms or not visible):
                    yield place


def _place(message: Message, topic: str, incarnation: int, queue_id: int) -> Place:
    assert message.record is not None
    assert message.queue_offset is not None
    record = decode_record(message.record)
    return Place(
        topic=topic,
        incarnation=incarnation,
        queue_id=queue_id,
        offset=message.queue_offset,
        physical_offset=record.physical_offset,
        store_ms=record.store_timestamp_ms,
        key=message.key,
        record=message.record,
    )


# -- objects -----------------------------------------------------------------------------------------------------------


async def _check_objects(broker: SmallBroker, promises: Promises, catalog: Catalog) -> None:
    by_class: dict[str, list[IndexEntry]] = {}
    for index in sorted(catalog.indexes.values(), key=lambda each: each.start):
        assert not index.gaps, "nothing was in quarantine"
        by_class.setdefault(index.ttl_class, []).append(index)
    for name, indexes in by_class.items():
        assert indexes[-1].end <= catalog.indexed_to
        assert all(one.end <= other.start for one, other in pairwise(indexes)), f"objects of {name} overlap"
    bucket = broker.world.bucket
    found_places, found_keys = await _named_places(bucket, catalog), await _named_keys(bucket, catalog)
    for place in _places(broker, promises, catalog):
        if place.physical_offset < catalog.indexed_to:
            line = f"{place.topic}/{place.queue_id}/{place.offset}"
            assert place.physical_offset in found_places, f"{line} is not found by its place"
            count = found_keys[index_hash(*place.life, place.key), place.queue_id, place.offset]
            assert count == 1, f"{line} is named {count} times by its key"
    at = {(*each.life, each.queue_id, each.offset): each for each in _places(broker, promises, catalog, visible=False)}
    for physical_offset, (life, queue_id, offset) in found_places.items():
        promised = at.get((*life, queue_id, offset))
        assert promised is None or promised.physical_offset == physical_offset, (
            f"{life}/{queue_id}/{offset} is elsewhere"
        )
        assert promised is not None or _may_be_forgotten(catalog, promises, life), (
            f"{life}/{queue_id}/{offset} never was"
        )
    wanted = {index_hash(*life, key): (life, key) for life in {each.life for each in at.values()} for key in KEYS_USED}
    for hash_value, queue_id, offset in found_keys:
        if hash_value in wanted:
            life, key = wanted[hash_value]
            promised = at.get((*life, queue_id, offset))
            assert promised is None or promised.key == key, f"{life}/{queue_id}/{offset} has not the key {key}"


def _may_be_forgotten(catalog: Catalog, promises: Promises, life: tuple[str, int]) -> bool:
    """Whether a life has ended, or some of it has expired: what had before it was promised is not in the promises."""
    topic, entry = promises.topics.get(life[0]), catalog.topics.get(life[0])
    if topic is None or entry is None or entry.incarnation != life[1]:
        return True
    return topic.ttl_ms is not None or topic.fixed_cut_ms > 0


async def _named_places(bucket: ObjectStore, catalog: Catalog) -> dict[int, tuple[tuple[str, int], int, int]]:
    """What all objects of places name: place -> life, queue and offset."""
    found: dict[int, tuple[tuple[str, int], int, int]] = {}
    for index in catalog.indexes.values():
        directory = directory_of(index)
        for number in range(directory.chapter_count):
            row = directory.chapter(number, chapters_start=index.chapters_start)
            rows = await IndexObject(bucket, index).chapter(row)
            for at in range(len(rows)):
                place = int(rows.places[at])
                assert place not in found, "a place is named twice"
                assert index.start <= place < index.end
                found[place] = rows.incarnations[int(rows.life[at])], int(rows.queue_ids[at]), int(rows.offsets[at])
    return found


async def _named_keys(bucket: ObjectStore, catalog: Catalog) -> Counter[tuple[int, int, int]]:
    """What all objects of keys name: hash, queue and offset, and how often. Blooms exclude none of these hashes."""
    found: Counter[tuple[int, int, int]] = Counter()
    for index in catalog.indexes.values():
        if index.page_count:
            read = IndexObject(bucket, index)
            entries, blooms = await read.frames(range(directory_of(index).frame_count)), await read.blooms()
            for row in zip(entries.hashes.tolist(), entries.queue_ids.tolist(), entries.offsets.tolist(), strict=True):
                assert read.shape.may_hold(blooms, row[0])
                found[row] += 1
    return found


# -- answers -----------------------------------------------------------------------------------------------------------


async def _check_keys(broker: SmallBroker, promises: Promises, catalog: Catalog, topic: str) -> None:
    async def check(key: str, *, begin_ms: int = 0, end_ms: int = 1 << 62, count_max: int = COUNT_MAX) -> list[Place]:
        def expected() -> list[Place]:
            found = [
                each
                for each in _places(broker, promises, catalog)
                if (each.topic, each.key) == (topic, key) and begin_ms <= each.store_ms <= end_ms
            ]
            return sorted(found, key=lambda each: each.physical_offset, reverse=True)[:count_max]

        before = expected()
        query = ColdKeyQuery(
            topic=topic,
            key=key,
            index_type="K",
            begin_ms=begin_ms,
            end_ms=end_ms,
            count_max=count_max,
            expired_before_ms=broker.parts.reads.visible.expired_before_ms(topic),
        )
        records = [bytes(each.record) for each in await _answered(lambda: broker.cold.query_keys(query))]
        # The oldest may have expired between question and answer.
        assert len(records) >= len(expected()), f"{topic}: some of key {key} are not found"
        assert records == [each.record for each in before][: len(records)], f"{topic}: others than those of key {key}"
        return before

    for key in (*KEYS_USED, "k"):
        places = await check(key)
        if places:
            middle_ms = places[len(places) // 2].store_ms
            await check(key, begin_ms=middle_ms, end_ms=middle_ms)
            await check(key, count_max=1)


async def _check_places(broker: SmallBroker, promises: Promises, catalog: Catalog) -> None:
    for place in list(_places(broker, promises, catalog)):
        at = place.physical_offset
        found = await _answered(lambda at=at: broker.cold.view(at))
        if found is None:
            assert place not in _places(broker, promises, catalog), f"{place.topic}: no record at {at}"
        else:
            assert (found.topic, bytes(found.record)) == (place.topic, place.record)
        assert await _answered(lambda at=at: broker.cold.view(at + 1)) is None


async def _answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Until there is an answer."""
    while True:
        try:
            return await ask()
        except UnavailableError:
            await asyncio.sleep(RETRY_DELAY_S)
