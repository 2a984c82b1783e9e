"""Garbage collection: afterwards the bucket holds exactly what readable versions name, whatever happened before."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import replace
from random import Random

import pytest

from tests.clock import Clock
from tests.tiered.ledger_data import KEYS, commit_segment, make_entry, open_writer
from thermocline.remoting.errors import FencedError, ObjectStoreUnavailableError
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.garbage.garbage import GarbageCollector
from thermocline.tiered.ledger.checkpoint import load_head
from thermocline.tiered.ledger.ledger_reader import LedgerReader, open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.ledger.pins import Pin, create_pin, delete_pin, list_pins
from thermocline.tiered.objects.errors import VersionExpiredError
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import (
    Fault,
    FaultInjectingObjectStore,
    MeteringObjectStore,
    ProcessCrash,
    StoreCall,
)
from thermocline.tiered.wrappers.fault_injection import crash_at

DAY_MS = 24 * 3_600_000


async def collect(collector: GarbageCollector, clock: Clock, *, sweep: bool = False) -> None:
    """Plan and execute until nothing is left to do."""
    for _ in range(5):
        plan = await collector.plan(now_ms=clock.now_ms, sweep=sweep)
        report = await collector.execute(plan, now_ms=clock.now_ms)
        if not report.deleted_count and not report.held_by_pin:
            return
    raise AssertionError("collection does not come to an end")


async def named_objects(store: MemoryObjectStore) -> set[str]:
    """Every object that some readable version needs, found by opening each of them."""
    head = await open_catalog(store, KEYS)
    named = {KEYS.head_hint, *(KEYS.pin(pin.pin_id) for pin in await list_pins(store, KEYS))}
    marks = {mark.version for mark in head.checkpoints}
    first = head.readable_from
    for version in range(first, head.version + 1):
        named.add(KEYS.ledger_entry(version))
        named |= (await open_catalog(store, KEYS, version=version)).live_keys()
    reader = await LedgerReader.open(store, KEYS)
    if reader.base is not None:
        marks.add(reader.base.version)
    for version in marks:
        named.add(KEYS.checkpoint_head(version))
        named.update((await load_head(store, KEYS, version)).object_keys)
    return named


async def drop_oldest(writer: LedgerWriter, *, topic: str = "orders") -> None:
    """Commit the end of a topic's first segment, as a TTL sweep would."""
    first = writer.catalog.topics[topic].segments[0]
    await writer.commit(LedgerChanges(segments_out=(SegmentOut(topic, first.segment_id),)))


async def test_dropped_segments_go_after_the_grace_period() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    first = await commit_segment(writer)
    for number in range(1, 10):
        await commit_segment(writer, start=number * 10)
    await drop_oldest(writer)
    version_with_it = writer.version - 1
    clock.now_ms += DAY_MS - 1
    assert not collector.is_due(now_ms=clock.now_ms)
    await collect(collector, clock, sweep=True)
    assert first.log.key in store.objects
    assert (await open_catalog(store, KEYS, version=version_with_it)).topics["orders"].segments[0] == first
    clock.now_ms += 1
    assert collector.is_due(now_ms=clock.now_ms)
    plan = await collector.plan(now_ms=clock.now_ms)
    assert set(first.keys) <= set(plan.objects)
    assert first.log.key in store.objects, "planning deletes nothing"
    await collect(collector, clock)
    assert not set(first.keys) & set(store.objects)
    assert set(store.objects) == await named_objects(store)
    with pytest.raises(VersionExpiredError):
        await open_catalog(store, KEYS, version=version_with_it)


async def test_an_idle_ledger_costs_nothing_once_it_is_clean() -> None:
    store, clock = MemoryObjectStore(), Clock()
    metered = MeteringObjectStore(store)
    writer = await open_writer(metered, clock=clock)
    collector = GarbageCollector(writer)
    await commit_segment(writer)
    await drop_oldest(writer)
    clock.now_ms += DAY_MS
    await collect(collector, clock, sweep=True)
    assert not any("/topics/" in key for key in store.objects)
    clock.now_ms += 30 * DAY_MS
    before = metered.counters.request_count
    assert not collector.is_due(now_ms=clock.now_ms)
    assert metered.counters.request_count == before


async def test_abandoned_uploads_go_at_once_and_unfinished_ones_stay() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    given_up, under_way = writer.next_segment_id(), writer.next_segment_id()
    for segment_id in (given_up, under_way):
        await store.put(KEYS.segment("orders", segment_id)[0], b"part")
    writer.abandon(given_up, KEYS.segment("orders", given_up))
    await collect(collector, clock, sweep=True)
    assert KEYS.segment("orders", given_up)[0] not in store.objects
    assert KEYS.segment("orders", under_way)[0] in store.objects


