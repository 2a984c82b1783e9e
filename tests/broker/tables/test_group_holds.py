"""Consumers of a group that is held: pulls and POPs are refused, those that wait too, until it is let go.

Covers `broker/pops/pop_admission.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import PopClient, bodies
from tests.broker.pulling import GROUP, TOPIC, Consumer, offsets
from thermocline.broker.tables.group_holds import HOLD_MS, GroupHolds
from thermocline.remoting.bodies.hand_off import HandOffBody, QueueTarget, TopicTarget
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import GroupHeldError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode

PLAN = HandOffBody(group=GROUP, receipt_id="r1", topics=[])


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


def test_a_hold_is_one_receipts() -> None:
    now = [1_000]
    holds = GroupHolds(clock=lambda: now[0])
    holds.check(GROUP)
    holds.hold(PLAN)
    holds.hold(PLAN)
    other = HandOffBody(group=GROUP, receipt_id="r2", topics=[])
    with pytest.raises(GroupHeldError, match="left_ms=30000"):
        holds.hold(other)
    holds.release(GROUP, "r2")
    assert holds.find(GROUP, "r1") == PLAN
    assert holds.find(GROUP, "r2") is None
    holds.check("another group")
    now[0] += HOLD_MS
    holds.check(GROUP)
    holds.hold(other)
    assert holds.find(GROUP, "r1") is None


async def test_pulls_of_a_held_group_are_answered_with_a_retry(broker: DataBroker) -> None:
    consumer, stranger = Consumer(broker), Consumer(broker)
    consumer.send(3)
    assert offsets(consumer.pull(0)) == [0, 1, 2]
    broker.parts.tables.holds.hold(PLAN)
    committed = broker.parts.tables.offsets.query(TOPIC, GROUP, 0)
    refused = consumer.pull(2, sysFlag=5, commitOffset=2)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "being handed over" in (refused.remark or "")
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == committed, "nor is its offset noted"
    assert offsets(stranger.pull(0, consumerGroup="other")) == [0, 1, 2]
    broker.clock.now_ms += HOLD_MS
    assert offsets(consumer.pull(2)) == [2]


async def test_a_pull_that_waits_is_refused_when_something_arrives(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send(1)
    waiting = consumer.ask(1, sysFlag=6)
    assert consumer.wire.take_commands() == []
    broker.parts.tables.holds.hold(PLAN)
    consumer.send(1)
    assert (await consumer.answer_to(waiting)).code == ResponseCode.SYSTEM_BUSY


async def test_a_held_group_pops_nothing(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"one")
    broker.parts.tables.holds.hold(PLAN)
    assert client.pop_answer().code == ResponseCode.SYSTEM_BUSY
    broker.parts.tables.holds.release(GROUP, "r1")
    assert bodies(client.pop()) == [b"one"]


async def test_a_group_that_holds_popped_messages_is_not_moved(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"one")
    (message,) = client.pop()
    life = broker.parts.base.store.incarnations.find(TOPIC).id
    target = TopicTarget(topic=TOPIC, incarnation=life, queues=[QueueTarget(queue_id=0, offset=1)])
    plan = HandOffBody(group=GROUP, receipt_id="r1", topics=[target])

    async def answer() -> RemotingCommand:
        request = RemotingCommand.request(PrivateRequestCode.HAND_OFF_PREPARE, body=plan.encode())
        found = broker.dispatcher.handle(client.wire.connection, request)
        assert isinstance(found, Awaitable)
        response = await found
        assert response is not None
        return response

    refused = await answer()
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert "not acknowledged yet" in (refused.remark or "")
    assert client.ack(message).code == 0
    assert (await answer()).code == 0
