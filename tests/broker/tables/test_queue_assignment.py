"""Queue assignment: shares of the queues for clients that pull, and those that several clients pop."""

from __future__ import annotations

import itertools

import pytest

from thermocline.broker.tables.queue_assignment import ALL_QUEUES, STRATEGIES, assign_for_pop, assign_for_pull
from thermocline.remoting.bodies import MessageQueue

AVG, CIRCLE = STRATEGIES["AVG"], STRATEGIES["AVG_BY_CIRCLE"]
CLIENTS = ["a", "b", "c"]


def queues(count: int, *brokers: str) -> list[MessageQueue]:
    return [
        MessageQueue(topic="T", broker_name=broker, queue_id=queue_id)
        for broker in brokers or ("b1",)
        for queue_id in range(count)
    ]


def ids(found: list[MessageQueue]) -> list[int]:
    return [each.queue_id for each in found]


@pytest.mark.parametrize(
    ("count", "averagely", "by_circle"),
    [
        (0, [[], [], []], [[], [], []]),
        (2, [[0], [1], []], [[0], [1], []]),
        (6, [[0, 1], [2, 3], [4, 5]], [[0, 3], [1, 4], [2, 5]]),
        (8, [[0, 1, 2], [3, 4, 5], [6, 7]], [[0, 3, 6], [1, 4, 7], [2, 5]]),
    ],
)
def test_pulled_queues(count: int, averagely: list[list[int]], by_circle: list[list[int]]) -> None:
    """Whatever the order that queues and clients come in, and with a client that has two connections."""
    for strategy, expected in ((AVG, averagely), (CIRCLE, by_circle)):
        found = [assign_for_pull(strategy, queues(count)[::-1], [*CLIENTS[::-1], "b"], each) for each in CLIENTS]
        assert [ids(each) for each in found] == expected
        assert assign_for_pull(strategy, queues(count), CLIENTS, "stranger") == []


@pytest.mark.parametrize("share_count", [-1, 0, 2, 3])
def test_popped_by_all(share_count: int) -> None:
    """Once for each broker; also by a client that is not a member yet."""
    everywhere = [MessageQueue(topic="T", broker_name=name, queue_id=ALL_QUEUES) for name in ("b1", "b2")]
    for client in (*CLIENTS, "stranger"):
        assert assign_for_pop(AVG, queues(3, "b2", "b1"), CLIENTS, client, share_count=share_count) == everywhere


def test_popped_by_some() -> None:
    """A client's own, and those of the clients behind it, round the list."""

    def of(client: str, *, clients: str = "abcd", share_count: int = 1) -> list[int]:
        return ids(assign_for_pop(AVG, queues(8)[::-1], [*clients, "a"], client, share_count=share_count))

    assert [of(each) for each in "abcd"] == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 0, 1]]
    assert of("d", share_count=2) == [6, 7, 0, 1, 2, 3]
    assert of("stranger") == []
    assert of("d", share_count=3) == [ALL_QUEUES]


def test_with_fewer_queues_than_clients_every_client_has_one() -> None:
    clients = list("abcde")
    found = [ids(assign_for_pop(AVG, queues(3), clients, each, share_count=1)) for each in clients]
    assert found == [[0], [1], [2], [0], [1]]
    assert assign_for_pop(AVG, [], clients, "a", share_count=1) == []
    as_many = [ids(assign_for_pop(AVG, queues(5), clients, each, share_count=1)) for each in clients]
    assert as_many == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]


def test_every_queue_is_popped_by_as_many_clients_as_are_asked_for() -> None:
    for strategy, count, share_count in itertools.product((AVG, CIRCLE), (5, 7, 12), (1, 2)):
        clients = list("abcde")
        found = [
            ids(assign_for_pop(strategy, queues(count), clients, each, share_count=share_count)) for each in clients
        ]
        assert sorted(itertools.chain(*found)) == sorted([*range(count)] * (share_count + 1))
