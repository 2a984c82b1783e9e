"""Readers that pin versions, beside a writer and its collector without a grace period: what holds, can be opened.

Every request waits a random number of the loop's turns before and after it is carried out (`SlowStore`), so the others
go on between any two of them. One seed replays one race.

Covers `tiered/ledger/ledger_reader.py`, `tiered/ledger/pins.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from random import Random

import pytest

from tests.clock import Clock
from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from tests.tiered.ledger_races import SlowStore
from tests.virtual_loop import run_virtually
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.garbage.garbage import GarbageCollector
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.ledger.pins import (
    CLOCK_SKEW_MS_MAX,
    Pin,
    create_pin,
    delete_pin,
    find_pin,
    list_pins,
    renew_pin,
)
from thermocline.tiered.objects.errors import VersionExpiredError
from thermocline.tiered.objects.object_store import ObjectInfo, ObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore

PIN_MS = 3 * CLOCK_SKEW_MS_MAX


async def drop_oldest(writer: LedgerWriter) -> None:
    """Commit that the oldest segment is gone, as a sweep does."""
    topic = writer.catalog.topics.get("orders")
    if topic is not None and topic.segments:
        oldest = SegmentOut(topic="orders", segment_id=topic.segments[0].segment_id)
        await writer.commit(LedgerChanges(segments_out=(oldest,)))


async def write_and_collect(store: ObjectStore, clock: Clock, random: Random, *, steps: int) -> None:
    """A broker's tier process in a hurry: whatever no pin holds goes at once."""
    writer = await open_writer(store, clock=clock, checkpoint_interval=random.choice([1, 3, 8]))
    collector = GarbageCollector(writer)
    for step in range(steps):
        await commit_segment(writer, start=step * 10)
        if random.random() < 0.5:
            await drop_oldest(writer)
        if random.random() < 0.6:
            now_ms = clock()
            plan = await collector.plan(now_ms=now_ms, sweep=random.random() < 0.3, grace_ms=0)
            await collector.execute(plan, now_ms=now_ms)


async def read_pinned(
    store: ObjectStore, memory: MemoryObjectStore, clock: Clock, random: Random, *, name: str, rounds: int
) -> int:
    """Pin the newest version, and see that it can be opened whole until it is let go; how often that went well."""
    held_count = 0
    for number in range(rounds):
        catalog = await open_catalog(store, KEYS)
        if not catalog.version:
            continue
        pin_id = f"{name}-{number}"
        pin = Pin(pin_id=pin_id, version=catalog.version, until_ms=clock() + PIN_MS, owner="a test")
        try:
            await create_pin(store, KEYS, pin)
        except VersionExpiredError:
            assert await find_pin(memory, KEYS, pin_id) is None
            continue
        for _ in range(random.randrange(1, 5)):
            await see_it_whole(store, memory, catalog)
            clock.now_ms += CLOCK_SKEW_MS_MAX // 16  # all readers together stay below PIN_MS between two renewals
            again = Pin(pin_id=pin_id, version=catalog.version, until_ms=clock() + PIN_MS, owner="a test")
            await renew_pin(store, KEYS, again, clock=clock)
            assert await find_pin(memory, KEYS, pin_id) is not None
        await see_it_whole(store, memory, catalog)
        held_count += 1
        await delete_pin(store, KEYS, pin_id)
    return held_count


async def see_it_whole(store: ObjectStore, memory: MemoryObjectStore, catalog: Catalog) -> None:
    """The version opens to the same catalog, and every object that it names is there."""
    assert await open_catalog(store, KEYS, version=catalog.version) == catalog
    assert catalog.live_keys() <= set(memory.objects)


async def forget_and_renew(
    store: ObjectStore, memory: MemoryObjectStore, clock: Clock, *, rounds: int
) -> tuple[int, int]:
    """Let a pin run out before it is renewed: it is refused, or holds from then on; how often it was which."""
    refused_count = held_count = 0
    for number in range(rounds):
        catalog = await open_catalog(store, KEYS)
        if not catalog.version:
            continue
        until_ms = clock() + 1
        pin = Pin(pin_id=f"late-{number}", version=catalog.version, until_ms=until_ms, owner="a test")
        try:
            await create_pin(store, KEYS, pin)
            clock.now_ms += 2
            again = Pin(pin_id=pin.pin_id, version=pin.version, until_ms=clock() + PIN_MS, owner="a test")
            await renew_pin(store, KEYS, again, clock=clock)
        except VersionExpiredError:
            assert await find_pin(memory, KEYS, pin.pin_id) is None
            refused_count += 1
            continue
        for _ in range(3):
            await see_it_whole(store, memory, catalog)
            assert await find_pin(memory, KEYS, pin.pin_id) is not None
        held_count += 1
        await delete_pin(store, KEYS, pin.pin_id)
    return refused_count, held_count


async def race(seed: int) -> tuple[int, int, int]:
    """One race of a collector, two readers who renew in time, and one who does not."""
    memory, clock, random = MemoryObjectStore(), Clock(), Random(seed)

    def way() -> ObjectStore:
        return SlowStore(memory, random)

    _, first, second, (refused, late) = await asyncio.gather(
        write_and_collect(way(), clock, random, steps=30),
        read_pinned(way(), memory, clock, random, name="a", rounds=6),
        read_pinned(way(), memory, clock, random, name="b", rounds=6),
        forget_and_renew(way(), memory, clock, rounds=8),
    )
    assert await list_pins(memory, KEYS) == []
    return first + second, refused, late


