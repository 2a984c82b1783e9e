"""Which due topics are sealed under a request budget, and what is logged about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tests.tiered.cost.test_request_budget import Spender
from thermocline.tiered.cost.seal_admission import DueTopic, SealAdmission

MINUTE_MS = 60_000
AGE_MS = 10 * MINUTE_MS


def cost_of(topics: Sequence[str]) -> int:
    return 3 * len(topics) + 1


def due(count: int, *, must: Sequence[int] = ()) -> list[DueTopic]:
    return [DueTopic(topic=f"t{number}", first_ms=number, must=number in must) for number in range(count)]


def admission_of(spender: Spender) -> SealAdmission:
    return SealAdmission(spender.budget, age_ms=AGE_MS, age_ms_max=24 * 3_600_000)


def test_all_that_can_be_paid_for_are_sealed() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    assert admission.admit(due(66), cost_of, now_ms=spender.now_ms) == [f"t{number}" for number in range(66)]
    assert not admission.is_widened


def test_with_a_whole_burst_saved_up_the_longest_waiting_are_sealed() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    admitted = admission.admit(due(100)[::-1], cost_of, now_ms=spender.now_ms)
    assert admitted == [f"t{number}" for number in range(66)]
    assert admission.waiting == {f"t{number}" for number in range(66, 100)}
    spender.spend(cost_of(admitted))
    assert admission.admit(due(100), cost_of, now_ms=spender.now_ms) == []
    spender.now_ms += 5 * MINUTE_MS  # some hundred requests: not what all of them take, nor a burst
    assert admission.admit(due(100), cost_of, now_ms=spender.now_ms) == [], "so that more share a commit"
    assert admission.is_widened


def test_what_must_be_sealed_is_whatever_it_costs() -> None:
    spender = Spender(1_600)
    admission = admission_of(spender)
    spender.spend(5_000)
    assert admission.admit(due(50, must=(3, 40)), cost_of, now_ms=spender.now_ms) == ["t3", "t40"]
    assert admission.admit(due(2, must=(0, 1)), cost_of, now_ms=spender.now_ms) == ["t0", "t1"]
    assert admission.is_over_age(0, now_ms=24 * 3_600_000)
    assert not admission.is_over_age(1, now_ms=24 * 3_600_000)


def test_a_round_that_costs_more_than_a_burst_is_made_with_a_whole_one() -> None:
    spender = Spender(120)
    admission = admission_of(spender)

    def dear(topics: Sequence[str]) -> int:
        return 200 + len(topics)

    assert admission.admit(due(5), dear, now_ms=spender.now_ms) == ["t0"]
    spender.spend(201)
    for _ in range(120):
        spender.now_ms += MINUTE_MS
        assert admission.admit(due(5), dear, now_ms=spender.now_ms) == []


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
