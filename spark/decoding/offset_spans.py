"""OffsetSpans: a set of queue offsets, as half-open spans in rising order that neither touch nor overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.record_heads import Integers, Mask

OFFSET_MAX = QueueOffset(2**63 - 1)


@dataclass(frozen=True, slots=True)
class OffsetSpans:
    """See the module's header. Made by `of`."""

    spans: tuple[tuple[QueueOffset, QueueOffset], ...]

    @classmethod
    def of(cls, spans: Iterable[tuple[QueueOffset, QueueOffset]]) -> OffsetSpans:
        """The union of spans in any order; empty ones do not count."""
        joined: list[tuple[QueueOffset, QueueOffset]] = []
        for start, end in sorted(span for span in spans if span[0] < span[1]):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        return cls(tuple(joined))

    @property
    def start(self) -> QueueOffset:
        """The least offset; 0 of an empty set."""
        return self.spans[0][0] if self.spans else QUEUE_START

    @property
    def end(self) -> QueueOffset:
        """The offset after the greatest; 0 of an empty set."""
        return self.spans[-1][1] if self.spans else QUEUE_START

    def intersect(self, other: OffsetSpans) -> OffsetSpans:
        """What is in both."""
        found: list[tuple[QueueOffset, QueueOffset]] = []
        mine, its = 0, 0
        while mine < len(self.spans) and its < len(other.spans):
            (start, end), (other_start, other_end) = self.spans[mine], other.spans[its]
            found.append((max(start, other_start), min(end, other_end)))
            if end <= other_end:
                mine += 1
            else:
                its += 1
        return OffsetSpans.of(found)

    def complement(self) -> OffsetSpans:
        """Every offset from 0 on that is not in it."""
        edges = [QUEUE_START, *(edge for span in self.spans for edge in span), OFFSET_MAX]
        return OffsetSpans.of(zip(edges[0::2], edges[1::2], strict=True))

    def overlaps(self, start: QueueOffset, end: QueueOffset) -> bool:
        """Whether any offset of [start, end) is in it."""
        place = bisect_right(self.spans, start, key=lambda span: span[1])
        return place < len(self.spans) and self.spans[place][0] < end

    def holds(self, offsets: Integers) -> Mask:
        """Which of many offsets are in it."""
        edges = np.array([edge for span in self.spans for edge in span], np.int64)
        inside: Mask = np.searchsorted(edges, offsets, side="right") % 2 == 1
        return inside


EVERY_OFFSET = OffsetSpans(((QUEUE_START, OFFSET_MAX),))
