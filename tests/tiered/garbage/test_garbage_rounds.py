"""Garbage rounds: a few collections in each grace period, also after the clock was set back."""

from __future__ import annotations

import asyncio

from tests.clock import Clock
from tests.tiered.ledger_data import KEYS, open_writer
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.garbage.garbage_rounds import COLLECTIONS_PER_GRACE, GarbageRounds
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
