"""TopicIndex: from an offset of a queue to the segment that holds it; built from one topic's catalog entry.

The catalog has only the offsets of a piece of a pack: its span is a `PackedSpan` until a reader loads the piece and
replaces the span.

Lost records (`Quarantine`) have a span of their own: a read that reaches it raises QuarantinedError and does not skip
to the records behind it.

A topic of a year has thousands of spans: they are columns of numbers, 37 bytes each, and objects only one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias, overload

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.tiered.catalog.catalog import TopicEntry
from thermocline.tiered.catalog.ledger_entry import LostRange, Quarantine, QueueHole
from thermocline.tiered.objects import QuarantinedError, QueueGapError
from thermocline.tiered.packs import PackedTopic, PackEntry, PieceTable
from thermocline.tiered.segments import Longs, QueueRun, SegmentEntry, SegmentList

MADE_SPANS_MAX = 8


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """One segment's run of the queue; with `quarantine`, a part of it that is lost, its store times as far as known."""

    segment: SegmentEntry
    run: QueueRun
    quarantine: Quarantine | None = None
    frame_index: int = -1

    def lost_error(self, *, queue_offset: QueueOffset) -> QuarantinedError:
        """The error for a read of the record at `queue_offset`."""
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


class PackedSpan(msgspec.Struct, frozen=True):
    """A piece's run of the queue that is not loaded: of `run` only the offsets are exact, its times are the piece's
    or the pack's, which bound them."""

    quarantine: ClassVar[None] = None
    """A lost piece no longer belongs to its pack."""

    pack: PackEntry
    topic: str
    run: QueueRun


Span: TypeAlias = QueueSpan | PackedSpan


class QueueSpans(Sequence[Span]):
    """The spans of one queue, by rising offset: columns of numbers. A segment's span becomes an object on access, and
    the last few of these are cached; other spans are always objects."""

    __slots__ = (
        "_kept",
        "_made",
        "_rows",
        "_segments",
        "ends",
        "lost",
        "max_store_ms",
        "min_store_ms",
        "queue_id",
        "starts",
    )

    def __init__(self, queue_id: int, segments: SegmentList, runs: Longs, rows: Longs, others: Sequence[Span]) -> None:
        """`runs`: the queue's runs as rows of numbers; `rows`: the index in `segments` of each; `others`: spans of
        pieces and of lost records."""
        bounds = np.array([_bounds(span) for span in others], np.int64).reshape(-1, 4)
        columns = np.concatenate([runs[:, 1:5], bounds])
        order = np.argsort(columns[:, 0], kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        self.queue_id = queue_id
        self.starts, self.ends, self.min_store_ms, self.max_store_ms = np.ascontiguousarray(columns[order].T)
        self.lost = np.zeros(len(order), np.bool_)
        self._segments = segments
        self._rows = np.concatenate([rows, np.full(len(others), -1)])[order].astype(np.int32)
        self._kept: dict[int, Span] = dict(zip(places[len(runs) :].tolist(), others, strict=True))
        self._made: dict[int, QueueSpan] = {}
        for position in sorted(at for at, span in self._kept.items() if span.quarantine is not None):
            self.lost[position] = True
        for position in np.flatnonzero(self.lost).tolist():
            self._bound_times(position)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Span]: ...

    def __getitem__(self, index: int | slice) -> Span | Sequence[Span]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        found = self._kept.get(position) or self._made.get(position)
        if found is None:
            segment, start = self._segments[int(self._rows[position])], int(self.starts[position])
            run = next(run for run in segment.runs if run.queue_id == self.queue_id and run.start_offset == start)
            if len(self._made) >= MADE_SPANS_MAX:
                self._made.clear()
            found = self._made[position] = QueueSpan(segment, run)
        return found

    def __setitem__(self, position: int, span: QueueSpan) -> None:
        """Replace a piece's span by the loaded one, which has exact times."""
        self._kept[position] = span
        _, _, self.min_store_ms[position], self.max_store_ms[position] = _bounds(span)

    def _bound_times(self, position: int) -> None:
        """Bound the times of lost records: store times rise along a queue, so they are between the newest time of the
        span before and the oldest time of the span behind, where these are exact."""
        span = self._kept[position]
        assert isinstance(span, QueueSpan)
        oldest_ms, newest_ms = int(self.min_store_ms[position]), int(self.max_store_ms[position])
        if position:
            before = self.max_store_ms if self._has_times(position - 1) else self.min_store_ms
            oldest_ms = max(oldest_ms, int(before[position - 1]))
        following = np.flatnonzero(~self.lost[position + 1 :])
        if len(following):
            at = position + 1 + int(following[0])
            behind = self.min_store_ms if self._has_times(at) else self.max_store_ms
            newest_ms = max(oldest_ms, min(newest_ms, int(behind[at])))
        self[position] = replace(span, run=_replace_run(span.run, min_store_ms=oldest_ms, max_store_ms=newest_ms))

    def _has_times(self, position: int) -> bool:
        """Whether the span's store times are exact: of lost records they are bounds, of a packed span its piece's."""
        return not self.lost[position] and not isinstance(self._kept.get(position), PackedSpan)


