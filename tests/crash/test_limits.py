"""Attacks on one broker: what they take is bounded, comes back when the attacker leaves, and others are served.

One broker for the module, with default limits where the attack reaches these; each attack is by another address, as
limits by address count the tests before. The counts of the attacks that found the faults: `full`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess, resident_bytes
from tests.waiting import until
from thermocline.cli.main import run
from thermocline.localstack.loopback_port import free_port
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

pytestmark = [pytest.mark.crash, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
TOPIC = "Honest"
FRAME_BYTES = 15 * MIB
RECEIVING_BYTES_MAX = 256 * MIB
GROWTH_BYTES_MAX = 48 * MIB
"""What an attack may leave behind: topics and groups that were made within the limits, and what the allocator keeps."""


class Target:
    """The broker, and an honest client of it."""

    def __init__(self, broker: BrokerProcess, client: ClientConnection, namesrv: str) -> None:
        self.namesrv = namesrv
        self.broker = broker
        self.client = client
        self._served = 0

    async def probe(self) -> None:
        """Send a message and read it again."""
        self._served += 1
        body = b"honest %d" % self._served
        sent = await wire.send(self.client, TOPIC, 0, body)
        pulled = await wire.pull(self.client, TOPIC, 0, sent.queue_offset, count=1)
        assert [record.body for record in pulled.records] == [body], pulled.code

    async def connect(self, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address, _, port = self.broker.address.rpartition(":")
        return await asyncio.open_connection(address, int(port), local_addr=(host, 0), limit=4 * MIB)

    def resident(self) -> int:
        return resident_bytes(self.broker.pid)

    def refused(self, limit: str, family: str = "thermocline_limit_refused_total{limit=") -> int:
        """How often the broker has refused by a limit, as its metrics say."""
        url = f"http://127.0.0.1:{self.broker.properties['healthPort']}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        prefix = f'{family}"{limit}"}} '
        return sum(int(line.removeprefix(prefix)) for line in lines if line.startswith(prefix))

    async def until_small(self, before_bytes: int) -> None:
        await until(lambda: self.resident() < before_bytes + GROWTH_BYTES_MAX, what="memory comes back")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(module_folder: Path) -> AsyncIterator[Target]:
    name_server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    namesrv = f"127.0.0.1:{await name_server.start()}"
    broker = BrokerProcess(
        module_folder / "broker",
        {
            "namesrvAddr": namesrv,
            "coldUrl": "none",
            # A busy machine is no attack: what it makes slow, or idle, is not closed.
            "brokerFastFailureEnable": "false",
            "serverChannelMaxIdleTimeMills": "3600000",
            "serverFrameTimeoutMillis": "3600000",
            "mappedFileSizeCommitLog": str(64 * MIB),
            "healthPort": str(free_port()),
            "serverReceivingBytesMax": str(RECEIVING_BYTES_MAX),
        },
    )
    await broker.start()
    client = await ClientConnection.open(broker.address)
    try:
        await wire.make_topic(client, TOPIC, queues=4)
        yield Target(broker, client, namesrv)
        client.close()
        broker.check_log()
        assert await broker.stop() == 0
    finally:
        if broker.is_running:
            await broker.kill()
        await name_server.close()


def frame(code: int, opaque: int, fields: dict[str, object], body: bytes = b"") -> bytes:
    """A request as a Java client writes it."""
    header = {
        "code": code,
        "extFields": {name: str(value) for name, value in fields.items()},
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">iI", 4 + len(text) + len(body), len(text)) + text + body


async def answers(reader: asyncio.StreamReader, count: int) -> Counter[int]:
    """The codes of so many answers; notices to members of a group in between are no answers."""
    codes: Counter[int] = Counter()
    while codes.total() < count:
        (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size_bytes)
        (header_word,) = struct.unpack_from(">I", data)
        header = json.loads(data[4 : 4 + (header_word & 0xFFFFFF)])
        codes[header["code"]] += header["flag"] & 1
    del codes[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    return codes


async def ask_all(target: Target, host: str, frames: Iterable[bytes]) -> tuple[Counter[int], asyncio.StreamWriter]:
    """Send all of these over one connection from an address, and count their answers; the connection stays open."""
    reader, writer = await target.connect(host)
    frames = list(frames)
    counting = asyncio.ensure_future(answers(reader, len(frames)))
    for start in range(0, len(frames), 500):
        writer.write(b"".join(frames[start : start + 500]))
        await writer.drain()
    return await counting, writer


async def test_connections_that_stall_in_a_large_frame(target: Target, case_count: Callable[..., int]) -> None:
    """100 connections with 15 MB each made 1.4 GB, and sends of others were refused."""
    count = case_count(quick=24, full=100, soak=100)
    before_bytes = target.resident()
    stalled = [await target.connect("127.0.0.2") for _ in range(count)]
    data = struct.pack(">i", FRAME_BYTES + 100) + bytes(FRAME_BYTES)
    most_bytes = 0
    for _, writer in stalled:
        writer.write(data)
        await _drain(writer)
        most_bytes = max(most_bytes, target.resident() - before_bytes)
        await target.probe()
    # One frame is copied as it grows, beside what all of them hold.
    assert most_bytes < RECEIVING_BYTES_MAX + 2 * FRAME_BYTES + GROWTH_BYTES_MAX
    await until(lambda: target.refused("serverReceivingBytesMax") >= count - RECEIVING_BYTES_MAX // FRAME_BYTES)
    await close_all(writer for _, writer in stalled)
    await target.until_small(before_bytes)
    await target.probe()


async def close_all(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Close connections that the broker may have closed before."""
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _drain(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await writer.drain()


def heartbeat(number: int) -> bytes:
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": f"Crowd{number}",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": f"client{number}", "consumerDataSet": [consumer], "producerDataSet": []}
    return frame(RequestCode.HEART_BEAT, number, {}, json.dumps(body).encode())


