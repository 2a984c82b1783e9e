"""Garbage rounds: a few collections in each grace period, also after the clock was set back; listings in parts.

Covers `tiered/garbage/orphan_search.py`.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.clock import Clock
from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.garbage import garbage_rounds
from thermocline.tiered.garbage.garbage_rounds import COLLECTIONS_PER_GRACE, GarbageRounds
from thermocline.tiered.ledger.pins import Pin, encode_pin
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.stores.memory import MemoryObjectStore

CONFIG = TierConfig(cold_url="memory://rounds")
PAUSE_MS = CONFIG.grace_ms // COLLECTIONS_PER_GRACE


async def test_the_pause_between_collections_does_not_last_until_a_clock_has_caught_up() -> None:
    store, clock = MemoryObjectStore(), Clock()
    writer = await open_writer(store, clock=clock)
    rounds = GarbageRounds(writer, CONFIG, changing=asyncio.Lock(), clock=clock, can_pay=lambda _: True)
    key = KEYS.pack("forever", SegmentId(writer.epoch, 1))

    async def is_collected(now_ms: int) -> bool:
        await store.put(key, b"given up")
        writer.discarded[key] = 8
        await rounds.collect_due(now_ms)
        return key not in store.objects

    now_ms = clock.now_ms
    assert await is_collected(now_ms)
    assert not await is_collected(now_ms + PAUSE_MS - 1)
    assert await is_collected(now_ms + PAUSE_MS)
    assert await is_collected(now_ms - 50 * PAUSE_MS)
    assert not await is_collected(now_ms - 49 * PAUSE_MS - 1)


async def test_a_round_lists_a_part_of_a_large_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing waits for the round: a year's history would take minutes."""
    monkeypatch.setattr(garbage_rounds, "LISTED_AT_ONCE", 10)
    store, clock = MemoryObjectStore(), Clock()
    first = await open_writer(store, clock=clock)
    live = [await commit_segment(first, start=10 * number) for number in range(7)]
    orphans = [KEYS.pack("forever", SegmentId(first.epoch, 100 + number)) for number in range(15)]
    orphans += [KEYS.index("forever", SegmentId(first.epoch, 200))]
    for key in orphans:
        await store.put(key, b"orphan")
    writer = await open_writer(store, clock=clock, seed=2)
    changing = asyncio.Lock()
    rounds = GarbageRounds(writer, CONFIG, changing=changing, clock=clock, can_pay=lambda _: True)
    gone = live.pop(0)
    for _ in range(3):  # 21 live objects come first, then the orphans
        async with changing:  # no collection yet
            await rounds.collect_due(clock.now_ms)
        assert all(key in store.objects for key in orphans)
        if gone.segment_id in {each.segment_id for each in writer.catalog.topics["orders"].segments}:
            await writer.commit(LedgerChanges(segments_out=(SegmentOut("orders", gone.segment_id),)))
    await rounds.collect_due(clock.now_ms)
    assert not any(key in store.objects for key in orphans)
    assert all(key in store.objects for segment in (gone, *live) for key in segment.keys)


async def test_orphans_that_a_pin_held_go_later() -> None:
    store, clock = MemoryObjectStore(), Clock()
    first = await open_writer(store, clock=clock)
    orphan = KEYS.pack("forever", SegmentId(first.epoch, 100))
    await store.put(orphan, b"orphan")
    writer = await open_writer(store, clock=clock, seed=2)
    pin = Pin(pin_id="late", version=0, until_ms=clock.now_ms + 1_000, owner="a reader")
    await store.put(KEYS.pin(pin.pin_id), encode_pin(pin))
    rounds = GarbageRounds(writer, CONFIG, changing=asyncio.Lock(), clock=clock, can_pay=lambda _: True)
    await rounds.collect_due(clock.now_ms)
    assert orphan in store.objects
    await rounds.collect_due(clock.now_ms + PAUSE_MS)
    assert orphan not in store.objects
