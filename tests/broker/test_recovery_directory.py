"""A directory of an interrupted recovery: started again wherever it stopped; files of other programs stay untouched.

Covers `broker/recovery/directory.py`.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.broker.recovery.directory import clear, was_recovered
from thermocline.broker.recovery.recovered_store import recovering_path
from thermocline.remoting.errors import InvalidRequestError
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import make_durable_directory
from thermocline.store.state.identity import load_or_make_identity
from thermocline.tiered.segments.object_keys import BrokerKeys

STORE = StoreConfig(root_path="/store")
KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
STEPS_MAX = 100


@pytest.mark.parametrize("power_goes", [True, False])
def test_one_that_was_cut_off_is_begun_anew(power_goes: bool) -> None:
    for step in range(1, STEPS_MAX):
        disk, is_through = SimulatedDisk(cut_at_step=step), False
        with contextlib.suppress(PowerCut):
            make_durable_directory(disk, STORE.root_path)
            clear(disk, STORE)
            is_through = True
        after = disk.after_power_cut(Random(step)) if power_goes else disk
        after.revive()
        make_durable_directory(after, STORE.root_path)
        assert not was_recovered(after, STORE, KEYS)
        clear(after, STORE)
        assert after.exists(recovering_path(STORE))
        if is_through:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("path", ["/store/notes", "/store/thermocline/notes", "/store/config/topics.json"])
def test_foreign_files_are_left_alone(path: str) -> None:
    disk = SimulatedDisk()
    make_durable_directory(disk, path.rpartition("/")[0])
    disk.open(path, create=True).close()
    with pytest.raises(InvalidRequestError, match="the directory holds a store already"):
        was_recovered(disk, STORE, KEYS)


def test_the_root_of_a_new_file_system_is_empty() -> None:
    """A new disk is mounted where the lost one was."""
    disk = SimulatedDisk()
    make_durable_directory(disk, "/store/lost+found")
    assert not was_recovered(disk, STORE, KEYS)
    clear(disk, STORE)
    assert disk.exists("/store/lost+found"), "it is not ours, and only root may change it"


def test_only_what_a_store_consists_of_is_deleted() -> None:
    """A broker was started without `--recover-from`, in the folder that has its bucket, too."""
    disk, bucket = SimulatedDisk(), "/store/cold/DefaultCluster/broker-a"
    for path in (bucket, STORE.config_path, STORE.own_path, STORE.commit_log_path):
        make_durable_directory(disk, path)
    for path in (f"{bucket}/head-hint", f"{STORE.config_path}/topics.json", STORE.checkpoint_path, STORE.abort_path):
        disk.open(path, create=True).close()
    load_or_make_identity(disk, STORE.identity_path, make_id=lambda: "0" * 32)
    assert not was_recovered(disk, STORE, KEYS)
    clear(disk, STORE)
    assert disk.exists(f"{bucket}/head-hint"), "the only copy of its messages"
    assert sorted(disk.list_directory(STORE.root_path)) == ["cold", "thermocline"]
    assert disk.list_directory(STORE.own_path) == ["recovering"]
