"""Questions about replicas, asked of a master that has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from thermocline.remoting.bodies import HARuntimeInfo


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


async def test_the_master_tells_its_end_and_no_replica(broker: ControlBroker) -> None:
    await broker.create_topic("TopicA")
    sent = broker.put("TopicA")
    info = HARuntimeInfo.decode((await broker.ask(907)).body)
    assert info.master
    assert info.master_commit_log_max_offset == sent.physical_offset + sent.size_bytes
    assert info.ha_connection_info == []


async def test_a_masters_flush_offset_is_its_own(broker: ControlBroker) -> None:
    before = HARuntimeInfo.decode((await broker.ask(907)).body)
    assert (await broker.ask(908, {"masterFlushOffset": "7"})).code == 0
    assert HARuntimeInfo.decode((await broker.ask(907)).body) == before


async def test_epochs_are_a_controllers(broker: ControlBroker) -> None:
    answer = await broker.ask(1007)
    assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")
