"""Blooms of everything that is live stay in a cache that has just room for them, whatever is merged meanwhile.

Covers `tiered/service/indexing.py`.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.indexes.index_policy import FAN_IN, ITEMS_MIN
from thermocline.tiered.stores.memory import MemoryObjectStore

CONFIG = TierConfig(cold_url="memory://blooms")
RECORDS = 40
SEALS = 2 * FAN_IN * ITEMS_MIN


async def blooms_after_merges(config: TierConfig) -> tuple[int, int]:
    """Bytes of blooms of all objects that there are after many merges, and of those in memory."""
    hot, levels = SyntheticHotTier(), set[int]()
    async with opened(MemoryObjectStore(), config, hot=hot, topics={"orders": SyntheticTopic()}) as tier:
        for _ in range(SEALS):
            for _ in range(RECORDS):
                hot.append("orders", 0, body_bytes=100)
            hot.now_ms += config.seal_age_ms
            tier.report()
            await tier.service.run_once()
            await tier.index_all()
            levels |= {index.level for index in tier.catalog.indexes.values()}
        assert len(levels) > 1, "nothing was merged"
        live = list(tier.catalog.indexes.values())
        kept = sum(len(pages) for index in live if (pages := tier.blooms.get(index)) is not None)
        return sum(index.bloom_bytes for index in live), kept


async def test_a_merge_keeps_the_blooms_of_other_objects() -> None:
    all_bytes, kept_bytes = await blooms_after_merges(CONFIG)
    assert kept_bytes == all_bytes > 0
    all_bytes, kept_bytes = await blooms_after_merges(replace(CONFIG, index_bytes=all_bytes * 21 // 20))
    assert kept_bytes == all_bytes
