"""A store and a cold tier that do not fit together any more, as their disks have other pasts: the broker says so, and
ends."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from thermocline.remoting.clients.client import ClientConnection

pytestmark = pytest.mark.crash

TOPIC, COUNT = "orders", 200


async def send_and_seal(broker: BrokerProcess) -> None:
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, TOPIC, queues=1)
    for number in range(COUNT):
        await wire.send(connection, TOPIC, 0, b"%d" % number)
    await wire.patiently(lambda: wire.seal(connection))
    connection.close()


async def test_a_broker_does_not_begin_a_new_history_where_its_own_is_missing(tmp_path: Path) -> None:
    """It would let local files go, whose messages would be missing once the file system is back."""
    cold = tmp_path / "cold"
    cold.mkdir()
    broker = BrokerProcess(tmp_path / "broker", {**TINY_FILES_GO_AT_ONCE, "coldUrl": cold.as_uri()})
    await broker.start()
    await send_and_seal(broker)
    await broker.stop()
    cold.rename(tmp_path / "unmounted")
    cold.mkdir()
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    last_line = broker.log_tail().splitlines()[-1]
    assert "coldUrl names a place without this broker's history" in last_line
    assert "Traceback" not in broker.log_tail()
    cold.rename(tmp_path / "mount point")
    (tmp_path / "unmounted").rename(cold)
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    records = await wire.read_queue(connection, TOPIC, 0, start=0, end=COUNT)
    assert [record.body for record in records] == [b"%d" % number for number in range(COUNT)]
    connection.close()
    await broker.stop()


async def test_a_broker_whose_disk_was_set_back_gives_out_no_offset_twice(tmp_path: Path) -> None:
    """As a virtual machine that goes on from a snapshot: the bucket holds what the log has not received yet."""
    broker = BrokerProcess(tmp_path / "broker", {**TINY_FILES_GO_AT_ONCE, "coldUrl": (tmp_path / "cold").as_uri()})
    await broker.start()
    await send_and_seal(broker)
    await broker.stop()
    shutil.copytree(broker.store, tmp_path / "snapshot")
    await broker.start()
    await send_and_seal(broker)
    await broker.stop()
    shutil.rmtree(broker.store)
    (tmp_path / "snapshot").rename(broker.store)
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    assert "the log of this store ends before what was committed of it" in broker.log_tail().splitlines()[-1]
    assert "Traceback" not in broker.log_tail()
    shutil.rmtree(broker.store)
    broker.arguments = ("--recover-from", broker.properties["coldUrl"])
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    records = await wire.read_queue(connection, TOPIC, 0, start=0, end=2 * COUNT)
    assert [record.body for record in records] == [b"%d" % number for number in range(COUNT)] * 2
    connection.close()
    await broker.stop()
