"""The forecast of requests against those that are counted, for settings that were not in force while it was made.

Covers `tiered/bill/arrivals.py`, `tiered/bill/index_forecast.py`, `tiered/bill/merge_forecast.py`,
`tiered/bill/seal_forecast.py`, `tiered/bill/service_forecast.py`, `tiered/budgets/tier_config.py`,
`tiered/catalog/stored_bytes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.tiered.bill.service_forecast import forecast_requests, forecast_storage, loads_of
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.stored_bytes import stored_by_topic
from thermocline.tiered.cost.request_kind import requests_by_kind

KIB = 1 << 10
MINUTE_MS = 60_000
DEVIATION_MAX = 0.05
DEVIATION_TINY = 2.0
"""Requests an hour."""
STORAGE_DEVIATION_MAX = 0.2
GRACE_MS = 20 * MINUTE_MS
STEP_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`before`: runs while traffic is recorded; `after`: is forecast, then run. `settle`: until expiry and
    collection keep pace with new data."""

    senders: Mapping[str, Sender]
    before: TierConfig
    after: TierConfig
    ttl_after_ms: int | None = None
    settle_minutes: int
    record_minutes: int = 30
    counted_minutes: int = 60


def config(**settings: int) -> TierConfig:
    return TierConfig(
        cold_url="memory://metered",
        frame_bytes=32 * KIB,
        grace_ms=GRACE_MS,
        merge_fan_in=4,
        account_interval_ms=STEP_MS,
        **settings,
    )


FEW_LARGE = Workload(
    senders={f"large{number}": Sender(per_minute=90 + 45 * number, body_bytes=700) for number in range(3)},
    before=config(segment_bytes=256 * KIB, seal_age_ms=10 * MINUTE_MS),
    after=config(segment_bytes=64 * KIB, seal_age_ms=10 * MINUTE_MS),
    settle_minutes=25,
    counted_minutes=120,
)
MANY_SMALL = Workload(
    senders={f"small{number:03}": Sender(per_minute=0.5 + number / 20) for number in range(90)},
    before=config(seal_age_ms=5 * MINUTE_MS),
    after=config(seal_age_ms=MINUTE_MS),
    settle_minutes=40,
    counted_minutes=240,
)
MIXED_WITH_TTL = Workload(
    senders={
        **{f"large{number}": Sender(per_minute=180, body_bytes=700, ttl_ms=40 * MINUTE_MS) for number in range(2)},
        **{f"small{number:03}": Sender(per_minute=1 + number / 5, ttl_ms=40 * MINUTE_MS) for number in range(15)},
        **{f"kept{number:03}": Sender(per_minute=2 + number / 5) for number in range(15)},
    },
    before=config(segment_bytes=512 * KIB, seal_age_ms=4 * MINUTE_MS),
    after=config(segment_bytes=128 * KIB, seal_age_ms=2 * MINUTE_MS),
    ttl_after_ms=20 * MINUTE_MS,
    settle_minutes=50,
    # Of half an hour, what is left of a topic when a round comes is another sample than in what is counted.
    record_minutes=60,
    counted_minutes=150,
)


def stored_bytes(catalog: Catalog) -> int:
    """What live segments and packs hold."""
    return sum(each.stored_bytes for each in stored_by_topic(catalog).values())


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(FEW_LARGE, id="few large topics"),
        pytest.param(MANY_SMALL, id="many small topics", marks=pytest.mark.full),
        pytest.param(
            MIXED_WITH_TTL,
            id="large and small topics, half of them with a time to live",
            marks=pytest.mark.full,
        ),
    ],
)
async def test_the_forecast_is_within_five_percent_of_the_count(workload: Workload) -> None:
    tier = MeteredTier(workload.senders, step_ms=STEP_MS, is_whole=True)
    async with tier.opened(workload.before) as service:
        await tier.run(workload.record_minutes)
        ttls_ms = {topic: workload.ttl_after_ms for topic, sender in tier.senders.items() if sender.ttl_ms is not None}
        window = tier.traffic.window()
        loads = loads_of(service, window, now_ms=tier.hot.now_ms, ttls_ms=ttls_ms)
        catalog, cycle_ms = service.catalog, window.elapsed_ms
        forecast = forecast_requests(loads, workload.after, catalog=catalog, cycle_ms=cycle_ms)
        storage = forecast_storage(loads, catalog=catalog, cycle_ms=cycle_ms, grace_ms=0, ttls_ms=ttls_ms)
    if workload.ttl_after_ms is not None:
        tier.senders = {
            topic: replace(sender, ttl_ms=None if sender.ttl_ms is None else workload.ttl_after_ms)
            for topic, sender in tier.senders.items()
        }
    async with tier.opened(workload.after) as service:
        await tier.run(workload.settle_minutes)
        before = tier.meter.totals.copy()
        await tier.run(workload.counted_minutes)
        counted = requests_by_kind(tier.meter.totals.since(before).requests)
        held_bytes = stored_bytes(service.catalog)
    # What merges have replaced waits for the end of the grace period, too; what has expired of packs is not forecast.
    passed_hours = (workload.settle_minutes + workload.counted_minutes) / 60
    expected_bytes = storage.stored_bytes + passed_hours * storage.growth_bytes_per_hour
    assert held_bytes == pytest.approx(expected_bytes, rel=STORAGE_DEVIATION_MAX)
    hours = workload.counted_minutes / 60
    report = {kind.value: (round(forecast.per_hour(kind), 1), count / hours) for kind, count in counted.items()}
    for kind, count in counted.items():
        assert forecast.per_hour(kind) == pytest.approx(count / hours, rel=DEVIATION_MAX, abs=DEVIATION_TINY), report


async def test_what_waits_has_waited_since_its_first_message() -> None:
    tier = MeteredTier({"orders": Sender(per_minute=60)}, step_ms=STEP_MS, is_whole=True)
    async with tier.opened(config(seal_age_ms=10 * MINUTE_MS)) as service:
        await tier.run(2)
        first_ms = service.backlog.topics["orders"].first_waiting_ms
        assert first_ms is not None
        waited_ms = [
            load.waited_ms
            for now_ms in (first_ms - 5, first_ms, first_ms + 5)
            for load in loads_of(service, tier.traffic.window(), now_ms=now_ms, ttls_ms={})
        ]
    assert waited_ms == [0, 0, 5], "also when the clock was set back"
