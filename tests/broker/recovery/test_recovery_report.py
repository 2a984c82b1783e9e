"""Recovery report: its printed lines, and what waited in internal topics."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.broker.recovery.recovery_report import RecoveryReport, TopicReport, unfinished_work
from thermocline.remoting.topic_validation import SCHEDULE_TOPIC
from thermocline.tiered.state import StateSnapshot, TopicState
from thermocline.tiered.state import snapshot as names
from thermocline.tiered.state.snapshot import QueueEnd

TIMER_TOPIC = "rmq_sys_wheel_timer"


def report(*topics: TopicReport, **changes: Any) -> RecoveryReport:
    values: dict[str, Any] = {
        "root": "C/b",
        "version": 7,
        "epoch": 3,
        "captured_ms": 1_000,
        "recovered_ms": 13_000,
        "topics": topics,
        "unfinished": {},
    }
    return RecoveryReport(**values | changes)


@pytest.mark.parametrize(("recovered_ms", "age"), [(13_000, "12"), (1_000, "0"), (500, "0")])
def test_the_first_and_the_last_line_have_the_age_of_the_state(recovered_ms: int, age: str) -> None:
    first, last = report(recovered_ms=recovered_ms).lines()
    assert first == f"recovered root=C/b epoch=3 version=7 state_age_s={age}"
    assert last.startswith(f"not counted: what was acknowledged in the {age} s after")


def test_lines_of_topics_name_only_what_there_is() -> None:
    topics = (
        TopicReport(topic="plain", committed_count=5, known_lost_count=0),
        TopicReport(topic="both", committed_count=5, known_lost_count=2, quarantined_count=1, expired_count=3),
        TopicReport(topic="unread", committed_count=5, known_lost_count=0, expired_count=None),
    )
    lines = list(report(*topics, unfinished={"b": 4, "a": None}, skipped=("state/9.json",)).lines())
    assert lines[1].startswith("skipped=state/9.json is damaged; ")
    assert lines[2:-1] == [
        "topic=plain committed=5 lost=0",
        "topic=both committed=5 lost=2 quarantined=1 expired=3",
        "topic=unread committed=5 lost=0 expired=unknown",
        "unfinished=a lost=unknown",
        "unfinished=b lost=4",
    ]


def snapshot(ends: dict[str, list[tuple[int, int]]], delays: dict[str, int]) -> StateSnapshot:
    return StateSnapshot(
        format=1,
        epoch=1,
        sequence=1,
        store_uuid="u",
        cluster="C",
        broker_name="b",
        captured_ms=0,
        log_offset=0,
        log_ceiling=0,
        record_bytes_min=1,
        topics=tuple(
            TopicState(topic=topic, ends=tuple(QueueEnd(*end) for end in of_topic)) for topic, of_topic in ends.items()
        ),
        documents={names.DELAY_OFFSETS: {"offsetTable": delays}} if delays else {},
    )


def test_internal_topics_that_ever_had_a_message_are_named() -> None:
    found = unfinished_work(snapshot({"orders": [(0, 9)], TIMER_TOPIC: [(0, 0), (1, 2)], "TRANS_CHECK": [(0, 3)]}, {}))
    assert found == {TIMER_TOPIC: None}
    assert unfinished_work(snapshot({TIMER_TOPIC: [(0, 0)]}, {})) == {}


def test_delayed_messages_that_were_not_delivered_are_counted_by_level() -> None:
    """Queue 0 is level 1; a level without an offset has delivered nothing."""
    ends = {SCHEDULE_TOPIC: [(0, 10), (1, 5), (4, 7)]}
    assert unfinished_work(snapshot(ends, {"1": 4, "2": 5})) == {SCHEDULE_TOPIC: 6 + 0 + 7}
    assert unfinished_work(snapshot(ends, {"1": 11, "2": 5, "5": 7})) == {SCHEDULE_TOPIC: 0}
    assert unfinished_work(snapshot(ends, {})) == {SCHEDULE_TOPIC: 22}
