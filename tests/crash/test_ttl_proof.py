"""`ttl prove` and the preview on a real broker, compared with the objects of the bucket and the files of the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clock import now_ms
from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, listed_keys
from thermocline import AsyncAdminClient
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clients.client import ClientConnection
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = pytest.mark.crash

TOPIC, FILLER = "Expiring", "Filler"
QUEUES = 2
GRACE_MS = 6_000
HOUR_MS = 3_600_000
LOG_FILE_BYTES = 64 << 10
SETTINGS = {
    **TINY_FILES_GO_AT_ONCE,
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "coldSweepIntervalMs": "100",
    "coldGraceMs": str(GRACE_MS),
    "coldSealAgeMs": str(HOUR_MS),
}


@pytest.fixture
async def name_server() -> AsyncIterator[str]:
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    yield f"127.0.0.1:{await server.start()}"
    await server.close()


@pytest.fixture
async def broker(tmp_path: Path, name_server: str) -> AsyncIterator[BrokerProcess]:
    settings = {**SETTINGS, "coldUrl": (tmp_path / "cold").as_uri(), "namesrvAddr": name_server}
    process = BrokerProcess(tmp_path / "broker", settings)
    await process.start()
    yield process
    assert await process.stop() == 0
    process.check_log()


@pytest.fixture
async def connection(broker: BrokerProcess) -> AsyncIterator[ClientConnection]:
    connection = await ClientConnection.open(broker.address)
    yield connection
    connection.close()


@pytest.fixture
async def admin(broker: BrokerProcess, name_server: str) -> AsyncIterator[AsyncAdminClient]:
    async with AsyncAdminClient(namesrv=name_server) as admin:
        yield admin


@pytest.fixture
async def bucket(broker: BrokerProcess) -> AsyncIterator[ObjectStore]:
    store = await open_object_store(broker.properties["coldUrl"])
    yield store
    await store.close()


async def send(connection: ClientConnection, *numbers: int) -> None:
    """A message to each queue for each number."""
    for number in numbers:
        for queue_id in range(QUEUES):
            await wire.send(connection, TOPIC, queue_id, b"%d" % number, properties=f"KEYS\x01key{number}\x02")


async def a_moment() -> int:
    """A time that later messages are stored behind, and earlier ones before."""
    before_ms = now_ms()

    async def is_over() -> bool:
        return now_ms() > before_ms + 500

    await wire.until_true(is_over)
    return before_ms + 250


async def seal(connection: ClientConnection) -> list[dict[str, Any]]:
    """Seal the topic, once the tier process is there."""
    return await wire.patiently(lambda: wire.seal(connection, TOPIC))


async def expire_before(admin: AsyncAdminClient, time_ms: int) -> None:
    """Shrink the time to live so that what was stored before that time expires, and extend it at once."""
    await admin.set_ttl(TOPIC, now_ms() - time_ms)
    await admin.set_ttl(TOPIC, 0)


async def proof_of(admin: AsyncAdminClient) -> dict[str, Any]:
    (proof,) = (await admin.prove_ttl(TOPIC)).values()
    assert proof["problems"] == []
    assert proof["isProven"]
    return proof


def states(proof: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows of hidden objects by their state."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in proof["tier"]["hidden"]:
        rows.setdefault(row["state"], []).append(row)
    return rows


async def drop_local_files(connection: ClientConnection) -> None:
    """Fill the log until the topic's own messages have left the disk."""
    await wire.make_topic(connection, FILLER, queues=1)

    async def is_gone() -> bool:
        for _ in range(LOG_FILE_BYTES // 2_000):
            await wire.send(connection, FILLER, 0, b"." * 1_900)
        await wire.seal(connection)
        topics = (await wire.tier_status(connection))["topics"]
        topic = next(each for each in topics if each["topic"] == TOPIC)
        return all(queue["localMin"] == queue["localEnd"] for queue in topic["queues"])

    await wire.until_true(is_gone)


async def test_expired_messages_stay_stored_for_a_while_without_a_reference(
    connection: ClientConnection, admin: AsyncAdminClient, bucket: ObjectStore
) -> None:
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    await send(connection, 1, 2, 3)
    first_ms = await a_moment()
    await send(connection, 4, 5)
    (older,) = await seal(connection)
    second_ms = await a_moment()
    await send(connection, 6, 7)
    (newer,) = await seal(connection)

    proof = await proof_of(admin)
    assert (proof["samples"], proof["files"], proof["tier"]["hidden"]) == ([], [], [])
    assert proof["tier"]["visibleObjects"] == 6

    # Hidden on the disk and in half of a segment; what is visible in it is kept for ever.
    await expire_before(admin, first_ms)
    proof = await proof_of(admin)
    assert {(each["queueId"], each["offset"]) for each in proof["samples"]} == {(0, 0), (0, 2), (1, 0), (1, 2)}
    assert [(each["kind"], each["messages"]) for each in proof["files"]][:3] == [("log", 6), ("queue", 3), ("queue", 3)]
    assert proof["probeCount"] == 6
    (row,) = states(proof)["partly expired"]
    assert (row["segmentId"], row["dueMs"]) == (older["segmentId"], None)
    assert row["bytes"] == older["storedBytes"]
    assert sorted(row["keys"]) == sorted(
        key for key in await listed_keys(bucket, KEYS.topics_prefix) if older["segmentId"] in key
    )

    # The same with nothing of the topic left on the disk: samples come from the bucket.
    await drop_local_files(connection)
    proof = await proof_of(admin)
    assert proof["files"] == []
    assert {(each["queueId"], each["offset"], each["isCold"]) for each in proof["samples"]} == {
        (queue_id, offset, True) for queue_id in range(QUEUES) for offset in (0, 2)
    }

    # A preview of what comes next, and the next.
    (preview,) = (await admin.preview_ttl(TOPIC, now_ms() - second_ms)).values()
    assert (preview["segments"], preview["messages"], preview["bytes"]) == (1, 4, older["storedBytes"])
    assert (preview["objects"], preview["requests"]) == (3, {"put": 1, "delete": 1})
    assert preview["oldestSurvivingMs"] > second_ms
    assert (preview["rawBytes"], preview["partlyExpiredSegments"]) == (older["rawBytes"], 0)
    await expire_before(admin, second_ms)

    async def is_swept() -> bool:
        return "out of the catalog" in states(await proof_of(admin))

    await wire.until_true(is_swept)
    proof = await proof_of(admin)
    (row,) = states(proof)["out of the catalog"]
    assert row["segmentId"] == older["segmentId"]
    assert now_ms() - 1_000 < row["dueMs"] <= now_ms() + GRACE_MS
    assert len([key for key in await listed_keys(bucket, KEYS.topics_prefix) if older["segmentId"] in key]) == 3
    assert proof["samples"] == [], "no reader can read a segment that the catalog does not name"

    async def is_deleted() -> bool:
        return not [key for key in await listed_keys(bucket, KEYS.topics_prefix) if older["segmentId"] in key]

    await wire.until_true(is_deleted)
    proof = await proof_of(admin)
    assert (proof["tier"]["hidden"], proof["tier"]["visibleObjects"]) == ([], 3)
    assert [each["queueId"] for each in proof["queues"]] == [0, 1]
    assert newer["segmentId"] in next(iter(await listed_keys(bucket, KEYS.topics_prefix + TOPIC)))


async def test_an_earlier_life_is_listed_until_it_is_deleted(
    connection: ClientConnection, admin: AsyncAdminClient, bucket: ObjectStore
) -> None:
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    await send(connection, 1)
    (before,) = await seal(connection)
    await wire.delete_topic(connection, TOPIC)
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    await send(connection, 2)
    await seal(connection)
    proof = await proof_of(admin)
    (row,) = states(proof)["out of the catalog"]
    assert row["segmentId"] == before["segmentId"]
    assert (proof["samples"], proof["files"]) == ([], [])

    async def is_deleted() -> bool:
        return proof["tier"]["visibleObjects"] == 3 and not (await proof_of(admin))["tier"]["hidden"]

    await wire.until_true(is_deleted)
    assert not [key for key in await listed_keys(bucket, KEYS.topics_prefix) if before["segmentId"] in key]


async def test_without_the_tier_process_nothing_is_proven(
    broker: BrokerProcess, connection: ClientConnection, admin: AsyncAdminClient
) -> None:
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    await send(connection, 1)

    async def is_unproven() -> bool:
        broker.kill_helper("tier")
        (proof,) = (await admin.prove_ttl(TOPIC)).values()
        return not proof["isProven"] and "could not be looked at" in proof["problems"][0]

    async with asyncio.timeout(wire.PATIENCE_S):
        while not await is_unproven():  # noqa: ASYNC110 - it is started anew at once
            await asyncio.sleep(0)
