"""Peer brokers, found by name: one lookup for each, dropped when they do not answer, bounded in number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.remoting.tls import tls_server
from thermocline.broker.cluster import peer_brokers
from thermocline.broker.cluster.peer_brokers import ASK_AGAIN_MS, KEPT_MS, PeerBrokers
from thermocline.remoting.bodies import BrokerData, ClusterInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import BrokerBusyError, MQError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings.tls_config import TlsConfig
from thermocline.remoting.tls.client_context import ClientTls
from thermocline.remoting.tls.tls_options import outgoing_options

TIMEOUT_MS = 2_000
QUESTION = RequestCode.GET_MAX_OFFSET


class Answers:
    """A broker that answers everything, once it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.waiting = 0

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.waiting += 1
        await self.may_answer.wait()
        return RemotingCommand.response(command, remark="here")

    def connection_opened(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        pass


class NameServer:
    """Stands for the connection to NameServers: says where brokers are."""

    credentials = None

    def __init__(self) -> None:
        self.tls: ClientTls | None = None
        self.addresses: dict[str, str] = {}
        self.slaves: dict[str, dict[int, str]] = {}
        self.asked_count = 0
        self.is_away = False

    async def call(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand | None:
        self.asked_count += 1
        if self.is_away:
            return None
        assert command.code == RequestCode.GET_BROKER_CLUSTER_INFO
        table = {
            name: BrokerData(broker_name=name, broker_addrs={0: address, 1: "127.0.0.1:1"})
            for name, address in self.addresses.items()
        }
        table = {
            name: BrokerData(broker_name=name, broker_addrs=addresses) for name, addresses in self.slaves.items()
        } | table
        return RemotingCommand.response(command, body=ClusterInfo(broker_addr_table=table).encode())


@pytest.fixture
def clock() -> Clock:
    return Clock(0)


@pytest.fixture
def name_server() -> NameServer:
    return NameServer()


@pytest.fixture
async def peers(name_server: Any, clock: Clock) -> AsyncIterator[PeerBrokers]:
    peers = PeerBrokers(name_server, timeout_ms=lambda: TIMEOUT_MS, clock=clock)
    yield peers
    await peers.close()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, Answers]]:
    handler = Answers()
    server = RemotingServer(handler)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{port}", handler
    finally:
        handler.may_answer.set()
        await server.close()


def question() -> RemotingCommand:
    return RemotingCommand.request(QUESTION)


async def test_a_broker_is_found_by_name_with_one_lookup(peers: PeerBrokers, name_server: NameServer) -> None:
    async with served() as (address, _):
        name_server.addresses["b"] = address
        answers = await asyncio.gather(*(peers.call("b", question()) for _ in range(5)))
        answers.append(await peers.call("b", question()))
    assert [answer.remark for answer in answers] == ["here"] * 6
    assert name_server.asked_count == 1


async def test_a_broker_that_moved_is_looked_for_again(
    peers: PeerBrokers, name_server: NameServer, clock: Clock
) -> None:
    async with served() as (address, _):
        name_server.addresses["b"] = address
        await peers.call("b", question())
    with pytest.raises(MQError, match="no answer from broker b"):
        await peers.call("b", question())
    async with served() as (address, _):
        name_server.addresses["b"] = address
        clock.now_ms += ASK_AGAIN_MS
        assert (await peers.call("b", question())).remark == "here"


async def test_a_master_that_lives_on_as_a_slave_is_asked_no_longer_than_a_route_is_kept(
    peers: PeerBrokers, name_server: NameServer, clock: Clock
) -> None:
    """It answers each call, with a refusal: no call fails that would have its address looked for."""
    async with served() as (old, old_master), served() as (new, new_master):
        name_server.addresses["b"] = old
        await peers.call("b", question())
        name_server.addresses["b"] = new
        clock.now_ms += KEPT_MS - 1
        await peers.call("b", question())
        assert (old_master.waiting, new_master.waiting, name_server.asked_count) == (2, 0, 1)
        clock.now_ms += 1
        await peers.call("b", question())  # does not wait for the NameServer
        await peers.call("b", question())
        assert (new_master.waiting, name_server.asked_count) == (1, 2)
        name_server.is_away = True
        clock.now_ms += KEPT_MS
        for _ in range(2):
            await peers.call("b", question())
        assert (new_master.waiting, name_server.asked_count) == (3, 3)


async def test_without_a_master_the_slave_with_the_least_id_is_asked_if_that_will_do(
    peers: PeerBrokers, name_server: NameServer, clock: Clock
) -> None:
    async with served() as (address, _):
        name_server.slaves["b"] = {2: "127.0.0.1:1", 1: address}
        with pytest.raises(MQError, match="cannot find addr for broker b"):
            await peers.call("b", question())
        assert (await peers.call("b", question(), or_slave=True)).remark == "here"
    clock.now_ms += ASK_AGAIN_MS
    async with served() as (address, _):
        name_server.addresses["b"] = address
        assert (await peers.call("b", question(), or_slave=True)).remark == "here"


@pytest.mark.parametrize("is_away", [False, True])
async def test_an_unknown_broker_is_looked_up_once_a_second(
    peers: PeerBrokers, name_server: NameServer, clock: Clock, is_away: bool
) -> None:
    name_server.is_away = is_away
    for _ in range(3):
        with pytest.raises(MQError, match="cannot find addr for broker b"):
            await peers.call("b", question())
    assert name_server.asked_count == 1
    clock.now_ms += ASK_AGAIN_MS
    with pytest.raises(MQError):
        await peers.call("b", question())
    assert name_server.asked_count == 2


async def test_more_calls_than_there_may_be_are_refused(
    peers: PeerBrokers, name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_brokers, "CALLS_MAX", 2)
    async with served() as (address, handler):
        name_server.addresses["b"] = address
        handler.may_answer.clear()
        calls = [asyncio.ensure_future(peers.call("b", question())) for _ in range(2)]
        while handler.waiting < 2:  # noqa: ASYNC110 - the other side sends no notice
            await asyncio.sleep(0.001)
        with pytest.raises(BrokerBusyError):
            await peers.call("b", question())
        handler.may_answer.set()
        assert [(await call).remark for call in calls] == ["here", "here"]
        assert (await peers.call("b", question())).remark == "here"


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_peers_are_asked_over_tls_by_a_brokers_settings(
    peers: PeerBrokers, name_server: NameServer, tmp_path: Path, is_trusted: bool
) -> None:
    certificates = tls_server.make_server_certificates(tmp_path / "ours")
    foreign = tls_server.make_server_certificates(tmp_path / "foreign")
    trust = (certificates if is_trusted else foreign).authority.path
    options = outgoing_options(TlsConfig(outgoing=True, client_trust_path=str(trust)))
    assert options is not None
    name_server.tls = ClientTls(options)
    async with tls_server.served(certificates.server(server_mode="enforcing")) as serving:
        name_server.addresses["broker-b"] = serving.address
        question = RemotingCommand.request(tls_server.ECHO, body=b"how far")
        if is_trusted:
            assert (await peers.call("broker-b", question)).body == b"how far"
        else:
            with pytest.raises(MQError, match="the server's certificate is not trusted"):
                await peers.call("broker-b", question)


def test_a_broker_that_is_given_authorities_checks_its_peers() -> None:
    assert outgoing_options(TlsConfig()) is None
    for values, verify in (
        ({}, False),
        ({"check_servers": True}, True),
        ({"client_trust_path": "/t"}, True),
    ):
        options = outgoing_options(TlsConfig(outgoing=True, **values))  # type: ignore[arg-type]
        assert options is not None
        assert options.verify is verify
