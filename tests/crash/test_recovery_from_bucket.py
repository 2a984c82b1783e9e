"""A broker that loses its disk comes back from its bucket: with all that was committed, and no offset given twice.

Covers `broker/recovery/bucket_recovery.py`, `broker/recovery/recovery_report.py`, `store/state/origin.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, newest
from tests.crash.recovery_load import (
    FLEETING,
    GROUPS,
    ORDERS,
    TOPICS,
    RecoveryLoad,
    Remains,
    check_messages,
    check_recovered,
    read_across_holes,
)
from tests.fixtures_s3 import new_bucket
from tests.full_cases import full
from tests.waiting import until
from thermocline.localstack import S3Server
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.state.carried_state import find_carried
from thermocline.tiered.state.newest_state import list_names, read_newest
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = pytest.mark.crash

SEED = 20_261_122
RESERVE_BYTES = 64 << 20
SETTINGS = {
    **TINY_FILES_GO_AT_ONCE,
    "coldStateIntervalMs": "200",
    "flushConsumerOffsetInterval": "200",
    "flushDelayOffsetInterval": "200",
    "coldReserveBytes": str(RESERVE_BYTES),
    "coldSealAgeMs": "300",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker on a cold tier of files; not started."""
    process = BrokerProcess(tmp_path / "broker", {**SETTINGS, "coldUrl": (tmp_path / "cold").as_uri()})
    yield process
    if process.is_running:
        await process.kill()


async def lose_disk(broker: BrokerProcess) -> None:
    """`kill -9`, and everything that it had is gone."""
    await broker.kill()
    shutil.rmtree(broker.store)
    broker.arguments = ("--recover-from", broker.properties["coldUrl"])


async def saved_since(bucket: ObjectStore, version: int) -> Remains:
    """What is in the bucket once a commit behind `version` and a state of the present writer with all groups are."""
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            catalog = await newest(bucket)
            # The first pack may be committed before the first state is saved.
            if catalog.version > version and catalog.packs and await read_newest(bucket, KEYS) is not None:
                remains = await Remains.read(bucket)
                groups = {group for group, _, _ in remains.group_offsets()}
                is_filled = groups == GROUPS.keys() and any(topic.ends for topic in remains.state.topics)
                if remains.state.epoch == catalog.epoch and is_filled:
                    return remains
            await asyncio.sleep(0.05)


async def saved_again(bucket: ObjectStore, before: Remains) -> None:
    """Return once there is a later state."""

    async def is_there() -> bool:
        return (await list_names(bucket, KEYS))[-1] > before.state.name

    await wire.until_true(is_there)


async def send_for_ever(load: RecoveryLoad, connection: ClientConnection) -> None:
    """Until the broker refuses."""
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            await load.send(connection, ORDERS, 0, 10)
            await asyncio.sleep(0.02)


def marked_ns(broker: BrokerProcess) -> int:
    """When a recovery last began in the broker's directory; 0 when none is under way."""
    try:
        return (broker.store / "thermocline" / "recovering").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def losses(lines: Iterable[str]) -> dict[str, int]:
    """Topic -> messages that a recovery said are lost."""
    rows = [dict(part.split("=", 1) for part in line.split()) for line in lines if line.startswith("topic=")]
    return {row["topic"]: int(row["lost"]) for row in rows}


def check_holes(remains: Remains) -> None:
    """Between what segments and packs hold, everything is declared lost."""
    for (topic, queue_id), held in remains.spans.items():
        holes = remains.catalog.topics[topic].holes
        spans = sorted(held + [(hole.start_offset, hole.end_offset) for hole in holes if hole.queue_id == queue_id])
        position = spans[0][0]
        for start, end in spans:
            assert start <= position, f"{topic}/{queue_id}: no report covers [{position}, {start})"
            position = max(position, end)


@pytest.mark.full
@pytest.mark.s3
async def test_lost_under_load_again_and_again(
    tmp_path: Path, case_count: Callable[..., int], s3_servers: Callable[[str], S3Server]
) -> None:
    url = new_bucket(s3_servers("minio")).cold_url
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, "coldUrl": url})
    bucket = await open_object_store(url)
    chance = random.Random(SEED)
    load = RecoveryLoad(broker, SEED)
    try:
        await broker.start()
        await load.prepare()
        version = 0
        for _ in range(case_count(quick=1, full=2, soak=25)):
            load.start()
            await load.reach(chance.randrange(50, 200))
            await saved_since(bucket, version)
            await load.reach(chance.randrange(1, 100))
            await lose_disk(broker)
            await load.stop()
            remains = await Remains.read(bucket)
            version = (await newest(bucket)).version
            await broker.start()
            assert losses(broker.notes) == {topic: remains.lost(topic) for topic in TOPICS}
            connection = await ClientConnection.open(broker.address)
            await check_recovered(connection, load, remains)
            connection.close()
        load.start()
        await load.reach(100)
        await load.stop()
        connection = await ClientConnection.open(broker.address)
        await wire.patiently(lambda: wire.seal(connection))
        remains = await Remains.read(bucket)
        check_holes(remains)
        await check_messages(connection, load, remains)
        connection.close()
        broker.check_log()
    finally:
        await bucket.close()
        if broker.is_running:
            await broker.kill()


