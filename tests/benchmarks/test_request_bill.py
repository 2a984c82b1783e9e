"""A slice of `benchmarks/request_bill.py`: a 32nd of its rate, in memory, so that every figure is one of minutes.

The bill is one of requests a time, so its GiB is 1 024 seconds here, too: 32 MiB. It is judged by the same clauses.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bill import KIB, MIB, Bill
from benchmarks.bill_verdicts import (
    RANGE_BYTES_MIN,
    verdicts_of,
    verdicts_of_classes,
    verdicts_of_days,
    verdicts_of_shapes,
)
from benchmarks.request_bill import HOUR_MS, measure
from benchmarks.synthetic_packs import run_days
from benchmarks.verdicts import missed
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.memory import MemoryObjectStore

SCALE = 32
SIZE_BYTES = 72 * MIB
PUT_MS = 2_500
"""What a PUT of a round takes on the clock: with its entry a pack is committed five seconds after the look."""
SMALL_RANGE_BYTES = 4 * KIB
CONFIG = TierConfig(
    cold_url="memory://slice",
    segment_bytes=4 * MIB,
    pack_bytes=8 * MIB,
    frame_bytes=32 * KIB,
    grace_ms=HOUR_MS,
    cache_bytes=16 * MIB,
    account_interval_ms=2_000,
)


async def bill_of(
    folder: Path,
    *,
    topics: int,
    queues: int = 8,
    classes: int = 1,
    size_bytes: int = SIZE_BYTES,
    put_ms: int = PUT_MS,
) -> Bill:
    """PUTs a GiB are of as many seconds as a GiB takes at full rate."""
    own = folder / f"{topics}-{classes}"
    own.mkdir()
    bill = await measure(
        MemoryObjectStore(),
        topics=topics,
        queues=queues,
        classes=classes,
        size_bytes=size_bytes,
        folder=own,
        rate_bytes=MIB // SCALE,
        config=CONFIG,
        put_ms=put_ms,
    )
    bill.puts_per_gib = {kind: count / SCALE for kind, count in bill.puts_per_gib.items()}
    bill.checkpoint_part /= SCALE  # entries and checkpoints are of time and topics, not of bytes
    return bill


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_the_bill_does_not_depend_on_the_number_of_topics(tmp_path: Path) -> None:
    bills = [await bill_of(tmp_path, topics=topics) for topics in (120, 1, 150)]
    for bill in bills:
        assert not missed(verdicts_of(bill, range_bytes_min=RANGE_BYTES_MIN // SCALE)), str(bill)
        assert bill.sealed_per_record == 1
        assert bill.sum_of("state") > 0
        # One topic fills most of a segment in a seal age: it is sealed as such, and no merge writes it again.
        assert (bill.sum_of("merge packs", "merge segments") > 0) == (bill.topics > 1)
        assert bill.sum_of("index indexes") > 0
        assert bill.packs_per_topic_max <= 2 * CONFIG.merge_fan_in
    assert not missed(verdicts_of_shapes(bills))


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_a_further_class_costs_nine_puts_more_and_rewrites_nothing(tmp_path: Path) -> None:
    size_bytes = SIZE_BYTES * 2 // 3
    one = await bill_of(tmp_path, topics=60, size_bytes=size_bytes)
    three = await bill_of(tmp_path, topics=60, classes=3, size_bytes=size_bytes, put_ms=PUT_MS // 4)
    # Footers are not a 32nd of what they would be, and of a class that soon dies nothing is merged.
    assert not missed(verdicts_of(three, range_bytes_min=SMALL_RANGE_BYTES)), str(three)
    assert not missed(verdicts_of_classes(one, three)), f"{one}\n{three}"
    assert three.sealed_per_record == 1
    assert three.expired_packs > 0


@pytest.mark.full
async def test_entries_stay_small_for_a_day() -> None:
    figures = await run_days(MemoryObjectStore(), topics=100, queues=8, days=1)
    assert not missed(verdicts_of_days(figures, resident_mb=0.0))  # of a test's process memory says nothing
    assert figures["packs_of_a_topic_max"] <= 3 * TierConfig().merge_fan_in
    assert figures["own_segments"]
