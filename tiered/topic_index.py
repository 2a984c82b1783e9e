"""TopicIndex: from an offset of a queue to the segment that holds it; built from one topic's catalog entry.

Records that are lost (`Quarantine`) have a span of their own: whoever comes to it gets QuarantinedError, not the
records behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import msgspec

from thermocline.tiered.catalog import TopicEntry
from thermocline.tiered.errors import QuarantinedError, QueueGapError
from thermocline.tiered.ledger_entry import LostRange, Quarantine, QueueHole
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_format import QueueRun


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """One segment's run of the queue; with `quarantine`, a part of it that is lost, its store times as far as known."""

    segment: SegmentEntry
    run: QueueRun
    quarantine: Quarantine | None = None
    frame_index: int = -1

    def lost_error(self, *, queue_offset: int) -> QuarantinedError:
        """What whoever wants the record at `queue_offset` is told."""
        assert self.quarantine is not None
        damage = self.quarantine.damage
        return QuarantinedError(
            "these records are lost",
            topic=self.segment.topic,
            queue_id=self.run.queue_id,
            queue_offset=queue_offset,
            lost_offsets=f"[{self.run.start_offset}, {self.run.end_offset})",
            segment_id=self.segment.segment_id,
            frame=self.frame_index if self.frame_index >= 0 else "unknown",
            objects=", ".join(f"{part.key} ({part.problem})" for part in damage),
        )


class QueueIndex:
    """The runs of one queue, by rising offset. There is at least one."""

    __slots__ = ("_holes", "_starts", "queue_id", "spans")

    def __init__(self, queue_id: int, spans: list[QueueSpan], holes: tuple[QueueHole, ...]) -> None:
        self.queue_id = queue_id
        self.spans = _with_times(sorted(spans, key=lambda span: span.run.start_offset))
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
        for kept in entry.quarantine:
            for lost in kept.lost:
                spans.setdefault(lost.queue_id, []).append(_lost_span(kept, lost))
        self.entry = entry
        self.queues = {queue_id: QueueIndex(queue_id, found, entry.holes) for queue_id, found in spans.items()}


def _lost_span(kept: Quarantine, lost: LostRange) -> QueueSpan:
    run = kept.segment.run(lost.queue_id)
    if run is None:
        raise QueueGapError("a segment never held what it is said to have lost", segment_id=kept.segment.segment_id)
    part = _replace_run(run, start_offset=lost.start_offset, end_offset=lost.end_offset)
    return QueueSpan(kept.segment, part, kept, lost.frame_index)


def _replace_run(run: QueueRun, **changes: int) -> QueueRun:
    """The run with other bounds."""
    return msgspec.structs.replace(run, **changes)


def _with_times(spans: list[QueueSpan]) -> list[QueueSpan]:
    """Store times rise along a queue: lost records are no older than those before them, no newer than those behind."""
    if all(span.quarantine is None for span in spans):
        return spans
    known: list[QueueSpan] = []
    for number, span in enumerate(spans):
        if span.quarantine is not None:
            oldest_ms, newest_ms = span.run.min_store_ms, span.run.max_store_ms
            if known:
                before_ms = known[-1].run.max_store_ms if known[-1].quarantine is None else known[-1].run.min_store_ms
                oldest_ms = max(oldest_ms, before_ms)
            following = next((later for later in spans[number + 1 :] if later.quarantine is None), None)
            if following is not None:
                newest_ms = max(oldest_ms, min(newest_ms, following.run.min_store_ms))
            span = replace(span, run=_replace_run(span.run, min_store_ms=oldest_ms, max_store_ms=newest_ms))
        known.append(span)
    return known
