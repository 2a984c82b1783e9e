"""The NameServer over real sockets: brokers that come, go and fall silent."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from thermocline.remoting.request_code import RequestCode

TIMEOUT_MS = 5_000


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000)


@pytest.fixture
async def address(clock: Clock) -> AsyncIterator[str]:
    config = NameServerConfig(listen_host="127.0.0.1", listen_port=0, scan_interval_ms=10)
    server = NameServer(config, clock=clock, steady_clock=clock.steady)
    port = await server.start()
    yield f"127.0.0.1:{port}"
    await server.close()
    await server.close()


def registration(*topics: str, address: str = "127.0.0.1:10911") -> RemotingCommand:
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=1),
        topic_config_table={name: TopicConfig(topic_name=name) for name in topics},
    )
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr=address, cluster_name="DefaultCluster", broker_id=0
    )
    return RemotingCommand.request(
        RequestCode.REGISTER_BROKER,
        header,
        body=RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(),
    )


async def has_route(connection: ClientConnection, topic: str) -> bool:
    command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    return (await connection.call(command, timeout_ms=TIMEOUT_MS)).code == 0


async def until_gone(connection: ClientConnection, topic: str) -> None:
    deadline = time.monotonic() + 5
    while await has_route(connection, topic):
        assert time.monotonic() < deadline, "the route did not go"


async def test_a_broker_whose_connection_closes_is_gone_at_once(address: str) -> None:
    client = await ClientConnection.open(address)
    broker = await ClientConnection.open(address)
    assert (await broker.call(registration("T", "U"), timeout_ms=TIMEOUT_MS)).code == 0
    assert await has_route(client, "T")
    broker.close()
    await until_gone(client, "T")
    client.close()


@pytest.mark.parametrize("set_back_ms", [0, 3_600_000])
async def test_a_silent_broker_is_forgotten_and_its_connection_closed(
    address: str, clock: Clock, set_back_ms: int
) -> None:
    client = await ClientConnection.open(address)
    closed = asyncio.Event()
    broker = await ClientConnection.open(address, on_closed=lambda _: closed.set())
    await broker.call(registration("T", "U"), timeout_ms=TIMEOUT_MS)
    clock.set_back(set_back_ms)
    clock.now_ms += 120_001
    async with asyncio.timeout(5):
        await closed.wait()
    assert not await has_route(client, "T")
    client.close()


async def test_a_clock_that_is_set_back_does_not_prolong_the_wait_for_brokers(clock: Clock) -> None:
    """With `needWaitForService`, a NameServer gave no route for as long as the clock was set back."""
    config = NameServerConfig(listen_port=0, wait_for_service=True, wait_for_service_seconds=45)
    server = NameServer(config, clock=clock, steady_clock=clock.steady)
    client = await ClientConnection.open(f"127.0.0.1:{await server.start()}")
    await client.call(registration("T", "U"), timeout_ms=TIMEOUT_MS)
    assert not await has_route(client, "T")
    clock.set_back(3_600_000)
    clock.now_ms += 45_000
    assert await has_route(client, "T")
    client.close()
    await server.close()


async def test_a_second_name_server_with_the_same_files_is_refused(tmp_path: Path) -> None:
    """Each replaced the whole file: the second one's next change took back what the first one had confirmed."""
    config = NameServerConfig(
        listen_port=0,
        kv_config_path=str(tmp_path / "state" / "kvConfig.json"),
        config_store_path=str(tmp_path / "state" / "namesrv.properties"),
    )
    first, second = NameServer(config), NameServer(config)
    await first.start()
    with pytest.raises(UnavailableError, match="another daemon"):
        await second.start()
    await second.close()
    await first.close()
    await second.start()
    await second.close()


async def test_answers_come_in_the_serialisation_of_the_request(address: str) -> None:
    client = await ClientConnection.open(address)
    for serialize_type in SerializeType:
        command = RemotingCommand.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic="no such topic"),
            serialize_type=serialize_type,
        )
        answer = await client.call(command, timeout_ms=TIMEOUT_MS)
        assert (answer.code, answer.serialize_type) == (17, serialize_type)
    client.close()


@pytest.mark.parametrize("code", [0, 10, 9999, -1])
async def test_codes_that_are_not_served(address: str, code: int) -> None:
    client = await ClientConnection.open(address)
    answer = await client.call(RemotingCommand.request(code), timeout_ms=TIMEOUT_MS)
    assert answer.code == 3
    client.close()


async def test_a_broken_body_gets_an_answer(address: str) -> None:
    client = await ClientConnection.open(address)
    command = registration("T", "U")
    command.body = b"\x78not zlib"
    assert (await client.call(command, timeout_ms=TIMEOUT_MS)).code == 1
    command = registration("T", "U")
    command.body = b"{not json"
    assert (await client.call(command, timeout_ms=TIMEOUT_MS)).code == 1
    client.close()
