"""Flushed ranges: what may be read of a topic and stays, whatever becomes of the power.

Covers `broker/pulls/pull_request.py`, `broker/pulls/request_expressions.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import TOPIC, Consumer, expire_local_files, messages
from tests.broker.wire import Wire
from thermocline.broker.processors.replica import SlaveProcessor
from thermocline.broker.processors.tier.flushed_ranges import FlushedRangesProcessor
from thermocline.client.answer import answer_error
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


def processor_of(broker: DataBroker) -> FlushedRangesProcessor:
    parts = broker.parts
    return FlushedRangesProcessor(store=broker.store, topics=parts.tables.topics, visible=parts.reads.visible)


async def ask(broker: DataBroker, topic: str = TOPIC) -> RemotingCommand:
    wire = Wire(Dispatcher([processor_of(broker)]))
    command = RemotingCommand(code=PrivateRequestCode.FLUSHED_RANGES, opaque=1, ext_fields={"topic": topic})
    wire.receive(command.encode())
    (answer,) = await wire.wait_commands()
    return answer


async def ranges(broker: DataBroker) -> dict[int, dict[str, Any]]:
    answer = await ask(broker)
    assert answer.code == 0, answer.remark
    return {queue["queueId"]: queue for queue in json.loads(bytes(answer.body))["queues"]}


async def test_a_queue_ends_where_the_log_is_flushed_though_consumers_see_more(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send(5)
    broker.store.commit_log.flush()
    consumer.send(3)
    assert len(messages(consumer.pull(0))) == 8
    (queue,) = (await ranges(broker)).values()
    size_bytes = broker.records()[0].size_bytes
    assert queue == {"queueId": 0, "localStart": 0, "visibleStart": 0, "end": 5, "recordBytes": size_bytes}
    broker.store.commit_log.flush()
    assert (await ranges(broker))[0]["end"] == 8


async def test_nothing_flushed_is_an_empty_range(broker: DataBroker) -> None:
    Consumer(broker).send(4)
    assert (await ranges(broker))[0]["end"] == 0
    assert (await ranges(broker))[0]["recordBytes"] == 0


async def test_it_begins_after_expired_and_locally_deleted_records(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send(3_000, body=b"x" * 500)
    broker.clock.now_ms += 10_000
    consumer.send(10)
    broker.store.commit_log.flush()
    minimum = expire_local_files(broker, 2_000)
    assert 0 < minimum < 3_000
    queue = (await ranges(broker))[0]
    assert (queue["localStart"], queue["visibleStart"], queue["end"]) == (minimum, minimum, 3_010)
    await broker.make_topic(TOPIC, attributes="+thermocline.ttl.ms=5000")
    queue = (await ranges(broker))[0]
    assert (queue["localStart"], queue["visibleStart"], queue["end"]) == (minimum, 3_000, 3_010)


async def test_store_and_incarnation_are_named(broker: DataBroker) -> None:
    Consumer(broker).send()
    body = json.loads(bytes((await ask(broker)).body))
    assert body["storeUuid"] == broker.store.identity.store_id
    assert body["incarnation"] == broker.store.incarnations.find(TOPIC).id > 0


async def test_queues_that_pulls_are_refused_are_left_out(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    for queue_id in range(4):
        consumer.send(queue_id=queue_id)
    await broker.make_topic(TOPIC, queues=2)
    assert sorted(await ranges(broker)) == [0, 1]


async def test_other_requests_are_served_between_many_queues(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.broker.processors.tier.flushed_ranges.QUEUES_A_TURN", 2)
    consumer = Consumer(broker)
    await broker.make_topic(TOPIC, queues=8)
    for queue_id in range(8):
        consumer.send(queue_id=queue_id)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    command = RemotingCommand(code=PrivateRequestCode.FLUSHED_RANGES, opaque=1, ext_fields={"topic": TOPIC})
    counting = asyncio.create_task(count_turns())
    answer = await processor_of(broker).flushed_ranges(Wire(Dispatcher([])).connection, command)
    counting.cancel()
    assert len(json.loads(bytes(answer.body))["queues"]) == 8
    assert turns >= 4


async def test_a_slave_refuses_so_that_streams_wait_for_a_master(broker: DataBroker) -> None:
    """While it stands in for its master, a query took it for another cluster's, or for an older disk, and ended."""
    Consumer(broker).send()
    wire = Wire(Dispatcher([processor_of(broker)], before=(SlaveProcessor(),)))
    command = RemotingCommand(code=PrivateRequestCode.FLUSHED_RANGES, opaque=1, ext_fields={"topic": TOPIC})
    wire.receive(command.encode())
    (answer,) = await wire.wait_commands()
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert isinstance(answer_error(answer.code, answer.remark, address="127.0.0.1:1"), UnavailableError)


async def test_a_topic_that_is_not_there(broker: DataBroker) -> None:
    assert (await ask(broker, "nothing")).code == ResponseCode.TOPIC_NOT_EXIST
