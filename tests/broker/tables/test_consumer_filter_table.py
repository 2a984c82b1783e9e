"""Which groups choose by an expression: as they come, change their mind and leave, and as RocketMQ's file has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from thermocline.broker.process.loop_turns import LoopTurns
from thermocline.broker.tables.consumer_filter_table import (
    DEAD_CHARS_MAX,
    DEAD_COUNT_MAX,
    DEAD_KEPT_MS,
    OFFLINE_MS,
    ConsumerFilterData,
    ConsumerFilterTable,
)
from thermocline.broker.tables.message_filters import MessageFilters
from thermocline.filters import DEFAULT_LIMITS
from thermocline.remoting.bodies import SubscriptionData

BORN_MS = 1_700_000_000_000
# As Apache RocketMQ writes it of a group that is online.
OFFICIAL_FILE = json.dumps(
    {
        "filterDataByTopic": {
            "T": {
                "groupFilterData": {
                    "G": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": [1, 2, 3]},
                        "bornTime": BORN_MS,
                        "clientVersion": 7,
                        "consumerGroup": "G",
                        "dead": False,
                        "deadTime": 0,
                        "expression": "a > 5",
                        "expressionType": "SQL92",
                        "topic": "T",
                    }
                },
                "topic": "T",
            }
        }
    }
).encode()


class Setup:
    """A table, the clock it reads and the turns it waits for."""

    def __init__(self, *, jobs_max: int = 10) -> None:
        self.now_ms = BORN_MS
        self.is_enabled = True
        self.called: list[Callable[[], None]] = []
        self.turns = LoopTurns(call_soon=self.called.append, jobs_max=jobs_max, turn_s=0)
        self.filters = MessageFilters(self.turns, is_enabled=lambda: self.is_enabled)
        self.table = self.new_table()

    def new_table(self) -> ConsumerFilterTable:
        return ConsumerFilterTable(self.filters, clock=lambda: self.now_ms)

    def wants(self, group: str = "G", version: int = 1, **expressions: str) -> None:
        """A heartbeat, and the turns that it needs."""
        self.table.group_wants(group, subscriptions(version, **expressions))
        while self.called:
            self.called.pop(0)()

    def get(self, topic: str = "T", group: str = "G") -> ConsumerFilterData:
        found = self.table.get(topic, group)
        assert found is not None
        return found

    def file(self) -> dict[str, Any]:
        table: dict[str, Any] = json.loads(self.table.encode())["filterDataByTopic"]
        return table


def subscriptions(version: int, **expressions: str) -> dict[str, SubscriptionData]:
    return {
        topic: SubscriptionData(
            topic=topic,
            sub_string=text,
            expression_type="TAG" if "||" in text or text == "*" else "SQL92",
            sub_version=version,
        )
        for topic, text in expressions.items()
    }


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_the_file_is_rocketmq_s(setup: Setup) -> None:
    setup.wants(T="a > 5", version=7)
    assert setup.file() == {
        "T": {
            "groupFilterData": {
                "G": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [24, 26, 83]},
                    "bornTime": BORN_MS,
                    "clientVersion": 7,
                    "consumerGroup": "G",
                    "dead": False,
                    "deadTime": 0,
                    "expression": "a > 5",
                    "expressionType": "SQL92",
                    "topic": "T",
                }
            },
            "topic": "T",
        }
    }


def saved(table: ConsumerFilterTable) -> None:
    """The file has all of it."""
    table.changes.begin_save()
    table.changes.end_save()


def test_nothing_is_written_as_nothing(setup: Setup) -> None:
    assert setup.table.encode() == b'{"filterDataByTopic":{}}'
    setup.table.load(setup.table.encode())
    assert setup.table.encode() == b'{"filterDataByTopic":{}}'


def test_groups_that_choose_by_tags_are_not_in_it(setup: Setup) -> None:
    setup.wants(T="*", U="a || b")
    assert not setup.table.changes.is_unsaved
    assert setup.file() == {}


def test_a_repeated_heartbeat_changes_nothing(setup: Setup) -> None:
    setup.wants(T="a > 5")
    saved(setup.table)
    setup.now_ms += 30_000
    setup.wants(T="a > 5")
    assert not setup.table.changes.is_unsaved
    assert setup.get().born_time == BORN_MS


def test_a_newer_version_of_the_same_is_noted(setup: Setup) -> None:
    setup.wants(T="a > 5")
    setup.now_ms += 1
    setup.wants(T="a > 5", version=2)
    assert (setup.get().client_version, setup.get().born_time) == (2, BORN_MS)


def test_another_expression_is_born_anew(setup: Setup) -> None:
    setup.wants(T="a > 5")
    setup.now_ms += 1
    setup.wants(T="a > 6", version=2)
    assert (setup.get().expression, setup.get().born_time) == ("a > 6", BORN_MS + 1)


@pytest.mark.parametrize("later", [{}, {"U": "a > 5"}, {"T": "*"}])
def test_a_filter_without_a_subscription_is_dead(setup: Setup, later: dict[str, str]) -> None:
    setup.wants(T="a > 5")
    setup.now_ms += 5
    setup.wants(version=2, **later)
    assert (setup.get().dead, setup.get().dead_time) == (True, BORN_MS + 5)
    saved(setup.table)
    setup.wants(version=2, **later)
    assert not setup.table.changes.is_unsaved


def test_a_filter_is_alive_again_when_its_client_returns(setup: Setup) -> None:
    setup.wants(T="a > 5")
    setup.wants()
    setup.now_ms += DEAD_KEPT_MS - 1
    setup.wants(T="a > 5", version=9)
    alive = setup.get()
    assert (alive.dead, alive.dead_time, alive.born_time, alive.client_version) == (False, 0, BORN_MS, 9)
    setup.now_ms += DEAD_KEPT_MS
    assert setup.file()["T"]


def test_the_dead_are_forgotten_after_a_day(setup: Setup) -> None:
    setup.wants(T="a > 5")
    setup.wants("other", T="a > 5")
    setup.wants()
    setup.now_ms += DEAD_KEPT_MS - 1
    assert setup.file()["T"]["groupFilterData"].keys() == {"G", "other"}
    setup.now_ms += 1
    assert setup.file()["T"]["groupFilterData"].keys() == {"other"}
    assert setup.table.get("T", "G") is not None, "showing the table forgets nothing"
    setup.wants("other")
    assert setup.table.get("T", "G") is None
    setup.now_ms += DEAD_KEPT_MS
    assert setup.file() == {}


def test_no_more_dead_are_kept_than_there_is_room_for(setup: Setup) -> None:
    for number in range(DEAD_COUNT_MAX + 2):
        setup.wants(f"G{number}", T="a > 5")
        setup.wants(f"G{number}")
    assert setup.table.get("T", "G1") is None
    assert len(setup.file()["T"]["groupFilterData"]) == DEAD_COUNT_MAX


def test_long_expressions_of_the_dead_are_bounded_together(setup: Setup) -> None:
    text = "a > 5".ljust(DEFAULT_LIMITS.expression_chars_max)
    count_max = DEAD_CHARS_MAX // len(text)
    for number in range(count_max + 1):
        setup.wants(f"G{number}", T=text)
        setup.wants(f"G{number}")
    assert setup.table.get("T", "G0") is None
    assert len(setup.file()["T"]["groupFilterData"]) == count_max


def test_a_broken_expression_leaves_the_group_without_a_filter(setup: Setup) -> None:
    setup.wants(T="a >")
    assert setup.table.get("T", "G") is None
    setup.wants(T="a > 5", version=2)
    setup.wants(T="a >", version=3)
    assert setup.table.get("T", "G") is None
    saved(setup.table)
    setup.wants(T="a >", version=3)
    assert not setup.table.changes.is_unsaved


def test_an_unknown_expression_type_has_no_filter(setup: Setup) -> None:
    setup.table.group_wants("G", {"T": SubscriptionData(topic="T", expression_type="CLASS", sub_string="x")})
    assert setup.table.get("T", "G") is None
    assert not setup.called


def test_nothing_is_compiled_while_filters_are_off(setup: Setup) -> None:
    setup.is_enabled = False
    setup.wants(T="a > 5")
    assert len(setup.turns) == 0
    assert setup.file() == {}
    setup.is_enabled = True
    setup.wants(T="a > 5")
    assert not setup.get().dead


def test_expressions_are_compiled_one_after_the_other_beside_all_else(setup: Setup) -> None:
    """By one job, however many there are: others wait for one turn of it."""
    setup.table.group_wants("G", subscriptions(1, **{f"T{number}": f"a = {number}" for number in range(3)}))
    setup.table.group_wants("H", subscriptions(1, T="a = 9"))
    counts = []
    while setup.called:
        assert len(setup.turns) == 1
        setup.called.pop()()
        counts.append(sum(len(topic["groupFilterData"]) for topic in setup.file().values()))
    assert sorted(set(counts)) == [0, 1, 2, 3, 4]
    assert len(setup.turns) == 0
    assert setup.get(group="H").expression == "a = 9"


def test_a_group_that_leaves_while_its_expression_is_compiled_has_no_filter(setup: Setup) -> None:
    setup.table.group_wants("G", subscriptions(1, T="a = 1"))
    setup.called.pop()()
    setup.table.group_wants("G", {})
    setup.wants("H", T="a = 2")
    assert setup.table.get("T", "G") is None
    assert setup.get(group="H").expression == "a = 2"


def test_a_pending_filter_without_a_subscription_is_not_compiled(setup: Setup) -> None:
    setup.table.group_wants("G", subscriptions(1, T="a = 1"))
    setup.table.group_wants("G", subscriptions(2, T="a = 2"))
    setup.wants("H", U="a = 3")
    assert setup.get().expression == "a = 2"
    setup.table.group_wants("G", subscriptions(3, T="a = 4"))
    setup.wants()
    assert (setup.get().expression, setup.get().dead) == ("a = 2", True)


def test_when_too_much_waits_the_next_heartbeat_tries_again() -> None:
    setup = Setup(jobs_max=1)
    setup.turns.add(lambda _: True)
    setup.table.group_wants("G", subscriptions(1, T="a = 1"))
    setup.called.pop()()
    assert not setup.called
    assert setup.table.get("T", "G") is None
    setup.wants(T="a = 1")
    assert setup.get().expression == "a = 1"


def test_rocketmq_s_file_is_read(setup: Setup) -> None:
    """Filters that were alive in the file are dead until their client registers again; the next reader sees it too."""
    setup.now_ms = BORN_MS + 3_600_000
    setup.table.load(OFFICIAL_FILE)
    assert not setup.table.changes.is_unsaved
    read = setup.get()
    assert (read.dead, read.dead_time) == (True, setup.now_ms - OFFLINE_MS)
    assert (read.expression, read.born_time, read.client_version) == ("a > 5", BORN_MS, 7)
    setup.wants(T="a > 5", version=8)
    assert (setup.get().dead, setup.get().born_time) == (False, BORN_MS)


def test_a_recent_file_does_not_end_a_filter_before_its_birth(setup: Setup) -> None:
    setup.table.load(OFFICIAL_FILE)
    assert setup.get().dead_time == BORN_MS


def test_a_written_file_is_read_again(setup: Setup) -> None:
    setup.wants(T="a > 5", U="b IS NULL")
    setup.wants("other", T="TAGS = 'x'")
    setup.now_ms += 60_000
    setup.wants("other")
    again = setup.new_table()
    again.load(setup.table.encode())
    assert again.get("T", "other") == setup.get(group="other")
    read = again.get("U", "G")
    assert read is not None
    assert (read.expression, read.dead, read.dead_time) == ("b IS NULL", True, setup.now_ms - OFFLINE_MS)
    assert json.loads(again.encode())["filterDataByTopic"].keys() == {"T", "U"}


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"filterDataByTopic":{"T":5}}'])
def test_a_file_that_cannot_be_read_is_passed_over(setup: Setup, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    setup.table.load(data)
    assert setup.file() == {}
    assert "consumer filters not read" in caplog.text


def test_no_file_is_fine(setup: Setup) -> None:
    setup.table.load(None)
    assert setup.file() == {}
