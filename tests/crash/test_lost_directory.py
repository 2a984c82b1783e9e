"""A store directory that is removed under a broker, or replaced: nothing more is acknowledged, what was can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from thermocline.remoting.clients.client import ClientConnection


@pytest.mark.parametrize("has_successor", [False, True])
async def test_sends_are_refused_once_the_store_directory_is_gone(tmp_path: Path, *, has_successor: bool) -> None:
    broker = BrokerProcess(tmp_path / "first", {})
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    try:
        await wire.make_topic(connection, "Orders", queues=1)
        await wire.send(connection, "Orders", 0, b"acknowledged")
        if has_successor:
            other = BrokerProcess(tmp_path / "second", {})
            await other.start()
            assert await other.stop() == 0
        # In one step: the broker may be writing a file there while a tree of many is removed.
        broker.store.rename(tmp_path / "removed")
        shutil.rmtree(tmp_path / "removed")
        if has_successor:
            shutil.move(tmp_path / "second" / "store", broker.store)

        async def is_refused() -> bool:
            try:
                await wire.send(connection, "Orders", 0, b"too late")
            except wire.Refused as error:
                return "the store directory is gone" in str(error)
            return False

        await wire.until_true(is_refused)
        records = await wire.read_queue(connection, "Orders", 0, start=0, end=1)
        assert records[0].body == b"acknowledged"
    finally:
        connection.close()
        await broker.kill()
