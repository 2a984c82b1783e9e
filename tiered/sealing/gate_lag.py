"""GateLag: keeps what is committed from running far ahead of what waits.

A record that waits holds back the gate of local deletion, and with it index objects, from everything behind it in the
log. Where some topics fill segment after segment, one with a few records that wait until they are due by age would hold
back gigabytes. So once segments of RECORDS_MAX records or so have been sealed, small topics whose records lie before
them go up with the next full segment: a pack at the price of one PUT. Belongs to the tier process's loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.tiered.sealing.seal_backlog import SealBacklog
from thermocline.tiered.segments import SegmentEntry

RECORDS_MAX = 1 << 18
SMALL_PART = 16
"""A topic of which less than 1/SMALL_PART of a segment waits is small: another will be full before long."""


class GateLag:
    """Counts the records of segments sealed since small topics went up last."""

    def __init__(self, backlog: SealBacklog, *, records_max: int, segment_bytes: int) -> None:
        """`records_max` 0: it does not matter how far."""
        self._backlog = backlog
        self._records_max = records_max
        self._small_bytes = segment_bytes // SMALL_PART
        self._record_count = 0
        self._first_end = 0

    @property
    def is_long(self) -> bool:
        """Whether `take` may give any."""
        return 0 < self._records_max <= self._record_count

    def sealed(self, segments: Iterable[SegmentEntry]) -> None:
        """These segments of full topics are committed."""
        for segment in segments:
            if not self._record_count:
                self._first_end = segment.end_physical_offset
            self._record_count += segment.record_count

    def caught_up(self) -> None:
        """All that waited of small topics has gone up."""
        self._record_count = 0

    def take(self) -> list[str]:
        """The small topics to seal now, which count as gone up."""
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
