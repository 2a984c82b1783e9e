"""Places by index objects: found, surely not there, and when segments have to be searched instead."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from benchmarks.lookup_history import NAMES, History, metered_by, tier_of
from benchmarks.synthetic_cold_tier import SyntheticColdTier
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.index_format.index_entry import IndexEntry, IndexGap
from thermocline.tiered.lookups.place_search import PlaceAnswer, find_indexed_place


class World:
    def __init__(self, history: History, tier: SyntheticColdTier) -> None:
        self.history, self.tier = history, tier

    @property
    def catalog(self) -> Catalog:
        return self.tier.writer.catalog

    @property
    def places(self) -> list[IndexEntry]:
        return [index for index in self.catalog.indexes.values() if index.is_of_places]

    async def find(self, place: int, catalog: Catalog | None = None) -> PlaceAnswer | None:
        return await find_indexed_place(self.tier.writer.store, catalog or self.catalog, place)

    def with_index(self, index: IndexEntry) -> Catalog:
        return msgspec.structs.replace(self.catalog, indexes={**self.catalog.indexes, index.index_id: index})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=5, is_packed=False, is_indexed=True)
        yield World(history, tier)


async def test_every_record_is_found_by_few_requests(world: World) -> None:
    indexed = [each for each in world.history.sent if each.physical_offset < world.catalog.indexed_to]
    assert len(indexed) > 100
    for sent in indexed[::7]:
        before = metered_by(world.tier)
        answer = await world.find(sent.physical_offset)
        assert metered_by(world.tier) - before <= 2
        assert answer is not None
        assert answer.place is not None
        assert (answer.place.life[0], answer.place.queue_id) == (sent.topic, sent.queue_id)
        assert answer.place.offset == sent.offset


async def test_no_record_is_within_another(world: World) -> None:
    first = world.history.sent[0].physical_offset
    assert await world.find(first + 1) == PlaceAnswer(None)


async def test_what_is_not_indexed_is_left_to_segments(world: World) -> None:
    before = metered_by(world.tier)
    assert await world.find(world.catalog.indexed_to) is None
    assert metered_by(world.tier) == before
    last = max(each.physical_offset for each in world.history.sent if each.physical_offset < world.catalog.indexed_to)
    assert await world.find(last) is not None
    none = msgspec.structs.replace(world.catalog, indexes={})
    assert await world.find(0, none) == PlaceAnswer(None), "the objects that covered it have expired"


async def test_an_object_with_gaps_says_only_what_it_has(world: World) -> None:
    (index, *_) = [each for each in world.places if each.start == 0]
    gap = IndexGap(NAMES[0], 1, 0, 0, 1)
    catalog = world.with_index(msgspec.structs.replace(index, gaps=(gap,)))
    first = world.history.sent[0].physical_offset
    assert await world.find(first + 1, catalog) is None
    assert await world.find(first, catalog) == await world.find(first)


async def test_an_object_that_cannot_be_read_is_left_to_segments(world: World) -> None:
    (index, *_) = [each for each in world.places if each.start == 0]
    first = world.history.sent[0].physical_offset
    whole = world.history.store.objects[index.key]
    await world.history.store.put(index.key, bytes(len(whole)))
    assert await world.find(first) is None
    await world.history.store.delete(index.key)
    assert await world.find(first) is None
