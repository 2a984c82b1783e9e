"""Arrivals: a recorded cycle goes on for ever; bytes up to a time, and the time of a byte."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from thermocline.tiered.bill.arrivals import POINTS_MAX, POINTS_PER_MINUTE_MAX, Arrivals, points_per_minute
from thermocline.tiered.sealing import TopicTraffic

MINUTE_MS = 60_000


def arrivals(*minutes: tuple[int, int], points: int = 1) -> Arrivals:
    """Messages and bytes of each minute."""
    messages, raw_bytes = (np.array(column, np.int64) for column in zip(*minutes, strict=True))
    traffic = TopicTraffic(topic="orders", messages=messages, raw_bytes=raw_bytes)
    return Arrivals(traffic, cycle_ms=len(minutes) * MINUTE_MS, random=Random(1), points_per_minute=points)


@pytest.fixture
def heaps() -> Arrivals:
    """100 bytes in the middle of the first minute, none in the second, 300 in the third."""
    return arrivals((5, 100), (0, 0), (2, 300))


HEAPS = [(30_000, 100), (150_000, 300), (210_000, 100), (330_000, 300), (390_000, 100)]


def test_the_first_message_from_a_time_on(heaps: Arrivals) -> None:
    before_ms = 0
    for time_ms, _ in HEAPS:
        for from_ms in (before_ms, time_ms - 1, time_ms):
            assert heaps.first_from(from_ms) == time_ms
        before_ms = time_ms + 1


def test_bytes_before_a_time(heaps: Arrivals) -> None:
    total = 0
    for time_ms, size_bytes in HEAPS:
        assert heaps.bytes_before(time_ms) == total, "what comes then is not before"
        total += size_bytes
        assert heaps.bytes_before(time_ms + 1) == total
    assert heaps.bytes_before(0) == 0


def test_the_time_of_a_byte(heaps: Arrivals) -> None:
    start = 0
    for time_ms, size_bytes in HEAPS:
        assert [heaps.time_of(start), heaps.time_of(start + size_bytes - 1)] == [time_ms, time_ms]
        start += size_bytes


def test_more_messages_than_points_are_as_many_even_heaps() -> None:
    even = arrivals((10, 100), points=4)
    times = {position: even.time_of(position) for position in (0, 24, 25, 50, 75, 99)}
    assert times == {0: 7_500, 24: 7_500, 25: 22_500, 50: 37_500, 75: 52_500, 99: 52_500}


def test_few_messages_are_spread_over_their_minute() -> None:
    spread = arrivals((0, 0), (3, 30), points=3)
    times = [spread.time_of(position) for position in (0, 10, 20)]
    assert times == sorted(times)
    assert len(set(times)) == 3
    assert all(MINUTE_MS <= time_ms < 2 * MINUTE_MS for time_ms in times)
    assert [spread.time_of(30 + position) for position in (0, 10, 20)] == [2 * MINUTE_MS + each for each in times]


def test_points_are_bounded_in_all() -> None:
    assert points_per_minute(topic_count=1, minute_count=60) == POINTS_PER_MINUTE_MAX
    assert points_per_minute(topic_count=0, minute_count=0) == POINTS_PER_MINUTE_MAX
    assert points_per_minute(topic_count=1_000, minute_count=60) == POINTS_MAX // 60_000
    assert points_per_minute(topic_count=POINTS_MAX, minute_count=60) == 1
