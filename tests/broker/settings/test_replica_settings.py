"""Roles, and the promises that they keep; what they contradict is refused.

Covers `broker/settings/setting_field.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.control_broker import control_broker
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.setting_sources import load_settings
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource


def load(**values: str) -> BrokerConfig:
    return load_settings([PropertySource(place="test", values={"storePathRootDir": "/data/store", **values})]).broker


def test_a_broker_without_a_role_is_a_single_one() -> None:
    config = load()
    assert not config.is_slave
    assert not config.takes_slaves
    assert config.slaves_needed == 0


CONTROLLED = {"enableControllerMode": "true", "controllerAddr": "127.0.0.1:9878"}


def test_official_settings_of_a_controlled_broker_are_taken() -> None:
    """As the files of RocketMQ's quick start for controllers have them."""
    config = load(**CONTROLLED, brokerRole="SLAVE", brokerId="-1", allAckInSyncStateSet="true", inSyncReplicas="2")
    assert config.controllers == ("127.0.0.1:9878",)
    assert config.all_ack


@pytest.mark.parametrize(
    ("role", "in_sync", "needed"), [("ASYNC_MASTER", "1", 0), ("SYNC_MASTER", "1", 0), ("sync_master", "3", 2)]
)
def test_a_master_waits_for_as_many_slaves_as_it_promises(role: str, in_sync: str, needed: int) -> None:
    config = load(brokerRole=role, inSyncReplicas=in_sync)
    assert config.takes_slaves
    assert config.slaves_needed == needed


def test_a_slave_may_have_its_masters_settings() -> None:
    config = load(brokerRole="SLAVE", brokerId="2", inSyncReplicas="2")
    assert config.is_slave
    assert not config.takes_slaves
    assert config.slaves_needed == 0


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"brokerRole": "SLAVE"}, "a slave needs a brokerId above 0"),
        ({"brokerRole": "SYNC_MASTER", "brokerId": "1"}, "only a slave"),
        ({"inSyncReplicas": "2"}, "brokerRole=SYNC_MASTER alone"),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2"}, "brokerRole=SYNC_MASTER alone"),
        ({"brokerRole": "SLAVE", "brokerId": "1", "coldUrl": "file:///cold"}, "finds its master by namesrvAddr"),
        (
            {
                "brokerRole": "SLAVE",
                "brokerId": "1",
                "coldUrl": "file:///cold",
                "namesrvAddr": "127.0.0.1:9876",
                "haMasterAddress": "127.0.0.1:10912",
            },
            "start it without haMasterAddress",
        ),
        ({"brokerRole": "SLAVE", "brokerId": "1", "mergedProxyEnable": "true"}, "not beside a slave"),
        ({"minInSyncReplicas": "2"}, "a controller alone keeps"),
        ({"allAckInSyncStateSet": "true"}, "a controller alone keeps"),
        ({"asyncLearner": "true"}, "a controller alone keeps"),
        ({**CONTROLLED, "brokerRole": "SYNC_MASTER"}, "the controllers decide which broker is the master"),
        ({**CONTROLLED, "brokerRole": "SLAVE", "brokerId": "2"}, "the controllers number the brokers"),
        ({**CONTROLLED, "haMasterAddress": "127.0.0.1:10912"}, "the controllers name the master"),
        ({**CONTROLLED, "mergedProxyEnable": "true"}, "the proxy is a process of its own"),
        ({**CONTROLLED, "controllerAddr": ""}, "needs host:port of each controller"),
        ({**CONTROLLED, "fetchControllerAddrByDnsLookup": "true"}, "is refused: it would promise"),
        ({**CONTROLLED, "storePathEpochFile": "/elsewhere"}, "can only be epochFileCheckpoint"),
        ({"enableSlaveActingMaster": "true"}, "has no slave that could stand in"),
        ({"brokerRole": "ASYNC_MASTER", "enableRemoteEscape": "true"}, "enableSlaveActingMaster=true"),
        ({"lockInStrictMode": "true"}, "is refused: it would promise"),
    ],
)
def test_what_contradicts_itself_or_is_not_built_is_refused(values: dict[str, str], error: str) -> None:
    with pytest.raises(SettingError, match=error):
        load(**values)


async def test_a_role_that_is_sent_back_as_it_is_shown_opens_no_port(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        assert (await broker.ask(25, body=b"brokerRole=ASYNC_MASTER\ntraceOn=false\n")).code == 0
        assert "brokerRole" not in broker.parts.base.settings.encode().decode()
        assert (await broker.ask(25, body=b"brokerRole=SYNC_MASTER\n")).code == 0
        assert "SYNC_MASTER" in broker.parts.base.settings.encode().decode()
        assert (await broker.ask(25, body=b"brokerRole=SLAVE\n")).code == 29
