"""Timer metrics: how many messages of each topic wait.

File: config/timermetrics, Apache RocketMQ's:

    {"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"timingCount":{"orders":{"count":3,"timeStamp":2}}}

A unit of the timer log counts 1 for its topic from its enqueueing to its delivery, a recall marker -1. Units name their
topic by its Java hash only; the file keeps the names.

After a start the counts come from the pending units themselves, slice by slice (`count_again`), while what is enqueued
and delivered meanwhile is added and taken away; so no crash leaves them wrong for good, and the file need not be exact.
Owner: the loop thread.
Source: TimerMetrics.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from thermocline.remoting import json_dialect
from thermocline.remoting.bodies import DataVersion
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.string_hash import java_string_hash
from thermocline.store.files import Disk, read_with_backup
from thermocline.timers.timer_log import TimerLog, TimerUnit

logger = logging.getLogger(__name__)


class _Count(msgspec.Struct, rename="camel"):
    count: int = 0
    time_stamp: int = 0


class _MetricsFile(msgspec.Struct, rename="camel"):
    data_version: DataVersion
    timing_count: dict[str, _Count]


class TimerMetrics:
    """Counts by topic."""

    def __init__(self, *, names: tuple[str, ...] = (), version: int = 0) -> None:
        self._counts: dict[str, int] = {}
        self._changed_ms: dict[str, int] = {}
        self._names: dict[int, str] = {java_string_hash(name): name for name in names}
        self._version = version
        self._changed_at_ms = 0
        self._unsaved = False
        self.total = 0
        """All that wait."""

    @classmethod
    def load(cls, disk: Disk, path: str) -> TimerMetrics:
        """Read the names from the file, or its backup. One that cannot be read is no loss: it can be made anew."""
        for candidate, data in read_with_backup(disk, path):
            try:
                file = json_dialect.loads_as(data, _MetricsFile)
            except InvalidRequestError as error:
                logger.warning("timer metrics cannot be read path=%s error=%s", candidate, error)
                continue
            return cls(names=tuple(file.timing_count), version=file.data_version.counter)
        return cls()

    def add(self, topic: str, count: int, *, now_ms: int) -> None:
        """Count messages of a topic."""
        if topic not in self._counts:
            self._names[java_string_hash(topic)] = topic
        self._counts[topic] = self._counts.get(topic, 0) + count
        self._changed_ms[topic] = self._changed_at_ms = now_ms
        self._version += 1
        self._unsaved = True
        self.total += count

    def name_of(self, topic_hash: int) -> str | None:
        """The topic of this hash, among those that are counted."""
        return self._names.get(topic_hash)

    def counts(self) -> dict[str, int]:
        """Topic -> messages that wait."""
        return {topic: max(0, count) for topic, count in self._counts.items()}

    def encode(self) -> bytes:
        """The file's content; also the answer to GET_TIMER_METRICS."""
        counts = {
            topic: _Count(count=count, time_stamp=self._changed_ms.get(topic, 0))
            for topic, count in self.counts().items()
        }
        version = DataVersion(counter=self._version, timestamp=self._changed_at_ms)
        return msgspec.json.encode(_MetricsFile(data_version=version, timing_count=counts))

    def take_unsaved(self) -> bytes | None:
        """The file's content if it has changed since the last call."""
        if not self._unsaved:
            return None
        self._unsaved = False
        return self.encode()


class PendingCount:
    """Counts the units of [start, end) that were pending when the timers were opened, a slice at a time."""

    def __init__(
        self,
        metrics: TimerMetrics,
        log: TimerLog,
        *,
        start: int,
        end: int,
        is_out: Callable[[TimerUnit], bool],
        topic_of: Callable[[TimerUnit], str | None],
    ) -> None:
        """`is_out`: whether a unit was delivered before. `topic_of`: reads it from the record."""
        self._metrics = metrics
        self._log = log
        self._position = start
        self._end = end
        self._is_out = is_out
        self._topic_of = topic_of

    @property
    def is_done(self) -> bool:
        """Whether every unit was counted."""
        return self._position >= self._end

    def step(self, count_max: int, *, now_ms: int) -> None:
        """Count a slice."""
        counts: dict[int, int] = {}
        last: dict[int, TimerUnit] = {}
        position = max(self._position, self._log.start_position)
        for _ in range(count_max):
            if position >= self._end:
                break
            unit = self._log.unit(position)
            if not self._is_out(unit):
                counts[unit.topic_hash] = counts.get(unit.topic_hash, 0) + (-1 if unit.is_marker else 1)
                last[unit.topic_hash] = unit
            position = self._log.next_position(position)
        self._position = position
        for topic_hash, count in counts.items():
            topic = self._metrics.name_of(topic_hash) or self._topic_of(last[topic_hash])
            if topic is not None:
                self._metrics.add(topic, count, now_ms=now_ms)
