"""How long what has expired stays in packs that the catalog names: the bound of ADR 0033, for every time to live from a
minute to a year.

The real tier service, packs and merges run on a clock that is moved. Each class has a topic at either end, and both
share packs: that is the worst case. Times to live that are long beside the seal age would take as many rounds, so
there the age grows with them; merges span up to an eighth of the longest time to live all the same.

Covers `tiered/packs/ttl_classes.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from tests.full_cases import full
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.packs.ttl_classes import SPAN_OF_TTL, longest_ttl_ms, ttl_class
from thermocline.tiered.sealing.due_changes import SWEEPS_WAITED_MAX
from thermocline.tiered.stores.memory import MemoryObjectStore

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
YEAR_MS = 365 * 24 * HOUR_MS
AGE_MS = TierConfig().seal_age_ms
CLASS_PART_MAX = 0.4143
"""Part of its time to live that a record is kept longer because of records that share its pack."""
AGES_PER_LIFE_MAX = 48
LIVES = 2.0


def classes_of_a_year() -> list[tuple[int, int]]:
    """The shortest and the longest time to live of each class, from a minute to a year."""
    found, ttl_ms = list[tuple[int, int]](), MINUTE_MS
    while ttl_ms <= YEAR_MS:
        longest_ms = longest_ttl_ms(ttl_class(ttl_ms))
        assert longest_ms is not None
        found.append((ttl_ms, longest_ms))
        ttl_ms = longest_ms + 1
    return found


def test_no_time_to_live_is_much_shorter_than_the_longest_of_its_class() -> None:
    classes = classes_of_a_year()
    assert classes[0][0] == MINUTE_MS
    assert classes[-1][1] >= YEAR_MS
    for (shortest_ms, longest_ms), (following_ms, _) in itertools.pairwise([*classes, (classes[-1][1] + 1, 0)]):
        assert longest_ms - shortest_ms <= CLASS_PART_MAX * shortest_ms
        assert following_ms == longest_ms + 1


@dataclass(slots=True)
class DeadTime:
    """Worst: by how much a record has outstayed its time, at most."""

    worst_ms: int = 0
    dead_bytes_ms: int = 0
    live_bytes_ms: int = 0

    def measure(self, tier: SyntheticColdTier, *, passed_ms: int) -> None:
        """Every piece of every live pack, after `passed_ms` more."""
        now_ms = tier.hot.now_ms
        for pack in tier.catalog.packs.values():
            table, times = pack.table(), pack.piece_times()
            assert times is not None
            for index, name in enumerate(pack.topics):
                oldest_ms, newest_ms = times.of(index)
                ttl_ms = tier.topics[name].ttl_ms
                assert ttl_ms is not None
                self.worst_ms = max(self.worst_ms, now_ms - ttl_ms - oldest_ms)
                # Records come evenly, so a piece expires evenly between its first and its last.
                span_ms = max(1, newest_ms - oldest_ms)
                dead_part = min(1.0, max(0.0, (now_ms - ttl_ms - oldest_ms) / span_ms))
                size_bytes = table.piece(index).stored_bytes
                self.dead_bytes_ms += int(size_bytes * dead_part * passed_ms)
                self.live_bytes_ms += int(size_bytes * (1 - dead_part) * passed_ms)


async def dead_time(shortest_ms: int, longest_ms: int, *, age_ms: int) -> tuple[DeadTime, int]:
    """Of two topics of one class, over several times to live of the longer one; and the number of merges."""
    config = TierConfig(
        cold_url="memory://dead",
        seal_age_ms=age_ms,
        sweep_interval_ms=MINUTE_MS,
        merge_fan_in=4,
        grace_ms=HOUR_MS,
        account_interval_ms=1_000,
    )
    hot, dead, merge_count = SyntheticHotTier(seed=1), DeadTime(), 0
    topics = {"short": SyntheticTopic(ttl_ms=shortest_ms), "long": SyntheticTopic(ttl_ms=longest_ms)}
    async with opened(MemoryObjectStore(), config, hot=hot, topics=topics) as tier:
        end_ms, next_ms, step_ms = hot.now_ms + int(LIVES * longest_ms) + 2 * age_ms, hot.now_ms, age_ms // 6
        while hot.now_ms < end_ms:
            for name in topics:
                hot.append(name, 0, body_bytes=64)
            next_ms += step_ms
            while hot.now_ms < next_ms:
                passed_ms = min(next_ms - hot.now_ms, max(1, tier.service.pause_ms()), age_ms // 6)
                if tier.service.pause_ms() == config.account_interval_ms:
                    passed_ms = next_ms - hot.now_ms  # nothing is due before
                hot.now_ms += passed_ms
                tier.report()
                await tier.service.run_once()
                merge_count += await tier.merge_all()
                tier.service.backlog.account()
                hot.forget_before(tier.service.backlog.committed_offset())
                dead.measure(tier, passed_ms=passed_ms)
    return dead, merge_count


@pytest.mark.parametrize("part", [0, *full(1, 2, 3)])
async def test_dead_records_leave_within_the_bound(part: int, case_count: Callable[..., int]) -> None:
    """(L - T) + span + wait: longest time to live in the pack, its time span, and the wait for a sweep."""
    classes = classes_of_a_year()[part :: case_count(quick=16, soak=4)]
    merged = 0
    for shortest_ms, longest_ms in classes:
        age_ms = max(AGE_MS, longest_ms // AGES_PER_LIFE_MAX)
        dead, merge_count = await dead_time(shortest_ms, longest_ms, age_ms=age_ms)
        # What waits is sealed at its age, or a step of this test's clock later.
        span_ms = max(age_ms + age_ms // 6, longest_ms // SPAN_OF_TTL)
        wait_ms = (1 + SWEEPS_WAITED_MAX) * MINUTE_MS + age_ms // 6
        assert 0 < dead.worst_ms <= CLASS_PART_MAX * shortest_ms + span_ms + wait_ms, (shortest_ms, longest_ms)
        merged += merge_count
        if longest_ms >= 4 * HOUR_MS:
            # Both topics together: the one at the lower end is dead for 42 % of its time, the other one for none.
            assert dead.dead_bytes_ms <= 0.42 * dead.live_bytes_ms, (shortest_ms, longest_ms)
    assert merged
