"""MergeBudget: bytes that come in by time, a burst of them at most, and debt that is paid first."""

from __future__ import annotations

from tests.clock import Clock
from thermocline.tiered.merging.merging import BURST_MS, MergeBudget

RATE = 1_000
"""Bytes a second: one a millisecond."""


def test_debt_is_paid_by_time() -> None:
    clock = Clock()
    budget = MergeBudget(bytes_per_second=RATE, clock=clock)
    assert budget.is_free, "the first merge waits for nothing"
    budget.charge(500)
    assert not budget.is_free
    clock.now_ms += 499
    assert not budget.is_free
    clock.now_ms += 1
    assert budget.is_free
    assert budget.is_free, "asking costs nothing"
    budget.charge(1)
    assert not budget.is_free


def test_a_burst_at_most_is_saved() -> None:
    clock = Clock()
    budget = MergeBudget(bytes_per_second=RATE, clock=clock)
    clock.now_ms += 100 * BURST_MS
    assert budget.is_free
    budget.charge(BURST_MS)
    assert budget.is_free
    budget.charge(1)
    assert not budget.is_free


def test_a_clock_that_goes_back_gives_and_takes_nothing() -> None:
    clock = Clock()
    budget = MergeBudget(bytes_per_second=RATE, clock=clock)
    budget.charge(10)
    clock.now_ms -= 1_000
    assert not budget.is_free
    clock.now_ms += 9
    assert not budget.is_free
    clock.now_ms += 1
    assert budget.is_free


def test_no_rate_is_no_merge() -> None:
    clock = Clock()
    budget = MergeBudget(bytes_per_second=0, clock=clock)
    clock.now_ms += 1 << 40
    assert not budget.is_free