class QueueIndex:
    """The runs of one queue, by rising offset. There is at least one."""

    __slots__ = ("_holes", "queue_id", "spans")

    def __init__(self, spans: QueueSpans, holes: tuple[QueueHole, ...]) -> None:
        self.queue_id = spans.queue_id
        self.spans = spans
        own = (hole for hole in holes if hole.queue_id == spans.queue_id)
        self._holes = sorted(own, key=lambda hole: hole.start_offset)

    @property
    def start_offset(self) -> QueueOffset:
        """The first offset held."""
        return QueueOffset(self.spans.starts[0])

    @property
    def end_offset(self) -> QueueOffset:
        """The offset after the last one held; see TopicIndex.end_offset."""
        return QueueOffset(self.spans.ends[-1])

    def position_of(self, queue_offset: QueueOffset) -> int:
        """The position of the span that holds the offset, or the first one behind it; `len(spans)` without one."""
        position = int(np.searchsorted(self.spans.starts, queue_offset, side="right")) - 1
        if position >= 0 and queue_offset < self.spans.ends[position]:
            return position
        return position + 1

    def holds_between(self, offsets: Longs, begin_ms: int, end_ms: int) -> npt.NDArray[np.bool_]:
        """Which of these offsets are held, readable, and in a span that may have records of a time in
        [begin_ms, end_ms]."""
        spans = self.spans
        positions = np.searchsorted(spans.starts, offsets, side="right") - 1
        is_wanted = ~spans.lost & (spans.max_store_ms >= begin_ms) & (spans.min_store_ms <= end_ms)
        held: npt.NDArray[np.bool_] = (positions >= 0) & (offsets < spans.ends[positions]) & is_wanted[positions]
        return held

    def first_reaching(self, timestamp_ms: int, *, start: int) -> int | None:
        """The first span from position `start` on whose newest record may be of a time or later."""
        found = np.flatnonzero(self.spans.max_store_ms[start:] >= timestamp_ms)
        return start + int(found[0]) if len(found) else None

    def last_reaching(self, timestamp_ms: int, *, end: int) -> int | None:
        """The last span before position `end` whose oldest record may be of a time or earlier."""
        found = np.flatnonzero(self.spans.min_store_ms[:end] <= timestamp_ms)
        return int(found[-1]) if len(found) else None

    def count_from(self, queue_offset: QueueOffset) -> int:
        """How many records are held from an offset on, without those in quarantine."""
        spans = self.spans
        counts = np.maximum(0, spans.ends - np.maximum(spans.starts, queue_offset))
        return int(counts[~spans.lost].sum())

    def check_hole(self, start_offset: QueueOffset, end_offset: QueueOffset) -> None:
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

    __slots__ = ("_packed_ends", "_span_count", "entry", "queues")

    def __init__(
        self,
        entry: TopicEntry,
        *,
        packed: PackedTopic | None = None,
        packs: Sequence[PackEntry] = (),
        table_of: Callable[[PackEntry], PieceTable] = PackEntry.table,
    ) -> None:
        """`packed`: the topic's share of packs; `packs`: the packs that hold it."""
        others: dict[int, list[Span]] = {}
        for pack in packs:
            for span in _packed_spans(pack, entry.topic, table_of(pack)):
                others.setdefault(span.run.queue_id, []).append(span)
        for kept in entry.quarantine:
            for lost in kept.lost:
                others.setdefault(lost.queue_id, []).append(_lost_span(kept, lost))
        runs, rows = entry.segments.run_numbers()
        order = np.argsort(runs[:, 0], kind="stable")
        runs, rows = runs[order], rows[order]
        self.entry = entry
        self.queues: dict[int, QueueIndex] = {}
        for queue_id in sorted({*runs[:, 0].tolist(), *others}):
            own = slice(*np.searchsorted(runs[:, 0], [queue_id, queue_id + 1]).tolist())
            spans = QueueSpans(queue_id, entry.segments, runs[own], rows[own], others.get(queue_id, ()))
            self.queues[queue_id] = QueueIndex(spans, entry.holes)
        self._span_count = sum(len(queue.spans) for queue in self.queues.values())
        self._packed_ends = {each.queue_id: each.end_offset for each in packed.queues} if packed is not None else {}

    @property
    def span_count(self) -> int:
        """Spans of all queues."""
        return self._span_count

    def end_offset(self, queue_id: int) -> QueueOffset:
        """The offset after the last one ever held; 0 without any.

        A pack that has expired completely is removed before an older one with unexpired records of other topics: then
        this offset is behind the last one held.
        """
        queue = self.queues.get(queue_id)
        nothing = QUEUE_START
        return max(queue.end_offset if queue is not None else nothing, self._packed_ends.get(queue_id, nothing))


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
        raise QueueGapError("a segment never held the records listed as lost", segment_id=kept.segment.segment_id)
    part = _replace_run(run, start_offset=lost.start_offset, end_offset=lost.end_offset)
    return QueueSpan(kept.segment, part, kept, lost.frame_index)


def _bounds(span: Span) -> tuple[int, int, int, int]:
    run = span.run
    return run.start_offset, run.end_offset, run.min_store_ms, run.max_store_ms


def _replace_run(run: QueueRun, **changes: int) -> QueueRun:
    """The run with other bounds."""
    return msgspec.structs.replace(run, **changes)
