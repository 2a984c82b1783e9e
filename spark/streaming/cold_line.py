"""ColdLine: what the cold tier holds of one queue, laid along its offsets, and how far a micro-batch may go into it.

    |--- run ---|--- run ---|  hole  |--- run ---| lost |--- run ---|        gap        |--- run ---|
                             declared             quarantine          unexplained

Made once from a version of a topic's entry. Everything here is arithmetic on the catalog.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.reading.read_plan import ColdSource, QueueRange, SegmentSlice, cut_queue
from thermocline.tiered.catalog import TopicEntry
from thermocline.tiered.segments import QueueRun, SegmentEntry

Span: TypeAlias = tuple[QueueOffset, QueueOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRun:
    """One queue's share of one segment."""

    segment: SegmentEntry
    run: QueueRun


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """Offsets in quarantine: no reader can have them. `max_store_ms` is their segment's."""

    start: QueueOffset
    end: QueueOffset
    max_store_ms: int
    objects: str
    """The damaged parts, as text for a log."""


class ColdLine:
    """The runs of one queue by rising offset, its declared holes, and what is in quarantine."""

    __slots__ = ("_ends", "end", "holes", "lost", "queue_id", "runs", "start")

    def __init__(
        self, queue_id: int, *, runs: Sequence[ColdRun], holes: Sequence[Span] = (), lost: Sequence[LostSpan] = ()
    ) -> None:
        self.queue_id = queue_id
        self.runs = sorted(runs, key=lambda each: each.run.start_offset)
        self.holes = sorted(holes)
        self.lost = sorted(lost, key=lambda each: each.start)
        self._ends = [each.run.end_offset for each in self.runs]
        starts = [each.run.start_offset for each in self.runs[:1]] + [each.start for each in self.lost[:1]]
        self.start = min(starts, default=QUEUE_START)
        """The first offset here, readable or lost."""
        self.end = max([*self._ends[-1:], *(each.end for each in self.lost)], default=QUEUE_START)
        """The cold end: the offset behind the last one here, readable or lost."""

    def runs_from(self, offset: QueueOffset) -> Iterator[ColdRun]:
        """The runs with an offset at or behind this one."""
        for index in range(bisect.bisect_right(self._ends, offset), len(self.runs)):
            yield self.runs[index]

    def beginning(self, wanted_from_ms: int) -> QueueOffset:
        """The offset where a reader of messages stored at a time or later begins: the first run with such a message, or
        the first offset in quarantine that may have been one."""
        readable = (each.run.start_offset for each in self.runs if each.run.max_store_ms >= wanted_from_ms)
        lost = (each.start for each in self.lost if each.max_store_ms >= wanted_from_ms)
        return min(next(readable, self.end), next(lost, self.end))

    def uncovered(self, start: QueueOffset, end: QueueOffset) -> list[Span]:
        """The parts of [start, end) that no run, declared hole or quarantine covers, by rising offset."""
        covered = [(each.run.start_offset, each.run.end_offset) for each in self.runs_from(start)]
        lost = [(each.start, each.end) for each in self.lost]
        uncovered: list[Span] = []
        position = start
        for span_start, span_end in sorted([*covered, *self.holes, *lost]):
            if span_start >= end:
                break
            if span_start > position:
                uncovered.append((position, span_start))
            position = max(position, span_end)
        if position < end:
            uncovered.append((position, end))
        return uncovered

    def slices(
        self, source: ColdSource, entry: TopicEntry, *, start: QueueOffset, end: QueueOffset, selection: RowSelection
    ) -> Iterator[tuple[ColdRun, SegmentSlice]]:
        """What a batch reads of each run for offsets [start, end), by rising offset."""
        queue = QueueRange(
            source=source,
            topic=entry.topic,
            incarnation=entry.incarnation,
            queue_id=self.queue_id,
            start_offset=start,
            end_offset=end,
            visible_from_ms=selection.start_ms,
        )
        for each in self.runs_from(start):
            if each.run.start_offset >= end:
                return
            for part in cut_queue(queue, [each.segment], selection):
                yield each, part


def border_before(offset: QueueOffset, *, after: QueueOffset, within: ColdRun) -> QueueOffset:
    """The last known border of a frame in (after, offset] of a run, else `offset`: cut there, no frame is decompressed
    by two batches."""
    run = within.run
    borders = [
        frame.start_offset for frame in within.segment.coarse if run.frame_start <= frame.frame_index < run.frame_end
    ]
    index = bisect.bisect_right(borders, offset) - 1
    return borders[index] if index >= 0 and borders[index] > after else offset


def cold_lines(entry: TopicEntry) -> dict[int, ColdLine]:
    """The lines of all queues of a topic that the cold tier holds, or has lost, something of."""
    runs: dict[int, list[ColdRun]] = {}
    lost: dict[int, list[LostSpan]] = {}
    holes: dict[int, list[Span]] = {}
    for segment in entry.segments:
        for run in segment.runs:
            runs.setdefault(run.queue_id, []).append(ColdRun(segment=segment, run=run))
    for kept in entry.quarantine:
        for missing in kept.lost:
            span = LostSpan(
                start=missing.start_offset,
                end=missing.end_offset,
                max_store_ms=kept.segment.max_store_ms,
                objects=", ".join(f"{part.key} ({part.problem})" for part in kept.damage),
            )
            lost.setdefault(missing.queue_id, []).append(span)
    for hole in entry.holes:
        holes.setdefault(hole.queue_id, []).append((hole.start_offset, hole.end_offset))
    return {
        queue_id: ColdLine(
            queue_id, runs=runs.get(queue_id, []), holes=holes.get(queue_id, ()), lost=lost.get(queue_id, ())
        )
        for queue_id in sorted({*runs, *lost, *holes})
    }
