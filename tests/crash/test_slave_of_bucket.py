"""A slave beside its master's bucket: its copies, reads and deletions; its promotion.

Covers `broker/follower/slave_process.py`, `broker/follower/slave_ledger.py`, `broker/replicas/enrolment_follower.py`,
`broker/recovery/ledger_takeover.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.replica_set import (
    ASYNC_MASTER,
    QUEUES,
    QUIET,
    SLAVE,
    SYNC_MASTER,
    TOPIC,
    ReplicaSet,
    connected,
    copied_bytes,
    until_copied,
)
from tests.interop.replica_brokers import log_end, log_files
from tests.waiting import until
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clients.client import ClientConnection

pytestmark = pytest.mark.crash
logger = logging.getLogger(__name__)

FILE_BYTES = 1 << 20
HISTORY_MESSAGES = 240
READY_S_MAX = 30
NEVER_MS = str(24 * 3_600_000)
SEALS_LATE = {"coldSealAgeMs": NEVER_MS, "coldSegmentBytes": str(1 << 30), "coldSweepIntervalMs": "200"}


@pytest.fixture
async def name_server() -> AsyncIterator[str]:
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    yield f"127.0.0.1:{await server.start()}"
    await server.close()


@pytest.fixture
def cold_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of the bucket that a test's parameter names: a directory, or one of a real S3 server."""
    if request.param == "s3":
        url: str = request.getfixturevalue("s3_bucket").cold_url
        return url
    return (tmp_path / "cold").as_uri()


