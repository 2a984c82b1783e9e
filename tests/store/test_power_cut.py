"""Power cuts: whatever was not synced may be lost, torn or in another order, and nothing acknowledged is.

`make test` tries some hundred cuts, the soak run two thousand or as many as THERMOCLINE_SOAK says. The trial itself is
in power_cut.py. Each sync site of the store is then taken away, and the trial has to notice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.power_cut import Trial, seed_shown
from tests.store.store_parts import draft, open_store
from thermocline.store.checkpoint import StoreCheckpoint
from thermocline.store.sync_site import SyncSite

SEEDS_PER_SITE_MAX = 400
DIRECTED_SITES = {SyncSite.IDENTITY_DIRECTORY, SyncSite.CHECKPOINT_DIRECTORY}
"""Their folders are soon synced for other reasons, so a random cut hardly ever finds the gap."""


def test_what_was_flushed_survives_power_cuts_kills_and_failed_syncs(case_count: Callable[..., int]) -> None:
    """Random lives of a store, each ended at a random step."""
    cut_count = int(os.environ.get("THERMOCLINE_SOAK") or case_count(quick=300, soak=2_000))
    seed = done = 0
    while done < cut_count:
        with seed_shown(seed):
            trial = Trial(seed)
            trial.run()
        done += trial.cut_count
        seed += 1


def test_a_long_life_survives_power_cuts(case_count: Callable[..., int]) -> None:
    """Fewer trials of more lives: what one cut leaves meets the next ones."""
    for seed in range(1_000_000, 1_000_000 + case_count(quick=4, soak=60)):
        with seed_shown(seed):
            Trial(seed, lives=25).run()


@pytest.mark.parametrize("site", sorted(set(SyncSite) - DIRECTED_SITES))
def test_every_sync_is_needed(site: SyncSite) -> None:
    """With one sync taken away some trial fails."""
    assert _loses_something(site), f"nobody misses the sync {site}"


@pytest.mark.parametrize("ignored", [False, True])
def test_a_new_identity_survives_a_cut_right_after_the_start(*, ignored: bool) -> None:
    """A store that is known already, without the file: nothing else syncs its folder at the start."""
    disk = SimulatedDisk()
    open_store(disk).close()
    disk.remove("/store/thermocline/identity.json")
    disk.sync_everything()
    disk.ignored_sites = frozenset({SyncSite.IDENTITY_DIRECTORY}) if ignored else frozenset()
    store_id = open_store(disk).identity.store_id

    survivor = disk.after_power_cut(Random(0), kept_share=0)
    assert (open_store(survivor).identity.store_id == store_id) is not ignored


@pytest.mark.parametrize("ignored", [False, True])
def test_a_new_checkpoint_survives_a_cut_after_its_round(*, ignored: bool) -> None:
    """A store whose checkpoint was removed: the root's folder is not synced for another reason."""
    disk = SimulatedDisk()
    open_store(disk).close()
    disk.remove("/store/checkpoint")
    disk.sync_everything()
    disk.ignored_sites = frozenset({SyncSite.CHECKPOINT_DIRECTORY}) if ignored else frozenset()
    store = open_store(disk)
    store.put(draft())
    store.sync_derived()

    checkpoint = StoreCheckpoint.load(disk.after_power_cut(Random(0), kept_share=0), "/store/checkpoint")
    assert (checkpoint.queue_timestamp_ms == store.clock.last_ms) is not ignored


def test_every_sync_site_is_used() -> None:
    """Every member of SyncSite is a place of the store, and each sync of the store names one."""
    seen: set[str] = set()
    for seed in range(60):
        trial = Trial(seed)
        trial.run()
        seen |= trial.sites
        if seen == set(SyncSite):
            return
    assert seen == set(SyncSite)


def _loses_something(site: SyncSite) -> bool:
    """Whether any seed fails without this sync."""
    return any(_fails(seed, ignored_sites={site}) for seed in range(SEEDS_PER_SITE_MAX))


def _fails(seed: int, *, ignored_sites: Collection[str]) -> bool:
    try:
        Trial(seed, ignored_sites=ignored_sites).run()
    except Exception:  # noqa: BLE001 - anything that the store or the comparison says counts
        return True
    return False
