"""Meters: counts and bytes of one thing (a topic's puts, a group's gets) with sums over a minute, an hour and a day.

A window is a short row of samples (time, times, count, bytes). Its sum is last minus first, its rate that over their
distance in time:

    window   sampled every   samples kept
    minute   10 s            7
    hour     10 min          7
    day      1 h             25

Rules
  - Adding touches one meter and nothing else: the hot path adds once per run of messages of one topic.
  - Bound: `keys_max` meters a set. What is added to further keys counts in one meter that nothing shows.
  - Only meters that moved are sampled. `add` puts a meter that rests back into the sets that `sample` walks; a meter
    whose window has become flat leaves that set again. Ten thousand idle topics cost nothing.
Owner: the hot process's event loop.
Source: common/stats/StatsItem.java and StatsItemSet.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import msgspec


class Window(IntEnum):
    """The three windows; the value is the index into the tables below."""

    MINUTE = 0
    HOUR = 1
    DAY = 2


INTERVAL_MS = (10_000, 600_000, 3_600_000)
SAMPLES_MAX = (7, 7, 25)
ALL_ACTIVE = 0b111
KEYS_MAX = 100_000
"""The default of `statsKeysMax`."""


class Sample(NamedTuple):
    """The values of a meter at a time."""

    time_ms: int
    times: int
    messages: int
    size_bytes: int


class WindowSum(msgspec.Struct, frozen=True, kw_only=True):
    """Sum over a window, per second, and per call of `add`."""

    sum: int
    per_second: float
    per_time: float


EMPTY_SUM = WindowSum(sum=0, per_second=0.0, per_time=0.0)


@dataclass(slots=True)
class Meter:
    """Totals since start, and the samples of the windows in which they moved."""

    activate: Callable[[Meter], None]
    """Its set's: to be called before a meter that rests moves."""
    key: str
    times: int = 0
    count: int = 0
    bytes: int = 0
    active: int = 0  # one bit per window: this meter is among those that are sampled for it
    windows: list[deque[Sample]] = field(default_factory=lambda: [deque(maxlen=size) for size in SAMPLES_MAX])

    def add(self, count: int, bytes_: int = 0) -> None:
        """Count. The hot path: three additions."""
        if self.active != ALL_ACTIVE:
            self.activate(self)
        self.times += 1
        self.count += count
        self.bytes += bytes_

    def count_sum(self, window: Window) -> WindowSum:
        """Messages over the window."""
        return _sum(self.windows[window], column=2)

    def bytes_sum(self, window: Window) -> WindowSum:
        """Bytes over the window."""
        return _sum(self.windows[window], column=3)


def _sum(samples: deque[Sample], *, column: int) -> WindowSum:
    if len(samples) < 2:
        return EMPTY_SUM
    first, last = samples[0], samples[-1]
    total = last[column] - first[column]
    elapsed_ms = last.time_ms - first.time_ms
    calls = last.times - first.times
    return WindowSum(
        sum=total,
        per_second=total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
        per_time=total / calls if calls > 0 else 0.0,
    )


class MeterSet:
    """Meters by key, sampled together. A key is created by its first `add` and dropped by `remove`."""

    __slots__ = ("_active", "_keys_max", "_meters", "_on_created", "_others", "_sampled_ms")

    def __init__(
        self, *, now_ms: int, keys_max: int = KEYS_MAX, on_created: Callable[[Meter], None] | None = None
    ) -> None:
        """`on_created`: called with each new meter that has a key."""
        self._keys_max = keys_max
        self._on_created = on_created
        self._others = Meter(self._activate, "")
        self._meters: dict[str, Meter] = {}
        self._active: tuple[dict[str, Meter], ...] = ({}, {}, {})
        self._sampled_ms = [now_ms, now_ms, now_ms]

    def __len__(self) -> int:
        return len(self._meters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._meters)

    def get(self, key: str) -> Meter | None:
        """The meter of a key; None when nothing was ever added."""
        return self._meters.get(key)

    def find_or_create(self, key: str) -> Meter:
        """The meter of a key, made when there is none. Adding to it counts until the key is removed."""
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._keys_max:
                return self._others
            meter = self._meters[key] = Meter(self._activate, key)
            if self._on_created is not None:
                self._on_created(meter)
        return meter

    def add(self, key: str, count: int, bytes_: int = 0) -> None:
        """Add to the meter of a key."""
        self.find_or_create(key).add(count, bytes_)

    def remove(self, key: str) -> None:
        """Forget a key, as its topic or group was deleted."""
        if self._meters.pop(key, None) is not None:
            for active in self._active:
                active.pop(key, None)

    def sample(self, now_ms: int) -> None:
        """Take the samples that are due; to be called at least every ten seconds."""
        for window in Window:
            if now_ms - self._sampled_ms[window] >= INTERVAL_MS[window]:
                self._sampled_ms[window] = now_ms
                self._sample_window(window, now_ms)

    def _activate(self, meter: Meter) -> None:
        """Before it moves: the meter's value at the last sample of each resting window equals its value now."""
        for window in Window:
            if not meter.active & (1 << window):
                samples = meter.windows[window]
                assert not samples, "a window that rests has no samples"
                samples.append(Sample(self._sampled_ms[window], meter.times, meter.count, meter.bytes))
                self._active[window][meter.key] = meter
        meter.active = ALL_ACTIVE

    def _sample_window(self, window: Window, now_ms: int) -> None:
        active = self._active[window]
        flat: list[str] = []
        for key, meter in active.items():
            samples = meter.windows[window]
            samples.append(Sample(now_ms, meter.times, meter.count, meter.bytes))
            if len(samples) == SAMPLES_MAX[window] and samples[0].times == meter.times:
                flat.append(key)
        for key in flat:
            meter = active.pop(key)
            meter.windows[window].clear()
            meter.active &= ~(1 << window)
