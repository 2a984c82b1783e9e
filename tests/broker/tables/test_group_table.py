"""GroupTable: groups by their first use, set up by operators, deleted, and what they may not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.state_files.config_persister import ConfigPersister, load_file
from thermocline.broker.tables.group_table import BOOT_GROUPS, FILE_NAME, GroupTable
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.errors import (
    BrokerBusyError,
    CorruptDataError,
    InvalidParameterError,
    InvalidRequestError,
    UnavailableError,
)
from thermocline.store.files.disk import make_durable_directory

PATH = f"/store/config/{FILE_NAME}"


@dataclass(frozen=True, slots=True)
class Parts:
    groups: GroupTable
    persister: ConfigPersister
    disk: SimulatedDisk

    async def written(self) -> GroupTable:
        """The table as the file has it after everything that was requested is written."""
        await self.persister.close()
        return self.on_disk()

    def on_disk(self) -> GroupTable:
        return open_table(self.disk).groups


def open_table(disk: SimulatedDisk, **settings: Any) -> Parts:
    persister, config = ConfigPersister(disk), BrokerConfig(**settings)
    groups = GroupTable(clock=Clock(), persister=persister, config=lambda: config)
    persister.open("/store/config", FILE_NAME, groups)
    return Parts(groups, persister, disk)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    make_durable_directory(disk, "/store/config")
    return disk


async def test_a_group_is_made_by_its_first_use_if_its_name_is_valid(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    groups, before = parts.groups, parts.groups.data_version.counter
    for name in ("", " ", "a b", "g*", "x" * 300):
        assert groups.find_or_create(name) is None
        assert name not in groups
    assert groups.data_version.counter == before
    made = groups.find_or_create("G")
    assert made is not None
    assert groups.find_or_create("G") is groups.get("G") is made
    assert groups.data_version.counter == before + 1
    assert "G" in await parts.written(), "it is written soon"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"auto_create_group": False}, {"G": False, "CID_RMQ_SYS_X": True}),
        ({"auto_create_group": False, "create_system_groups": False}, {"G": False, "CID_RMQ_SYS_X": False}),
        ({"create_system_groups": False}, {"G": True, "CID_RMQ_SYS_X": True}),
    ],
)
async def test_settings_say_which_groups_are_made(
    disk: SimulatedDisk, settings: dict[str, bool], expected: dict[str, bool]
) -> None:
    parts = open_table(disk, **settings)
    assert {name: parts.groups.find_or_create(name) is not None for name in expected} == expected
    await parts.persister.close()


async def test_the_limit_counts_all_groups_that_are_there(disk: SimulatedDisk) -> None:
    parts = open_table(disk, auto_groups_max=len(BOOT_GROUPS) + 1)
    assert len(parts.groups) == len(BOOT_GROUPS)
    parts.groups.find_or_create("first", "10.0.0.1:1")
    with pytest.raises(BrokerBusyError):
        parts.groups.find_or_create("second", "10.0.0.1:1")
    assert "second" not in parts.groups
    assert parts.groups.find_or_create("own") is not None, "what the broker itself needs"
    await parts.persister.close()


async def test_an_update_is_whole_or_not_at_all(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    groups = parts.groups
    valid = SubscriptionGroupConfig(group_name="G", retry_max_times=3)
    for broken, error in (
        (SubscriptionGroupConfig(group_name="a b"), InvalidParameterError),
        (SubscriptionGroupConfig(group_name="H", attributes={"+unknown": "1"}), InvalidRequestError),
    ):
        with pytest.raises(error):
            await groups.update([valid, broken])
        assert "G" not in groups
    await groups.update([valid])
    found = parts.on_disk().get("G")
    assert found is not None
    assert found.retry_max_times == 3
    await parts.persister.close()


async def test_groups_are_as_before_when_the_file_cannot_be_written(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    groups = parts.groups
    await groups.update([SubscriptionGroupConfig(group_name="G", retry_max_times=3)])
    disk.is_full = True
    with pytest.raises(UnavailableError):
        await groups.update([SubscriptionGroupConfig(group_name=name, retry_max_times=9) for name in ("G", "H")])
    disk.is_full = False
    kept = groups.get("G")
    assert kept is not None
    assert kept.retry_max_times == 3
    assert "H" not in groups
    assert b'"retryMaxTimes":3' in groups.encoded("G").replace(b" ", b"")
    with pytest.raises(KeyError):
        groups.encoded("H")
    await groups.update([SubscriptionGroupConfig(group_name="I")])
    assert {"G", "I"} < parts.on_disk().configs().keys()
    assert "H" not in parts.on_disk()
    await parts.persister.close()


async def test_a_deleted_group_is_gone_with_what_it_may_not_read(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    groups = parts.groups
    await groups.update([SubscriptionGroupConfig(group_name="G")])
    await groups.forbid_read("G", "T", is_forbidden=True)
    version = groups.data_version.counter
    await groups.delete("G")
    assert groups.data_version.counter == version + 1
    assert not groups.is_read_forbidden("G", "T")
    with pytest.raises(KeyError):
        groups.encoded("G")
    await groups.delete("G")
    assert groups.data_version.counter == version + 1, "it was not there"
    after = parts.on_disk()
    assert "G" not in after
    assert not after.is_read_forbidden("G", "T")
    await parts.persister.close()


async def test_reading_is_forbidden_for_one_group_and_topic_until_it_is_allowed(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    groups = parts.groups
    version = groups.data_version.counter
    for topic in ("T", "U"):
        await groups.forbid_read("G", topic, is_forbidden=True)
    assert groups.data_version.counter == version + 2
    for table in (groups, parts.on_disk()):
        assert table.is_read_forbidden("G", "T")
        assert table.is_read_forbidden("G", "U")
        assert not table.is_read_forbidden("G", "V")
        assert not table.is_read_forbidden("H", "T")
    await groups.forbid_read("G", "T", is_forbidden=False)
    assert not groups.is_read_forbidden("G", "T")
    assert groups.is_read_forbidden("G", "U")
    await groups.forbid_read("G", "U", is_forbidden=False)
    assert b'"forbiddenTable":{}' in groups.encode()
    await parts.persister.close()


async def test_a_part_of_the_table_has_its_groups_and_their_bans(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    groups = parts.groups
    await groups.update([SubscriptionGroupConfig(group_name=name) for name in ("G", "H")])
    for name in ("G", "H", "not set up"):
        await groups.forbid_read(name, "T", is_forbidden=True)
    part, whole = GroupTable(clock=Clock(), persister=parts.persister, config=BrokerConfig), groups.encode()
    part.load(groups.encode_table(["G"]))
    assert part.configs().keys() == {"G", *BOOT_GROUPS}
    assert [part.is_read_forbidden(name, "T") for name in ("G", "H", "not set up")] == [True, False, False]
    assert whole == groups.encode_table(None)
    assert parts.on_disk().is_read_forbidden("not set up", "T")
    await parts.persister.close()


def test_a_file_that_is_none_is_refused() -> None:
    groups = GroupTable(clock=Clock(), persister=ConfigPersister(SimulatedDisk()), config=BrokerConfig)
    with pytest.raises(CorruptDataError):
        groups.load(b"[1]")


async def test_the_version_goes_on_where_the_file_ends(disk: SimulatedDisk) -> None:
    parts = open_table(disk)
    await parts.groups.update([SubscriptionGroupConfig(group_name="G")])
    assert load_file(disk, PATH) is not None
    assert parts.on_disk().data_version == parts.groups.data_version
    await parts.persister.close()
