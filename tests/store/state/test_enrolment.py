"""The enrolment of a slave's store.

Covers `store/state/versioned_file.py`.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError
from thermocline.store.state.enrolment import Enrolment, load_enrolment, remove_enrolment, save_enrolment

FOLDER = "/store"
PATH = f"{FOLDER}/enrolment.json"


def disk_with_folder() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    disk.sync_everything()
    return disk


def test_it_is_durable_at_once_and_so_is_its_end() -> None:
    disk, enrolment = disk_with_folder(), Enrolment(store_id="slave", master_store_id="master")
    save_enrolment(disk, PATH, enrolment)
    disk = disk.after_power_cut(Random(1), kept_share=0)
    assert disk.read(PATH) == (
        b'{"storeId":"slave","masterStoreId":"master","hasLedger":false,"redoneTopics":[],"formatVersion":1}'
    )
    assert load_enrolment(disk, PATH, store_id="slave") == enrolment
    remove_enrolment(disk, PATH)
    disk = disk.after_power_cut(Random(1), kept_share=0)
    assert load_enrolment(disk, PATH, store_id="slave") is None


def test_a_file_of_another_store_counts_for_nothing() -> None:
    disk = disk_with_folder()
    save_enrolment(disk, PATH, Enrolment(store_id="slave", master_store_id="master"))
    assert load_enrolment(disk, PATH, store_id="other") is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"storeId":"a","masterStoreId":"b","formatVersion":2}'])
def test_damage_is_refused(data: bytes) -> None:
    disk = disk_with_folder()
    disk.open(PATH, create=True).write_at(data, 0)
    with pytest.raises(CorruptDataError):
        load_enrolment(disk, PATH, store_id="a")
