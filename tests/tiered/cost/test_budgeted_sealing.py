"""A request budget on a whole cold tier: it holds, nothing is lost for it, and what has to be sealed is sealed.

Covers `tiered/merging/merging.py`, `tiered/sealing/round_costs.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.full_cases import full
from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.cost.cost_meter import HOUR_MS, Purpose
from thermocline.tiered.cost.request_budget import RequestBudget, counted_requests, state_requests_per_hour
from thermocline.tiered.packs.piece_table import QueueRange
from thermocline.tiered.sealing.seal_admission import SealAdmission

MINUTE_MS = 60_000
STEP_MS = 10_000
DAY_MS = 24 * HOUR_MS
MOST_PER_HOUR = 600
"""Of the budgets that are tried; packs keep what is wanted to some 800 an hour, however many topics send."""


class Budgeted:
    """A metered tier under a budget; `hour` is what was counted in the last hour."""

    def __init__(self, senders: dict[str, Sender], *, seed: int, age_ms_max: int = DAY_MS) -> None:
        self.tier = MeteredTier(senders, seed=seed, step_ms=STEP_MS, is_whole=True)
        self._age_ms_max = age_ms_max
        self._counts: deque[int] = deque([0], maxlen=HOUR_MS // STEP_MS + 1)
        self.busiest_hour = 0

    def admission(self, config: TierConfig) -> SealAdmission:
        tier = self.tier
        budget = RequestBudget(
            requests_per_hour=config.requests_per_hour,
            spent=lambda: counted_requests(tier.meter.totals),
            clock=lambda: tier.hot.now_ms,
            state_per_hour=state_requests_per_hour(config.state_interval_ms),
        )
        return SealAdmission(budget, age_ms=config.seal_age_ms, age_ms_max=self._age_ms_max)

    async def run(self, minutes: float) -> None:
        for _ in range(int(minutes * MINUTE_MS) // STEP_MS):
            await self.tier.step()
            self._counts.append(counted_requests(self.tier.meter.totals))
            self.busiest_hour = max(self.busiest_hour, self._counts[-1] - self._counts[0])

    @property
    def oldest_waiting_ms(self) -> int:
        """How long the oldest message waits that is not in the cold tier."""
        times = [progress.first_waiting_ms for progress in self.tier.service.backlog.topics.values()]
        now_ms = self.tier.hot.now_ms
        return now_ms - min((first_ms for first_ms in times if first_ms is not None), default=now_ms)

    def assert_nothing_is_lost(self) -> None:
        """Each queue is in the cold tier up to where it is committed, without a gap but for what has expired; all else
        still waits."""
        tier = self.tier
        catalog = tier.service.catalog
        for (topic, queue_id), queue in tier.hot.queues.items():
            entry = catalog.topics.get(topic)
            ranges = sorted(
                (each.start_offset, each.end_offset)
                for each in (*(entry.ranges() if entry is not None else ()), *packed_ranges(catalog, topic))
                if each.queue_id == queue_id
            )
            times_ms, ttl_ms = tier.times_ms[topic, queue_id], tier.senders[topic].ttl_ms
            cut_ms = 0 if ttl_ms is None else tier.hot.now_ms - ttl_ms
            reached = 0
            for start_offset, end_offset in ranges:
                assert start_offset >= reached
                assert all(time_ms < cut_ms for time_ms in times_ms[reached:start_offset])
                reached = end_offset
            # Behind the last of them it is local still, and waits, or has expired.
            assert all(time_ms < cut_ms for time_ms in times_ms[reached : queue.first_offset])
            assert reached <= queue.end_offset == len(times_ms)


def packed_ranges(catalog: Catalog, topic: str) -> list[QueueRange]:
    """Ranges of a topic that packs hold."""
    packed = catalog.packed.get(topic)
    return [
        queue
        for pack_id in (packed.packs if packed is not None else ())
        for name, piece in zip(catalog.packs[pack_id].topics, catalog.packs[pack_id].table().pieces(), strict=True)
        if name == topic
        for queue in piece.queues
    ]


def senders_of(count: int, random: Random, *, body_bytes: int = 60) -> dict[str, Sender]:
    """Topics that send seldom, of some classes of times to live."""
    ttls_ms = [None, 40 * MINUTE_MS, 90 * MINUTE_MS]
    return {
        f"t{number}": Sender(
            per_minute=random.choice([0.5, 1, 4]), ttl_ms=random.choice(ttls_ms), body_bytes=body_bytes
        )
        for number in range(count)
    }


def config_of(requests_per_hour: int, *, segment_bytes: int = 64 << 20) -> TierConfig:
    return TierConfig(
        cold_url="memory://budgeted",
        segment_bytes=segment_bytes,
        frame_bytes=32 << 10,
        compression_level=1,
        seal_age_ms=STEP_MS,
        grace_ms=30 * MINUTE_MS,
        requests_per_hour=requests_per_hour,
    )


@pytest.mark.parametrize("segment_bytes", [64 << 20, *full(64 << 10)])
async def test_without_a_budget_the_same_traffic_takes_more(segment_bytes: int) -> None:
    """The tests below mean something: their budget is below the demand, by age and by size."""
    plain = Budgeted(senders_of(20, Random(1), body_bytes=4_000), seed=1)
    async with plain.tier.opened(config_of(0, segment_bytes=segment_bytes)):
        await plain.run(40)
    assert plain.busiest_hour > MOST_PER_HOUR


@pytest.mark.full
async def test_topics_that_fill_small_segments_keep_to_the_budget_too() -> None:
    """Twenty topics, each full several times a minute: three PUTs a segment would be some ten thousand an hour."""
    senders = {f"t{number}": Sender(per_minute=40, body_bytes=6_000) for number in range(20)}
    budgeted = Budgeted(senders, seed=1)
    tier, config = budgeted.tier, config_of(300, segment_bytes=64 << 10)
    admission = budgeted.admission(config)
    async with tier.opened(config, admission=admission):
        for _ in range(30 * MINUTE_MS // STEP_MS):
            await budgeted.run(STEP_MS / MINUTE_MS)
            assert budgeted.oldest_waiting_ms < 5 * MINUTE_MS
        budgeted.assert_nothing_is_lost()
        assert admission.is_widened
        assert admission.yielded_requests == 0
    # Half an hour sees at most a burst and half of the refill.
    assert budgeted.busiest_hour <= 96 + (300 - 96) // 2
    puts = {purpose: account.put_count for purpose, account in tier.meter.by_purpose.items()}
    # Saved 36 times, each 45 seconds and looked for every 10: every second time at most an entry carries the state.
    assert 18 <= puts[Purpose.STATE] < 36
    assert puts[Purpose.INDEX] > 4
    assert 20 < puts[Purpose.PACKS] < 100


@pytest.fixture
def examples(case_count: Callable[..., int]) -> int:
    return case_count(quick=3, full=6, soak=200)


def test_no_hour_sees_more_than_the_budget_and_nothing_is_lost(examples: int) -> None:
    """Topics send now much, now nothing, some with a time to live; some fill segments many times in a burst. State is
    saved, packs are merged, keys are indexed. In the end local files have to go: all is sealed."""

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a case takes seconds: shrinking would take hours
    )
    @given(
        seed=st.integers(0, 1 << 30),
        requests_per_hour=st.integers(120, MOST_PER_HOUR),
        topics=st.integers(1, 25),
        body_bytes=st.sampled_from([60, 1_500, 12_000]),
        segment_bytes=st.sampled_from([64 << 10, 256 << 10, 64 << 20]),
        bursts=st.lists(st.sampled_from([0.0, 0.2, 3.0, 12.0]), min_size=4, max_size=6),
    )
    def check(
        seed: int, requests_per_hour: int, topics: int, body_bytes: int, segment_bytes: int, bursts: list[float]
    ) -> None:
        senders = senders_of(topics, Random(seed), body_bytes=body_bytes)
        config = config_of(requests_per_hour, segment_bytes=segment_bytes)
        asyncio.run(keep_to_budget(senders, config, bursts, seed=seed))

    check()


async def keep_to_budget(senders: dict[str, Sender], config: TierConfig, bursts: list[float], *, seed: int) -> None:
    budgeted = Budgeted(senders, seed=seed)
    tier, admission = budgeted.tier, budgeted.admission(config)
    async with tier.opened(config, admission=admission) as service:
        for burst in bursts:
            tier.senders = {
                topic: replace(sender, per_minute=sender.per_minute * burst) for topic, sender in senders.items()
            }
            await budgeted.run(20)
            budgeted.assert_nothing_is_lost()
        assert budgeted.busiest_hour <= config.requests_per_hour
        assert admission.yielded_requests == 0
        tier.pressure = True
        await budgeted.run(STEP_MS / MINUTE_MS)
        assert not any(progress.first_waiting_ms for progress in service.backlog.topics.values())
        budgeted.assert_nothing_is_lost()


async def test_a_topic_that_has_waited_as_long_as_local_files_are_kept_is_sealed() -> None:
    """The budget yields then, and says by how much."""
    budgeted = Budgeted(senders_of(20, Random(3)), seed=3, age_ms_max=MINUTE_MS)
    tier, config = budgeted.tier, config_of(120)
    admission = budgeted.admission(config)
    oldest_ms = 0
    async with tier.opened(config, admission=admission):
        for _ in range(60 * MINUTE_MS // STEP_MS):
            await budgeted.run(STEP_MS / MINUTE_MS)
            oldest_ms = max(oldest_ms, budgeted.oldest_waiting_ms)
        budgeted.assert_nothing_is_lost()
    assert 3 * STEP_MS < oldest_ms <= MINUTE_MS + STEP_MS, "wider than configured, and not wider than that"
    assert budgeted.busiest_hour > 120
    assert admission.is_yielding
    # Requests that are made up for later are not counted: the rest exceeded the budget, or somewhat more.
    assert admission.yielded_requests >= budgeted.busiest_hour - 120
