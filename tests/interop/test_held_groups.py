"""Official clients that start while their group is held for a hand-off: they try again, and go on where it was moved.

The group's member starts between prepare and apply, and every request of it is answered with SYSTEM_BUSY.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from tests.interop.cluster import OFFICIAL, Cluster
from tests.interop.go_driver import GoDriver
from tests.interop.java_agent import ReceivedMessage
from thermocline.client import AdminClient
from thermocline.remoting.bodies.hand_off import HandOffBody, QueueTarget, TopicTarget
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode

COUNT, READ_COUNT = 20, 12
TIMEOUT_MS = 15_000
RECEIVED_S = 120.0
"""A client that was refused when it registered does so again with its next heartbeat, after 30 s."""
_numbers = itertools.count(1)


def ask(address: str, code: PrivateRequestCode, *, body: bytes = b"", **fields: str) -> None:
    """One request that succeeds."""

    async def exchange() -> RemotingCommand:
        connection = await ClientConnection.open(address)
        try:
            command = RemotingCommand.request(code, ext_fields=fields, body=body)
            return await connection.call(command, timeout_ms=TIMEOUT_MS)
        finally:
            connection.close()

    answer = asyncio.run(exchange())
    assert answer.code == ResponseCode.SUCCESS, answer


def hold(address: str, group: str, topic: str) -> None:
    """Prepare the group's move behind what was read of the topic's one queue."""
    target = TopicTarget(topic=topic, queues=[QueueTarget(queue_id=0, offset=READ_COUNT, start=0)])
    body = HandOffBody(group=group, receipt_id=f"receipt of {group}", topics=[target])
    ask(address, PrivateRequestCode.HAND_OFF_PREPARE, body=body.encode())


def move(address: str, group: str) -> None:
    ask(address, PrivateRequestCode.HAND_OFF_APPLY, group=group, receiptId=f"receipt of {group}")


def check(received: list[ReceivedMessage]) -> None:
    """The group receives exactly the messages that were not read, once each."""
    assert sorted(message.queue_offset for message in received) == list(range(READ_COUNT, COUNT))


@pytest.mark.full
@pytest.mark.java
def test_a_java_consumer_goes_on_where_its_held_group_was_moved(
    cluster: Cluster, start_push: Callable[..., str]
) -> None:
    if cluster.kind == OFFICIAL:
        pytest.skip("it has no hand-off")
    topic = cluster.make_topic(f"Held{next(_numbers)}", queue_count=1)
    cluster.agent.produce(
        name=f"{topic}-producer",
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        count=COUNT,
        kind="sync",
        group=f"{topic}-producers",
        tags=["tag"],
    )
    hold(cluster.broker_address, f"{topic}-group", topic)
    consumer = start_push(topic, group=f"{topic}-group", topics={topic: "*"})
    assert cluster.agent.received(consumer, count=1, timeout_s=2) == []
    move(cluster.broker_address, f"{topic}-group")
    check(cluster.agent.received(consumer, count=COUNT - READ_COUNT, timeout_s=RECEIVED_S))


@pytest.mark.full
@pytest.mark.go
@pytest.mark.xdist_group("interop-go")
def test_a_go_consumer_goes_on_where_its_held_group_was_moved(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=1)
    go.produce(count=COUNT)
    address = broker_of(go.admin, topic)
    hold(address, go.group, topic)
    consumer = go.push()
    assert go.agent.received(consumer, count=1, timeout_s=2) == []
    move(address, go.group)
    check(go.received(consumer, count=COUNT - READ_COUNT, timeout_s=RECEIVED_S))


def broker_of(admin: AdminClient, topic: str) -> str:
    """The address of the master that has the topic."""
    (broker,) = admin.topic_route(topic).brokers
    return broker.address
