"""Allocation strategies against results of the official Java classes (5.5.0), and against their promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline.client.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocationStrategy,
)
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import InvalidRequestError

CLIENT_IDS = ["10.0.0.1@a", "10.0.0.1@b", "10.0.0.2@c"]


def queues_of(*brokers: str, count: int = 5, topic: str = "orders") -> list[MessageQueue]:
    return [MessageQueue(topic=topic, broker_name=broker, queue_id=i) for broker in brokers for i in range(count)]


@pytest.mark.parametrize(
    ("strategy", "brokers", "expected"),
    [
        (AllocateAveragely(), ("broker-a", "broker-b"), [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (AllocateAveragelyByCircle(), ("broker-a", "broker-b"), [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]),
        (AllocateByConsistentHash(), ("broker-a", "broker-b"), [[2, 7], [0, 3, 4, 8], [1, 5, 6, 9]]),
        (AllocateByMachineRoom(frozenset({"room1"})), ("room1@a", "room2@b"), [[0, 3], [1, 4], [2]]),
    ],
    ids=lambda value: value.name if isinstance(value, AllocationStrategy) else None,
)
def test_shares_equal_those_of_the_official_classes(
    strategy: AllocationStrategy, brokers: tuple[str, ...], expected: list[list[int]]
) -> None:
    queues = queues_of(*brokers)
    shares = [strategy.allocate(client_id=client_id, queues=queues, client_ids=CLIENT_IDS) for client_id in CLIENT_IDS]
    assert [[queues.index(queue) for queue in share] for share in shares] == expected


@pytest.mark.parametrize("strategy", [AllocateAveragely(), AllocateAveragelyByCircle(), AllocateByConsistentHash()])
@settings(deadline=None)
@given(queue_count=st.integers(0, 40), client_count=st.integers(1, 50))
def test_each_queue_has_exactly_one_owner(strategy: AllocationStrategy, queue_count: int, client_count: int) -> None:
    queues = queues_of("broker-a", count=queue_count)
    client_ids = sorted(f"10.0.0.1@{i}" for i in range(client_count))
    owned = [
        queue
        for client_id in client_ids
        for queue in strategy.allocate(client_id=client_id, queues=queues, client_ids=client_ids)
    ]
    assert sorted(owned) == queues


@pytest.mark.parametrize("strategy", [AllocateAveragely(), AllocateAveragelyByCircle(), AllocateByConsistentHash()])
def test_an_unknown_member_owns_nothing(strategy: AllocationStrategy) -> None:
    assert strategy.allocate(client_id="me", queues=queues_of("broker-a"), client_ids=CLIENT_IDS) == []


def test_consistent_hash_moves_only_the_leavers_queues() -> None:
    queues = queues_of("broker-a", "broker-b", count=32)
    before = {
        client_id: set(AllocateByConsistentHash().allocate(client_id=client_id, queues=queues, client_ids=CLIENT_IDS))
        for client_id in CLIENT_IDS
    }
    stayed = CLIENT_IDS[:2]
    for client_id in stayed:
        after = AllocateByConsistentHash().allocate(client_id=client_id, queues=queues, client_ids=stayed)
        assert before[client_id] <= set(after)


def test_config_gives_the_configured_queues_of_the_topic_at_hand() -> None:
    mine = MessageQueue(topic="orders", broker_name="broker-a", queue_id=3)
    other = MessageQueue(topic="bills", broker_name="broker-a", queue_id=0)
    strategy = AllocateByConfig((mine, other))
    share = strategy.allocate(client_id=CLIENT_IDS[0], queues=queues_of("broker-a"), client_ids=CLIENT_IDS)
    assert share == [mine]
    unconfigured = queues_of("broker-a", topic="%RETRY%group", count=3)
    share = strategy.allocate(client_id=CLIENT_IDS[2], queues=unconfigured, client_ids=CLIENT_IDS)
    assert share == unconfigured[2:]


def test_nearby_serves_its_own_room_and_shares_rooms_without_members() -> None:
    strategy = AllocateMachineRoomNearby(
        broker_room=lambda queue: queue.broker_name.split("@")[0],
        client_room=lambda client_id: client_id.split("-")[0],
    )
    queues = queues_of("east@a", "west@b", "void@c", count=2)
    client_ids = ["east-1", "east-2", "west-1"]
    shares = {
        client_id: strategy.allocate(client_id=client_id, queues=queues, client_ids=client_ids)
        for client_id in client_ids
    }
    assert sorted(queue for share in shares.values() for queue in share) == sorted(queues)
    assert {queue.broker_name for queue in shares["west-1"]} == {"west@b"}
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"


def test_nearby_refuses_a_room_without_a_name() -> None:
    strategy = AllocateMachineRoomNearby(broker_room=lambda queue: "", client_room=lambda client_id: "east")
    with pytest.raises(InvalidRequestError, match="machine room"):
        strategy.allocate(client_id="a", queues=queues_of("b"), client_ids=["a"])
