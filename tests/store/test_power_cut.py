"""Power cuts: whatever was not synced may be lost, torn or in another order, and nothing acknowledged is.

`make test` tries some hundred cuts, the soak run two thousand or as many as TEST_SOAK says. The trial itself is
in power_cut.py. Each sync site of the store is then taken away, and the trial has to notice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.power_cut import Trial, seed_shown
from tests.store.store_parts import LOG_FILE_BYTES, bodies_of, draft, open_store
from thermocline.remoting.errors import CorruptDataError
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.state.checkpoint import StoreCheckpoint

SEEDS_PER_SITE_MAX = 400
DIRECTED_SITES = {
    SyncSite.IDENTITY_DIRECTORY,
    SyncSite.CHECKPOINT_DIRECTORY,
    SyncSite.LOG_TRUNCATE,
    SyncSite.QUEUE_TREE,
}
"""Their folders are soon synced for other reasons, so a random cut hardly ever finds the gap: tests of their own do."""


def test_flushed_messages_survive_power_cuts_kills_and_failed_syncs(case_count: Callable[..., int]) -> None:
    """Random runs of a store, each ended at a random step."""
    cut_count = int(os.environ.get("TEST_SOAK") or case_count(quick=250, full=500, soak=4_000))
    seed = done = 0
    while done < cut_count:
        with seed_shown(seed):
            trial = Trial(seed)
            trial.run()
        done += trial.cut_count
        seed += 1


def test_a_long_life_survives_power_cuts(case_count: Callable[..., int]) -> None:
    """Fewer trials with more runs: the state after one cut meets the next cuts."""
    for seed in range(1_000_000, 1_000_000 + case_count(quick=8, soak=300)):
        with seed_shown(seed):
            Trial(seed, run_count=25).run()


@pytest.mark.parametrize("site", sorted(set(SyncSite) - DIRECTED_SITES))
def test_every_sync_is_needed(site: SyncSite) -> None:
    """With one sync taken away some trial fails."""
    assert _loses_something(site), f"no trial fails without the sync {site}"


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


@pytest.mark.parametrize("ignored", [False, True])
def test_queue_files_that_are_built_upon_are_made_durable(*, ignored: bool) -> None:
    """A process died with units in the page cache, and the queue ends are gone: what is found is promised again."""
    disk = SimulatedDisk(ignored_sites={SyncSite.QUEUE_TREE} if ignored else ())
    store = open_store(disk)
    store.put(draft())
    store.tick()
    store.commit_log.flush()
    disk.revive()
    disk.remove("/store/thermocline/queueEnds")
    assert bodies_of(open_store(disk)) == [b"hello"]

    store = open_store(disk.after_power_cut(Random(0), kept_share=0))
    assert (store.recovery_report.rebuilt_queue_count == 0) is not ignored
    assert bodies_of(store) == [b"hello"]


@pytest.mark.parametrize("ignored", [False, True])
def test_log_files_behind_the_end_go_newest_first(*, ignored: bool) -> None:
    """A power cut while recovery removes them must not leave a hole, which would be taken for a lost file."""
    holes = 0
    for step in range(1, 40):
        for seed in range(8):
            disk = SimulatedDisk(ignored_sites={SyncSite.LOG_TRUNCATE} if ignored else ())
            store = open_store(disk)
            while store.commit_log.append_offset < 4 * LOG_FILE_BYTES:
                store.put(draft(body=b"." * 1_000))
            disk = disk.after_power_cut(Random(seed), kept_share=0)
            disk.cut_at_step = step
            with suppress(PowerCut):
                open_store(disk)
            try:
                open_store(disk.after_power_cut(Random(seed)))
            except CorruptDataError:
                holes += 1
    assert (holes > 0) is ignored


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
