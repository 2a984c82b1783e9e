"""A year of history, made small: the catalog that benchmarks/growth.py measures is one that the writer takes over, and
what the first lookups in it ask for is bounded, with nothing in memory but that catalog.

Covers `tiered/catalog/pack_check.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from benchmarks.recovery import KEYS
from benchmarks.year_of_history import FIRST, IDENTITY, YEAR_MS, SentKey, YearOfHistory, fill_year
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.indexes.index_policy import next_merge
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.reading.cold_pull import ColdPull
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.stores.object_store_url import open_object_store
from thermocline.tiered.wrappers import MeteringObjectStore

SEGMENTS, TOPICS = 4_000, 20
NOW_MS = 1_790_000_000_000 + YEAR_MS
END_OF_TIME_MS = 1 << 62


@pytest.fixture(scope="module")
def made_year(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, YearOfHistory]:
    """The bucket, which tests read and add to."""
    url = (tmp_path_factory.mktemp("year") / "bucket").as_uri()
    return url, asyncio.run(fill_year(url, segments=SEGMENTS, topics=TOPICS, now_ms=NOW_MS))


@pytest.fixture
async def year(made_year: tuple[str, YearOfHistory]) -> AsyncIterator[tuple[ObjectStore, YearOfHistory]]:
    """Its store, and what was made."""
    url, made = made_year
    store = await open_object_store(url)
    yield store, made
    await store.close()


async def requests_of(store: ObjectStore, catalog: Catalog, ask: Callable[[ColdReader], Awaitable[object]]) -> int:
    """What is asked of the store for something that is there, by a reader with nothing but the catalog."""
    metered, cache = MeteringObjectStore(store), FrameCache(bytes_max=1 << 24)
    reader = ColdReader(metered, catalog=lambda: catalog, cache=cache)
    assert await ask(reader)
    await reader.close()
    await cache.close()
    return metered.counters.request_count


def by_key(text: str) -> Callable[[ColdReader], Awaitable[object]]:
    return lambda reader: reader.query_key(FIRST, text, begin_ms=0, end_ms=END_OF_TIME_MS, count_max=32, cut_ms=0)


def by_id(text: str, *, begin_ms: int = 0) -> Callable[[ColdReader], Awaitable[object]]:
    return lambda reader: reader.query_key(
        FIRST, text, begin_ms=begin_ms, end_ms=END_OF_TIME_MS, count_max=32, cut_ms=0, is_unique=True
    )


async def test_the_first_lookups_of_a_year(year: tuple[ObjectStore, YearOfHistory]) -> None:
    """By unique id, as `viewMessage` of the official client asks: the frame of an index object, and the record, which
    is one request where segments are small and two at most. Who asks from the beginning, or for a key that is no such
    id, asks each index object of the topic: nothing tells which of them has it."""
    store, made = year
    catalog = await open_catalog(store, KEYS)
    objects = [index for index in catalog.indexes.values() if index.page_count]
    assert len(objects) == made.objects > 3
    assert next_merge(catalog) is None
    sent: dict[int, SentKey] = {each.number: each for each in made.keys}
    for each in sent.values():
        assert await requests_of(store, catalog, by_id(each.unique_key, begin_ms=each.store_ms - 1_000)) <= 3
        assert await requests_of(store, catalog, by_id(each.unique_key)) <= len(objects) + 2
        assert await requests_of(store, catalog, by_key(each.key)) <= len(objects) + 3
    newest = sent[made.objects]
    assert await requests_of(store, catalog, by_id(newest.unique_key)) <= 3, "the newest is looked up most"
    pull = ColdPull(topic=FIRST, queue_id=0, offset=0, count_max=32, bytes_max=1 << 20, cut_ms=0)
    assert await requests_of(store, catalog, lambda reader: reader.pull(pull)) <= 3


async def test_a_writer_goes_on_from_it(year: tuple[ObjectStore, YearOfHistory]) -> None:
    """The read catalog equals the made one; a commit and a checkpoint later too, apart from the changes."""
    store, made = year
    writer = await LedgerWriter.open(
        store, KEYS, identity=IDENTITY, clock_ms=lambda: NOW_MS, random=Random(), checkpoint_interval=64
    )
    before = writer.catalog
    assert before.segment_count == made.segments == SEGMENTS + made.objects + 1
    topic = next(entry for name, entry in before.topics.items() if name != FIRST)
    oldest = topic.segments[0]
    await writer.commit(LedgerChanges(segments_out=(SegmentOut(topic.topic, oldest.segment_id),)))
    await writer.write_checkpoint()
    after = await open_catalog(store, KEYS)
    await writer.close()
    assert list(after.topics[topic.topic].segments) == list(topic.segments)[1:]
    assert {name: len(entry.segments) for name, entry in after.topics.items() if name != topic.topic} == {
        name: len(entry.segments) for name, entry in before.topics.items() if name != topic.topic
    }
    assert after.topics[FIRST] == before.topics[FIRST]
