"""A slave's store takes its master's ledger over, stopped at any disk step and request; then it is done once more.

Covers `broker/recovery/ledger_takeover.py`, `broker/recovery/ledger_topics.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.crash.points.promotion import carry_out, trials_of

SEEDS = (1, 2, 3)
QUICK_COUNT, FULL_COUNT = 8, 60


@pytest.mark.parametrize("seed", SEEDS)
def test_a_take_over_may_be_cut_off_anywhere(seed: int, case_count: Callable[..., int]) -> None:
    trials = trials_of(seed)
    Random(seed).shuffle(trials)
    for trial in trials[: case_count(quick=QUICK_COUNT, full=FULL_COUNT, soak=len(trials))]:
        carry_out(trial)
