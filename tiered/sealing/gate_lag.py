"""GateLag: bounds how far committed records run ahead of the oldest record that is not sealed yet.

A waiting record holds back the gate of local deletion, and with it index objects, for everything behind it in the
log. While busy topics fill segment after segment, a topic whose few records wait for their age would hold back
gigabytes. So after about RECORDS_MAX sealed records, the small topics with earlier records are sealed along with the
next full segment: a pack for the price of one PUT. Belongs to the tier process's loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.tiered.sealing.seal_backlog import SealBacklog
from thermocline.tiered.segments import SegmentEntry

RECORDS_MAX = 1 << 18
SMALL_PART = 16
"""A topic is small while less than 1/SMALL_PART of a segment waits; larger ones fill a segment soon."""


class GateLag:
    """Counts the records of segments sealed since small topics went up last."""

    def __init__(self, backlog: SealBacklog, *, records_max: int, segment_bytes: int) -> None:
        """`records_max` 0: no bound."""
        self._backlog = backlog
        self._records_max = records_max
        self._small_bytes = segment_bytes // SMALL_PART
        self._record_count = 0
        self._first_end = 0

    @property
    def is_long(self) -> bool:
        """Whether `take_topics` may return any topics."""
        return 0 < self._records_max <= self._record_count

    def sealed(self, segments: Iterable[SegmentEntry]) -> None:
        """These segments of full topics are committed."""
        for segment in segments:
            if not self._record_count:
                self._first_end = segment.end_physical_offset
            self._record_count += segment.record_count

    def caught_up(self) -> None:
        """All waiting records of small topics have been sealed."""
        self._record_count = 0

    def take_topics(self) -> list[str]:
        """Return the small topics to seal now, and count them as sealed."""
        found = [
            topic
            for topic, progress in self._backlog.topics.items()
            if progress.tiered and progress.waiting_bytes < self._small_bytes and self._holds_back(topic)
        ]
        self.caught_up()
        return found

    def _holds_back(self, topic: str) -> bool:
        places = [queue.first_waiting_physical_offset for queue in self._backlog.topics[topic].queues.values()]
        return any(place is not None and place < self._first_end for place in places)
