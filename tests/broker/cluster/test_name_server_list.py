"""The broker's list of NameServers while it runs: changed by a setting, a name, an address server; real NameServers.

Covers `broker/cluster/name_server_watch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.address_server import address_server, name_zone
from tests.broker.cluster.test_registration import name_server
from tests.broker.control_broker import ControlBroker, control_broker
from tests.waiting import until
from thermocline.broker.cluster import registration as registration_module
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer

UPDATE_CONFIG = 25
SOON_MS = 20
"""Instead of 10 and 30 s, after which the list is looked up again."""


@asynccontextmanager
async def running_broker(root: Path, **settings: Any) -> AsyncIterator[ControlBroker]:
    async with control_broker(root, config=BrokerConfig(listen_host="127.0.0.1", **settings)) as broker:
        broker.parts.cluster.registration.start()
        try:
            yield broker
        finally:
            await broker.parts.cluster.registration.close()


def is_routed(server: NameServer) -> bool:
    return server.registry.route("TBW102") is not None


async def change(broker: ControlBroker, text: str) -> int:
    return (await broker.ask(UPDATE_CONFIG, body=text.encode())).code


async def test_a_changed_setting_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "REMOVED_LINGER_MS", 0)
    async with (
        name_server() as (one, one_address),
        name_server() as (two, two_address),
        running_broker(tmp_path, name_server_addresses=one_address) as broker,
    ):
        await broker.parts.cluster.registration.wait_registered()
        assert await change(broker, f"namesrvAddr={one_address};{two_address}\n") == 0
        await until(lambda: is_routed(two))
        assert is_routed(one)
        await broker.create_topic("T")
        await until(lambda: two.registry.route("T") is not None)
        assert await change(broker, f"namesrvAddr={two_address}\n") == 0
        await until(lambda: not is_routed(one))
        assert [status.name_server for status in broker.parts.cluster.registration.status()] == [two_address]
        assert is_routed(two)
        assert await change(broker, "namesrvAddr=nonsense\n") != 0
        assert is_routed(two)
        assert await change(broker, "namesrvAddr=\n") == 0
        await until(lambda: not is_routed(two))


async def test_a_name_that_can_be_none_is_put_right_at_once(tmp_path: Path) -> None:
    """The list is followed on, and the other NameServer has the broker all the time."""
    async with (
        name_server() as (one, one_address),
        name_server() as (two, two_address),
        running_broker(tmp_path, name_server_addresses=one_address) as broker,
    ):
        await broker.parts.cluster.registration.wait_registered()
        assert await change(broker, f"namesrvAddr={one_address};names..test:9876\n") == 0
        await until(lambda: broker.parts.cluster.registration.status()[1].last_error)
        assert await change(broker, "fetchNameSrvAddrByDnsLookup=true\n") == 0
        assert await change(broker, f"namesrvAddr={one_address};{two_address}\n") == 0
        await until(lambda: is_routed(two))
        assert is_routed(one)


async def test_one_that_is_removed_serves_until_no_client_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        name_server() as (one, one_address),
        name_server() as (two, two_address),
        running_broker(tmp_path, name_server_addresses=f"{one_address};{two_address}") as broker,
    ):
        await broker.parts.cluster.registration.wait_registered()
        await change(broker, f"namesrvAddr={two_address}\n")
        await until(lambda: len(broker.parts.cluster.registration.status()) == 1)
        await broker.create_topic("T")  # clients of the removed name server get the route too
        await until(lambda: one.registry.route("T") is not None)
        await change(broker, f"namesrvAddr={one_address};{two_address}\n")  # and it may come back
        await until(lambda: len(broker.parts.cluster.registration.status()) == 2)
        monkeypatch.setattr(registration_module, "REMOVED_LINGER_MS", 0)
        await change(broker, f"namesrvAddr={two_address}\n")
        await until(lambda: not is_routed(one))
        assert is_routed(two)


async def test_an_address_server_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "REMOVED_LINGER_MS", 0)
    async with name_server() as (one, one_address), name_server() as (two, two_address):
        with address_server() as server:
            server.status = 503
            settings = {
                "address_server_on": True,
                "name_server_domain": server.domain,
                "name_server_subgroup": "blue",
                "address_server_interval_ms": SOON_MS,
            }
            async with running_broker(tmp_path, **settings) as broker:
                await until(lambda: len(server.paths) >= 2)
                assert broker.parts.cluster.registration.status() == []
                server.status, server.text = 200, one_address
                await asyncio.wait_for(broker.parts.cluster.registration.wait_registered(), timeout=10)
                assert is_routed(one)
                server.text = f"{one_address};{two_address}"
                await until(lambda: is_routed(two))
                server.text = two_address
                await until(lambda: not is_routed(one))
                asked = len(server.paths)
                server.status = 503
                await until(lambda: len(server.paths) >= asked + 3)
                assert is_routed(two)  # no answer changes nothing
                assert set(server.paths) == {"/rocketmq/blue"}


async def test_a_name_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "REMOVED_LINGER_MS", 0)
    zone = {"namesrv.test": ["127.0.0.1"]}
    name_zone(monkeypatch, zone)
    async with name_server() as (one, address):
        port = int(address.rpartition(":")[2])
        two = NameServer(NameServerConfig(listen_host="127.0.0.2", listen_port=port))
        await two.start()
        try:
            async with running_broker(
                tmp_path,
                name_server_addresses=f"namesrv.test:{port}",
                name_server_dns_on=True,
                name_server_update_ms=SOON_MS,
            ) as broker:
                await until(lambda: is_routed(one))
                zone["namesrv.test"] = ["127.0.0.1", "127.0.0.2"]
                await until(lambda: is_routed(two))
                zone["namesrv.test"] = ["127.0.0.2"]
                await until(lambda: not is_routed(one))
                zone["namesrv.test"] = []
                await broker.create_topic("T")
                await until(lambda: two.registry.route("T") is not None)
        finally:
            await two.close()


def test_the_settings_of_rocketmq() -> None:
    config = BrokerConfig()
    assert config.name_server_source is None
    assert (config.name_server_period_ms, config.address_server_interval_ms) == (30_000, 10_000)
    config = BrokerConfig(address_server_on=True)
    assert config.name_server_source is not None
    assert config.name_server_source.values == ("http://jmenv.tbsite.net:8080/rocketmq/nsaddr",)
    assert config.name_server_period_ms == 10_000
    config = BrokerConfig(address_server_on=True, name_server_addresses="10.0.0.1:9876")  # addresses have precedence
    assert config.name_server_source is not None
    assert config.name_server_source.is_fixed
