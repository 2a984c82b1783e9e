"""A slice of `benchmarks/request_bill.py`: a 32nd of its rate, in memory, so that every figure is one of minutes.

The bill is one of requests a time, so its GiB is 1 024 seconds here, too: 32 MiB.
"""

from __future__ import annotations

from benchmarks.request_bill import HOUR_MS, KIB, MIB, SEAL_AGE_MS, Bill, measure
from benchmarks.synthetic_packs import run_days
from thermocline.tiered.memory import MemoryObjectStore
from thermocline.tiered.tier_config import TierConfig

SCALE = 32
SIZE_BYTES = 72 * MIB
CONFIG = TierConfig(
    cold_url="memory://slice",
    segment_bytes=4 * MIB,
    pack_bytes=8 * MIB,
    frame_bytes=32 * KIB,
    seal_age_ms=SEAL_AGE_MS,
    grace_ms=HOUR_MS,
    cache_bytes=16 * MIB,
)


async def bill_of(*, topics: int, queues: int, classes: int = 1, size_bytes: int = SIZE_BYTES) -> Bill:
    """PUTs a GiB are of as many seconds as a GiB takes at full rate."""
    bill = await measure(
        MemoryObjectStore(),
        topics=topics,
        queues=queues,
        classes=classes,
        size_bytes=size_bytes,
        rate_bytes=MIB // SCALE,
        config=CONFIG,
    )
    bill.puts_per_gib = {kind: count / SCALE for kind, count in bill.puts_per_gib.items()}
    return bill


async def test_the_bill_does_not_depend_on_the_number_of_topics() -> None:
    bills = [
        await bill_of(topics=120, queues=8),
        await bill_of(topics=1, queues=8),
        await bill_of(topics=150, queues=8),
    ]
    for bill in bills:
        assert bill.data_and_ledger <= 40
        assert bill.state_and_checkpoints <= 25
        assert bill.all_puts <= 80
        assert bill.oldest_ms < 120_000
        assert bill.sum_of("merge packs", "merge segments") > 0
        assert bill.sum_of("index indexes") > 0
        assert bill.packs_per_topic_max <= 2 * CONFIG.merge_fan_in
    assert max(bill.all_puts for bill in bills) <= 1.2 * min(bill.all_puts for bill in bills)


async def test_a_further_class_costs_nine_puts_more() -> None:
    one = await bill_of(topics=60, queues=8, size_bytes=SIZE_BYTES // 2)
    three = await bill_of(topics=60, queues=8, classes=3, size_bytes=SIZE_BYTES // 2)
    assert three.data_and_ledger - one.data_and_ledger <= 2 * 9


async def test_entries_stay_small_for_a_day() -> None:
    figures = await run_days(MemoryObjectStore(), topics=100, queues=8, days=1)
    assert figures["largest_entry_kib"] <= 256
    assert figures["checkpoint_part_percent"] <= 2
    assert figures["packs_of_a_topic_max"] <= 3 * TierConfig().merge_fan_in
    assert figures["own_segments"]
