"""A read-only broker beside the one that writes: it follows the ledger, serves history, and takes nothing.

Covers `broker/follower/follower_process.py`, `broker/follower/read_only_processor.py`, `broker/follower/source.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import newest
from tests.crash.recovery_load import read_across_holes
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import TopicQueueMappingDetail, TopicRouteData
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.headers.broker import CreateTopicRequestHeader
from thermocline.remoting.headers.namesrv import GetRouteInfoRequestHeader
from thermocline.remoting.headers.send import ResumeCheckHalfMessageRequestHeader
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = pytest.mark.crash

TOPIC, EXPIRING = "ReadOnlyOrders", "ReadOnlyExpiring"
SYSTEM_TOPIC = "SCHEDULE_TOPIC_XXXX"
TTL_MS = 3_600_000


@pytest.fixture
async def name_server() -> AsyncIterator[str]:
    """The address of a NameServer for both."""
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    yield f"127.0.0.1:{await server.start()}"
    await server.close()


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """The broker whose history is served."""
    settings = {**TINY_FILES_GO_AT_ONCE, "coldUrl": (tmp_path / "cold").as_uri(), "coldStateIntervalMs": "200"}
    process = BrokerProcess(tmp_path / "writer", settings)
    await process.start()
    yield process
    if process.is_running:
        await process.kill()


@pytest.fixture
async def reader(tmp_path: Path, writer: BrokerProcess, name_server: str) -> AsyncIterator[BrokerProcess]:
    """The read-only broker; not started."""
    process = BrokerProcess(
        tmp_path / "reader", {**TINY_FILES_GO_AT_ONCE, "coldFollowIntervalMs": "50", "namesrvAddr": name_server}
    )
    process.arguments = ("--read-only-from", writer.properties["coldUrl"])
    yield process
    if process.is_running:
        await process.kill()


async def fill(connection: ClientConnection, *numbers: int) -> list[int]:
    """Send messages to both queues in turn and commit them; their places in the log."""
    places = []
    for number in numbers:
        answer = await wire.send(
            connection, TOPIC, number % 2, b"message %d" % number, properties=f"KEYS\x01key{number}\x02"
        )
        places += answer.physical_offsets
    await wire.patiently(lambda: wire.seal(connection))
    return places


async def until_end(connection: ClientConnection, queue_id: int, end: int) -> None:
    """Wait until the reader serves a queue up to there."""

    async def is_there() -> bool:
        return await wire.max_offset(connection, TOPIC, queue_id) == end

    await wire.until_true(is_there)


async def test_history_is_served_while_the_writer_runs(
    writer: BrokerProcess, reader: BrokerProcess, name_server: str
) -> None:
    source = await ClientConnection.open(writer.address)
    await wire.make_topic(source, TOPIC, queues=2)
    await wire.make_topic(source, EXPIRING, queues=1, ttl_ms=TTL_MS)
    places = await fill(source, *range(40))
    bucket = await open_object_store(writer.properties["coldUrl"])
    assert TOPIC in (await newest(bucket)).packed, "small topics are stored in packs"
    await bucket.close()
    await reader.start()
    connection = await ClientConnection.open(reader.address)
    await until_end(connection, 0, 20)
    await until_end(connection, 1, 20)
    for queue_id in range(2):
        records = await read_across_holes(connection, TOPIC, queue_id)
        assert [record.body for record in records] == [b"message %d" % number for number in range(queue_id, 40, 2)]
        middle = records[10]
        first = next(record for record in records if record.store_timestamp_ms >= middle.store_timestamp_ms)
        assert (
            await wire.offset_by_time(connection, TOPIC, queue_id, middle.store_timestamp_ms, "lower")
            == first.queue_offset
        )
        assert await wire.min_offset(connection, TOPIC, queue_id) == 0
    assert [record.body for record in await wire.query_key(connection, TOPIC, "key7")] == [b"message 7"]
    assert (await wire.view(connection, places[5])).body == b"message 5"

    # A pull that waits is answered by what the writer commits meanwhile.
    waiting = asyncio.create_task(wire.pull(connection, TOPIC, 0, 20, suspend_ms=10_000))
    await asyncio.sleep(0)
    await fill(source, 40)
    woken = await waiting
    assert (woken.code, woken.next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 20)
    pulled = await wire.pull(connection, TOPIC, 0, woken.next_offset)
    assert [record.body for record in pulled.records] == [b"message 40"]

    # A topic that is deleted and made again begins anew here too.
    await wire.delete_topic(source, TOPIC)
    await wire.make_topic(source, TOPIC, queues=2)
    await fill(source, 100)
    await until_end(connection, 0, 1)
    assert [record.body for record in await read_across_holes(connection, TOPIC, 0)] == [b"message 100"]

    assert await route_of(name_server, TOPIC) == ("broker-a-read-only", 2, 0)
    connection.close()
    source.close()
    reader.check_log()
    writer.check_log()


async def test_the_newest_messages_are_looked_up_at_fixed_cost(writer: BrokerProcess, reader: BrokerProcess) -> None:
    """It fetches what lookups need of each pack once, when it sees it come: then a key that is not there costs
    nothing, and a record its own request."""
    source = await ClientConnection.open(writer.address)
    await wire.make_topic(source, TOPIC, queues=2)
    places = await fill(source, *range(20))
    await reader.start()
    connection = await ClientConnection.open(reader.address)
    costs: list[int] = []
    for number in range(20, 28, 2):
        places += await fill(source, number, number + 1)
        await until_end(connection, 1, number // 2 + 1)

        async def miss_costs_nothing() -> bool:
            before = await reads_at_version(connection)
            assert await wire.query_key(connection, TOPIC, "missing key") == []
            return await reads_at_version(connection) == before

        for sent in (number + 1, 3):
            for most in (3, 2):
                await wire.until_true(miss_costs_nothing)  # the lookups of a new pack are fetched in the background
                version, before = await reads_at_version(connection)
                if most == 3:
                    (found,) = await wire.query_key(connection, TOPIC, f"key{sent}")
                else:
                    found = await wire.view(connection, places[sent])
                assert found.body == b"message %d" % sent
                version_after, after = await reads_at_version(connection)
                if version_after == version:  # else a commit came meanwhile, whose lookups are fetched, too
                    assert after - before <= most
                    costs.append(after - before)
    assert len(costs) >= 8, "half of the 16 lookups were measured alone"
    connection.close()
    source.close()
    reader.check_log()


async def reads_at_version(connection: ClientConnection) -> tuple[int, int]:
    """The ledger version that the tier process serves, and how many parts of objects it has read.

    The ledger is read by whole objects.
    """
    status = await wire.tier_status(connection)
    return status["ledgerVersion"], status["requests"].get("get_range", 0)


async def route_of(name_server: str, topic: str) -> tuple[str, int, int]:
    """Broker, queues to read and queues to write, as the route answers them to clients."""
    connection = await ClientConnection.open(name_server)
    response = await wire.ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    (data,) = TopicRouteData.decode(response.body).queue_datas
    connection.close()
    return data.broker_name, data.read_queue_nums, data.write_queue_nums if data.perm & 2 else 0


async def test_it_takes_no_message_and_keeps_its_groups_offsets(writer: BrokerProcess, reader: BrokerProcess) -> None:
    source = await ClientConnection.open(writer.address)
    await wire.make_topic(source, TOPIC, queues=2)
    await fill(source, *range(10))
    await reader.start()
    connection = await ClientConnection.open(reader.address)
    await until_end(connection, 0, 5)
    for topic in (TOPIC, "NobodyKnowsIt"):
        with pytest.raises(wire.Refused) as refused:
            await wire.send(connection, topic, 0, b"no")
        assert refused.value.code == ResponseCode.NO_PERMISSION
    with pytest.raises(wire.Refused) as refused:
        await wire.make_topic(connection, "NobodyKnowsIt", queues=1)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    for change in (give_a_ttl, make_static_topic, resume_transaction):
        with pytest.raises(wire.Refused) as refused:
            await change(connection)
        assert refused.value.code == ResponseCode.NO_PERMISSION
    await wire.make_group(connection, "readers")
    await wire.commit_offset(connection, "readers", TOPIC, 0, 3)
    assert await reader.stop() == 0
    await reader.start()
    connection = await ClientConnection.open(reader.address)
    assert await wire.consumer_offset(connection, "readers", TOPIC, 0) == 3
    await until_end(connection, 0, 5)
    # The writer is lost: history stays.
    await writer.kill()
    assert [record.body for record in await read_across_holes(connection, TOPIC, 1)] == [
        b"message %d" % number for number in range(1, 10, 2)
    ]
    connection.close()
    reader.check_log()
    assert await reader.stop() == 0


async def give_a_ttl(connection: ClientConnection) -> None:
    """Ask for a time to live by which everything has expired."""
    await wire.set_ttl(connection, TOPIC, 1)


async def make_static_topic(connection: ClientConnection) -> None:
    """Ask for a static topic."""
    mapping = TopicQueueMappingDetail(topic="Static", broker_name="broker-a-read-only", total_queues=1)
    header = CreateTopicRequestHeader(topic="Static", read_queue_nums=1, write_queue_nums=1, perm=6)
    await wire.ask(connection, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body=mapping.encode())


async def resume_transaction(connection: ClientConnection) -> None:
    """Ask for a half message to be put into the log again."""
    header = ResumeCheckHalfMessageRequestHeader(topic=TOPIC, msg_id="7F00000100002A9F0000000000000000")
    await wire.ask(connection, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


async def test_refusals_of_its_helper_are_not_answered_with_try_again(
    writer: BrokerProcess, reader: BrokerProcess
) -> None:
    source = await ClientConnection.open(writer.address)
    await wire.make_topic(source, TOPIC, queues=2)
    await fill(source, *range(10))
    await reader.start()
    connection = await ClientConnection.open(reader.address)
    await until_end(connection, 0, 5)
    for call in (wire.seal, wire.purge):
        with pytest.raises(wire.Refused, match="a read-only broker changes nothing in the bucket") as refused:
            await call(connection, TOPIC)
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(wire.Refused) as refused:
        await wire.ask(connection, PrivateRequestCode.TIER_SCRUB_STATE)
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    connection.close()
    with pytest.raises(wire.Refused, match="the cold tier holds nothing of this topic") as refused:
        await wire.seal(source, SYSTEM_TOPIC)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    source.close()
    reader.check_log()
    writer.check_log()


async def test_a_directory_with_messages_is_not_taken(writer: BrokerProcess) -> None:
    connection = await ClientConnection.open(writer.address)
    await wire.make_topic(connection, TOPIC, queues=1)
    await wire.send(connection, TOPIC, 0, b"mine")
    connection.close()
    assert await writer.stop() == 0
    writer.arguments = ("--read-only-from", writer.properties["coldUrl"])
    with pytest.raises(AssertionError):
        await writer.start()
    assert await writer.wait() == 1
    assert "the directory holds messages" in writer.log_tail().splitlines()[-1]
