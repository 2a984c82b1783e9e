"""QueueGaps: the offsets of a queue that hold no message, and counting without them.

Offsets jump behind a declared hole: after a recovery from the bucket by about 10^9, and where a full disk has dropped
messages. A lag, or a share of a batch, computed as `end - start` includes offsets that never hold a message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from thermocline.remoting.offsets import QueueOffset

Span = tuple[QueueOffset, QueueOffset]


class QueueGaps(msgspec.Struct, frozen=True):
    """Ranges [start, end) without messages, by rising offset; no two of them touch."""

    spans: tuple[Span, ...] = ()

    @classmethod
    def of(cls, spans: Iterable[Span]) -> QueueGaps:
        """From ranges in any order, which may overlap or be empty."""
        merged: list[Span] = []
        for start, end in sorted(span for span in spans if span[0] < span[1]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return cls(tuple(merged))

    def within(self, start: QueueOffset, end: QueueOffset) -> QueueGaps:
        """The parts of the gaps in [start, end)."""
        if not self.spans:
            return self
        return QueueGaps.of((max(start, first), min(end, last)) for first, last in self.spans)

    def next_offset(self, offset: QueueOffset) -> QueueOffset:
        """The first offset from `offset` on that is outside every gap."""
        position = bisect_right(self.spans, offset, key=lambda span: span[0]) - 1
        return max(offset, self.spans[position][1]) if position >= 0 else offset

    def count(self, start: QueueOffset, end: QueueOffset) -> int:
        """How many offsets of [start, end) are outside every gap."""
        missing = sum(max(0, min(end, last) - max(start, first)) for first, last in self.spans)
        return max(0, end - start) - missing

    def advance(self, start: QueueOffset, count: int) -> QueueOffset:
        """The offset behind the first `count` offsets outside of gaps, from `start` on; 0 only skips a gap."""
        assert count >= 0
        position = self.next_offset(start)
        for first, last in self.spans:
            if last <= position:
                continue
            if first - position >= count:
                break
            count -= first - position
            position = last
        return position + count


NO_GAPS = QueueGaps()
