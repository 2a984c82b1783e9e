"""Which due topics are sealed under a request budget, and what is logged about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tests.tiered.cost.test_request_budget import Spender
from thermocline.tiered.sealing.seal_admission import Admitted, DueTopic, SealAdmission

MINUTE_MS = 60_000
AGE_MS = 10 * MINUTE_MS


def cost_of(topics: Sequence[str], is_packed: bool) -> int:
    """As without packs: each topic is a segment."""
    return 3 * len(topics) + 1


def due(count: int, *, must: Sequence[int] = ()) -> list[DueTopic]:
    return [DueTopic(topic=f"t{number}", first_ms=number, must=number in must) for number in range(count)]


def admission_of(spender: Spender) -> SealAdmission:
    return SealAdmission(spender.budget, age_ms=AGE_MS, age_ms_max=24 * 3_600_000)


def test_all_that_can_be_paid_for_are_sealed() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    admitted = admission.admit(due(66), cost_of, now_ms=spender.now_ms)
    assert admitted == Admitted(topics=[f"t{number}" for number in range(66)], cost=199)
    assert not admission.is_widened


def test_with_a_whole_burst_saved_up_the_longest_waiting_are_sealed() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    admitted = admission.admit(due(100)[::-1], cost_of, now_ms=spender.now_ms)
    assert admitted.topics == [f"t{number}" for number in range(66)]
    assert not admitted.is_all
    assert admission.waiting == {f"t{number}" for number in range(66, 100)}
    spender.spend(admitted.cost)
    assert admission.admit(due(100), cost_of, now_ms=spender.now_ms).topics == []
    spender.now_ms += 5 * MINUTE_MS  # some hundred requests: not what all of them take, nor a burst
    assert admission.admit(due(100), cost_of, now_ms=spender.now_ms).topics == [], "so that more share a commit"
    assert admission.is_widened


def test_topics_beyond_the_budget_of_segments_are_packed_with_all_waiting_ones() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    asked: list[tuple[int, bool]] = []

    def cost(topics: Sequence[str], is_packed: bool) -> int:
        asked.append((len(topics), is_packed))
        return 2 if is_packed else cost_of(topics, is_packed)

    spender.spend(190)
    admitted = admission.admit(due(20), cost, now_ms=spender.now_ms, waiting=["t3", "other"])
    assert admitted == Admitted(topics=[f"t{number}" for number in range(20)], is_packed=True, cost=2)
    assert asked == [(20, False), (21, True)]
    assert admission.is_widened
    assert admission.waiting == frozenset()
    spender.spend(9)
    assert admission.admit(due(20), cost, now_ms=spender.now_ms).topics == []
    more = admission.admit(due(2), cost, now_ms=spender.now_ms, is_more=True)
    assert more.topics == []
    assert len(admission.waiting) == 20, "those of the same round wait still"


def test_forced_seals_beyond_the_budget_run_and_are_counted() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    spender.spend(5_000)
    admitted = admission.admit(due(50, must=(3, 40)), cost_of, now_ms=spender.now_ms)
    assert admitted == Admitted(topics=["t3", "t40"], is_packed=True, is_all=False, cost=7, yields=True)
    with admission.paying(admitted):
        spender.spend(5)
    assert admission.yielded_requests == 5
    assert admission.admit(due(2, must=(0, 1)), cost_of, now_ms=spender.now_ms).topics == ["t0", "t1"]
    assert admission.is_over_age(0, now_ms=24 * 3_600_000)
    assert not admission.is_over_age(1, now_ms=24 * 3_600_000)


def test_forced_seals_within_the_budget_are_not_counted_as_excess() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    spender.spend(193)
    admitted = admission.admit(due(50, must=(3, 40)), cost_of, now_ms=spender.now_ms)
    assert not admitted.yields
    with admission.paying(admitted):
        assert not spender.budget.allows(1), "it is held"
        spender.spend(7)
    assert admission.yielded_requests == 0
    assert not admission.is_yielding


def test_a_round_that_costs_more_than_a_burst_is_made_with_a_whole_one() -> None:
    spender = Spender(120)
    admission = admission_of(spender)

    def dear(topics: Sequence[str], is_packed: bool) -> int:
        return 200 + len(topics)

    assert admission.admit(due(5), dear, now_ms=spender.now_ms).topics == ["t0"]
    spender.spend(201)
    for _ in range(120):
        spender.now_ms += MINUTE_MS
        assert admission.admit(due(5), dear, now_ms=spender.now_ms).topics == []


def test_a_refused_request_comes_before_later_ones() -> None:
    """Sealing asks every second, for little: it may not take from under merging what that saves up for."""
    spender = Spender(1_600)
    budget = spender.budget
    spender.spend(200)
    assert not budget.allows(50, who="merge")
    for _ in range(180):
        spender.now_ms += 1_000
        if budget.allows(50, who="merge"):
            break
        assert not budget.allows(2, who="seal")
    else:
        raise AssertionError("never allowed")
    spender.spend(50)
    spender.now_ms += 10_000
    assert budget.allows(2, who="seal")


def test_an_abandoned_request_does_not_delay_others() -> None:
    spender = Spender(1_600)
    spender.spend(200)
    assert not spender.budget.allows(50, who="merge")
    spender.now_ms += 50_000
    assert not spender.budget.allows(2, who="seal")
    spender.now_ms += 10_000
    assert spender.budget.allows(2, who="seal")


def test_one_line_when_ages_are_widened_and_one_when_they_are_not_any_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    spender = Spender(1_600)
    admission = admission_of(spender)
    spender.spend(200)
    for _ in range(60):
        admission.admit(due(100), cost_of, now_ms=spender.now_ms)
        spender.spend(2)
        spender.now_ms += 1_000
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    for _ in range(35):
        admission.admit([], cost_of, now_ms=spender.now_ms)
        spender.now_ms += MINUTE_MS
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert not admission.is_widened


def test_one_line_when_the_budget_yields_and_one_when_it_does_not_any_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    spender = Spender(1_600)
    admission = admission_of(spender)
    spender.spend(200)
    for _ in range(30):
        with admission.paying(admission.admit(due(3, must=(1,)), cost_of, now_ms=spender.now_ms)):
            spender.spend(4)
        spender.now_ms += 1_000
    messages = [record.getMessage() for record in caplog.records if "yields" in record.getMessage()]
    assert messages == ["request budget yields, local files have to go requests_per_hour=1600"]
    assert admission.is_yielding
    for _ in range(35):
        admission.admit([], cost_of, now_ms=spender.now_ms)
        spender.now_ms += MINUTE_MS
    assert not admission.is_yielding
    assert f"requests_beyond={admission.yielded_requests}" in caplog.text
