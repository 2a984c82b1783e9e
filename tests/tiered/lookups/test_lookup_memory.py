"""LookupMemory: values that it has at once, loads, and lets go of."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from benchmarks.lookup_history import History, metered_by, tier_of
from benchmarks.synthetic_cold_tier import SyntheticColdTier
from tests.waiting import until
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.indexes import BloomCache, FreshIndex
from thermocline.tiered.lookups.lookup_memory import LookupMemory


class World:
    """A history of which the first part is indexed."""

    def __init__(self, history: History, tier: SyntheticColdTier) -> None:
        self.history, self.tier = history, tier
        self.blooms, self.fresh = BloomCache(), FreshIndex()
        self.memory = self.made(self.blooms, self.fresh)

    def made(self, blooms: BloomCache | None, fresh: FreshIndex | None) -> LookupMemory:
        return LookupMemory(self.tier.writer.store, catalog=lambda: self.catalog, blooms=blooms, fresh=fresh)

    @property
    def catalog(self) -> Catalog:
        return self.tier.writer.catalog

    @property
    def newest(self) -> int:
        return self.history.sent[-1].physical_offset


@pytest.fixture
async def world() -> AsyncIterator[World]:
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=5, is_packed=False, is_indexed=True)
        await history.write(tier, rounds=2, is_packed=True)
        assert tier.writer.catalog.packs
        world = World(history, tier)
        yield world
        await world.memory.close()


async def test_a_load_fetches_everything_once(world: World) -> None:
    (pack, *_) = world.catalog.packs.values()
    await world.memory.load()
    for index in world.catalog.indexes.values():
        assert (world.memory.blooms_of(index) is not None) == bool(index.page_count)
    records = world.memory.records_of(pack, start=world.catalog.indexed_to)
    assert records is not None
    found = world.memory.find_place(world.newest)
    assert found is not None
    last = world.history.sent[-1]
    assert (found.life[0], found.queue_id, found.offset) == (last.topic, last.queue_id, last.offset)
    before = metered_by(world.tier)
    await world.memory.load()
    assert metered_by(world.tier) == before


async def test_what_a_lookup_misses_is_loaded_in_the_background(world: World) -> None:
    index = next(each for each in world.catalog.indexes.values() if each.page_count)
    assert world.memory.blooms_of(index) is None
    await until(lambda: world.memory.blooms_of(index) is not None)
    (pack, *_) = world.catalog.packs.values()
    other = world.made(None, FreshIndex())
    assert other.records_of(pack, start=world.catalog.indexed_to) is None
    await until(lambda: other.records_of(pack, start=world.catalog.indexed_to) is not None)
    await other.close()


async def test_without_caches_nothing_is_loaded(world: World) -> None:
    memory, before = world.made(None, None), metered_by(world.tier)
    index = next(iter(world.catalog.indexes.values()))
    (pack, *_) = world.catalog.packs.values()
    assert memory.blooms_of(index) is None
    assert memory.records_of(pack, start=0) is None
    assert memory.find_place(world.newest) is None
    memory.load_soon()
    await memory.load()
    await memory.close()
    assert metered_by(world.tier) == before


async def test_an_item_that_is_indexed_is_not_loaded(world: World) -> None:
    """Nor is anything for which there is no room."""
    segment = next(each for topic in world.catalog.topics.values() for each in topic.segments)
    assert segment.end_physical_offset <= world.catalog.indexed_to
    assert world.memory.records_of(segment, start=0) is None
    assert world.memory._loading is None
    index = next(each for each in world.catalog.indexes.values() if each.page_count)
    small = world.made(BloomCache(bytes_max=0), None)
    assert small.blooms_of(index) is None
    assert small._loading is None


async def test_indexes_of_removed_objects_are_let_go(world: World) -> None:
    await world.memory.load()
    gone = [index for index in world.catalog.indexes.values() if index.page_count]
    for topic in world.history.topics.values():
        topic.deleted, topic.incarnation = True, 2
    world.tier.report()
    await world.tier.service.run_once()
    while await world.tier.indexing.run_once():
        continue
    assert not world.catalog.indexes
    assert world.memory.find_place(-1) is None, "it follows the catalog"
    assert all(world.blooms.get(index) is None for index in gone)
