"""Registration, against real NameServers on real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.slave_config import slave_config
from tests.frozen_peer import frozen_peer
from tests.waiting import until
from thermocline.broker.cluster.registration import Master, Registration
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import RegisterBrokerBody, TopicConfig
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.request_code import RequestCode


@asynccontextmanager
async def name_server(port: int = 0, **settings: bool) -> AsyncIterator[tuple[NameServer, str]]:
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=port, **settings))
    bound = await server.start()
    try:
        yield server, f"127.0.0.1:{bound}"
    finally:
        await server.close()


@asynccontextmanager
async def registered_broker(
    root: Path, *addresses: str, single_topic_register: bool = False
) -> AsyncIterator[ControlBroker]:
    config = BrokerConfig(
        listen_host="127.0.0.1",
        name_server_addresses=";".join(addresses),
        single_topic_register=single_topic_register,
    )
    async with control_broker(root, config=config) as broker:
        broker.parts.cluster.registration.start()
        try:
            yield broker
        finally:
            await broker.parts.cluster.registration.close()


def has_route(server: NameServer, topic: str) -> bool:
    return server.registry.route(topic) is not None


async def test_a_broker_registers_with_every_name_server(tmp_path: Path) -> None:
    async with (
        name_server() as (one, one_address),
        name_server() as (two, two_address),
        registered_broker(tmp_path, one_address, two_address) as broker,
    ):
        await asyncio.wait_for(broker.parts.cluster.registration.wait_registered(), timeout=10)
        for server in (one, two):
            route = server.registry.route("TBW102")
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
            assert route.queue_datas[0].perm == 7
            assert set(server.registry.topics()) == set(broker.parts.tables.topics)
        assert [status.is_registered for status in broker.parts.cluster.registration.status()] == [True, True]


async def test_a_slave_learns_its_master_and_that_it_is_gone(tmp_path: Path) -> None:
    async with name_server() as (server, address), AsyncExitStack() as stack:
        registrations = []
        for broker_id, port in ((0, 10911), (1, 10921)):
            settings = {"name_server_addresses": address, "register_period_ms": 20}
            config = slave_config(**settings) if broker_id else BrokerConfig(listen_host="127.0.0.1", **settings)
            broker = await stack.enter_async_context(
                control_broker(tmp_path / str(broker_id), config=config, store_host=("127.0.0.1", port))
            )
            registration = broker.parts.cluster.registration
            registration.start()
            stack.push_async_callback(registration.close)
            await asyncio.wait_for(registration.wait_registered(), timeout=10)
            registrations.append(registration)
        master, slave = registrations
        await until(lambda: slave.master == Master(address="127.0.0.1:10911", ha_address="127.0.0.1:10912"))
        assert master.master is None
        assert server.registry.broker_addresses("broker-a") == {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
        await master.unregister()
        await until(lambda: slave.master is None, what="the slave's next registration says that there is none")
        assert slave.status()[0].is_registered


async def test_a_broker_tells_its_zone(tmp_path: Path) -> None:
    async with name_server() as (server, address):
        config = BrokerConfig(listen_host="127.0.0.1", name_server_addresses=address, zone_name="north")
        async with control_broker(tmp_path, config=config) as broker:
            broker.parts.cluster.registration.start()
            await asyncio.wait_for(broker.parts.cluster.registration.wait_registered(), timeout=10)
            route = server.registry.route("TBW102")
            await broker.parts.cluster.registration.close()
        assert route is not None
        assert route.broker_datas[0].zone_name == "north"


async def test_a_topic_change_is_registered_at_once(tmp_path: Path) -> None:
    async with name_server() as (server, address), registered_broker(tmp_path, address) as broker:
        await broker.parts.cluster.registration.wait_registered()
        await broker.create_topic("T", queues=3)
        await until(lambda: server.registry.route("T") is not None)
        await broker.create_topic("T", queues=5)

        def queues() -> int:
            route = server.registry.route("T")
            return 0 if route is None else route.queue_datas[0].write_queue_nums

        await until(lambda: queues() == 5)
        counts = [status.registered_count for status in broker.parts.cluster.registration.status()]
        await asyncio.gather(
            *(
                broker.parts.tables.topics.auto_create(f"T{number}", default_topic="TBW102", queue_count=1)
                for number in range(200)
            )
        )
        await until(lambda: server.registry.route("T199") is not None)
        assert len(server.registry.topics()) == len(broker.parts.tables.topics)
        sent = broker.parts.cluster.registration.status()[0].registered_count - counts[0]
        assert sent <= 20  # many changes in one message


async def test_a_new_topic_is_registered_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent grows with the topics, not with their square."""
    registered_counts: list[int] = []
    command = Registration.command

    def count(registration: Registration, changed: Collection[str] | None) -> RemotingCommand:
        registered_counts.append(len(registration._topics if changed is None else changed))
        return command(registration, changed)

    async with name_server() as (server, address), registered_broker(tmp_path, address) as broker:
        await broker.parts.cluster.registration.wait_registered()
        monkeypatch.setattr(Registration, "command", count)
        for number in range(300):
            await broker.parts.tables.topics.auto_create(f"T{number}", default_topic="TBW102", queue_count=1)
        await until(lambda: server.registry.route("T299") is not None)
        full = len(broker.parts.tables.topics)
        assert sum(registered_counts) <= 300 + 2 * full, "each once, and all of them when a period is over"


