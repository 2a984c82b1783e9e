"""Power cuts and kills: whatever was not synced may be lost or torn, and no message with a time is.

`make test` tries some hundred cuts, the soak run thousands, or as many as TEST_SOAK says. The trial itself is in
power_cut.py. Each sync site of the timers is then taken away, and the trial has to notice.

Covers `timers/sync_site.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

import pytest

from tests.store.power_cut import seed_shown
from tests.timers.power_cut import Trial
from thermocline.timers.sync_site import TimerSyncSite

SEEDS_PER_SITE_MAX = 300


def test_no_message_is_lost_early_or_repeated_without_need(case_count: Callable[..., int]) -> None:
    """Random runs of a store with timers, each ended at a random step."""
    cut_count = int(os.environ.get("TEST_SOAK") or case_count(quick=75, full=150, soak=4_000))
    seed = done = 0
    while done < cut_count:
        with seed_shown(seed):
            trial = Trial(seed)
            trial.run()
        done += trial.cut_count
        seed += 1


def test_long_sequences_of_runs_survive(case_count: Callable[..., int]) -> None:
    """Fewer trials with more runs: the state after one cut meets the next cuts."""
    for seed in range(1_000_000, 1_000_000 + case_count(quick=3, soak=200)):
        with seed_shown(seed):
            Trial(seed, run_count=20).run()


@pytest.mark.parametrize("site", sorted(TimerSyncSite))
def test_every_sync_is_needed(site: TimerSyncSite) -> None:
    """With one sync taken away some trial fails."""
    assert any(_fails(seed, ignored_sites={site}) for seed in range(SEEDS_PER_SITE_MAX)), f"no failure without {site}"


def _fails(seed: int, *, ignored_sites: Collection[str]) -> bool:
    try:
        Trial(seed, ignored_sites=ignored_sites).run()
    except Exception:  # noqa: BLE001 - anything that the timers or the comparison say counts
        return True
    return False
