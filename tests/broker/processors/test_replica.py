"""Questions about replicas, asked of a master that has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from thermocline.remoting.bodies import HARuntimeInfo
from thermocline.remoting.private_requests import PrivateRequestCode, ReplicaSourceAnswer


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


async def test_without_a_cold_tier_slaves_keep_the_log_from_its_end_on(broker: ControlBroker) -> None:
    await broker.create_topic("TopicA")
    sent = broker.put("TopicA")
    answer = msgspec.json.decode((await broker.ask(PrivateRequestCode.REPLICA_SOURCE)).body, type=ReplicaSourceAnswer)
    end_offset = sent.physical_offset + sent.size_bytes
    assert (answer.store_uuid, answer.has_ledger) == ("", False)
    assert (answer.held_offset, answer.log_end) == (end_offset, end_offset)


async def test_epochs_are_a_controllers(broker: ControlBroker) -> None:
    answer = await broker.ask(1007)
    assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")