async def test_single_topic_registrations_leave_the_other_topics_alone(tmp_path: Path) -> None:
    """At a NameServer with `deleteTopicWithBrokerRegistration` a registration of what changed removes all others."""
    async with (
        name_server(delete_topics_with_registration=True) as (server, address),
        registered_broker(tmp_path, address, single_topic_register=True) as broker,
    ):
        await broker.parts.cluster.registration.wait_registered()
        for number in range(3):
            await broker.create_topic(f"T{number}", queues=3)
            await until(partial(has_route, server, f"T{number}"))
            assert set(server.registry.topics()) == set(broker.parts.tables.topics)
        await broker.create_topic("T1", queues=5)

        def queues() -> int:
            route = server.registry.route("T1")
            return 0 if route is None else route.queue_datas[0].write_queue_nums

        await until(lambda: queues() == 5)
        await asyncio.gather(
            *(
                broker.parts.tables.topics.auto_create(f"Many{number}", default_topic="TBW102", queue_count=1)
                for number in range(200)
            )
        )
        await until(lambda: set(server.registry.topics()) == set(broker.parts.tables.topics))
        assert (await broker.ask(25, body=b"brokerPermission=4\n")).code == 0
        await broker.create_topic("Readable", queues=1)
        await until(partial(has_route, server, "Readable"))
        route = server.registry.route("Readable")
        assert route is not None
        assert route.queue_datas[0].perm == 4


async def test_a_name_server_that_comes_back_gets_all_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.broker.cluster.registration.RECONNECT_MS", 5)
    async with name_server() as (_, address):
        port = int(address.rpartition(":")[2])
        broker_context = registered_broker(tmp_path, address)
        broker = await broker_context.__aenter__()
        await broker.parts.cluster.registration.wait_registered()
    registration = broker.parts.cluster.registration
    await until(lambda: not registration.status()[0].is_registered)
    await broker.create_topic("T")
    async with name_server(port) as (server, _):
        await asyncio.wait_for(registration.wait_registered(), timeout=10)
        assert server.registry.route("T") is not None
        assert server.registry.route("TBW102") is not None
        await broker_context.__aexit__(None, None, None)


async def test_an_absent_name_server_does_not_delay_the_others(tmp_path: Path) -> None:
    async with name_server() as (server, address), registered_broker(tmp_path, "127.0.0.1:1", address) as broker:
        registration = broker.parts.cluster.registration
        await until(lambda: [each.is_registered for each in registration.status()] == [False, True])
        assert server.registry.route("TBW102") is not None
        await until(lambda: bool(registration.status()[0].last_error))


async def test_a_frozen_name_server_keeps_no_question_from_the_next_one(tmp_path: Path) -> None:
    async with (
        frozen_peer() as frozen,
        name_server() as (server, address),
        registered_broker(tmp_path, frozen, address) as broker,
    ):
        registration = broker.parts.cluster.registration
        await until(lambda: registration.status()[1:] and registration.status()[1].is_registered)
        await until(lambda: registration._links[frozen].connection is not None)
        command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await registration.call(command, timeout_ms=200)
        assert answer is not None
        assert b"127.0.0.1:10911" in bytes(answer.body)
        begun = asyncio.get_running_loop().time()
        assert await registration.call(command, timeout_ms=60_000) is not None
        assert asyncio.get_running_loop().time() - begun < 30, "the frozen one is not asked first again"
        await server.close()
        with pytest.raises(UnavailableError):
            await registration.call(command, timeout_ms=200)


