"""Topics that fill segments do not run far ahead of a few records that wait: those go up beside them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.indexes.log_items import LogItems
from thermocline.tiered.indexes.range_cut import records_behind
from thermocline.tiered.stores.memory import MemoryObjectStore

KIB = 1024
CONFIG = TierConfig(cold_url="memory://lag", segment_bytes=64 * KIB, frame_bytes=4 * KIB, seal_age_ms=3_600_000)
BODY_BYTES = 400
SEGMENT_RECORDS = 64 * KIB // (BODY_BYTES + 150)
LAG_MAX = 3 * SEGMENT_RECORDS
BUSY, IDLE = ("busy-1", "busy-2"), ("idle-1", "idle-2")
ROUNDS = 120


async def send(tier: SyntheticColdTier, random: Random) -> None:
    """Two topics at half a segment a second each, one of the others now and then; a round of the tier service."""
    for _ in range(SEGMENT_RECORDS):
        tier.hot.append(random.choice(BUSY), 0, body_bytes=BODY_BYTES)
    if random.random() < 0.1:
        tier.hot.append(random.choice(IDLE), 0, body_bytes=BODY_BYTES)
    tier.hot.now_ms += 1_000
    tier.report()
    await tier.service.run_once()


def ahead(tier: SyntheticColdTier) -> float:
    """How many committed records lie behind the first one that waits."""
    tier.service.backlog.account()
    gate = tier.service.backlog.committed_offset()
    return sum(records_behind(item, gate) for item in LogItems.of_catalog(tier.catalog).between(gate, 1 << 62).items)


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "without merging"])
async def test_the_committed_offset_stays_near_the_waiting_ones(is_indexed: bool) -> None:
    hot, random, most = SyntheticHotTier(), Random(1), 0.0
    topics = {name: SyntheticTopic() for name in (*BUSY, *IDLE)}
    config = CONFIG if is_indexed else replace(CONFIG, merge_bytes_per_second=0)
    async with opened(MemoryObjectStore(), config, hot=hot, topics=topics, lag_records_max=LAG_MAX) as tier:
        for _ in range(ROUNDS):
            await send(tier, random)
            most = max(most, ahead(tier))
        packs = list(tier.catalog.packs.values())
        full = [tier.catalog.topics[name].segments for name in BUSY]
    if not is_indexed:
        assert not packs
        assert most > 10 * LAG_MAX
        return
    # Another LAG_MAX may pass before the next look, and each busy topic may have sealed one by then.
    assert most <= 2 * LAG_MAX + len(BUSY) * 2 * SEGMENT_RECORDS
    sealed_count = sum(segment.record_count for segments in full for segment in segments)
    assert 0 < len(packs) <= sealed_count // LAG_MAX
    assert {topic for pack in packs for topic in pack.topics} <= set(IDLE), "those that fill segments wait for theirs"