@pytest.mark.parametrize(
    "damage",
    ["bit-flipped", *full("truncated", "missing")],
)
async def test_without_its_newest_state_a_broker_comes_back_by_the_one_before(
    broker: BrokerProcess, case_count: Callable[..., int], damage: str
) -> None:
    """Groups are where that state or a later entry has them; nothing committed is missing, no offset comes twice."""
    bucket = await open_object_store(broker.properties["coldUrl"])
    load = RecoveryLoad(broker, SEED)
    await broker.start()
    await load.prepare()
    version = 0
    for _ in range(case_count(quick=1, soak=12)):
        load.start()
        await load.reach(150)
        await saved_again(bucket, await saved_since(bucket, version))
        await load.reach(50)
        await lose_disk(broker)
        await load.stop()
        names = await list_names(bucket, KEYS)
        key = KEYS.state(epoch=names[-1].epoch, sequence=names[-1].sequence)
        data = await bucket.get(key)
        match damage:
            case "bit-flipped":
                await bucket.put(key, data.replace(b'"log_ceiling":', b'"log_ceilinG":'))
            case "truncated":
                await bucket.put(key, data[:-9])
            case "missing":
                await bucket.delete(key)
        remains = await Remains.read(bucket)
        catalog = await newest(bucket)
        carried = await find_carried(bucket, KEYS, version=catalog.state_version)
        assert remains.state.name == max([names[-2], *([carried.name] if carried is not None else [])])
        version = catalog.version
        await broker.start()
        skipped = [line.split()[0] for line in broker.notes if line.startswith("skipped=")]
        assert skipped == ([] if damage == "missing" else [f"skipped={key}"])
        assert losses(broker.notes) == {topic: remains.lost(topic) for topic in TOPICS}
        connection = await ClientConnection.open(broker.address)
        await check_recovered(connection, load, remains)
        for queue_id in range(3):
            await load.send(connection, ORDERS, queue_id, 10)
        connection.close()
    await bucket.close()
    broker.check_log()


@pytest.mark.full
async def test_recoveries_that_are_cut_off_are_begun_again(
    broker: BrokerProcess, case_count: Callable[..., int]
) -> None:
    bucket = await open_object_store(broker.properties["coldUrl"])
    chance = random.Random(SEED)
    load = RecoveryLoad(broker, SEED)
    await broker.start()
    await load.prepare()
    load.start()
    await load.reach(200)
    await saved_since(bucket, 0)
    await lose_disk(broker)
    await load.stop()
    remains = await Remains.read(bucket)
    report, reported = broker.store / "thermocline" / "recovery.txt", []
    for _ in range(case_count(quick=2, full=4, soak=60)):
        before = marked_ns(broker)
        starting = asyncio.create_task(broker.start())
        await until(lambda before=before, task=starting: marked_ns(broker) > before or task.done())
        await asyncio.sleep(chance.uniform(0, 0.05))
        await broker.kill()
        await asyncio.gather(starting, return_exceptions=True)
        if (broker.store / "thermocline" / "identity.json").exists():
            reported.append(losses(report.read_text().splitlines()))
            shutil.rmtree(broker.store)  # it was done: the disk is lost once more
    await broker.start()
    assert report.read_text().splitlines() == broker.notes
    reported.append(losses(broker.notes))
    assert reported[0] == {topic: remains.lost(topic) for topic in TOPICS}
    connection = await ClientConnection.open(broker.address)
    await check_recovered(connection, load, remains)
    for queue_id in range(3):
        await load.send(connection, ORDERS, queue_id, 10)
    connection.close()
    await bucket.close()


