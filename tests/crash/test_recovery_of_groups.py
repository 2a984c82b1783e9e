"""What groups and the broker's own services make of a recovery: popped messages, delayed ones, new work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.popping import GROUP, TOPIC
from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.bucket import KEYS
from tests.crash.recovery_load import read_across_holes
from tests.crash.test_pop_kills import ack, pop
from tests.crash.test_recovery_from_bucket import SETTINGS, lose_disk
from thermocline.remoting.clients.client import ClientConnection
from thermocline.tiered.state.newest_state import read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, DELAY_OFFSETS, StateSnapshot
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = pytest.mark.crash

QUEUES = 2
MINUTE_MS = 60_000
LEVEL_1_S, LEVEL_1_H = "DELAY\x011\x02", "DELAY\x0117\x02"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker that serves, with a topic."""
    process = BrokerProcess(tmp_path / "broker", {**SETTINGS, "coldUrl": (tmp_path / "cold").as_uri()})
    await process.start()
    connection = await ClientConnection.open(process.address)
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    await wire.make_group(connection, GROUP)
    connection.close()
    yield process
    if process.is_running:
        await process.kill()


async def state_where(broker: BrokerProcess, holds: str) -> StateSnapshot:
    """The newest snapshot, once it has a document of that name with something in it."""
    bucket = await open_object_store(broker.properties["coldUrl"])
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            state = await read_newest(bucket, KEYS)
            if state is not None and state.documents.get(holds, {}).get("offsetTable"):
                await bucket.close()
                return state
            await asyncio.sleep(0.05)


async def test_popped_messages_without_acknowledgement_are_redelivered(broker: BrokerProcess) -> None:
    connection = await ClientConnection.open(broker.address)
    bodies = [b"popped %d" % number for number in range(10)]
    for number, body in enumerate(bodies):
        await wire.send(connection, TOPIC, number % QUEUES, body)
    await wire.patiently(lambda: wire.seal(connection))
    held = []
    while len(held) < len(bodies):
        held += await pop(connection, GROUP, count=10, invisible_ms=MINUTE_MS)
    done = [each for each in held if each.record.queue_offset == 0 or each.record.queue_offset == 3]
    await ack(connection, GROUP, *done)
    state = await state_where(broker, CONSUMER_OFFSETS)
    async with asyncio.timeout(wire.PATIENCE_S):
        while state.documents[CONSUMER_OFFSETS]["offsetTable"].get(f"{TOPIC}@{GROUP}") != {"0": 1, "1": 1}:
            await asyncio.sleep(0.05)
            state = await state_where(broker, CONSUMER_OFFSETS)
    connection.close()
    await lose_disk(broker)
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    again = []
    async with asyncio.timeout(wire.PATIENCE_S):
        while len(again) < len(bodies) - QUEUES:
            again += await pop(connection, GROUP, count=10, invisible_ms=MINUTE_MS)
    # Behind the first message without acknowledgement all are redelivered: the snapshot holds no later acknowledgement.
    assert {each.body for each in again} == {each.body for each in held if each.record.queue_offset > 0}
    await ack(connection, GROUP, *again)
    await wire.send(connection, TOPIC, 0, b"new")
    (fresh,) = await pop(connection, GROUP, count=10, invisible_ms=MINUTE_MS)
    assert fresh.body == b"new"
    connection.close()
    broker.check_log()


async def test_the_brokers_own_work_begins_anew_and_losses_are_reported(broker: BrokerProcess) -> None:
    connection = await ClientConnection.open(broker.address)
    await wire.send(connection, TOPIC, 0, b"at once", properties=LEVEL_1_S)
    for _ in range(3):
        await wire.send(connection, TOPIC, 0, b"in an hour", properties=LEVEL_1_H)

    async def is_delivered() -> bool:
        return await wire.max_offset(connection, TOPIC, 0) == 1

    await wire.until_true(is_delivered)
    await wire.patiently(lambda: wire.seal(connection))
    await state_where(broker, DELAY_OFFSETS)
    connection.close()
    await lose_disk(broker)
    await broker.start()
    assert "unfinished=SCHEDULE_TOPIC_XXXX lost=3" in broker.notes
    connection = await ClientConnection.open(broker.address)
    await wire.send(connection, TOPIC, 1, b"delayed anew", properties=LEVEL_1_S)

    async def is_delivered_anew() -> bool:
        return bool(await read_across_holes(connection, TOPIC, 1))

    await wire.until_true(is_delivered_anew)
    assert [record.body for record in await read_across_holes(connection, TOPIC, 1)] == [b"delayed anew"]
    assert [record.body for record in await read_across_holes(connection, TOPIC, 0)] == [b"at once"]
    connection.close()
    assert await broker.stop() == 0
    broker.check_log()
