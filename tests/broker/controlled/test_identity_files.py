"""Identity files: RocketMQ's form, and what survives a crash.

Covers `broker/controlled/identity_files.py`.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.broker.controlled.identity_files import Application, BrokerNames, IdentityFiles
from thermocline.remoting.errors import CorruptDataError, InvalidParameterError
from thermocline.store.files.disk import replace_file

FOLDER, PATH = "/store", "/store/brokerIdentity"
NAMES = BrokerNames(cluster="DefaultCluster", broker_name="broker-a")
APPLICATION = Application(broker_id=3, check_code="127.0.0.1:10911;1700000000000")


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    for path, data in files.items():
        replace_file(disk, path, data, keep_backup=False)
    return disk


def test_the_files_are_rocketmqs() -> None:
    disk = disk_with({})
    files = IdentityFiles(disk, PATH, NAMES)
    assert (files.broker_id, files.application) == (None, None)
    files.apply_for(APPLICATION)
    assert disk.read(f"{PATH}-temp") == b"DefaultCluster#broker-a#3#127.0.0.1:10911;1700000000000"
    assert IdentityFiles(disk, PATH, NAMES).application == APPLICATION
    files.granted()
    assert disk.read(PATH) == b"DefaultCluster#broker-a#3"
    assert not disk.exists(f"{PATH}-temp")
    again = IdentityFiles(disk, PATH, NAMES)
    assert (again.broker_id, again.application) == (3, None)


def test_a_new_store_has_no_folder_yet() -> None:
    disk = SimulatedDisk()
    files = IdentityFiles(disk, PATH, NAMES)
    files.apply_for(APPLICATION)
    again = IdentityFiles(disk.after_power_cut(Random(1), kept_share=0.0), PATH, NAMES)
    assert again.application == APPLICATION


def test_a_refused_application_is_forgotten() -> None:
    disk = disk_with({})
    files = IdentityFiles(disk, PATH, NAMES)
    files.apply_for(APPLICATION)
    files.discard_application()
    again = IdentityFiles(disk, PATH, NAMES)
    assert (again.broker_id, again.application) == (None, None)


def test_a_number_counts_before_an_application_that_a_crash_left() -> None:
    disk = disk_with(
        {PATH: b"DefaultCluster#broker-a#3", f"{PATH}-temp": b"DefaultCluster#broker-a#4#127.0.0.1:10911;1"}
    )
    files = IdentityFiles(disk, PATH, NAMES)
    assert (files.broker_id, files.application) == (3, None)


@pytest.mark.parametrize(
    ("path", "text", "setting"),
    [
        (PATH, b"Other#broker-a#3", "brokerClusterName=Other"),
        (PATH, b"DefaultCluster#broker-b#3", "brokerName=broker-b"),
        (f"{PATH}-temp", b"DefaultCluster#broker-b#3#127.0.0.1:10911;1", "brokerName=broker-b"),
    ],
)
def test_another_brokers_identity_is_refused(path: str, text: bytes, setting: str) -> None:
    with pytest.raises(InvalidParameterError, match=setting):
        IdentityFiles(disk_with({path: text}), PATH, NAMES)


@pytest.mark.parametrize(
    "text", [b"DefaultCluster", b"DefaultCluster#broker-a#x", b"DefaultCluster#broker-a#0", b"\xff"]
)
def test_a_damaged_identity_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptDataError):
        IdentityFiles(disk_with({PATH: text}), PATH, NAMES)


@pytest.mark.parametrize("text", [b"", b"DefaultCluster#broker-a#3", b"DefaultCluster#broker-a#3#"])
def test_half_an_application_of_rocketmq_is_made_anew(text: bytes) -> None:
    files = IdentityFiles(disk_with({f"{PATH}-temp": text}), PATH, NAMES)
    assert (files.broker_id, files.application) == (None, None)


@pytest.mark.parametrize(
    "names", [BrokerNames(cluster="a#b", broker_name="c"), BrokerNames(cluster="a", broker_name="")]
)
def test_names_that_the_form_cannot_hold_are_refused(names: BrokerNames) -> None:
    with pytest.raises(InvalidParameterError):
        IdentityFiles(disk_with({}), PATH, names)


def test_after_a_power_cut_at_any_step_the_same_number_is_applied_for_or_kept() -> None:
    for step in range(200):
        disk = disk_with({})
        disk.cut_at_step = disk.step_count + step
        made = granted = False
        try:
            files = IdentityFiles(disk, PATH, NAMES)
            files.apply_for(APPLICATION)
            made = True
            files.granted()
            granted = True
        except PowerCut:
            pass
        again = IdentityFiles(disk.after_power_cut(Random(step)), PATH, NAMES)
        if granted:
            assert again.broker_id == 3
            return
        if made:
            assert again.broker_id == 3 or again.application == APPLICATION
    pytest.fail("the steps never end")
