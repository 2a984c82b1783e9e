"""Replica sets without a controller, by seeds: see plain_set.py. Which rule is missed by which check: mutations.py.

Covers `replication/confirmations.py`, `broker/replicas/metadata_follower.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.replication.simulation.mutations import MUTATIONS
from tests.replication.simulation.plain_set import run_seed
from thermocline.remoting.errors import MQError

SEEDS_MAX = 60
"""Within so many seeds a missing rule is found."""
FOUND_AT = {
    "a SYNC_FLUSH slave reports what is durable": 15,
    "a part of a record goes with its connection": 5,
    "a silent master is given up": 10,
    "a silent slave is given up": 15,
    "an empty slave confirms no put from before its file": 7,
    "operator: a broker that was not asked gets an empty store": 2,
    "operator: a master that lost its power is compared first": 6,
    "operator: the longest log becomes the master": 1,
}
"""The seed that found it last, which is tried first; others by seed 0."""


@pytest.mark.soak
def test_promises_are_kept(case_count: Callable[..., int]) -> None:
    count = case_count(quick=200, full=240, soak=8_000)
    promised = read = promotions = 0
    for seed in range(count):
        run = run_seed(seed)
        promised += run.history.promised_count
        read += run.history.read_count
        promotions += run.promotions
    assert promised > 50 * count
    assert read > 500 * count
    assert promotions > count


def test_a_seed_gives_one_trace() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.world.trace == second.world.trace
    assert len(first.world.trace) > 200


@pytest.mark.parametrize("rule", sorted(MUTATIONS))
def test_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    with MUTATIONS[rule]():
        seeds = dict.fromkeys((FOUND_AT.get(rule, 0), *range(SEEDS_MAX)))
        assert any(_fails(seed) for seed in seeds), "no run fails without it"


def _fails(seed: int) -> bool:
    try:
        run_seed(seed)
    except (AssertionError, MQError):
        return True
    return False
