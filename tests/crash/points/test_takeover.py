"""A broker sleeps at any request of its cold tier, for longer than the grace period, while another recovers from the
bucket, works and collects garbage; then it continues. No message is lost or duplicated, and it sees that it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.crash.points.takeover import carry_out, trials_of
from tests.crash.points.trial import Trial
from thermocline.tiered.wrappers.wrapping import Verb

SEEDS = (1, 2)
QUICK_COUNT, FULL_COUNT = 5, 40
QUICK_PAUSES = 4
"""How many pauses of a collector `make test` tries for each seed; the others try all."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_writer_that_slept_does_no_harm(seed: int, case_count: Callable[..., int]) -> None:
    trials = trials_of(seed)
    Random(seed).shuffle(trials)
    for trial in trials[: case_count(quick=QUICK_COUNT, full=FULL_COUNT, soak=len(trials))]:
        carry_out(trial)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_collector_that_is_paused_between_listing_and_deleting_deletes_nothing_live(
    seed: int, case_count: Callable[..., int]
) -> None:
    """At each of its requests: the listings that it plans by, its commit, each deletion."""
    collecting = {io.number: io for io in carry_out(Trial("takeover", seed)) if io.operation == "collect"}
    assert {io.verb for io in collecting.values()} >= {Verb.LIST, Verb.DELETE}
    paused = [trial for trial in trials_of(seed) if trial.point is not None and trial.point.number in collecting]
    assert len(paused) == 2 * len(collecting)
    Random(seed).shuffle(paused)
    for trial in paused[: case_count(quick=QUICK_PAUSES, full=len(paused), soak=len(paused))]:
        carry_out(trial)