async def test_orphans_of_earlier_epochs_only() -> None:
    store, clock = MemoryObjectStore(), Clock()
    first = await open_writer(store, clock=clock, seed=1)
    kept = await commit_segment(first)
    orphan = KEYS.segment("orders", first.next_segment_id())[0]
    later = KEYS.segment("orders", SegmentId(7, 1))[0]
    for key in (orphan, later):
        await store.put(key, b"part")
    await store.put(f"{KEYS.topics_prefix}orders/README", b"not ours")
    second = await open_writer(store, clock=clock, seed=2)
    await collect(GarbageCollector(second), clock, sweep=True)
    assert orphan not in store.objects
    assert {later, kept.log.key, f"{KEYS.topics_prefix}orders/README"} <= set(store.objects)


async def test_a_fenced_collector_that_slept_deletes_no_live_object() -> None:
    store, clock = MemoryObjectStore(), Clock()
    first = await open_writer(store, clock=clock, seed=1)
    for number in range(6):
        await commit_segment(first, start=number * 10)
    await drop_oldest(first)
    clock.now_ms += DAY_MS
    collector = GarbageCollector(first)
    plan = await collector.plan(now_ms=clock.now_ms, sweep=True)
    assert plan.object_count
    second = await open_writer(store, clock=clock, seed=2)
    for number in range(10, 16):
        await commit_segment(second, start=number * 10)
    with pytest.raises(FencedError):
        await collector.execute(plan, now_ms=clock.now_ms)
    assert await open_catalog(store, KEYS) == second.catalog
    assert second.catalog.live_keys() <= set(store.objects)


async def test_a_pin_holds_its_version() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    for number in range(10):
        await commit_segment(writer, start=number * 10)
    pinned = writer.catalog
    pin = Pin(pin_id="job-1", version=pinned.version, until_ms=clock.now_ms + 10 * DAY_MS, owner="a test")
    await create_pin(store, KEYS, pin)
    for _ in range(9):
        await drop_oldest(writer)
    clock.now_ms += 2 * DAY_MS
    await collect(collector, clock, sweep=True)
    assert await open_catalog(store, KEYS, version=pinned.version) == pinned
    assert pinned.live_keys() <= set(store.objects)
    assert set(store.objects) == await named_objects(store)
    await delete_pin(store, KEYS, "job-1")
    await collect(collector, clock, sweep=True)
    assert not pinned.live_keys() <= set(store.objects)
    assert set(store.objects) == await named_objects(store)
    with pytest.raises(VersionExpiredError):
        await create_pin(store, KEYS, pin)
    assert await list_pins(store, KEYS) == []


async def test_a_listing_of_pins_that_is_cut_off_leaves_nothing_behind() -> None:
    """Its first keys have arrived: no task reads pins that no caller waits for."""
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    pin = Pin(pin_id="job-1", version=writer.version, until_ms=clock.now_ms + DAY_MS, owner="a test")
    await create_pin(store, KEYS, pin)
    with pytest.raises(ObjectStoreUnavailableError):
        await list_pins(FaultInjectingObjectStore(store, crash_at(0, Fault.LOST_ANSWER)), KEYS)
    gc.collect()  # where a coroutine that was never awaited would be warned of


async def test_a_pin_runs_out() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    for number in range(4):
        await commit_segment(writer, start=number * 10)
    pin = Pin(pin_id="job-1", version=writer.version, until_ms=clock.now_ms + 5, owner="a test")
    await create_pin(store, KEYS, pin)
    await drop_oldest(writer)
    clock.now_ms += DAY_MS
    await collect(GarbageCollector(writer), clock, sweep=True)
    assert set(store.objects) == await named_objects(store)
    assert await list_pins(store, KEYS) == []


async def test_a_pin_that_comes_between_plan_and_execution() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    for number in range(6):
        await commit_segment(writer, start=number * 10)
    pinned = writer.catalog
    await drop_oldest(writer)
    clock.now_ms += DAY_MS
    plan = await collector.plan(now_ms=clock.now_ms, sweep=True)
    pin = Pin(pin_id="job-1", version=pinned.version, until_ms=clock.now_ms + DAY_MS, owner="a test")
    await create_pin(store, KEYS, pin)
    report = await collector.execute(plan, now_ms=clock.now_ms)
    assert report.held_by_pin
    assert await open_catalog(store, KEYS, version=pinned.version) == pinned
    assert pinned.live_keys() <= set(store.objects)
    await delete_pin(store, KEYS, "job-1")
    await collect(collector, clock)
    assert set(store.objects) == await named_objects(store)


async def test_readers_that_start_while_entries_go() -> None:
    """At each deletion, a reader that starts then finds the head, and an old one goes on to it."""
    store, clock = MemoryObjectStore(), Clock()
    old_hints: list[bytes] = []
    checks = 0

    class Watched(FaultInjectingObjectStore):
        async def delete(self, key: str) -> None:
            nonlocal checks
            await super().delete(key)
            for hint in (None, *old_hints):
                view = MemoryObjectStore()
                for name, data in store.objects.items():
                    await view.put(name, data)
                if hint is not None:
                    await view.put(KEYS.head_hint, hint)
                assert await open_catalog(view, KEYS) == writer.catalog
            checks += 1

    watched = Watched(store, crash_at(-1, Fault.NONE))
    writer = await open_writer(watched, clock=clock)
    stale = await LedgerReader.open(store, KEYS)
    for number in range(30):
        await commit_segment(writer, start=number * 10)
        if number % 8 == 0:
            old_hints.append(store.objects[KEYS.head_hint])
    clock.now_ms += DAY_MS
    await commit_segment(writer, start=5000)
    await collect(GarbageCollector(writer), clock, sweep=True)
    assert checks > 20
    assert await stale.refresh() == writer.catalog