async def test_a_slave_follows_the_master_that_answers_name(tmp_path: Path) -> None:
    """Not the one that a NameServer named which is frozen since."""
    old, new = (Master(address=f"127.0.0.1:{port}", ha_address=None) for port in (10911, 10931))
    async with (
        frozen_peer() as frozen,
        name_server() as (_, address),
        registered_broker(tmp_path, frozen, address) as broker,
    ):
        registration = broker.parts.cluster.registration
        await until(lambda: registration.status()[1:] and registration.status()[1].is_registered)
        registration._links[frozen].master = old
        assert registration.master == old
        registration._links[address].master = new
        assert registration.master == new


async def test_a_leave_takes_the_broker_out_at_once(tmp_path: Path) -> None:
    async with name_server() as (server, address), registered_broker(tmp_path, address) as broker:
        await broker.parts.cluster.registration.wait_registered()
        await broker.parts.cluster.registration.unregister()
        assert server.registry.route("TBW102") is None
        await broker.parts.cluster.registration.unregister()


async def test_the_brokers_permission_cuts_the_topics_down(tmp_path: Path) -> None:
    async with name_server() as (server, address), registered_broker(tmp_path, address) as broker:
        await broker.parts.cluster.registration.wait_registered()
        answer = await broker.ask(25, body=b"brokerPermission=4\n")
        assert answer.code == 0

        def perm() -> int | None:
            route = server.registry.route("SELF_TEST_TOPIC")
            return None if route is None else route.queue_datas[0].perm

        await until(lambda: perm() == 4)
        await broker.ask(25, body=b"brokerPermission=6\n")
        await until(lambda: perm() == 6)


async def test_order_topics_of_the_name_server_are_taken_over(tmp_path: Path) -> None:
    async with name_server() as (_, address), registered_broker(tmp_path, address) as broker:
        await broker.parts.cluster.registration.wait_registered()
        await broker.create_topic("T")
        connection = await ClientConnection.open(address)
        fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
        await connection.request(RemotingCommand.request(100, ext_fields=fields), timeout_ms=5_000)
        connection.close()
        broker.parts.cluster.registration.request_full()
        await until(lambda: broker.parts.tables.topics.is_order_topic("T"))


async def test_five_thousand_topics_do_not_stall_the_loop(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        parts = broker.parts
        for number in range(5_000):
            parts.tables.topics._publish(
                TopicConfig(topic_name=f"Topic{number}", read_queue_nums=10, write_queue_nums=10)
            )
        elapsed_ms = []
        for _ in range(5):
            started = time.perf_counter()
            command = parts.cluster.registration.command(None)
            command.encode()
            elapsed_ms.append((time.perf_counter() - started) * 1_000)
        assert min(elapsed_ms) < 50
        body = RegisterBrokerBody.decode(command.body)
        assert len(body.topic_config_serialize_wrapper.topic_config_table) == len(parts.tables.topics)


@asynccontextmanager
async def gateway_that_forgets(address: str) -> AsyncIterator[str]:
    """Its host:port. What comes by the first connection arrives nowhere, and the connection stays open."""
    host, _, port = address.rpartition(":")
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if len(writers) > 1:
            behind, to_behind = await asyncio.open_connection(host, port)
            await asyncio.gather(copy(reader, to_behind), copy(behind, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.close()
        server.close()


async def test_a_registration_that_is_not_answered_is_tried_on_another_connection(tmp_path: Path) -> None:
    """It was sent on the same one until the system gave that up: longer than a NameServer keeps a silent broker."""
    async with name_server() as (server, address), gateway_that_forgets(address) as gateway:
        config = BrokerConfig(listen_host="127.0.0.1", name_server_addresses=gateway, register_timeout_ms=200)
        async with control_broker(tmp_path, config=config) as broker:
            registration = broker.parts.cluster.registration
            registration.start()
            await asyncio.wait_for(registration.wait_registered(), timeout=30)
            assert has_route(server, "TBW102")
            await registration.close()
