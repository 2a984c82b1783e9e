"""Each rule of the cold tier, taken away, is missed: by the same trials and the same verdict, within some hundred."""

from __future__ import annotations

import itertools
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
RUNS_TRIED: tuple[str, ...] = ("tiering", "topic-incarnations")
RUNS_OF_PACKS = ("packs", "purging", "merging")
SEEDS_OF_ONE_STEP = (1, 2, 3)
SEEDS_UNSTOPPED = (1, 2, 3)
RUNS_OF_PURGES = ("purging",)
RUNS_OF_INDEXES = ("indexing",)
RUNS_OF_RECOVERY = ("lost-disk",)
OF_TWO_WRITERS = frozenset({"no epoch check", "no look at v-1"})
OPERATIONS = {
    "collection of its own epoch by listing": "seal beside a sweep",
    "sealed before it is flushed": "seal what is flushed",
    "pack: collection of its own epoch by listing": "seal packs beside a sweep",
    "purge: entry before upload": "purge",
    "purge: delete before entry": "purge",
    "index: merge before upload": "index",
    "state: by listing alone": "recover from the bucket",
}
"""Where alone a rule holds anything back: one step, so it is tried with several seeds."""


RULES_TRIED_ELSEWHERE = frozenset(
    {
        "pack: entry before upload",
        "merge: entry before upload",
        "purge: entry before upload",
        "index: entry before upload",
        "index: merge before upload",
        "index: delete before entry",
        "pack: collection of its own epoch by listing",
    }
)
"""`make test` tries the same rule with own segments."""
RULES_TRIED_LONG = frozenset({"sealed before it is flushed", "state: by listing alone"})
"""Many trials pass without it."""


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, marks=[pytest.mark.full] if rule in {*RULES_TRIED_ELSEWHERE, *RULES_TRIED_LONG} else [])
        for rule in sorted(MUTATIONS)
    ],
)
def test_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    with MUTATIONS[rule]():
        assert any(_fails(attempt) for attempt in _trials(rule)), "no trial fails without it"


def _trials(rule: str) -> Iterator[Callable[[], object]]:
    """The runs as they are, with several seeds, then stopped somewhere."""
    if rule in OF_TWO_WRITERS:
        trials = takeover.trials_of(SEED)
        Random(SEED).shuffle(trials)
        yield from (partial(takeover.carry_out, each) for each in trials)
        return
    operation = OPERATIONS.get(rule)
    runs = RUNS_TRIED
    if rule.startswith(("pack", "merge")):
        runs = RUNS_OF_PACKS
    elif rule.startswith("purge"):
        runs = RUNS_OF_PURGES
    elif rule.startswith("index"):
        runs = RUNS_OF_INDEXES
    elif rule.startswith("state"):
        runs = RUNS_OF_RECOVERY
    yield from (partial(trial.carry_out, Trial(run, seed)) for run, seed in itertools.product(runs, SEEDS_UNSTOPPED))
    for run, seed in itertools.product(runs, (SEED,) if operation is None else SEEDS_OF_ONE_STEP):
        trials = trial.trials_of(run, seed, operation=operation)
        yield from (partial(trial.carry_out, each) for each in trials[:TRIALS_MAX])


def _fails(attempt: Callable[[], object]) -> bool:
    """Whether verdict or broker says that something is wrong; what else may go wrong is wrong with the mutation."""
    try:
        attempt()
    except (AssertionError, MQError):
        return True
    return False
