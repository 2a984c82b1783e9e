"""Arrivals: a topic's messages in time, made again from recorded minutes, for ever.

    recorded minutes   |--------- cycle ---------|--------- cycle ---------|----

A minute's messages are spread at random over it, as many as there were, of one size each; more than `points_per_minute`
evenly, as that many heaps. Time 0 is now; positions are bytes that came since. Pure.

Bounded: POINTS_MAX points in all, however many topics there are (`points_per_minute`), of 16 bytes each.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from random import Random

import numpy as np

from thermocline.tiered.sealing import TopicTraffic

POINTS_MAX = 2_000_000
POINTS_PER_MINUTE_MAX = 300


def points_per_minute(*, topic_count: int, minute_count: int) -> int:
    """How many points a topic may have for a minute."""
    return max(1, min(POINTS_PER_MINUTE_MAX, POINTS_MAX // max(1, topic_count * minute_count)))


class Arrivals:
    """See the module's header. Made of a topic of which something came."""

    def __init__(
        self, traffic: TopicTraffic, *, cycle_ms: int, random: Random, points_per_minute: int = POINTS_PER_MINUTE_MAX
    ) -> None:
        self._cycle_ms = cycle_ms
        minute_ms = cycle_ms / len(traffic.messages)
        times = array("d")
        sizes = array("d")
        for minute in np.flatnonzero(traffic.messages).tolist():
            messages, raw_bytes = int(traffic.messages[minute]), int(traffic.raw_bytes[minute])
            count = min(messages, points_per_minute)
            start_ms = minute * minute_ms
            if messages <= points_per_minute:
                times.extend(sorted(start_ms + random.random() * minute_ms for _ in range(count)))
            else:
                times.extend(start_ms + (number + 0.5) * minute_ms / count for number in range(count))
            sizes.extend([raw_bytes / count] * count)
        assert times
        self._times = times
        self._ends = array("d", itertools.accumulate(sizes))
        self._bytes = self._ends[-1]

    def first_from(self, time_ms: float) -> float:
        """When the first message at or after a time comes."""
        cycle, rest_ms = divmod(time_ms, self._cycle_ms)
        index = bisect_left(self._times, rest_ms)
        if index == len(self._times):
            return (cycle + 1) * self._cycle_ms + self._times[0]
        return cycle * self._cycle_ms + self._times[index]

    def bytes_before(self, time_ms: float) -> float:
        """How many bytes come from 0 on until a time."""
        cycle, rest_ms = divmod(time_ms, self._cycle_ms)
        index = bisect_left(self._times, rest_ms)
        return cycle * self._bytes + (self._ends[index - 1] if index else 0.0)

    def time_of(self, position: float) -> float:
        """When the byte at a position comes."""
        cycle, rest = divmod(position, self._bytes)
        index = min(bisect_right(self._ends, rest), len(self._times) - 1)
        return cycle * self._cycle_ms + self._times[index]
