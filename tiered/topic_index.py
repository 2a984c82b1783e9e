"""TopicIndex: from an offset of a queue to the segment that holds it; built from one topic's catalog entry."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from thermocline.tiered.catalog import TopicEntry
from thermocline.tiered.errors import QueueGapError
from thermocline.tiered.ledger_entry import QueueHole
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_format import QueueRun


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """One segment's run of the queue."""

    segment: SegmentEntry
    run: QueueRun


class QueueIndex:
    """The runs of one queue, by rising offset. There is at least one."""

    __slots__ = ("_holes", "_starts", "queue_id", "spans")

    def __init__(self, queue_id: int, spans: list[QueueSpan], holes: tuple[QueueHole, ...]) -> None:
        self.queue_id = queue_id
        self.spans = sorted(spans, key=lambda span: span.run.start_offset)
        self._starts = [span.run.start_offset for span in self.spans]
        self._holes = sorted((hole for hole in holes if hole.queue_id == queue_id), key=lambda hole: hole.start_offset)

    @property
    def start_offset(self) -> int:
        """The first offset held."""
        return self._starts[0]

    @property
    def end_offset(self) -> int:
        """The offset after the last one held."""
        return self.spans[-1].run.end_offset

    def position_of(self, queue_offset: int) -> int:
        """Which span holds the offset, or is the first one behind it; `len(spans)` when none is."""
        position = bisect_right(self._starts, queue_offset) - 1
        if position >= 0 and queue_offset < self.spans[position].run.end_offset:
            return position
        return position + 1

    def check_hole(self, start_offset: int, end_offset: int) -> None:
        """QueueGapError unless every offset of [start_offset, end_offset) is declared lost."""
        position = start_offset
        for hole in self._holes:
            if hole.start_offset <= position < hole.end_offset:
                position = hole.end_offset
        if position < end_offset:
            raise QueueGapError(
                "offsets are missing from the cold tier",
                queue_id=self.queue_id,
                start_offset=position,
                end_offset=end_offset,
            )


class TopicIndex:
    """All queues of a topic under its present incarnation."""

    __slots__ = ("entry", "queues")

    def __init__(self, entry: TopicEntry) -> None:
        spans: dict[int, list[QueueSpan]] = {}
        for segment in entry.segments:
            for run in segment.runs:
                spans.setdefault(run.queue_id, []).append(QueueSpan(segment, run))
        self.entry = entry
        self.queues = {queue_id: QueueIndex(queue_id, found, entry.holes) for queue_id, found in spans.items()}
