"""Rounds that take long begin earlier, so that what waits is committed at about its age all the same.

Covers `tiered/sealing/pack_sealer.py`, `tiered/sealing/round_uploads.py`, `tiered/sealing/seal_rounds.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.sealing.seal_lead import CARE_PART, LEAD_PART, ROUNDS_COUNTED, SLACK_PART, SealLead
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

AGE_MS = 100_000
SLACK_MS = AGE_MS // SLACK_PART
CARE_MS = SLACK_MS // CARE_PART
CONFIG = TierConfig(cold_url="memory://lead", seal_age_ms=AGE_MS)


class SlowStore(WrappingObjectStore):
    """A PUT takes `put_ms` on the clock."""

    def __init__(self, inner: ObjectStore, hot: SyntheticHotTier, *, put_ms: int) -> None:
        super().__init__(inner)
        self._hot = hot
        self._put_ms = put_ms

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb in (Verb.PUT, Verb.CREATE_IF_ABSENT):
            self._hot.now_ms += self._put_ms
        return await attempt()


def test_the_seal_lead_is_the_round_time_beyond_the_slack() -> None:
    lead = SealLead(age_ms=AGE_MS)
    assert lead.lead_ms == CARE_MS, "as if the first round filled the slack"
    lead.note(SLACK_MS * 4 // 5)
    assert lead.lead_ms == 0
    lead.note(SLACK_MS + 8_000)
    assert lead.lead_ms == 8_000 + CARE_MS + 2_000
    lead.note(1_000)
    assert lead.lead_ms == 8_000 + CARE_MS + 2_000, "the longest of the last few counts"
    for _ in range(ROUNDS_COUNTED):
        lead.note(1_000)
    assert lead.lead_ms == 0
    lead.note(10 * AGE_MS)
    assert lead.lead_ms == AGE_MS // LEAD_PART


@pytest.mark.parametrize(
    ("put_ms", "first_ms", "later_ms"),
    [
        (0, AGE_MS - CARE_MS, AGE_MS),
        (2_000, AGE_MS - CARE_MS + 4_000, AGE_MS + 4_000),  # a pack and its entry: within the slack
        (6_000, AGE_MS - CARE_MS + 12_000, AGE_MS + SLACK_MS - 3_000),
        (60_000, AGE_MS - CARE_MS + 120_000, AGE_MS * 3 // 4 + 120_000),
    ],
)
async def test_after_a_long_round_the_next_commits_in_time(put_ms: int, first_ms: int, later_ms: int) -> None:
    hot = SyntheticHotTier()
    store = SlowStore(MemoryObjectStore(), hot, put_ms=put_ms)
    ages_ms: list[int] = []
    async with opened(store, CONFIG, hot=hot, topics={"orders": SyntheticTopic()}) as tier:
        for _ in range(4):
            hot.append("orders", 0, body_bytes=100)
            sent_ms = hot.now_ms
            tier.report()
            await tier.service.run_once()
            while tier.service.backlog.topics["orders"].first_waiting_ms is not None:
                hot.now_ms += tier.service.pause_ms()
                await tier.service.run_once()
            ages_ms.append(hot.now_ms - sent_ms)
    assert ages_ms == [first_ms, later_ms, later_ms, later_ms]
