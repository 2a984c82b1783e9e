"""TransactionCounts: what is open by topic, over a start and in RocketMQ's file."""

from __future__ import annotations

import json

import pytest

from tests.clock import Clock
from thermocline.broker.due.transaction_counts import TransactionCounts
from thermocline.remoting.errors import CorruptDataError


def counts(*topics: tuple[str, int], now_ms: int = 5) -> TransactionCounts:
    made = TransactionCounts(clock=Clock(now_ms), has_topic=lambda topic: topic != "deleted")
    for topic, change in topics:
        made.add(topic, change)
    return made


def shown(table: TransactionCounts) -> dict[str, tuple[int, int]]:
    file = json.loads(table.encode())
    return {topic: (each["count"], each["timeStamp"]) for topic, each in file["transactionCount"].items()}


def test_each_change_is_noted() -> None:
    table = counts(("T", 1), ("T", 1), ("U", 1), ("T", -1))
    assert (table.of("T"), table.of("U"), table.of("none")) == (1, 1, 0)
    assert shown(table) == {"T": (1, 5), "U": (1, 5)}
    assert table._version.current.counter == 4
    assert table.changes.is_unsaved


def test_a_start_counts_anew_and_changes_only_what_differs() -> None:
    """Topics of the file stay, with none open."""
    before = counts(("same", 2), ("less", 5), ("gone", 3), ("none", 1), ("none", -1))
    clock = Clock(9)
    table = TransactionCounts(clock=clock, has_topic=lambda topic: True)
    table.load(before.encode())
    assert not table.changes.is_unsaved
    table.start_with({"same": 2, "less": 4, "new": 1})
    assert shown(table) == {"same": (2, 5), "less": (4, 9), "gone": (0, 9), "none": (0, 5), "new": (1, 9)}
    assert table._version.current.counter == before._version.current.counter + 3
    assert table.changes.is_unsaved


def test_a_topic_that_was_deleted_stays_until_none_is_open() -> None:
    table = counts(("T", 1), ("T", -1), ("deleted", 1))
    assert shown(table) == {"T": (0, 5), "deleted": (1, 5)}
    table.add("deleted", -1)
    assert shown(table) == {"T": (0, 5)}


def test_files_of_rocketmq_and_none() -> None:
    table = counts()
    table.load(None)
    assert shown(table) == {}
    table.load(b'{"transactionCount":{"T":{"count":2,"timeStamp":7}}}')
    assert shown(table) == {"T": (2, 7)}
    with pytest.raises(CorruptDataError):
        table.load(b"[]")