async def test_a_failing_store_leaves_the_rest_for_the_next_plan() -> None:
    store, clock = MemoryObjectStore(), Clock()
    failing = {"on": False}

    def plan(number: int, call: StoreCall) -> Fault:
        return Fault.UNREACHED if failing["on"] and call.verb.startswith("delete") and number % 2 else Fault.NONE

    writer = await open_writer(FaultInjectingObjectStore(store, plan), clock=clock)
    collector = GarbageCollector(writer)
    for number in range(12):
        await commit_segment(writer, start=number * 10)
    await drop_oldest(writer)
    clock.now_ms += DAY_MS
    failing["on"] = True
    with pytest.raises(ObjectStoreUnavailableError):
        await collect(collector, clock)
    failing["on"] = False
    assert collector.is_due(now_ms=clock.now_ms)
    await collect(collector, clock)
    assert set(store.objects) == await named_objects(store)


@pytest.mark.parametrize("seed", range(6))
async def test_the_bucket_holds_exactly_the_objects_of_readable_versions(seed: int) -> None:
    """Random commits, drops, abandoned uploads, pins, collections, failures, crashes and changes of writer."""
    random = Random(seed)
    store, clock = MemoryObjectStore(), Clock()
    nonce_seed = seed * 1000
    for life in range(12):
        nonce_seed += 1
        crash_step = random.randrange(40, 400)
        faulty = FaultInjectingObjectStore(
            store, crash_at(crash_step, random.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]))
        )
        with contextlib.suppress(ProcessCrash):
            writer = await open_writer(
                faulty, clock=clock, seed=nonce_seed, checkpoint_interval=random.choice([1, 3, 8])
            )
            collector = GarbageCollector(writer)
            for step in range(40):
                await random_step(random, writer, collector, clock, first=step == 0, life=life)
    writer = await open_writer(store, clock=clock, seed=nonce_seed + 1)
    collector = GarbageCollector(writer)
    clock.now_ms += 3 * DAY_MS
    await collect(collector, clock, sweep=True)
    assert set(store.objects) == await named_objects(store)
    assert await open_catalog(store, KEYS) == writer.catalog
    for topic in list(writer.catalog.topics.values()):
        for _ in topic.segments:
            await drop_oldest(writer, topic=topic.topic)
    for pin in await list_pins(store, KEYS):
        await delete_pin(store, KEYS, pin.pin_id)
    clock.now_ms += 3 * DAY_MS
    await collect(collector, clock)
    assert not [key for key in store.objects if key.startswith(KEYS.topics_prefix)]
    assert set(store.objects) == await named_objects(store)


async def random_step(
    random: Random, writer: LedgerWriter, collector: GarbageCollector, clock: Clock, *, first: bool, life: int
) -> None:
    """One thing that a broker's tier process may do."""
    clock.now_ms += random.choice([10, 1000, DAY_MS // 8, DAY_MS // 2])
    topic = random.choice(["orders", "payments", "%RETRY%group"])
    choice = random.random()
    if first or choice < 0.15:
        plan = await collector.plan(now_ms=clock.now_ms, sweep=first or random.random() < 0.2)
        await collector.execute(plan, now_ms=clock.now_ms)
    elif choice < 0.6:
        ends = writer.catalog.topics[topic].queue_ends() if topic in writer.catalog.topics else {}
        await commit_segment(writer, topic=topic, start=ends.get(0, 0))
    elif choice < 0.75:
        entry = make_entry(writer.next_segment_id(), topic=topic)
        for key in entry.keys:
            await writer.store.put(key, b"part")
        writer.abandon(entry.id, entry.keys)
    elif choice < 0.9:
        if topic in writer.catalog.topics and writer.catalog.topics[topic].segments:
            await drop_oldest(writer, topic=topic)
    else:
        pin = Pin(
            pin_id=f"job-{life}-{random.getrandbits(40)}",
            version=writer.version,
            until_ms=clock.now_ms + random.choice([10, DAY_MS]),
            owner="a test",
        )
        await create_pin(writer.store, KEYS, pin)


async def test_a_plan_that_names_a_live_object_is_not_carried_out() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    collector = GarbageCollector(writer)
    live = await commit_segment(writer)
    gone = await commit_segment(writer, start=10)
    await writer.commit(LedgerChanges(segments_out=(SegmentOut("orders", gone.segment_id),)))
    clock.now_ms += DAY_MS
    plan = await collector.plan(now_ms=clock.now_ms)
    assert gone.log.key in plan.objects
    with pytest.raises(AssertionError, match="not deleted"):
        await collector.execute(replace(plan, objects={**plan.objects, live.log.key: 1}), now_ms=clock.now_ms)
    assert {gone.log.key, live.log.key} <= set(store.objects)
