"""A unique id carries its birth time: what a lookup by id asks of a topic whose index objects lie over thirty days.

Counted on the metering wrapper, without blooms, so that each index object that is asked costs its request. Design:
docs/adr/0037-lookups.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from benchmarks.lookup_history import NAMES, History, Sent, tier_of
from benchmarks.synthetic_cold_tier import KEYS
from thermocline.remoting.records.message_id import month_bounds_ms
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.index_format.index_entry import IndexEntry
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.lookups.birth_windows import HOUR_MS, HOURS_AFTER, HOURS_BEFORE
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.wrappers import MeteringObjectStore, StoreCall
from thermocline.tiered.wrappers.wrapping import Result, WrappingObjectStore

DAYS = 40
TTL_MS = 30 * 24 * HOUR_MS
HITS = 60
RECORD_MAX = 2
"""Requests of the record itself, at most."""
INDEXES_MIN = 8
TOPIC = NAMES[0]


class NotingObjectStore(WrappingObjectStore):
    """Records the keys of read objects."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.keys: list[str] = []

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        self.keys.append(call.key)
        return await attempt()


@dataclass(slots=True)
class Asked:
    """The records that one lookup found, and the objects that it read."""

    records: list[bytes]
    request_count: int
    index_keys: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Long:
    """The last thirty of forty days of a few topics, indexed."""

    history: History
    catalog: Catalog

    @property
    def indexes(self) -> list[IndexEntry]:
        """The objects that may hold keys of the topic."""
        return [each for each in self.catalog.indexes.values() if each.page_count and each.may_hold(TOPIC)]

    def of_window(self, born_ms: int) -> set[str]:
        """The objects with store times at which a message may have been stored whose id was made then."""
        begin_ms, end_ms = born_ms - HOURS_BEFORE * HOUR_MS, born_ms + HOURS_AFTER * HOUR_MS
        return {each.key for each in self.indexes if each.min_store_ms <= end_ms and each.max_store_ms >= begin_ms}

    def sent(self) -> list[Sent]:
        """The topic's messages that index objects cover and that live."""
        covered, cut_ms = self.catalog.indexed_to, self.history.hot.now_ms - TTL_MS
        mine = [each for each in self.history.sent if each.topic == TOPIC]
        return [each for each in mine if each.physical_offset < covered and each.store_ms > cut_ms]

    @asynccontextmanager
    async def reader(self, *, blooms: BloomCache | None) -> AsyncIterator[Callable[[str], Awaitable[Asked]]]:
        """Looks up ids as a reader that has just started, with records newer than the index objects in memory."""
        noting = NotingObjectStore(self.history.store)
        metered, cache = MeteringObjectStore(noting), FrameCache()
        reader = ColdReader(metered, catalog=lambda: self.catalog, cache=cache, blooms=blooms, fresh=FreshIndex())
        await reader.load_lookups()

        async def look_up(key: str) -> Asked:
            before, noted = metered.counters.request_count, len(noting.keys)
            found = await reader.query_key(
                TOPIC, key, begin_ms=0, end_ms=1 << 60, count_max=32, cut_ms=0, is_unique=True
            )
            index_keys = [each for each in noting.keys[noted:] if each.startswith(KEYS.indexes_prefix)]
            return Asked([bytes(each) for each in found], metered.counters.request_count - before, index_keys)

        try:
            yield look_up
        finally:
            await reader.close()
            await cache.close()


@pytest.fixture(scope="module")
def long() -> Long:
    """Made once."""

    async def make() -> Long:
        history = History(hours_between_rounds=24)
        for topic in history.topics.values():
            topic.ttl_ms = TTL_MS
        async with tier_of(history) as tier:
            await history.write(tier, rounds=DAYS, is_packed=True, is_indexed=True)
        return Long(history, await open_catalog(history.store, KEYS))

    made = asyncio.run(make())
    spread_ms = max(each.max_store_ms for each in made.indexes) - min(each.min_store_ms for each in made.indexes)
    assert len(made.indexes) >= INDEXES_MIN
    assert spread_ms > 20 * 24 * HOUR_MS
    return made


async def test_a_hit_asks_only_the_index_objects_of_its_birth(long: Long) -> None:
    asked_of_others = 0
    for sent in long.history.random.sample(long.sent(), HITS):
        likely = long.of_window(sent.store_ms)
        async with long.reader(blooms=None) as look_up:
            asked = await look_up(sent.key)
        assert asked.records == [sent.record]
        assert asked.index_keys
        # Of another month, too, if the id may have been made in that.
        others = set(asked.index_keys) - likely
        asked_of_others += bool(others)
        assert others <= long.of_window(_same_time_of_another_month(long, sent.store_ms))
        assert len(asked.index_keys) == len(set(asked.index_keys))
        assert asked.request_count <= len(asked.index_keys) + RECORD_MAX
        assert len(asked.index_keys) < len(long.indexes) // 2
    assert asked_of_others < HITS // 2, "most are of one month alone"


def _same_time_of_another_month(long: Long, born_ms: int) -> int:
    """When the id would have been made in the other month that the history reaches."""
    start_ms, end_ms = month_bounds_ms(born_ms)
    oldest_ms = min(each.min_store_ms for each in long.indexes)
    other_start_ms = month_bounds_ms(start_ms - 1)[0] if start_ms > oldest_ms else end_ms
    return other_start_ms + born_ms - start_ms


async def test_a_miss_asks_each_index_object_once(long: Long) -> None:
    """What was stored later under an old id is found by the second look: so a miss without blooms is one request an
    object, those of its birth first."""
    newest = long.sent()[-1]
    for sent in long.history.random.sample(long.sent(), 5):
        missing = f"{'F' * 16}{sent.key[16:]}"
        async with long.reader(blooms=None) as look_up:
            asked = await look_up(missing)
        assert asked.records == []
        assert sorted(asked.index_keys) == sorted(each.key for each in long.indexes)
        assert asked.request_count == len(long.indexes) <= 32
        first = long.of_window(sent.store_ms)
        assert set(asked.index_keys[: len(first)]) & first
    assert newest.store_ms > sent.store_ms


async def test_with_blooms_in_memory_a_miss_needs_no_request(long: Long) -> None:
    counts = []
    async with long.reader(blooms=BloomCache()) as look_up:
        for sent in long.history.random.sample(long.sent(), HITS):
            asked = await look_up(f"{'F' * 16}{sent.key[16:]}")
            assert asked.records == []
            counts.append(asked.request_count)
    # A bloom is false in 1.3 % of cases.
    assert sum(counts) < 0.05 * HITS * len(long.indexes)
    assert counts.count(0) > HITS // 2
