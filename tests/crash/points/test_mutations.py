"""Each rule of the cold tier, taken away, is missed: by the same trials and the same verdict, within some hundred."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.crash.points import takeover, trial
from tests.crash.points.mutations import MUTATIONS
from thermocline.remoting.errors import MQError

TRIALS_MAX = 200
SEED = 1
RUNS_TRIED = ("tiering", "topic-lives")
OF_TWO_WRITERS = frozenset({"no epoch check", "no look at v-1"})


@pytest.mark.parametrize("rule", sorted(MUTATIONS))
def test_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    # Enumerated before, with all rules in force.
    trials = list(itertools.islice(_trials(rule), TRIALS_MAX))
    with MUTATIONS[rule]():
        assert any(_fails(attempt) for attempt in trials), f"nobody misses it in {len(trials)} trials"


def _trials(rule: str) -> Iterator[Callable[[], object]]:
    if rule in OF_TWO_WRITERS:
        yield from (partial(takeover.carry_out, each) for each in takeover.trials_of(SEED))
        return
    for run in RUNS_TRIED:
        yield from (partial(trial.carry_out, each) for each in trial.trials_of(run, SEED)[: TRIALS_MAX // 2])


def _fails(attempt: Callable[[], object]) -> bool:
    """Whether verdict or broker says that something is wrong; what else may go wrong is wrong with the mutation."""
    try:
        attempt()
    except (AssertionError, MQError):
        return True
    return False
