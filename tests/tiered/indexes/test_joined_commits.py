"""Index objects are committed with a round's entry, which costs no request of their own; alone when no round comes.

Covers `tiered/indexes/index_builder.py`, `tiered/indexes/index_policy.py`, `tiered/indexes/indexed_parts.py`,
`tiered/indexes/range_cut.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.indexes.index_policy import ITEMS_MIN
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.object_store import Data
from thermocline.tiered.service.tier_service import JOIN_AGE_MS_MAX
from thermocline.tiered.stores.memory import MemoryObjectStore

AGE_MS = 60_000
NAMES = ("orders", "flights")


class IndexStore(MemoryObjectStore):
    """Tells when there is an index object of keys and one of places."""

    def __init__(self) -> None:
        super().__init__()
        self.both_made = asyncio.Event()

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        await super().put(key, data)
        if sum(each.startswith(KEYS.indexes_prefix) for each in self.objects) == 2:
            self.both_made.set()


def config(seal_age_ms: int = AGE_MS) -> TierConfig:
    return TierConfig(cold_url="memory://joined", seal_age_ms=seal_age_ms, merge_fan_in=64)


async def pack(tier: SyntheticColdTier, *, records: int = 12, age_ms: int = AGE_MS) -> list[str]:
    """One pack more; the keys in it."""
    keys = []
    for number in range(records):
        tier.hot.append(NAMES[number % 2], 0, body_bytes=40)
        keys.append(tier.hot.last_key)
    tier.hot.now_ms += age_ms
    tier.report()
    await tier.service.run_once()
    return keys


@asynccontextmanager
async def packed_tier(
    store: MemoryObjectStore | None = None, *, seal_age_ms: int = AGE_MS, pack_age_ms: int = AGE_MS
) -> AsyncIterator[SyntheticColdTier]:
    """A tier with as many packs as are indexed together."""
    bucket = store if store is not None else MemoryObjectStore()
    topics = {name: SyntheticTopic() for name in NAMES}
    async with opened(bucket, config(seal_age_ms), hot=SyntheticHotTier(), topics=topics, joins=True) as tier:
        for _ in range(ITEMS_MIN):
            await pack(tier, age_ms=pack_age_ms)
        yield tier


def append_one(tier: SyntheticColdTier) -> None:
    """A message that waits to be sealed."""
    tier.hot.append(NAMES[0], 0, body_bytes=40)
    tier.report()


async def index_beside_traffic(tier: SyntheticColdTier) -> None:
    """Work until what was made waits for the entry of the round in which a message that waits is sealed."""
    append_one(tier)
    await tier.index_beside()


async def found(tier: SyntheticColdTier, name: str, key: str) -> int:
    return len(await tier.reader.query_key(name, key, begin_ms=0, end_ms=1 << 60, count_max=4, cut_ms=0))


async def test_index_objects_are_committed_with_the_next_round() -> None:
    store, hot = MemoryObjectStore(), SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in NAMES}
    async with opened(store, config(), hot=hot, topics=topics, joins=True) as tier:
        keys = [await pack(tier) for _ in range(ITEMS_MIN)]
        version = tier.catalog.version
        await index_beside_traffic(tier)
        assert not tier.catalog.indexes
        assert {key for key in store.objects if key.startswith(KEYS.indexes_prefix)}, "they are in the bucket"
        assert await found(tier, NAMES[0], keys[0][0]) == 1
        await pack(tier)
        assert tier.catalog.version == version + 1
        assert {index.ttl_class for index in tier.catalog.indexes.values()} == {"forever", "places"}
        assert tier.catalog.indexed_to > 0
        assert await open_catalog(store, KEYS) == tier.catalog
        assert not tier.writer.under_way()
        for each in keys:
            assert [await found(tier, NAMES[number % 2], key) for number, key in enumerate(each)] == [1] * len(each)
        # A level is merged, and that comes with a round, too.
        while max(index.level for index in tier.catalog.indexes.values()) == 0:
            version = tier.catalog.version
            await index_beside_traffic(tier)
            await pack(tier)
            assert tier.catalog.version == version + 1
        assert await open_catalog(store, KEYS) == tier.catalog


async def test_a_change_that_was_overtaken_is_left_out_of_the_entry() -> None:
    """A purge, or another indexing, has changed meanwhile what it was made from."""
    async with packed_tier() as tier:
        append_one(tier)
        tier.service.backlog.account()
        waiting = asyncio.create_task(tier.service.amend_with_next(lambda catalog: None))
        await asyncio.sleep(0)
        await pack(tier)
        assert await waiting is False
        assert not tier.catalog.indexes


async def test_an_idle_brokers_ledger_names_new_index_objects() -> None:
    """Nothing waits to be sealed, so no round comes: it is committed by itself."""
    async with packed_tier(seal_age_ms=100) as tier:
        version = tier.catalog.version
        assert await tier.indexing.run_once()
        assert tier.catalog.version == version + 1
        assert tier.catalog.indexes


async def test_requests_during_a_round_start_another_awaited_round() -> None:
    store = IndexStore()
    async with packed_tier(store, seal_age_ms=4_000) as tier:
        version = tier.catalog.version
        indexing = asyncio.create_task(tier.indexing.run_once())
        await store.both_made.wait()
        await pack(tier)
        assert await indexing
        assert tier.catalog.version == version + 1
        assert tier.catalog.indexes


async def test_rounds_that_are_far_apart_are_not_waited_for() -> None:
    age_ms = JOIN_AGE_MS_MAX + 1
    async with packed_tier(seal_age_ms=age_ms, pack_age_ms=age_ms) as tier:
        append_one(tier)
        version = tier.catalog.version
        assert await tier.indexing.run_once()
        assert tier.catalog.version == version + 1


async def test_when_the_round_does_not_come_it_is_committed_by_itself() -> None:
    async with packed_tier(seal_age_ms=100) as tier:
        append_one(tier)
        version = tier.catalog.version
        assert await tier.indexing.run_once()
        assert tier.catalog.version == version + 1
        assert tier.catalog.indexes


async def test_index_objects_of_a_writer_that_stops_are_made_again_by_the_next() -> None:
    store, hot = MemoryObjectStore(), SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in NAMES}
    async with opened(store, config(), hot=hot, topics=topics, joins=True) as tier:
        for _ in range(ITEMS_MIN):
            await pack(tier)
        await index_beside_traffic(tier)
        assert not tier.catalog.indexes
    async with opened(store, config(), hot=hot, topics=topics, seed=2, joins=True) as tier:
        await index_beside_traffic(tier)
        await pack(tier)
        assert tier.catalog.indexes
        assert await open_catalog(store, KEYS) == tier.catalog
