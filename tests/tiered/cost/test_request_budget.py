"""The request budget: no hour sees more than it allows, and what is made without being allowed is made up for."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.cost.cost_meter import HOUR_MS
from thermocline.tiered.cost.request_budget import REQUESTS_PER_HOUR_MIN, RequestBudget, counted_requests
from thermocline.tiered.wrappers import StoreCounters, Verb


class Spender:
    """A budget, a clock that is moved, and what was spent when."""

    def __init__(self, requests_per_hour: int, *, state_per_hour: int = 0) -> None:
        self.now_ms = 7_000_000
        self.spent = 0
        self.history: deque[tuple[int, int]] = deque()
        self.budget = RequestBudget(
            requests_per_hour=requests_per_hour,
            spent=lambda: self.spent,
            clock=lambda: self.now_ms,
            state_per_hour=state_per_hour,
        )

    def spend(self, count: int) -> None:
        self.spent += count
        self.history.append((self.now_ms, count))

    def of_the_last_hour(self) -> int:
        while self.history and self.history[0][0] <= self.now_ms - HOUR_MS:
            self.history.popleft()
        return sum(count for _, count in self.history)


def test_a_burst_at_once_and_the_rest_evenly() -> None:
    spender = Spender(1_600)
    budget = spender.budget
    assert budget.available == budget.burst == 200
    assert budget.allows(200)
    spender.spend(200)
    assert not budget.allows(1)
    spender.now_ms += HOUR_MS // 1_400 + 1
    assert budget.allows(1)
    assert not budget.allows(2)
    spender.now_ms += HOUR_MS
    assert budget.available == 200, "no more is saved up than a burst"


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    spender = Spender(1_600)
    budget = spender.budget
    spender.spend(200)
    assert not budget.allows(150, who="merge"), "which then has nothing more to merge"
    spender.now_ms -= 8 * HOUR_MS
    assert not budget.allows(1, who="seal"), "it gives nothing either"
    spender.now_ms += HOUR_MS
    assert budget.allows(200, who="seal")


def test_requests_over_the_budget_are_compensated() -> None:
    spender = Spender(1_600)
    spender.spend(900)
    assert spender.budget.available == -700
    spender.now_ms += HOUR_MS // 2
    assert spender.budget.available == pytest.approx(0, abs=1e-6)
    spender.now_ms += HOUR_MS // 14 + 1
    assert spender.budget.allows(100)
    assert not spender.budget.allows(101)


def test_reads_and_deletes_do_not_count() -> None:
    counters = StoreCounters()
    counters.requests.update(dict.fromkeys(Verb, 1))
    assert counted_requests(counters) == 4


def test_a_budget_that_leaves_too_little_beside_state_snapshots_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        Spender(REQUESTS_PER_HOUR_MIN - 1)
    with pytest.raises(InvalidRequestError, match="must be at least 103"):
        TierConfig(cold_url="memory://x", requests_per_hour=102)
    with pytest.raises(InvalidRequestError, match="must be at least 400"):
        TierConfig(cold_url="memory://x", requests_per_hour=399, state_interval_ms=10_000)
    assert TierConfig(cold_url="memory://x", requests_per_hour=103).requests_per_hour == 103
    assert TierConfig(cold_url="memory://x", requests_per_hour=0).requests_per_hour == 0


@given(
    requests_per_hour=st.integers(REQUESTS_PER_HOUR_MIN, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 20 * 60_000), st.integers(1, 300)), max_size=120),
)
def test_no_order_of_requests_exceeds_the_budget_in_any_hour(
    requests_per_hour: int, steps: list[tuple[int, int]]
) -> None:
    spender = Spender(requests_per_hour)
    for pause_ms, wanted in steps:
        spender.now_ms += pause_ms
        count = min(wanted, spender.budget.burst)
        if spender.budget.allows(count):
            spender.spend(count)
        assert spender.of_the_last_hour() <= requests_per_hour


def test_reserved_requests_are_not_given_to_others() -> None:
    spender = Spender(1_600)
    budget = spender.budget
    with budget.holding(150):
        assert budget.allows(50)
        assert not budget.allows(51)
        spender.spend(20)
        assert not budget.allows(31), "what was made of it counts twice, until it has ended"
    assert budget.allows(180)
    assert not budget.is_whole


@given(
    requests_per_hour=st.integers(REQUESTS_PER_HOUR_MIN + 80, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 45_000), st.integers(1, 300)), min_size=40, max_size=250),
)
def test_state_snapshots_do_not_ask_and_fit_in_all_the_same(
    requests_per_hour: int, steps: list[tuple[int, int]]
) -> None:
    spender = Spender(requests_per_hour, state_per_hour=80)
    saved_ms = spender.now_ms
    for pause_ms, wanted in steps:
        end_ms = spender.now_ms + pause_ms
        while saved_ms + 45_000 <= end_ms:
            spender.now_ms = saved_ms = saved_ms + 45_000
            spender.spend(1)
        spender.now_ms = end_ms
        count = min(wanted, spender.budget.most)
        if spender.budget.allows(count):
            spender.spend(count)
        assert spender.of_the_last_hour() <= requests_per_hour
