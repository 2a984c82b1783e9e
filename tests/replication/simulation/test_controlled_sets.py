"""Controllers, their consensus and scripted brokers, by seeds: see controlled_set.py.

Covers `controller/coordinator.py`, `controller/consensus/consensus_node.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.replication.simulation.controlled_set import run_controlled_seed
from tests.replication.simulation.history import ViolationError
from thermocline.controller.state import decisions
from thermocline.controller.state.election import elect

SEEDS_MAX = 20
"""Within so many seeds the missing rule is found."""


@pytest.mark.soak
def test_one_master_an_epoch_and_none_without_what_was_acknowledged(case_count: Callable[..., int]) -> None:
    count = case_count(quick=100, soak=2_000)
    acknowledged = elections = changes = 0
    for seed in range(count):
        run = run_controlled_seed(seed)
        acknowledged += len(run.acknowledged)
        elections += run.elections
        changes += run.changes
    assert acknowledged > 50 * count
    assert elections > 2 * count
    assert changes > 2 * count


def test_a_seed_gives_one_trace() -> None:
    first, second = run_controlled_seed(3), run_controlled_seed(3)
    assert first.world.trace == second.world.trace
    assert len(first.world.trace) > 30


def test_an_election_from_all_replicas_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "elect", lambda live, **named: elect(live, **{**named, "in_sync": range(1, 20)}))
    with pytest.raises(ViolationError, match=r"^(set|lost)"):
        run_seeds(SEEDS_MAX)


def run_seeds(count: int) -> None:
    for seed in range(count):
        run_controlled_seed(seed)
