"""Queue selectors; hashes are those of Java's hashCode, so that one key means one queue in every language."""

from __future__ import annotations

import random

import pytest

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.queue_selector import SelectRandomly, select_by_hash, select_by_queue_id
from thermocline.remoting.errors import InvalidRequestError

QUEUES = [MessageQueue(topic="flights", broker_name="broker-a", queue_id=i) for i in range(8)]
MESSAGE = Message("flights", b"x")


@pytest.mark.parametrize(
    ("argument", "queue_id"),
    [
        ("JFK", 7),
        ("grün", 5),
        ("", 0),
        ("a much longer key than most", 6),
        (5, 5),
        (-7, 7),
        (-(2**31), 0),
        (1234567890123, 4),
        (-1234567890123, 5),
    ],
)
def test_hash_agrees_with_the_official_selector(argument: object, queue_id: int) -> None:
    assert select_by_hash(QUEUES, MESSAGE, argument).queue_id == queue_id


@pytest.mark.parametrize("argument", [None, 1.5, True, ("a",)])
def test_hash_refuses_types_that_languages_hash_differently(argument: object) -> None:
    with pytest.raises(InvalidRequestError):
        select_by_hash(QUEUES, MESSAGE, argument)


def test_queue_id_finds_the_queue_or_says_there_is_none() -> None:
    assert select_by_queue_id(QUEUES, MESSAGE, 3) is QUEUES[3]
    with pytest.raises(InvalidRequestError, match="queue_id=9"):
        select_by_queue_id(QUEUES, MESSAGE, 9)


def test_random_reaches_every_queue() -> None:
    select = SelectRandomly(random.Random(7))
    assert {select(QUEUES, MESSAGE, None) for _ in range(200)} == set(QUEUES)
