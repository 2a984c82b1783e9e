"""When a topic would be sealed under given rules, if what came in lately came in again and again.

    recorded minutes   |--------- cycle ---------|--------- cycle ---------|----   repeated for ever
    sealed             ^ by age       ^ by size     ^ by age                       once a round, as by the service

A minute's messages are spread at random over it, as many as there were, of one size each; more than POINTS_PER_MINUTE
evenly, as that many heaps. Rules as in `seal_backlog.py`: a topic is due when its oldest waiting message is `age_ms`
old, and takes all that waits; or when `segment_bytes` wait, and takes so much. It is looked at once a round. Pure.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from random import Random

import numpy as np

from thermocline.tiered.cost.traffic_record import MINUTE_MS, TopicTraffic

POINTS_PER_MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SealRules:
    """`segment_bytes` and `age_ms` as in SealPolicy; `round_ms`: how often topics are looked at."""

    segment_bytes: int
    age_ms: int
    round_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """A topic to forecast. What waits now: so many bytes, the oldest stored `waited_ms` ago."""

    traffic: TopicTraffic
    ttl_ms: int | None = None
    waiting_bytes: int = 0
    waited_ms: int = 0

    @property
    def topic(self) -> str:
        """Its name."""
        return self.traffic.topic


@dataclass(frozen=True, slots=True)
class ForecastSeal:
    """One segment: sealed in the round at `round_ms`; its newest message was stored at `newest_ms`. 0 is now."""

    round_ms: int
    newest_ms: int


class Arrivals:
    """A topic's messages in time, from 0 on, and again after each cycle."""

    def __init__(self, traffic: TopicTraffic, *, cycle_ms: int, random: Random) -> None:
        self._cycle_ms = cycle_ms
        minute_ms = cycle_ms / len(traffic.messages)
        times: list[float] = []
        sizes: list[float] = []
        for minute in np.flatnonzero(traffic.messages).tolist():
            messages, raw_bytes = int(traffic.messages[minute]), int(traffic.raw_bytes[minute])
            count = min(messages, POINTS_PER_MINUTE)
            start_ms = minute * minute_ms
            if messages <= POINTS_PER_MINUTE:
                times += sorted(start_ms + random.random() * minute_ms for _ in range(count))
            else:
                times += [start_ms + (number + 0.5) * minute_ms / count for number in range(count)]
            sizes += [raw_bytes / count] * count
        assert times
        self._times = times
        self._ends = list(itertools.accumulate(sizes))
        self._bytes = self._ends[-1]

    def first_from(self, time_ms: float) -> float:
        """When the first message at or after a time comes."""
        cycle, rest_ms = divmod(time_ms, self._cycle_ms)
        index = bisect_left(self._times, rest_ms)
        if index == len(self._times):
            return (cycle + 1) * self._cycle_ms + self._times[0]
        return cycle * self._cycle_ms + self._times[index]

    def last_before(self, time_ms: float) -> float:
        """When the last message before a time came."""
        cycle, rest_ms = divmod(time_ms, self._cycle_ms)
        index = bisect_left(self._times, rest_ms)
        if index == 0:
            return (cycle - 1) * self._cycle_ms + self._times[-1]
        return cycle * self._cycle_ms + self._times[index - 1]

    def bytes_before(self, time_ms: float) -> float:
        """How many bytes come from 0 on until a time."""
        cycle, rest_ms = divmod(time_ms, self._cycle_ms)
        index = bisect_left(self._times, rest_ms)
        return cycle * self._bytes + (self._ends[index - 1] if index else 0.0)

    def time_of(self, position: float) -> float:
        """When the byte at a position, counted from 0 on, comes."""
        cycle, rest = divmod(position, self._bytes)
        index = min(bisect_right(self._ends, rest), len(self._times) - 1)
        return cycle * self._cycle_ms + self._times[index]


def forecast_seals(load: TopicLoad, rules: SealRules, arrivals: Arrivals, *, horizon_ms: int) -> list[ForecastSeal]:
    """The segments of a topic that are sealed from now until the horizon, in order of time."""
    seals: list[ForecastSeal] = []
    position = -float(load.waiting_bytes)
    first_ms = -float(load.waited_ms) if load.waiting_bytes else arrivals.first_from(0)
    while True:
        full_position = position + rules.segment_bytes
        full_ms = arrivals.time_of(full_position - 1) if full_position > 0 else 0.0
        aged_ms = first_ms + rules.age_ms
        if full_ms <= aged_ms:
            round_ms, newest_ms = _round_from(full_ms, rules.round_ms), full_ms
            position = full_position
            first_ms = arrivals.time_of(position) if position > 0 else first_ms
        else:
            round_ms = _round_from(aged_ms, rules.round_ms)
            newest_ms = arrivals.last_before(round_ms)
            position = max(arrivals.bytes_before(round_ms), position)
            first_ms = arrivals.first_from(round_ms)
        if round_ms >= horizon_ms:
            return seals
        is_expired = load.ttl_ms is not None and newest_ms < round_ms - load.ttl_ms
        if not is_expired:
            seals.append(ForecastSeal(round_ms, int(newest_ms)))


def _round_from(time_ms: float, round_ms: int) -> int:
    """The first round at or after a time, and after now."""
    return max(0, -int(-time_ms // round_ms)) * round_ms


assert MINUTE_MS % POINTS_PER_MINUTE == 0
