"""A request budget on a whole cold tier: it holds, nothing is lost for it, and what has to be sealed is sealed."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.cost.cost_meter import HOUR_MS
from thermocline.tiered.cost.request_budget import RequestBudget, counted_requests
from thermocline.tiered.cost.seal_admission import SealAdmission
from thermocline.tiered.packs.piece_table import QueueRange
from thermocline.tiered.tier_config import TierConfig

MINUTE_MS = 60_000
STEP_MS = 10_000
DAY_MS = 24 * HOUR_MS
MOST_PER_HOUR = 600
"""Of the budgets that are tried; packs keep what is wanted to some 800 an hour, however many topics send."""


class Budgeted:
    """A metered tier under a budget; `hour` is what was counted in the last hour."""

    def __init__(self, senders: dict[str, Sender], *, seed: int, age_ms_max: int = DAY_MS) -> None:
        self.tier = MeteredTier(senders, seed=seed, step_ms=STEP_MS)
        self._age_ms_max = age_ms_max
        self._counts: deque[int] = deque([0], maxlen=HOUR_MS // STEP_MS + 1)
        self.busiest_hour = 0

    def admission(self, config: TierConfig) -> SealAdmission:
        tier = self.tier
        budget = RequestBudget(
            requests_per_hour=config.requests_per_hour,
            spent=lambda: counted_requests(tier.meter.totals),
            clock=lambda: tier.hot.now_ms,
        )
        return SealAdmission(budget, age_ms=config.seal_age_ms, age_ms_max=self._age_ms_max)

    async def run(self, minutes: float) -> None:
        for _ in range(int(minutes * MINUTE_MS) // STEP_MS):
            await self.tier.step()
            self._counts.append(counted_requests(self.tier.meter.totals))
            self.busiest_hour = max(self.busiest_hour, self._counts[-1] - self._counts[0])

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
            reached = ranges[0][0] if ranges and tier.senders[topic].ttl_ms is not None else 0
            for start_offset, end_offset in ranges:
                assert start_offset == reached
                reached = end_offset
            assert queue.first_offset <= reached <= queue.end_offset or not ranges


def packed_ranges(catalog: Catalog, topic: str) -> list[QueueRange]:
    """What lies in packs of a topic."""
    packed = catalog.packed.get(topic)
    return [
        queue
        for pack_id in (packed.packs if packed is not None else ())
        for name, piece in zip(catalog.packs[pack_id].topics, catalog.packs[pack_id].table().pieces(), strict=True)
        if name == topic
        for queue in piece.queues
    ]


def senders_of(count: int, random: Random) -> dict[str, Sender]:
    """Topics that send seldom, of some classes of times to live."""
    ttls_ms = [None, 40 * MINUTE_MS, 90 * MINUTE_MS]
    return {
        f"t{number}": Sender(per_minute=random.choice([0.5, 1, 4]), ttl_ms=random.choice(ttls_ms), body_bytes=60)
        for number in range(count)
    }


def config_of(requests_per_hour: int) -> TierConfig:
    return TierConfig(
        cold_url="memory://budgeted",
        segment_bytes=64 << 20,
        seal_age_ms=STEP_MS,
        grace_ms=30 * MINUTE_MS,
        requests_per_hour=requests_per_hour,
    )


async def test_without_a_budget_the_same_traffic_takes_more() -> None:
    """The test below means something: what it allows is a part of what is wanted."""
    plain = Budgeted(senders_of(20, Random(1)), seed=1)
    async with plain.tier.opened(config_of(0)):
        await plain.run(70)
    assert plain.busiest_hour > MOST_PER_HOUR


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a case takes seconds: shrinking would take hours
)
@given(
    seed=st.integers(0, 1 << 30),
    requests_per_hour=st.integers(120, MOST_PER_HOUR),
    topics=st.integers(1, 25),
    bursts=st.lists(st.sampled_from([0.0, 0.2, 3.0, 12.0]), min_size=4, max_size=6),
)
async def test_no_hour_sees_more_than_the_budget_and_nothing_is_lost(
    seed: int, requests_per_hour: int, topics: int, bursts: list[float]
) -> None:
    """Topics send now much, now nothing; some have a time to live. In the end local files have to go: all is sealed."""
    random = Random(seed)
    senders = senders_of(topics, random)
    budgeted = Budgeted(senders, seed=seed)
    tier, config = budgeted.tier, config_of(requests_per_hour)
    async with tier.opened(config, admission=budgeted.admission(config)) as service:
        for burst in bursts:
            tier.senders = {
                topic: replace(sender, per_minute=sender.per_minute * burst) for topic, sender in senders.items()
            }
            await budgeted.run(20)
            budgeted.assert_nothing_is_lost()
        assert budgeted.busiest_hour <= requests_per_hour
        tier.pressure = True
        await budgeted.run(STEP_MS / MINUTE_MS)
        assert not any(progress.first_waiting_ms for progress in service.backlog.topics.values())
        budgeted.assert_nothing_is_lost()


async def test_a_topic_that_has_waited_as_long_as_local_files_are_kept_is_sealed() -> None:
    budgeted = Budgeted(senders_of(20, Random(3)), seed=3, age_ms_max=MINUTE_MS)
    tier, config = budgeted.tier, config_of(120)
    oldest_ms = 0
    async with tier.opened(config, admission=budgeted.admission(config)) as service:
        for _ in range(60 * MINUTE_MS // STEP_MS):
            await budgeted.run(STEP_MS / MINUTE_MS)
            times = [progress.first_waiting_ms for progress in service.backlog.topics.values()]
            waiting = [first_ms for first_ms in times if first_ms is not None]
            oldest_ms = max(oldest_ms, tier.hot.now_ms - min(waiting, default=tier.hot.now_ms))
        budgeted.assert_nothing_is_lost()
    assert 3 * STEP_MS < oldest_ms <= MINUTE_MS + STEP_MS, "wider than configured, and not wider than that"
    assert budgeted.busiest_hour > 120
