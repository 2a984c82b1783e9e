"""The ports that a broker takes: its own and the VIP port two below."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.clock import Clock
from thermocline.broker.port.listener import Listener
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import LimitCounts, RemotingServer
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig


def listener(root: Path, **settings: object) -> Listener:
    config = BrokerConfig(listen_host="127.0.0.1", **settings)  # type: ignore[arg-type]
    store = StoreConfig(root_path=str(root))
    everything = BrokerSettings(broker=config, store=store, tier=TierConfig(), clock=Clock())
    return Listener(everything, connections_max=10, limits=LimitCounts())


async def ports_of(found: Listener, stack: AsyncExitStack) -> list[int]:
    """Those that answer."""
    await found.start(stack)
    ports = [port for port in (found.port, found.vip_port) if port]
    for port in ports:
        connection = await ClientConnection.open(f"127.0.0.1:{port}")
        stack.callback(connection.close)
        answer = await connection.call(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG), timeout_ms=5_000)
        assert answer.code == ResponseCode.SYSTEM_BUSY  # the broker is starting
    return ports


async def test_a_named_port_has_its_vip_port(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        port = free_port()
        assert await ports_of(listener(tmp_path, listen_port=port), stack) == [port, port - 2]


async def test_a_free_port_has_none_and_it_can_be_switched_off(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        assert len(await ports_of(listener(tmp_path, listen_port=0), stack)) == 1
        port = free_port()
        assert await ports_of(listener(tmp_path, listen_port=port, vip_port_on=False), stack) == [port]


async def test_a_vip_port_that_is_taken_is_told_and_does_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        server = RemotingServer(Dispatcher([]))
        taken = await server.start("127.0.0.1", 0)
        stack.push_async_callback(server.close)
        with caplog.at_level(logging.WARNING):
            assert await ports_of(listener(tmp_path, listen_port=taken + 2), stack) == [taken + 2]
        assert f"port={taken}" in caplog.text
