"""Topics that first messages make survive `kill -9` with their queues, and stand in topics.json after a clean stop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from thermocline.remoting.clients.client import ClientConnection

pytestmark = pytest.mark.crash

TOPICS = 200


def topics_on_disk(broker: BrokerProcess) -> set[str]:
    """What Apache RocketMQ finds there."""
    table: dict[str, object] = json.loads((broker.store / "config" / "topics.json").read_bytes())["topicConfigTable"]
    return set(table)


async def test_topics_of_acknowledged_messages_survive_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {})
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    names = [f"Made{number}" for number in range(TOPICS)]
    await asyncio.gather(*(wire.send(connection, name, 1, name.encode()) for name in names))
    await broker.kill()
    connection.close()
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    for name in names:
        pulled = await wire.pull(connection, name, 1, 0)
        assert [record.body for record in pulled.records] == [name.encode()]
    sent = await wire.send(connection, "Later", 0, b"later")
    assert sent.queue_offset == 0
    connection.close()
    assert await broker.stop() == 0
    assert {*names, "Later"} <= topics_on_disk(broker)
    broker.check_log()