async def test_heartbeats_with_distinct_groups(target: Target, case_count: Callable[..., int]) -> None:
    """100 000 over one connection were half accepted, took 645 MB, and it stayed."""
    count = case_count(quick=3_000, full=100_000, soak=100_000)
    before_bytes = target.resident()
    codes, writer = await ask_all(target, "127.0.0.3", (heartbeat(number) for number in range(count)))
    assert codes == {ResponseCode.SUCCESS: 1_000, ResponseCode.SYSTEM_BUSY: count - 1_000}
    await target.probe()
    # In a run over the turn of a minute more groups may be made; the connection joins no more of them.
    limits = ("autoCreateGroupsPerAddressMinuteMax", "clientGroupsPerConnectionMax")
    assert sum(map(target.refused, limits)) == count - 1_000
    listed = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": "Crowd999"})
    assert (await target.client.call(listed, timeout_ms=10_000)).code == ResponseCode.SUCCESS
    await close_all([writer])
    while (await target.client.call(_again(listed), timeout_ms=10_000)).code == ResponseCode.SUCCESS:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await target.until_small(before_bytes)


def _again(command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand.request(command.code, ext_fields=dict(command.ext_fields or {}))


async def test_topics_made_by_one_client(target: Target, case_count: Callable[..., int]) -> None:
    """20 000 were made, with 190 MB, and others waited 10 ms for each answer."""
    count = case_count(quick=1_500, full=20_000, soak=20_000)
    fields = {"producerGroup": "P", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0}
    fields |= {"bornTimestamp": 0, "flag": 0}
    frames = (
        frame(RequestCode.SEND_MESSAGE, number, {**fields, "topic": f"Auto{number}"}, b"x") for number in range(count)
    )
    before_bytes = target.resident()
    codes, writer = await ask_all(target, "127.0.0.4", frames)
    # A run over the turn of a minute takes two shares.
    assert codes.keys() == {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}
    assert 1_000 <= codes[ResponseCode.SUCCESS] <= 2_000
    assert target.refused("autoCreateTopicsPerAddressMinuteMax") == codes[ResponseCode.TOPIC_NOT_EXIST]
    await wire.send(target.client, "AnothersFirst", 0, b"an honest client at another address makes its topic")
    await close_all([writer])
    await target.until_small(before_bytes)


def long_poll(number: int, *, queue_id: int = 1) -> bytes:
    return frame(
        RequestCode.PULL_MESSAGE,
        number,
        {
            "consumerGroup": "Waiting",
            "topic": TOPIC,
            "queueId": queue_id,
            "queueOffset": 0,
            "maxMsgNums": 32,
            "sysFlag": 6,
            "commitOffset": 0,
            "suspendTimeoutMillis": 600_000,
            "subscription": "*",
            "subVersion": 1,
            "expressionType": "TAG",
        },
    )


async def test_long_polls_of_one_connection(target: Target, case_count: Callable[..., int]) -> None:
    """50 000 were held, and sends paused for 500 to 700 ms: uvloop read one connection up to 32 buffers long, all
    waiters of a queue were woken at once, and each that left searched the list of the others.

    That no round of the loop is long: tests/remoting/connections/test_held_bytes.py and
    tests/broker/pulls/test_long_polling.py, without a clock."""
    count = case_count(quick=12_000, full=50_000, soak=50_000)
    reader, writer = await target.connect("127.0.0.5")
    for start in range(0, count, 500):
        writer.write(b"".join(long_poll(number) for number in range(start, start + 500)))
        await writer.drain()
        await target.probe()
    assert await answers(reader, count - 10_000) == {ResponseCode.SYSTEM_BUSY: count - 10_000}
    assert target.refused("longPollsPerConnectionMax") == count - 10_000
    await wire.send(target.client, TOPIC, 1, b"for all that wait")
    assert await answers(reader, 10_000) == {ResponseCode.SUCCESS: 10_000}
    writer.write(b"".join(long_poll(number, queue_id=2) for number in range(10_000)))
    await writer.drain()
    await close_all([writer])
    await target.probe()


async def test_a_topic_named_percent(target: Target) -> None:
    """The official broker accepts the name (TopicValidator allows `%`), and so do we; others it refuses, as we do."""
    await wire.send(target.client, "%", 0, b"x")
    for name in ("", " ", "a/b", "..", "a b", "\N{SNOWMAN}", "x" * 128):
        with pytest.raises(wire.Refused) as refused:
            await wire.send(target.client, name, 0, b"x")
        assert refused.value.code == ResponseCode.INVALID_PARAMETER, name


async def test_idle_and_slow_connections(target: Target, case_count: Callable[..., int]) -> None:
    """Slow ones send a byte of a frame at a time. Others are served, and are not slower than the machine."""
    idle_count = case_count(quick=300, full=5_000, soak=5_000)
    slow_count = case_count(quick=50, full=500, soak=500)
    idle = [await target.connect("127.0.0.6") for _ in range(idle_count)]
    slow = [await target.connect("127.0.0.7") for _ in range(slow_count)]
    request = frame(RequestCode.GET_BROKER_RUNTIME_INFO, 1, {})
    for position in range(len(request)):
        for _, writer in slow:
            writer.write(request[position : position + 1])
        if position % 8 == 0:
            await target.probe()
    for reader, _ in slow:
        assert await answers(reader, 1) == {ResponseCode.SUCCESS: 1}
    for reader, writer in (idle[0], idle[-1]):
        writer.write(request)
        assert await answers(reader, 1) == {ResponseCode.SUCCESS: 1}
    await close_all(writer for _, writer in (*idle, *slow))


async def test_a_puller_that_never_reads(target: Target, case_count: Callable[..., int]) -> None:
    """It is not read from any more, and then costs no memory; others are served."""
    count = case_count(quick=2_000, full=20_000, soak=20_000)
    sent = await wire.send(target.client, TOPIC, 3, os.urandom(60_000))
    before_bytes = target.resident()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    sock.bind(("127.0.0.8", 0))
    host, _, port = target.broker.address.rpartition(":")
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (host, int(port)))
    pull = long_poll(1, queue_id=3).replace(b'"queueOffset":"0"', b'"queueOffset":"%d"' % sent.queue_offset)
    sending = asyncio.ensure_future(loop.sock_sendall(sock, pull * count))
    for _ in range(50):
        await target.probe()
        assert target.resident() < before_bytes + GROWTH_BYTES_MAX
    sending.cancel()
    sock.close()


