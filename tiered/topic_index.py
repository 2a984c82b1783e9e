"""TopicIndex: from an offset of a queue to the segment that holds it; built from one topic's catalog entry.

Of what lies in a pack the catalog knows the offsets only: such a span is a `PackedSpan` until somebody needs more of
it, and puts what he has loaded in its place.

Records that are lost (`Quarantine`) have a span of their own: whoever comes to it gets QuarantinedError, not the
records behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import msgspec

from thermocline.tiered.catalog import TopicEntry
from thermocline.tiered.errors import QuarantinedError, QueueGapError
from thermocline.tiered.ledger_entry import LostRange, Quarantine, QueueHole
from thermocline.tiered.packs.pack_entry import PackedTopic, PackEntry
from thermocline.tiered.packs.piece_table import PieceTable
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


@dataclass(frozen=True, slots=True)
class PackedSpan:
    """A piece's run of the queue that is not loaded: of `run` only the offsets are exact, its times are the piece's
    or the pack's, which bound them."""

    quarantine: ClassVar[None] = None
    """A piece that is lost is none of its pack's any more."""

    pack: PackEntry
    topic: str
    run: QueueRun


Span: TypeAlias = QueueSpan | PackedSpan


class QueueIndex:
    """The runs of one queue, by rising offset. There is at least one."""

    __slots__ = ("_holes", "_starts", "queue_id", "spans")

    def __init__(self, queue_id: int, spans: Iterable[Span], holes: tuple[QueueHole, ...]) -> None:
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
        """The offset after the last one that is here; see TopicIndex.end_offset."""
        return self.spans[-1].run.end_offset

    def position_of(self, queue_offset: int) -> int:
        """Which span holds the offset, or is the first one behind it; `len(spans)` when none is."""
        position = bisect_right(self._starts, queue_offset) - 1
        if position >= 0 and queue_offset < self.spans[position].run.end_offset:
            return position
        return position + 1

    def count_from(self, queue_offset: int) -> int:
        """How many records are here from an offset on, without those in quarantine."""
        return sum(
            max(0, span.run.end_offset - max(span.run.start_offset, queue_offset))
            for span in self.spans
            if span.quarantine is None
        )

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

    __slots__ = ("_packed_ends", "entry", "queues")

    def __init__(
        self,
        entry: TopicEntry,
        *,
        packed: PackedTopic | None = None,
        packs: Sequence[PackEntry] = (),
        table_of: Callable[[PackEntry], PieceTable] = PackEntry.table,
    ) -> None:
        """`packed`: the topic's share of packs; `packs`: those that it lives in."""
        spans: dict[int, list[Span]] = {}
        for segment in entry.segments:
            for run in segment.runs:
                spans.setdefault(run.queue_id, []).append(QueueSpan(segment, run))
        for pack in packs:
            for span in _packed_spans(pack, entry.topic, table_of(pack)):
                spans.setdefault(span.run.queue_id, []).append(span)
        for kept in entry.quarantine:
            for lost in kept.lost:
                spans.setdefault(lost.queue_id, []).append(_lost_span(kept, lost))
        self.entry = entry
        self.queues = {queue_id: QueueIndex(queue_id, found, entry.holes) for queue_id, found in spans.items()}
        self._packed_ends = {each.queue_id: each.end_offset for each in packed.queues} if packed is not None else {}

    def end_offset(self, queue_id: int) -> int:
        """The offset after the last one that was ever held; 0 without any.

        A pack in which everything has expired goes before an older one that others live in: then the queue ends behind
        what is left of it.
        """
        queue = self.queues.get(queue_id)
        return max(queue.end_offset if queue is not None else 0, self._packed_ends.get(queue_id, 0))


def _packed_spans(pack: PackEntry, topic: str, table: PieceTable) -> Iterable[PackedSpan]:
    for index in pack.indexes_of(topic):
        times = table.times.of(index) if table.times is not None else (pack.min_store_ms, pack.max_store_ms)
        for queue in table.piece(index).queues:
            run = QueueRun(
                queue_id=queue.queue_id,
                start_offset=queue.start_offset,
                end_offset=queue.end_offset,
                min_store_ms=times[0],
                max_store_ms=times[1],
                frame_start=0,
                frame_end=0,
                min_physical_offset=pack.min_physical_offset,
                end_physical_offset=pack.end_physical_offset,
            )
            yield PackedSpan(pack, topic, run)


def _lost_span(kept: Quarantine, lost: LostRange) -> QueueSpan:
    run = kept.segment.run(lost.queue_id)
    if run is None:
        raise QueueGapError("a segment never held what it is said to have lost", segment_id=kept.segment.segment_id)
    part = _replace_run(run, start_offset=lost.start_offset, end_offset=lost.end_offset)
    return QueueSpan(kept.segment, part, kept, lost.frame_index)


def _replace_run(run: QueueRun, **changes: int) -> QueueRun:
    """The run with other bounds."""
    return msgspec.structs.replace(run, **changes)


def _with_times(spans: list[Span]) -> list[Span]:
    """Store times rise along a queue: lost records are no older than those before them, no newer than those behind."""
    if all(span.quarantine is None for span in spans):
        return spans
    known: list[Span] = []
    for number, span in enumerate(spans):
        if isinstance(span, QueueSpan) and span.quarantine is not None:
            oldest_ms, newest_ms = span.run.min_store_ms, span.run.max_store_ms
            if known:
                before = known[-1].run
                oldest_ms = max(oldest_ms, before.max_store_ms if _has_times(known[-1]) else before.min_store_ms)
            following = next((later for later in spans[number + 1 :] if later.quarantine is None), None)
            if following is not None:
                bound_ms = following.run.min_store_ms if _has_times(following) else following.run.max_store_ms
                newest_ms = max(oldest_ms, min(newest_ms, bound_ms))
            span = replace(span, run=_replace_run(span.run, min_store_ms=oldest_ms, max_store_ms=newest_ms))
        known.append(span)
    return known


def _has_times(span: Span) -> bool:
    """Whether its store times are exact: of what is lost they are guessed, of a packed one they are its piece's."""
    return isinstance(span, QueueSpan) and span.quarantine is None
