"""The traffic record: minutes of the last hour, for as many topics as it has room for."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from thermocline.tiered.sealing import traffic_record
from thermocline.tiered.sealing.traffic_record import MINUTE_MS, OTHER_TOPICS, TrafficRecord, TrafficWindow


def by_topic(window: TrafficWindow) -> dict[str, tuple[list[int], list[int]]]:
    return {each.topic: (each.messages.tolist(), each.raw_bytes.tolist()) for each in window.topics}


def test_each_minute_has_its_own_messages() -> None:
    clock = Clock(5_000_000)
    record = TrafficRecord(clock)
    record.note("a", messages=1, raw_bytes=10)
    clock.now_ms += 30_000
    record.note("a", messages=2, raw_bytes=20)
    assert record.window() == TrafficWindow(elapsed_ms=30_000, topics=record.window().topics)
    assert by_topic(record.window()) == {"a": ([3], [30])}, "nothing but the minute under way"
    clock.now_ms += 3 * MINUTE_MS
    record.note("b", messages=5, raw_bytes=50)
    assert by_topic(record.window()) == {"a": ([3, 0, 0], [30, 0, 0])}, "b is of the minute under way"
    clock.now_ms += MINUTE_MS
    assert record.window().elapsed_ms == 4 * MINUTE_MS
    assert by_topic(record.window()) == {"a": ([3, 0, 0, 0], [30, 0, 0, 0]), "b": ([0, 0, 0, 5], [0, 0, 0, 50])}


def test_traffic_older_than_an_hour_is_dropped() -> None:
    clock = Clock(5_000_000)
    record = TrafficRecord(clock)
    for minute in range(200):
        clock.now_ms = 5_000_000 + minute * MINUTE_MS
        record.note("a", messages=1, raw_bytes=minute)
    (traffic,) = record.window().topics
    assert traffic.raw_bytes.tolist() == list(range(140, 199))
    clock.now_ms += 30 * MINUTE_MS
    assert by_topic(record.window())["a"][0] == [1] * 30 + [0] * 29
    clock.now_ms += 1_000 * MINUTE_MS
    assert record.window().topics == ()


def test_silent_topics_make_room_and_the_rest_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_record, "TOPICS_MAX", 100)
    clock = Clock(5_000_000)
    record = TrafficRecord(clock)
    for number in range(150):
        record.note(f"t{number}", messages=1, raw_bytes=number)
    clock.now_ms += MINUTE_MS
    window = record.window()
    assert len(window.topics) == 101
    assert window.raw_bytes == sum(range(150))
    assert by_topic(window)[OTHER_TOPICS] == ([50], [sum(range(100, 150))])
    clock.now_ms += 30 * MINUTE_MS
    record.note("t3", messages=1, raw_bytes=7)
    clock.now_ms += 40 * MINUTE_MS
    record.note("new", messages=1, raw_bytes=9)
    clock.now_ms += MINUTE_MS
    sums = {topic: sum(raw_bytes) for topic, (_, raw_bytes) in by_topic(record.window()).items()}
    assert sums == {"t3": 7, "new": 9}
