"""Entry of the broker: what it does before it starts, over the golden bucket; and where settings come from."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import cast

import pytest

from tests.clock import Clock
from tests.store.store_parts import draft
from tests.tiered.broker_golden import GOLDEN, VERSION
from thermocline.broker import main
from thermocline.broker.assembly import ProxyPlan
from thermocline.broker.hot_process import HotProcess
from thermocline.broker.main import BrokerArguments, load_broker_settings
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import PERM_READ
from thermocline.remoting.errors import InvalidParameterError, InvalidRequestError, SettingError, UnavailableError
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.message_store import MessageStore
from thermocline.store.state.enrolment import Enrolment, save_enrolment
from thermocline.tiered.budgets.tier_config import TierConfig


@pytest.fixture
def settings(tmp_path: Path) -> BrokerSettings:
    """Of a broker that has lost its disk, and whose cold tier is a copy of the golden bucket."""
    shutil.copytree(GOLDEN / VERSION / "bucket", tmp_path / "cold")
    return BrokerSettings(
        broker=BrokerConfig(broker_name="broker-a"),
        store=StoreConfig(root_path=str(tmp_path / "store"), log_file_bytes=1 << 20, queue_file_bytes=20_000),
        tier=TierConfig(cold_url=(tmp_path / "cold").as_uri(), reserve_bytes=64 << 20),
        clock=Clock(),
    )


async def test_a_recovery_is_reported_line_by_line_and_made_once(settings: BrokerSettings) -> None:
    lines: list[str] = []
    assert await main._recover(settings, settings.tier.cold_url, lines.append)
    assert lines[0].startswith("recovered root=")
    assert any(line.startswith("topic=GoldenPlain ") for line in lines)
    assert (Path(settings.store.own_path) / "recovery.txt").read_text().splitlines() == lines
    reported = list(lines)
    assert not await main._recover(settings, settings.tier.cold_url, lines.append), "it came from there before"
    assert lines == reported


async def test_the_bucket_is_that_of_the_settings(settings: BrokerSettings) -> None:
    with pytest.raises(InvalidParameterError, match="coldUrl"):
        await main._recover(settings, "file:///elsewhere", print)
    with pytest.raises(InvalidParameterError, match="coldUrl"):
        await main._follow(settings, "file:///elsewhere")
    assert not Path(settings.store.root_path).exists()


async def test_a_read_only_broker_has_its_sources_names_and_an_empty_directory(settings: BrokerSettings) -> None:
    store = MessageStore.open(settings.store, disk=RealDisk(), clock=Clock())
    store.close()
    source = await main._follow(settings, settings.tier.cold_url)
    assert (source.cluster_name, source.broker_name) == ("DefaultCluster", "broker-a")
    assert settings.broker.permission == PERM_READ
    store = MessageStore.open(settings.store, disk=RealDisk(), clock=Clock())
    await asyncio.to_thread(store.put, draft())
    store.close()
    with pytest.raises(InvalidRequestError, match="the directory holds messages"):
        await main._follow(settings, settings.tier.cold_url)


def test_settings_come_from_the_file_then_the_environment_then_flags(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=of-file\nbrokerClusterName=of-file\nlistenPort=1234\n")
    environment = {"HOME": str(tmp_path), "THERMOCLINE_BROKER_NAME": "of-environment"}
    arguments = BrokerArguments(config_path=str(path), flags={"listenPort": "4321"})
    loaded = load_broker_settings(arguments, environment)
    assert (loaded.broker.broker_name, loaded.broker.cluster_name) == ("of-environment", "of-file")
    assert loaded.broker.listen_port == 4321
    assert loaded.store.root_path == str(tmp_path / "store"), "RocketMQ's default"
    rooted = BrokerArguments(flags={"storePathRootDir": str(tmp_path / "other")})
    assert load_broker_settings(rooted, environment).store.root_path == str(tmp_path / "other")


def test_a_file_of_settings_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="No such file") as raised:
        load_broker_settings(BrokerArguments(config_path=str(tmp_path / "none")), {})
    assert str(tmp_path / "none") in str(raised.value)


async def test_a_broker_is_ready_without_a_proxy_that_is_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class LateProxy:
        async def wait_proxy(self) -> str:
            raise UnavailableError("the proxy does not start")

    assert await main._wait_proxy(cast("HotProcess", LateProxy()), asyncio.Event()) == main.NOWHERE
    assert "ready without the proxy" in caplog.text


@pytest.mark.parametrize("option", ["recover_from", "read_only_from"])
def test_a_slave_has_no_other_source_than_its_master(tmp_path: Path, option: str) -> None:
    flags = {"storePathRootDir": str(tmp_path), "brokerRole": "SLAVE", "brokerId": "1"}
    arguments = BrokerArguments(flags=flags, **{option: "file:///cold"})  # type: ignore[arg-type]
    settings = load_broker_settings(arguments, {})
    with pytest.raises(InvalidParameterError, match="from its master"):
        main._check_slave(settings, arguments)
    main._check_slave(settings, BrokerArguments(flags=flags))


async def test_the_store_of_a_slave_with_a_cold_tier_is_no_masters_without_it(tmp_path: Path) -> None:
    flags = {"storePathRootDir": str(tmp_path), "brokerRole": "ASYNC_MASTER"}
    settings = load_broker_settings(BrokerArguments(flags=flags), {})
    MessageStore.open(settings.store, disk=RealDisk(), clock=lambda: 1, make_id=lambda: "5" * 32).close()
    await main._take_over(settings, lambda _line: None)
    enrolment = Enrolment(store_id="5" * 32, master_store_id="6" * 32)
    save_enrolment(RealDisk(), settings.store.enrolment_path, enrolment)
    with pytest.raises(SettingError, match="needs its coldUrl, too"):
        await main._take_over(settings, lambda _line: None)


def test_a_proxy_is_planned_where_settings_ask_for_one(tmp_path: Path) -> None:
    def plan(flags: dict[str, str], *, is_read_only: bool = False, **proxy_flags: str) -> object:
        arguments = BrokerArguments(
            flags={"storePathRootDir": str(tmp_path), "namesrvAddr": "127.0.0.1:1", **flags}, proxy_flags=proxy_flags
        )
        return main._proxy_plan(load_broker_settings(arguments, {}), arguments, is_read_only=is_read_only)

    assert plan({}) is None
    with pytest.raises(SettingError, match="count only with --proxy"):
        plan({}, grpcServerPort="0")
    with pytest.raises(SettingError, match="count only with --proxy names=mergedProxyConfigPath"):
        plan({"mergedProxyConfigPath": "rmq-proxy.json"})
    with pytest.raises(SettingError, match="a read-only broker has no proxy"):
        plan({"mergedProxyEnable": "true"}, is_read_only=True)
    made = plan({"mergedProxyEnable": "true"}, grpcShutdownTimeSeconds="7")
    assert isinstance(made, ProxyPlan)
    assert made.drain_ms == 7_000