@pytest.fixture
def arguments(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of members: in `make test` each runs its helpers itself, which halves what a test costs."""
    return () if request.config.getoption("--full") else ("--single-process",)


@pytest.fixture
async def replicas(
    tmp_path: Path, name_server: str, cold_url: str, arguments: tuple[str, ...]
) -> AsyncIterator[ReplicaSet]:
    found = ReplicaSet(tmp_path, name_server, cold_url)
    found.arguments = arguments
    yield found
    await found.close()


@pytest.fixture
async def local_replicas(tmp_path: Path, name_server: str, arguments: tuple[str, ...]) -> AsyncIterator[ReplicaSet]:
    """On a bucket in a directory."""
    found = ReplicaSet(tmp_path, name_server, (tmp_path / "cold").as_uri())
    found.arguments = arguments
    yield found
    await found.close()


async def ends(connection: ClientConnection) -> list[tuple[int, int]]:
    """The minimum and the end of each queue."""
    return [
        (await wire.min_offset(connection, topic, queue_id), await wire.max_offset(connection, topic, queue_id))
        for topic in (TOPIC, QUIET)
        for queue_id in range(QUEUES)
    ]


async def until_same_ends(slave: BrokerProcess, wanted: list[tuple[int, int]]) -> None:
    """Return when a slave serves the same queue ends as its master."""
    async with connected(slave) as connection:

        async def are_same() -> bool:
            try:
                return await ends(connection) == wanted
            except wire.Refused:
                return False  # a topic is not there yet, or the ledger is not open

        await wire.until_true(are_same)


async def make_history(replicas: ReplicaSet, connection: ClientConnection, *, count: int = HISTORY_MESSAGES) -> None:
    """A topic with as many messages in front, and one that is older than the whole local log."""
    await wire.make_topic(connection, QUIET, queues=QUEUES)
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    await replicas.send(connection, 2 * QUEUES, topic=QUIET, size=200)
    await replicas.send(connection, count)
    await wire.patiently(lambda: wire.seal(connection))


@pytest.mark.parametrize(
    "cold_url", ["file", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.full])], indirect=True
)
async def test_an_empty_slave_copies_only_what_the_bucket_lacks(replicas: ReplicaSet) -> None:
    master = replicas.member(0, ASYNC_MASTER)
    await master.start()
    async with connected(master) as connection:
        await make_history(replicas, connection)
        await wire.until_true(lambda: wire.has_let_go(connection, QUIET))
        history_bytes = log_end(master.store / "commitlog")
        assert history_bytes > 12 * FILE_BYTES
        wanted = await ends(connection)
    slave = replicas.member(1, SLAVE, 1)
    started_s = time.monotonic()
    await slave.start()
    await until_same_ends(slave, wanted)
    ready_s = time.monotonic() - started_s
    assert ready_s < READY_S_MAX
    await until_copied(master, slave)
    assert 0 < copied_bytes(slave) <= 2 * FILE_BYTES, f"{copied_bytes(slave)} of {history_bytes} bytes"
    logger.info("copied %d of %d bytes, ready after %.1f s", copied_bytes(slave), history_bytes, ready_s)
    async with connected(slave) as connection:
        await replicas.check_messages(connection)
        record = (await wire.read_queue(connection, TOPIC, 1, start=20, end=21))[0]
        key = record.keys
        assert key is not None
        assert [found.body for found in await wire.query_key(connection, TOPIC, key)] == [record.body]
        assert (await wire.view(connection, record.physical_offset)).body == record.body
        by_time = await wire.offset_by_time(connection, TOPIC, 1, record.store_timestamp_ms, "lower")
        assert 0 < by_time <= 20
        with pytest.raises(wire.Refused, match="a slave changes nothing in the bucket"):
            await wire.seal(connection)
    # It still does so when its master is gone, and after a start.
    await master.kill()
    assert await slave.stop() == 0
    await slave.start()
    async with connected(slave) as connection:
        await wire.until_true(lambda: _is_served(connection))
        await replicas.check_messages(connection)
    slave.check_log()
    master.check_log()


async def _is_served(connection: ClientConnection) -> bool:
    try:
        return await wire.min_offset(connection, TOPIC, 0) == 0
    except wire.Refused:
        return False


async def test_a_slave_deletes_what_is_committed_and_nothing_else(local_replicas: ReplicaSet) -> None:
    master = local_replicas.member(0, ASYNC_MASTER, **SEALS_LATE)
    slave = local_replicas.member(1, SLAVE, 1, **SEALS_LATE)
    await master.start()
    await slave.start()
    async with connected(master) as connection, connected(slave) as reader:
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        await local_replicas.send(connection, 60)
        delayed_at = log_end(master.store / "commitlog")
        await wire.send(connection, TOPIC, 0, b"later", properties="DELAY\x0118\x02")
        await local_replicas.send(connection, 60)
        await until_copied(master, slave)
        assert (await wire.tier_status(reader))["topics"]
        for _ in range(5):
            await wire.run_retention(reader)
        assert log_files(slave.store / "commitlog")[0].name == f"{0:020}", "nothing is committed yet"
        await wire.patiently(lambda: wire.seal(connection))

        async def has_deleted() -> bool:
            await wire.run_retention(reader)
            return int(log_files(slave.store / "commitlog")[0].name) > delayed_at - FILE_BYTES

        await wire.until_true(has_deleted)
        for _ in range(5):
            await wire.run_retention(reader)
        first = int(log_files(slave.store / "commitlog")[0].name)
        assert first == delayed_at - delayed_at % FILE_BYTES, "the delayed message waits at the master"
        await local_replicas.check_messages(reader)
    slave.check_log()


@pytest.mark.full
async def test_expired_messages_hold_no_file_of_a_slave(local_replicas: ReplicaSet) -> None:
    master = local_replicas.member(0, ASYNC_MASTER, **SEALS_LATE)
    slave = local_replicas.member(1, SLAVE, 1, **SEALS_LATE)
    await master.start()
    await slave.start()
    async with connected(master) as connection, connected(slave) as reader:
        await wire.make_topic(connection, TOPIC, queues=QUEUES, ttl_ms=1_000)
        await local_replicas.send(connection, 40)
        await until_copied(master, slave)

        async def has_deleted() -> bool:
            await wire.run_retention(reader)
            return int(log_files(slave.store / "commitlog")[0].name) > 0

        await wire.until_true(has_deleted)
    assert not list(Path(local_replicas.cold_url.removeprefix("file://")).rglob("*.pack"))
    slave.check_log()


@pytest.mark.parametrize(
    "cold_url", ["file", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.full])], indirect=True
)
async def test_promotions_under_load_lose_nothing_and_the_old_masters_stay_out(
    replicas: ReplicaSet, case_count: Callable[..., int]
) -> None:
    replicas.arguments = ()  # helpers die by themselves
    promises = {"inSyncReplicas": "2", "slaveTimeout": "20000"}
    master = replicas.member(0, SYNC_MASTER, **promises)
    slave = replicas.member(1, SLAVE, 1, **promises)
    await master.start()
    await slave.start()
    async with connected(master) as connection:
        await make_history(replicas, connection, count=60)
    fallen: list[BrokerProcess] = []
    for number in range(2, 2 + case_count(quick=1, full=2, soak=2)):
        async with connected(master) as connection:
            load = asyncio.create_task(replicas.send_until_cut(connection))
            wanted = len(replicas.sent) + 150
            await until(lambda count=wanted: len(replicas.sent) >= count)  # type: ignore[misc]
            await until(lambda folder=slave.store: (folder / "thermocline" / "enrolment.json").exists())  # type: ignore[misc]
            await master.kill(helpers_first=number % 2 == 0)
            await load
        fallen.append(master)
        assert await slave.stop() == 0
        slave.properties |= {"brokerRole": SYNC_MASTER, "brokerId": "0"}
        await slave.start()
        assert slave.notes[0].startswith("took over root=")
        assert not (slave.store / "thermocline" / "enrolment.json").exists()
        master, slave = slave, replicas.member(number, SLAVE, 1, **promises)
        await slave.start()
        async with connected(master) as connection:
            await replicas.send(connection, 30, size=2_000)
            await replicas.check_messages(connection)
    async with connected(master) as connection:
        await replicas.check_bucket(connection)
        for old in fallen:
            old.properties["listenPort"] = "0"
            with pytest.raises(AssertionError, match="this prefix holds the history of another store directory"):
                await old.start()
        await replicas.send(connection, 9, size=2_000)
        await replicas.check_bucket(connection)
        await replicas.check_messages(connection)
    for member in (master, slave):
        member.check_log()


@pytest.mark.full
async def test_a_slave_behind_the_ledger_continues_behind_it(local_replicas: ReplicaSet) -> None:
    """What only the bucket has is read on, at its offsets; the log has a hole, and the report says so by queue."""
    master = local_replicas.member(0, ASYNC_MASTER)
    slave = local_replicas.member(1, SLAVE, 1)
    await master.start()
    await slave.start()
    async with connected(master) as connection:
        await make_history(local_replicas, connection, count=30)
        await until_copied(master, slave)
        await until(lambda: (slave.store / "thermocline" / "enrolment.json").exists())
        assert await slave.stop() == 0
        slave_end = log_end(slave.store / "commitlog")
        await local_replicas.send(connection, 60)
        await wire.patiently(lambda: wire.seal(connection))
        wanted = await ends(connection)
        master_end = log_end(master.store / "commitlog")
    await master.kill()
    slave.properties |= {"brokerRole": ASYNC_MASTER, "brokerId": "0"}
    await slave.start()
    took, *queues, hole = slave.notes
    assert f"ledger_end={master_end} log_end={slave_end} " in took
    assert [line.split()[:2] for line in queues] == [[f"topic={TOPIC}", f"queue={each}"] for each in range(QUEUES)]
    assert all("in_bucket_only=10-30 count=20" in line for line in queues)
    assert hole.startswith(f"hole: the log lacks its bytes {slave_end} to ")
    async with connected(slave) as connection:
        await wire.until_true(lambda: _is_served(connection))
        assert await ends(connection) == wanted
        await local_replicas.send(connection, 30)
        await local_replicas.check_messages(connection)
        await local_replicas.check_bucket(connection)
        # A new slave copies the log behind the hole, or with it.
        follower = local_replicas.member(2, SLAVE, 1)
        await follower.start()
        await until_same_ends(follower, await ends(connection))
        await until_copied(slave, follower)
    async with connected(follower) as connection:
        await local_replicas.check_messages(connection)
    for member in (slave, follower):
        member.check_log()


@pytest.mark.full
async def test_the_second_of_two_slaves_does_not_take_over_and_follows_the_first(local_replicas: ReplicaSet) -> None:
    """Both lack what the master has stored last, and is in the bucket; they keep their local files."""
    master = local_replicas.member(0, ASYNC_MASTER)
    slaves = [local_replicas.member(number, SLAVE, number, fileReservedTime="72") for number in (1, 2)]
    await master.start()
    async with connected(master) as connection:
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        for slave in slaves:
            await slave.start()
        await local_replicas.send(connection, 9)
        for slave in slaves:
            await until(lambda path=slave.store: (path / "thermocline" / "enrolment.json").exists())  # type: ignore[misc]
            await until_copied(master, slave)
            assert await slave.stop() == 0
        await local_replicas.send(connection, 60)
        await wire.patiently(lambda: wire.seal(connection))
    await master.kill()
    for slave in slaves:
        slave.properties |= {"brokerRole": ASYNC_MASTER, "brokerId": "0"}
    await slaves[0].start()
    with pytest.raises(AssertionError, match="this prefix holds the history of another store directory"):
        await slaves[1].start()
    assert (slaves[1].store / "thermocline" / "enrolment.json").exists(), "nothing of it has changed"
    async with connected(slaves[0]) as connection:
        await local_replicas.send(connection, 9)
        await local_replicas.check_messages(connection)
        await local_replicas.check_bucket(connection)
        # As a slave of the first one it goes on: its log was no longer.
        slaves[1].properties |= {"brokerRole": SLAVE, "brokerId": "2"}
        await slaves[1].start()
        await until_copied(slaves[0], slaves[1])
        await slaves[1].kill()
        await slaves[1].start()
        async with connected(slaves[1]) as reader:
            await wire.until_true(lambda: _is_served(reader))
            await local_replicas.check_messages(reader)
        first_id = json.loads((slaves[0].store / "thermocline" / "identity.json").read_text())["storeId"]
        enrolment = slaves[1].store / "thermocline" / "enrolment.json"
        await until(lambda: json.loads(enrolment.read_text())["masterStoreId"] == first_id)