async def test_a_recovered_broker_starts_like_any_other(broker: BrokerProcess) -> None:
    load = RecoveryLoad(broker, SEED)
    await broker.start()
    await load.prepare()
    load.start()
    await load.reach(50)
    bucket = await open_object_store(broker.properties["coldUrl"])
    await saved_since(bucket, 0)
    await lose_disk(broker)
    await load.stop()
    await broker.start()
    assert broker.notes
    connection = await ClientConnection.open(broker.address)
    await load.send(connection, ORDERS, 0, 10)
    connection.close()
    await broker.kill()
    await broker.start()  # with --recover-from still in its command
    assert broker.notes == []
    broker.arguments = ()
    assert await broker.stop() == 0
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await check_messages(connection, load, await Remains.read(bucket))
    connection.close()
    await bucket.close()
    broker.check_log()


async def test_who_owned_the_bucket_before_is_fenced_alive_and_refused_afterwards(broker: BrokerProcess) -> None:
    load = RecoveryLoad(broker, SEED)
    await broker.start()
    await load.prepare()
    load.start()
    await load.reach(50)
    bucket = await open_object_store(broker.properties["coldUrl"])
    await saved_since(bucket, 0)
    await load.stop()
    successor = BrokerProcess(broker.folder.parent / "successor", {**SETTINGS, "coldUrl": broker.properties["coldUrl"]})
    successor.arguments = ("--recover-from", broker.properties["coldUrl"])
    await successor.start()
    try:
        connection = await ClientConnection.open(broker.address)
        with pytest.raises(wire.Refused) as refused:
            await send_for_ever(load, connection)  # the old process fails at its next commit or snapshot
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        later = (await newest(bucket)).epoch
        answer = await wire.ask(connection, PrivateRequestCode.TIER_EXPLAIN, ext_fields={"topic": ORDERS})
        for row in json.loads(bytes(answer.body))["queues"]:
            assert row["next"].startswith(f"stays local: this broker is fenced by epoch {later - 1}, "), row
            assert row["whyLocal"].startswith(f"this broker is fenced by epoch {later - 1}, "), row
        connection.close()
        load.broker = successor
        connection = await ClientConnection.open(successor.address)
        for _ in range(5):
            await load.send(connection, ORDERS, 0, 10)
        connection.close()
        await broker.kill()
        await broker.start()
        async with asyncio.timeout(wire.PATIENCE_S):
            assert await broker.wait() == 1
        last_line = broker.log_tail().splitlines()[-1]
        assert last_line.startswith("thermocline: this prefix holds the history of another store directory")
        assert "--recover-from" in last_line
    finally:
        await bucket.close()
        await successor.kill()


async def test_topics_without_a_snapshot_continue_behind_their_highest_possible_offset(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    broker.properties["coldStateIntervalMs"] = "3600000"
    bucket = await open_object_store(broker.properties["coldUrl"])
    await broker.start()
    await until(lambda: any((tmp_path / "cold").rglob("state/*.json")))
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, ORDERS, queues=2)
    await wire.make_topic(connection, FLEETING, queues=1)
    for number in range(10):
        await wire.send(connection, ORDERS, number % 2, b"committed %d" % number)
    await wire.patiently(lambda: wire.seal(connection, ORDERS))
    broker.properties["coldSealAgeMs"] = "3600000"
    await wire.send(connection, FLEETING, 0, b"never committed")
    await lose_disk(broker)
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    for queue_id in range(2):
        records = await read_across_holes(connection, ORDERS, queue_id)
        assert [record.body for record in records] == [b"committed %d" % number for number in range(queue_id, 10, 2)]
        assert (await wire.send(connection, ORDERS, queue_id, b"new")).queue_offset >= RESERVE_BYTES // 91
    await wire.make_topic(connection, FLEETING, queues=1)
    assert (await wire.send(connection, FLEETING, 0, b"new")).queue_offset >= RESERVE_BYTES // 91
    connection.close()
    await bucket.close()


async def test_stores_that_cannot_be_recovered_are_left_alone(broker: BrokerProcess, tmp_path: Path) -> None:
    url = broker.properties["coldUrl"]
    broker.arguments = ("--recover-from", url)
    assert await _ends_with(broker) == "no broker of this name has a cold tier there"
    broker.arguments = ()
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, ORDERS, queues=1)
    await wire.send(connection, ORDERS, 0, b"here")
    connection.close()
    assert await broker.stop() == 0
    broker.arguments = ("--recover-from", url)
    assert await _ends_with(broker) == "the directory holds a store already"
    broker.arguments = ()
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    assert await wire.max_offset(connection, ORDERS, 0) == 1
    connection.close()


async def _ends_with(broker: BrokerProcess) -> str:
    """The sentence with which a start is refused."""
    with pytest.raises(AssertionError):
        await broker.start()
    assert await broker.wait() == 1
    return broker.log_tail().splitlines()[-1].removeprefix("thermocline: ").partition(":")[0]
