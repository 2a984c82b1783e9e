"""Request modes and assignments.

Covers `broker/assembly/processors.py`, `broker/cluster/cluster_queues.py`, `broker/tables/message_request_modes.py`,
`broker/tables/queue_assignment.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import Client, ControlBroker, control_broker
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import ConsumerData, HeartbeatData

TOPIC, GROUP = "T", "G"


async def join(broker: ControlBroker, *client_ids: str) -> None:
    """Let clients be members of the group."""
    for client_id in client_ids:
        heartbeat = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name=GROUP)])
        connection = await broker.connect(Client())
        assert (await broker.ask(34, body=heartbeat.encode(), connection=connection)).code == 0


async def set_mode(broker: ControlBroker, **fields: Any) -> int:
    body = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, "topic": TOPIC} | fields
    return (await broker.ask(401, body=json.dumps(body).encode())).code


async def assignments(broker: ControlBroker, client_id: str, **fields: Any) -> list[tuple[int, str]] | None:
    body = {
        "clientId": client_id,
        "consumerGroup": GROUP,
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": TOPIC,
    } | fields
    answer = await broker.ask(400, body=json.dumps(body).encode())
    assert answer.code == 0
    found = json.loads(bytes(answer.body)).get("messageQueueAssignments")
    if found is None:
        return None
    assert all(item["messageQueue"]["brokerName"] == "broker-a" for item in found)
    return sorted((item["messageQueue"]["queueId"], item["mode"]) for item in found)


async def test_pull_is_shared_averagely(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC, queues=4)
        await join(broker, "b", "a", "c")
        assert await assignments(broker, "a") == [(0, "PULL"), (1, "PULL")]
        assert await assignments(broker, "b") == [(2, "PULL")]
        assert await assignments(broker, "c") == [(3, "PULL")]
        assert await assignments(broker, "c", strategyName="AVG_BY_CIRCLE") == [(2, "PULL")]
        assert await assignments(broker, "stranger") == []


async def test_pop_from_all_queues(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC, queues=4)
        await join(broker, "a", "b")
        assert await set_mode(broker, popShareQueueNum=8) == 0
        for client_id in ("a", "b"):
            assert await assignments(broker, client_id) == [(-1, "POP")]


async def test_retry_topics_are_pulled(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", default_request_mode="POP")
    async with control_broker(tmp_path, config=config) as broker:
        await broker.create_topic(TOPIC, queues=4)
        await broker.parts.tables.topics.ensure(f"%RETRY%{GROUP}", queue_count=1)
        await join(broker, "a")
        assert await assignments(broker, "a") == [(-1, "POP")]
        assert await assignments(broker, "a", topic=f"%RETRY%{GROUP}") == [(0, "PULL")]


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1, {"a": [0, 1], "b": [1, 2], "c": [2, 3], "d": [0, 3]}),
        (2, {"a": [0, 1, 2], "b": [1, 2, 3], "c": [0, 2, 3], "d": [0, 1, 3]}),
        (3, {"a": [-1], "b": [-1], "c": [-1], "d": [-1]}),
        (0, {"a": [-1], "b": [-1], "c": [-1], "d": [-1]}),
    ],
)
async def test_queues_that_several_pop(tmp_path: Path, share: int, expected: dict[str, list[int]]) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC, queues=4)
        await join(broker, *expected)
        await set_mode(broker, popShareQueueNum=share)
        for client_id, queue_ids in expected.items():
            assert await assignments(broker, client_id) == [(queue_id, "POP") for queue_id in queue_ids]


async def test_more_clients_than_queues_all_get_a_queue(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC, queues=2)
        await join(broker, *"abcde")
        await set_mode(broker, popShareQueueNum=1)
        found = [await assignments(broker, client_id) for client_id in "abcde"]
        assert found == [[(0, "POP")], [(1, "POP")], [(0, "POP")], [(1, "POP")], [(0, "POP")]]


async def test_a_client_with_two_connections_is_one(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC, queues=4)
        await join(broker, "a", "a", "b")
        assert await assignments(broker, "a") == [(0, "PULL"), (1, "PULL")]
        assert await assignments(broker, "b") == [(2, "PULL"), (3, "PULL")]


async def test_when_nothing_is_assigned(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC, queues=2)
        assert await assignments(broker, "a") is None
        await join(broker, "a")
        assert await assignments(broker, "a", strategyName="NO_SUCH") is None
        assert await assignments(broker, "a", topic="Missing") is None
        assert await assignments(broker, "x", messageModel="BROADCASTING") == [(0, "PULL"), (1, "PULL")]


async def test_the_broker_may_leave_sharing_to_its_clients(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", server_load_balancer=False)
    async with control_broker(tmp_path, config=config) as broker:
        await broker.create_topic(TOPIC, queues=2)
        assert await assignments(broker, "a") == [(0, "PULL"), (1, "PULL")]


async def test_invalid_modes_are_refused(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", auto_create_group=False)
    async with control_broker(tmp_path, config=config) as broker:
        await broker.create_topic(TOPIC)
        assert await set_mode(broker, topic=f"%RETRY%{GROUP}") == 16
        assert await set_mode(broker, topic="Missing") == 17
        assert await set_mode(broker) == 26
        await broker.ask(200, body=json.dumps({"groupName": GROUP}).encode())
        assert await set_mode(broker, mode="PUSH") == 29
        assert await set_mode(broker) == 0


async def test_modes_outlive_the_broker(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic(TOPIC)
        await set_mode(broker, popShareQueueNum=3)
    path = tmp_path / "config" / "messageRequestMode.json"
    assert json.loads(path.read_text()) == {
        "messageRequestModeMap": {
            TOPIC: {GROUP: {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 3, "topic": TOPIC}}
        }
    }
    async with control_broker(tmp_path) as broker:
        await join(broker, "a")
        assert await assignments(broker, "a") == [(-1, "POP")]
        answer = await broker.ask(402)
        assert json.loads(bytes(answer.body)) == json.loads(path.read_text())
