"""Indexing: builds that are overtaken, inputs that are gone or damaged, objects that expire, and a budget in debt."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from tests.waiting import until
from thermocline.remoting.errors import CorruptDataError
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.indexes import IndexResult
from thermocline.tiered.indexes.index_policy import FAN_IN, ITEMS_MIN
from thermocline.tiered.objects import spool
from thermocline.tiered.service import indexing
from thermocline.tiered.service.indexing import Change
from thermocline.tiered.stores.memory import MemoryObjectStore

CONFIG = TierConfig(cold_url="memory://indexing")
TOPIC = "orders"


class World:
    def __init__(self, tier: SyntheticColdTier, store: MemoryObjectStore) -> None:
        self.tier, self.store, self.indexing = tier, store, tier.indexing

    async def seal(self, count: int = ITEMS_MIN) -> None:
        """So many packs."""
        for _ in range(count):
            for _ in range(5):
                self.tier.hot.append(TOPIC, 0, body_bytes=100)
            self.tier.hot.now_ms += CONFIG.seal_age_ms
            self.tier.report()
            await self.tier.service.run_once()

    async def build(self, count: int) -> None:
        """So many index objects of each kind, not merged."""
        for _ in range(count):
            await self.seal()
            assert await self.indexing.run_once()

    @property
    def stored(self) -> set[str]:
        """Index objects in the store."""
        return {key for key in self.store.objects if key.startswith(KEYS.indexes_prefix)}

    @property
    def live(self) -> set[str]:
        """Index objects of the catalog."""
        return {index.key for index in self.tier.catalog.indexes.values()}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    store = MemoryObjectStore()
    async with opened(store, CONFIG, hot=SyntheticHotTier(), topics={TOPIC: SyntheticTopic()}) as tier:
        yield World(tier, store)


async def test_a_range_is_built_once(world: World) -> None:
    await world.seal(ITEMS_MIN - 1)
    assert not await world.indexing.run_once()
    await world.seal(1)
    assert await world.indexing.run_once()
    assert world.stored == world.live
    assert len(world.live) == 2
    assert world.tier.catalog.indexed_to == world.tier.hot.append_offset
    assert not await world.indexing.run_once()
    assert all(world.tier.blooms.get(each) for each in world.tier.catalog.indexes.values() if each.page_count)


async def test_a_build_that_was_overtaken_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.seal()
    amend, give_up = world.indexing._amend, world.indexing._builder.give_up
    given_up: list[str] = []

    def noted(result: IndexResult) -> None:
        given_up.extend(index.index_id for index in result.indexes_in)
        give_up(result)

    monkeypatch.setattr(world.indexing._builder, "give_up", noted)

    async def later(change: Change) -> bool:
        world.indexing._amend = amend
        assert await world.indexing.run_once(), "another build of the same range"
        return await amend(change)

    world.indexing._amend = later
    assert not await world.indexing.run_once()
    assert len(world.live) == 2
    assert world.live < world.stored, "what was given up is left to the garbage collection"
    assert {index.index_id for index in world.tier.catalog.indexes.values()}.isdisjoint(given_up)
    assert len(given_up) == 2


async def test_a_part_that_is_missing_is_damage(world: World) -> None:
    """Else all parts of the range in front of it would be read again every few seconds, until it is healed."""
    await world.seal()
    (first, *_) = world.tier.catalog.packs.values()
    missing = world.store._objects.pop(first.key)
    with pytest.raises(CorruptDataError, match="missing"):
        await world.indexing.run_once()
    world.store._objects[first.key] = missing
    assert await world.indexing.run_once()


async def test_the_task_outlives_a_full_disk(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.seal()
    world.indexing._builder._folder = tmp_path
    world.indexing._sweep_interval_ms = 1

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(indexing, "RETRY_MS", 1)
    monkeypatch.setattr(spool.tempfile, "TemporaryFile", full)
    task = asyncio.create_task(world.indexing.run(asyncio.Event()))
    try:
        await until(lambda: "nothing is indexed until there is room" in caplog.text or task.done())
        monkeypatch.undo()
        await until(lambda: world.live or task.done())
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert caplog.text.count("nothing is indexed until there is room") == 1


async def test_inputs_of_a_merge_that_are_gone_are_not_tried_again(world: World) -> None:
    await world.build(FAN_IN)
    (gone,) = [index for index in world.tier.catalog.indexes.values() if index.start == 0 and not index.is_of_places]
    del world.store._objects[gone.key]
    results = [await world.indexing.run_once() for _ in range(3)]
    assert gone.index_id in world.tier.catalog.indexes
    assert gone.index_id in world.indexing._failed
    assert not results[-1], "it is not due any more"


async def test_inputs_of_a_merge_that_are_damaged_are_reported_once(world: World) -> None:
    await world.build(FAN_IN)
    damaged = [index for index in world.tier.catalog.indexes.values() if not index.is_of_places]
    for index in damaged:
        await world.store.put(index.key, bytes(len(world.store.objects[index.key])))
    error_count = 0
    for _ in range(3):
        try:
            await world.indexing.run_once()
        except CorruptDataError:
            error_count += 1
    assert error_count == 1
    assert {index.index_id for index in damaged} <= world.indexing._failed
    while await world.indexing.run_once():
        continue
    assert {index.index_id for index in damaged} <= world.tier.catalog.indexes.keys()


async def test_objects_of_a_deleted_topic_leave_the_catalog(world: World) -> None:
    await world.build(1)
    world.tier.topics[TOPIC] = SyntheticTopic(incarnation=2, deleted=True)
    world.tier.report()
    await world.tier.service.run_once()
    assert await world.indexing.run_once()
    assert world.live == set()
    assert not await world.indexing.run_once()


async def test_what_has_expired_leaves_also_while_the_budget_is_in_debt(world: World) -> None:
    await world.build(1)
    await world.seal()
    world.indexing._budget.charge(1 << 50)
    before = world.tier.catalog.indexed_to
    assert not await world.indexing.run_once()
    assert world.tier.catalog.indexed_to == before, "nothing is built"
    world.tier.topics[TOPIC] = SyntheticTopic(fixed_cut_ms=world.tier.hot.now_ms + 1)
    world.tier.report()
    assert await world.indexing.run_once()
    assert world.live == set()
    assert not await world.indexing.run_once()


async def test_the_task_works_when_it_is_told_of_a_change(world: World) -> None:
    changed = asyncio.Event()
    task = asyncio.create_task(world.indexing.run(changed))
    await world.seal()
    changed.set()
    try:
        await until(lambda: world.live and not changed.is_set())
    finally:
        task.cancel()