async def test_floods_of_locks_queries_and_commits(target: Target, case_count: Callable[..., int]) -> None:
    """Locks of queues that no broker has, offsets of groups that there are not, and queries: bounded, answered."""
    count = case_count(quick=60, full=1_000, soak=1_000)
    before_bytes = target.resident()
    locks = (
        json.dumps(
            {
                "consumerGroup": f"Locker{number}",
                "clientId": "c",
                "mqSet": [{"topic": f"T{number}", "brokerName": "b", "queueId": queue_id} for queue_id in range(1_000)],
            }
        ).encode()
        for number in range(count)
    )
    frames = [frame(RequestCode.LOCK_BATCH_MQ, 1, {}, body) for body in locks]
    codes, writer = await ask_all(target, "127.0.0.9", frames)
    assert codes == {ResponseCode.SUCCESS: count}
    assert target.refused("queueLocksPerAddressMax") == max(0, count * 1_000 - 50_000)
    await target.probe()
    await close_all([writer])
    commit = {"topic": TOPIC, "queueId": 0, "commitOffset": 0}
    frames = [
        frame(RequestCode.UPDATE_CONSUMER_OFFSET, 1, {**commit, "consumerGroup": f"NoGroup{number}"})
        for number in range(100 * count)
    ]
    codes, writer = await ask_all(target, "127.0.0.9", frames)
    assert codes == {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: 100 * count}
    await close_all([writer])
    query = {"topic": TOPIC, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    codes, writer = await ask_all(
        target, "127.0.0.9", [frame(RequestCode.QUERY_MESSAGE, 1, query) for _ in range(10 * count)]
    )
    assert sum(codes.values()) == 10 * count
    await close_all([writer])
    await target.probe()
    await target.until_small(before_bytes)


async def test_quotas_by_command(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    """They count at once, for new requests of connections that are open; the metric names the quota."""
    broker = target.broker.address

    async def command(*arguments: str) -> tuple[int, str]:
        status = await asyncio.to_thread(run, ["quota", *arguments, "--namesrv", target.namesrv])
        out, error = capsys.readouterr()
        return status, out + error

    await wire.make_topic(target.client, "Limited", queues=4)
    status, shown = await command("set", broker, "topic", "Limited", "sendBytes=1")
    assert (status, "Limited" in shown, "sendBytes=1" in shown) == (0, True, True)
    # The first one takes what comes in an hour.
    sends = [wire.send(target.client, "Limited", 0, b"x" * 3_600) for _ in range(50)]
    errors = [error for error in await asyncio.gather(*sends, return_exceptions=True) if isinstance(error, Exception)]
    refused = len(errors)
    assert refused == 49
    assert {type(error) for error in errors} == {wire.Refused}
    assert {str(error) for error in errors} == {"2: [QUOTA]system busy, the quota of topic Limited is used up"}
    assert target.refused("Limited", family='thermocline_quota_refused_total{kind="topic",name=') == refused
    await target.probe()
    assert (await command("set", broker, "address", "127.0.0.99", "readBytes=100"))[0] == 0
    status, shown = await command("list", broker)
    assert (status, "Limited" in shown, "127.0.0.99" in shown) == (0, True, True)
    assert (await command("set", broker, "topic", "Limited", "sendRequests=many"))[0] == 1
    status, shown = await command("set", broker, "user", "alice", "sendRequests=1")
    assert (status, "a quota of a user needs authenticationEnabled" in shown) == (1, True)
    assert (await command("remove", broker, "topic", "Other"))[0] == 0
    status, shown = await command("remove", broker, "topic", "Limited")
    assert (status, "Limited" in shown, "127.0.0.99" in shown) == (0, False, True)
    for number in range(20):
        await wire.send(target.client, "Limited", 0, b"%d" % number)


async def test_places_and_ports_are_not_changed_over_the_wire(target: Target) -> None:
    """A change of `listenPort` counts from the next start, as `restart` in the settings says; no file moves."""
    before = target.broker.address
    for text, code in (
        (b"storePathRootDir=/tmp/elsewhere\n", ResponseCode.NO_PERMISSION),
        (b"storePathCommitLog=/tmp/elsewhere\n", ResponseCode.INVALID_PARAMETER),
        (b"listenPort=99999\n", ResponseCode.INVALID_PARAMETER),
    ):
        command = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=text)
        assert (await target.client.call(command, timeout_ms=10_000)).code == code, text
    assert not Path("/tmp/elsewhere").exists()
    other = await ClientConnection.open(before)
    other.close()
    await target.probe()
