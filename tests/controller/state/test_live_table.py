"""Heartbeats: who is alive, until when, and on whose connection."""

from __future__ import annotations

from thermocline.controller.state import BrokerKey, LiveTable
from thermocline.controller.state.live_table import PRIORITY_DEFAULT, TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX

FIRST, SECOND = BrokerKey("c", "a", 1), BrokerKey("c", "a", 2)


def beat(table: LiveTable, key: BrokerKey, now_ms: int, *, owner: object = "one", **fields: int) -> None:
    table.beat(key, now_ms=now_ms, owner=owner, address="host:1", **fields)


def test_a_broker_is_alive_until_its_own_time_has_passed() -> None:
    table = LiveTable()
    beat(table, FIRST, 1_000, timeout_ms=500)
    beat(table, SECOND, 1_000)
    assert table.at(1_500).get(FIRST) is not None
    assert table.at(1_501).get(FIRST) is None
    assert table.at(1_000 + TIMEOUT_MS_DEFAULT).get(SECOND) is not None
    assert table.next_expiry_ms() == 1_501
    assert table.expire(1_501) == [(FIRST, "one")]
    assert table.next_expiry_ms() == 1_001 + TIMEOUT_MS_DEFAULT
    assert not table.has(FIRST)
    assert table.owner_gone("one") == [SECOND]
    assert len(table) == 0
    assert table.next_expiry_ms() is None


def test_a_timeout_is_bounded() -> None:
    table = LiveTable()
    beat(table, FIRST, 0, timeout_ms=1 << 60)
    assert table.at(TIMEOUT_MS_MAX + 1).get(FIRST) is None


def test_epoch_and_offset_do_not_move_back_and_the_priority_is_the_last_one() -> None:
    table = LiveTable()
    beat(table, FIRST, 0, epoch=2, max_offset=100, confirm_offset=90, priority=3)
    beat(table, FIRST, 1, epoch=1, max_offset=500, confirm_offset=400)
    found = table.at(1).get(FIRST)
    assert found is not None
    assert (found.epoch, found.max_offset, found.confirm_offset) == (2, 100, 90)
    assert found.priority == PRIORITY_DEFAULT
    beat(table, FIRST, 2, epoch=3, max_offset=7)
    assert (found.epoch, found.max_offset, found.confirm_offset) == (3, 7, -1)


def test_a_broker_that_is_back_from_a_power_cut_has_no_more_than_it_says() -> None:
    """Its machine has closed no connection: the entry from before still stands."""
    table = LiveTable()
    beat(table, FIRST, 0, owner="before the cut", epoch=3, max_offset=500, confirm_offset=500)
    beat(table, FIRST, 1, owner="after it", epoch=3, max_offset=200, confirm_offset=100)
    found = table.at(1).get(FIRST)
    assert found is not None
    assert (found.epoch, found.max_offset, found.confirm_offset) == (3, 200, 100)


def test_a_connection_takes_the_brokers_with_it_that_used_no_other_since() -> None:
    table = LiveTable()
    beat(table, FIRST, 0, owner="old")
    beat(table, SECOND, 0, owner="old")
    beat(table, FIRST, 1, owner="new")
    assert table.owner_gone("old") == [SECOND]
    assert table.at(1).get(FIRST) is not None
    assert table.owner_gone("new") == [FIRST]
    assert table.owner_gone("new") == []
