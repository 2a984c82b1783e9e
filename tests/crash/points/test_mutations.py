"""Each rule of the cold tier, taken away, is missed: by the same trials and the same verdict, within some hundred."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from tests.crash.points import takeover, trial
from tests.crash.points.mutations import MUTATIONS
from tests.crash.points.trial import Trial
from thermocline.remoting.errors import MQError

TRIALS_MAX = 100
SEED = 1
RUNS_TRIED = ("tiering", "topic-lives")
OF_TWO_WRITERS = frozenset({"no epoch check", "no look at v-1"})
OPERATIONS = {
    "collection of its own epoch by listing": "seal beside a sweep",
    "sealed before it is flushed": "seal what is flushed",
}
"""Where alone a rule holds anything back."""


@pytest.mark.parametrize("rule", sorted(MUTATIONS))
def test_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    with MUTATIONS[rule]():
        assert any(_fails(attempt) for attempt in _trials(rule)), "nobody misses it"


def _trials(rule: str) -> Iterator[Callable[[], object]]:
    """The runs as they are, then stopped somewhere."""
    if rule in OF_TWO_WRITERS:
        trials = takeover.trials_of(SEED)
        Random(SEED).shuffle(trials)
        yield from (partial(takeover.carry_out, each) for each in trials)
        return
    for run in RUNS_TRIED:
        yield partial(trial.carry_out, Trial(run, SEED))
        trials = trial.trials_of(run, SEED, operation=OPERATIONS.get(rule))
        yield from (partial(trial.carry_out, each) for each in trials[:TRIALS_MAX])


def _fails(attempt: Callable[[], object]) -> bool:
    """Whether verdict or broker says that something is wrong; what else may go wrong is wrong with the mutation."""
    try:
        attempt()
    except (AssertionError, MQError):
        return True
    return False