def test_a_pinned_version_stays_whole_beside_a_collector(case_count: Callable[..., int]) -> None:
    totals = [0, 0, 0]
    for seed in range(case_count(quick=25, full=60, soak=5_000)):
        try:
            counts = run_virtually(partial(race, seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    assert all(totals), f"every outcome was seen: held, refused, held after it had run out: {totals}"


async def test_a_renewal_keeps_a_pin_that_readable_from_has_passed() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    for number in range(6):
        await commit_segment(writer, start=number * 10)
    pinned = writer.catalog
    await drop_oldest(writer)
    await writer.write_checkpoint()
    plan = await collector.plan(now_ms=clock(), grace_ms=0)
    assert plan.readable_from > pinned.version
    pin = Pin(pin_id="job", version=pinned.version, until_ms=clock() + PIN_MS, owner="a test")
    await create_pin(store, KEYS, pin)
    assert (await collector.execute(plan, now_ms=clock())).held_by_pin
    assert writer.catalog.readable_from > pinned.version
    again = Pin(pin_id="job", version=pinned.version, until_ms=clock() + 2 * PIN_MS, owner="a test")
    await renew_pin(store, KEYS, again, clock=clock)
    assert await find_pin(store, KEYS, "job") == again
    clock.now_ms += PIN_MS + 1  # the first would have run out
    await collector.execute(await collector.plan(now_ms=clock(), grace_ms=0), now_ms=clock())
    await see_it_whole(store, store, pinned)
    clock.now_ms += PIN_MS  # and now the second has, too
    with pytest.raises(VersionExpiredError):
        await renew_pin(store, KEYS, again, clock=clock)
    assert await list_pins(store, KEYS) == []


async def test_a_pin_that_is_renewed_between_the_looks_of_a_collection_is_seen() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    for number in range(6):
        await commit_segment(writer, start=number * 10)
    pinned = writer.catalog
    pin = Pin(pin_id="job", version=pinned.version, until_ms=clock() + 5, owner="a test")
    await create_pin(store, KEYS, pin)
    await drop_oldest(writer)
    await writer.write_checkpoint()
    clock.now_ms += 10
    plan = await collector.plan(now_ms=clock(), grace_ms=0)
    assert plan.pins == ("job",)
    again = Pin(pin_id="job", version=pinned.version, until_ms=clock() + PIN_MS, owner="a test")
    await renew_pin(store, KEYS, again, clock=clock)
    assert (await collector.execute(plan, now_ms=clock())).held_by_pin
    await see_it_whole(store, store, pinned)
    assert await find_pin(store, KEYS, "job") == again


async def test_a_pin_that_has_run_out_on_a_readable_version_may_be_renewed_at_any_moment() -> None:
    """So the collector leaves it, or it would delete the renewed one."""
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    await commit_segment(writer)
    await create_pin(store, KEYS, Pin(pin_id="job", version=writer.version, until_ms=clock() + 5, owner="a test"))
    clock.now_ms += 10
    plan = await collector.plan(now_ms=clock(), sweep=True)
    await collector.execute(plan, now_ms=clock())
    assert await find_pin(store, KEYS, "job") is not None


async def test_a_version_opens_from_another_checkpoint_when_its_own_goes_meanwhile() -> None:
    """The version tells of a checkpoint that is collected after its head was read; a later one is kept for the pin."""
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock, checkpoint_interval=64)
    collector = GarbageCollector(writer)
    await commit_segment(writer, start=0)
    await writer.write_checkpoint()
    checkpoint_version = writer.version
    await commit_segment(writer, start=10)
    await commit_segment(writer, start=20)
    await writer.write_checkpoint()  # the next entry still tells of it only after this commit
    pinned = writer.catalog
    await create_pin(store, KEYS, Pin(pin_id="job", version=pinned.version, until_ms=clock() + PIN_MS, owner="a test"))
    assert checkpoint_version < pinned.version

    class CollectsMeanwhile(SlowStore):
        async def get(self, key: str) -> bytes:
            data = await super().get(key)
            if key == KEYS.ledger_entry(checkpoint_version):  # looked at behind its head, before what it names
                for _ in range(2):
                    await collector.execute(await collector.plan(now_ms=clock(), grace_ms=0), now_ms=clock())
            return data

    opened = await open_catalog(CollectsMeanwhile(store, Random(1)), KEYS, version=pinned.version)
    assert opened == pinned
    assert KEYS.checkpoint_head(checkpoint_version) not in store.objects, "it was collected while it was read"


async def test_a_ledger_opens_whose_first_checkpoint_comes_behind_the_listing() -> None:
    """Then all entries before it are collected, and what was listed says nothing of it."""
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock, checkpoint_interval=64)
    collector = GarbageCollector(writer)
    for number in range(3):
        await commit_segment(writer, start=number * 10)
    await store.delete(KEYS.head_hint)

    class CollectsMeanwhile(SlowStore):
        async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            page = [info async for info in self._inner.list(prefix, start_after=start_after)]
            if prefix == KEYS.checkpoints_prefix and KEYS.ledger_entry(1) in store.objects:
                await writer.write_checkpoint()
                await collector.execute(await collector.plan(now_ms=clock(), grace_ms=0), now_ms=clock())
            for info in page:
                yield info

    assert await open_catalog(CollectsMeanwhile(store, Random(1)), KEYS) == writer.catalog
    assert KEYS.ledger_entry(1) not in store.objects
