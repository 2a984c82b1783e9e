"""Batch bounds: where the next micro-batch ends, so that it is bounded in bytes and offsets and every queue moves.

Each queue gets a share of the bytes in proportion to its lag, so that queues reach their ends together. A share is laid
along the queue: through the cold runs by their size in the catalog, then along the live part by the size of the
broker's last records. Declared holes take no share: behind one, offsets may have jumped by 10^9. In the cold
tier a batch ends at the border of a frame where one is near, so that no frame is decompressed twice. Sizes are
estimates; offsets are exact. The line keeps where the batch starts and how large its records are, about: by these
its tasks are cut, whenever it is planned (`task_cuts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import QueueName
from thermocline.spark.streaming.cold_line import ColdRun, border_before
from thermocline.spark.streaming.offset_line import OffsetLine, QueueMove
from thermocline.spark.streaming.stream_options import StreamOptions
from thermocline.spark.streaming.stream_sources import SourceSnapshot, TopicSource
from thermocline.tiered.catalog import NO_GAPS, QueueGaps

RECORD_BYTES_GUESS = 512

Targets = Mapping[tuple[str, QueueName], QueueOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """At most so much in one micro-batch; None: whatever there is."""

    bytes_max: int | None = None
    offsets_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lag:
    """The lag of one queue: `count` offsets in [start, end), which are not in its gaps. `start` is where its
    next batch begins."""

    source: TopicSource
    queue: QueueName
    start: QueueOffset
    end: QueueOffset
    gaps: QueueGaps
    count: int
    raw_bytes: int

    @property
    def key(self) -> tuple[str, QueueName]:
        """The queue, as lines name it."""
        return self.source.topic, self.queue

    def cold_parts(self, end: QueueOffset) -> Iterator[tuple[ColdRun, SegmentSlice]]:
        """What the cold tier holds of [start, end), by rising offset."""
        line, cold = self.source.cold_line(self.queue.queue_id), self.source.cold
        if line is not None and cold is not None:
            everything = RowSelection(start_offset=self.start, end_offset=end)
            yield from line.slices(cold.source, cold.entry, start=self.start, end=end, selection=everything)


def newest_line(snapshot: SourceSnapshot, options: StreamOptions) -> OffsetLine:
    """The ends of all queues now."""
    offsets = {
        (source.topic, queue): source.end_offset(queue.queue_id)
        for source, queue in snapshot.queues(options)
        if not source.is_deleted
    }
    return _with_incarnations(snapshot, OffsetLine(offsets=offsets))


def next_line(
    snapshot: SourceSnapshot,
    start: OffsetLine,
    options: StreamOptions,
    limit: BatchLimit,
    *,
    targets: Targets | None = None,
) -> OffsetLine:
    """Where the batch that begins at `start` ends; `start` itself when there is nothing to read.

    `targets`: where the query ends; queues that are not among them wait for the next one.
    """
    lags = [lag for lag in _lags(snapshot, start, options, targets) if lag.start < lag.end]
    if not lags:
        return start
    bytes_total = sum(lag.raw_bytes for lag in lags)
    count_total = sum(lag.count for lag in lags)
    moved: list[tuple[_Lag, QueueOffset]] = []
    for lag in lags:
        end = lag.end
        if limit.offsets_max is not None:
            end = min(end, lag.gaps.advance(lag.start, limit.offsets_max * lag.count // max(1, count_total)))
        if limit.bytes_max is not None and end > lag.start:
            end = min(end, _end_within(lag, -(-limit.bytes_max * lag.raw_bytes // bytes_total)))
        if end > lag.start:
            moved.append((lag, end))
    if not moved:
        # Less than a message a queue was allowed: the queue with the largest lag moves by one.
        first = max(lags, key=lambda lag: lag.raw_bytes)
        moved = [(first, min(first.end, first.gaps.advance(first.start, 1)))]
    offsets = {**start.offsets, **{lag.key: end for lag, end in moved}}
    batch = {lag.key: QueueMove(lag.start, _record_bytes_within(lag, end)) for lag, end in moved}
    return _with_incarnations(snapshot, replace(start, offsets=offsets, batch=batch))


def _lags(snapshot: SourceSnapshot, start: OffsetLine, options: StreamOptions, targets: Targets | None) -> list[_Lag]:
    lags: list[_Lag] = []
    for source, queue in snapshot.queues(options):
        key = (source.topic, queue)
        end = source.end_offset(queue.queue_id)
        if targets is not None:
            end = min(end, targets.get(key, QUEUE_START))
        begin = start.offsets.get(key)
        if begin is None:
            begin = source.beginning(queue.queue_id, wanted_from_ms(source, options, now_ms=snapshot.now_ms))
        line = source.cold_line(queue.queue_id)
        gaps = NO_GAPS if line is None else QueueGaps.of(line.holes)
        count = gaps.count(begin, end)
        raw_bytes = max(1, count * record_bytes_from(source, queue.queue_id, begin))
        lags.append(_Lag(source=source, queue=queue, start=begin, end=end, gaps=gaps, count=count, raw_bytes=raw_bytes))
    return lags


def wanted_from_ms(source: TopicSource, options: StreamOptions, *, now_ms: int) -> int:
    """The store time from which on messages of a topic count: not expired, and not before `startingTimestamp`."""
    visible_from_ms = 0 if source.cold is None else source.cold.visible_from_ms(now_ms)
    return max(visible_from_ms, options.read.starting_ms or 0, 0)


def record_bytes_from(source: TopicSource, queue_id: int, offset: QueueOffset) -> int:
    """About how large the queue's records are from an offset on, bytes; 1 at least."""
    line, queue = source.cold_line(queue_id), source.live_queue(queue_id)
    if line is not None:
        for each in line.runs_from(offset):
            return max(1, each.segment.raw_bytes // max(1, each.segment.record_count))
    return queue.record_bytes or RECORD_BYTES_GUESS if queue is not None else RECORD_BYTES_GUESS


def _record_bytes_within(lag: _Lag, end: QueueOffset) -> int:
    """About how large the records of [start, end) are, bytes; 1 at least."""
    line = lag.source.cold_line(lag.queue.queue_id)
    raw_bytes = sum(part.raw_bytes for _, part in lag.cold_parts(end))
    live_start = lag.start if line is None else min(max(lag.start, line.end), end)
    if live_start < end:
        live_bytes = record_bytes_from(lag.source, lag.queue.queue_id, live_start)
        raw_bytes += lag.gaps.count(live_start, end) * live_bytes
    return max(1, raw_bytes // max(1, lag.gaps.count(lag.start, end)))


def _end_within(lag: _Lag, bytes_max: int) -> QueueOffset:
    """How far a share of bytes goes from the queue's start."""
    queue_id = lag.queue.queue_id
    line, room_bytes = lag.source.cold_line(queue_id), bytes_max
    position = lag.start
    if line is not None:
        cold_end = min(lag.end, line.end)
        for within, part in lag.cold_parts(cold_end):
            if part.raw_bytes > room_bytes:
                cut = part.start_offset + (part.end_offset - part.start_offset) * room_bytes // part.raw_bytes
                return border_before(cut, after=part.start_offset, within=within)
            room_bytes -= part.raw_bytes
            position = part.end_offset
        position = max(position, cold_end)
    return min(lag.end, lag.gaps.advance(position, room_bytes // record_bytes_from(lag.source, queue_id, position)))


def _with_incarnations(snapshot: SourceSnapshot, line: OffsetLine) -> OffsetLine:
    """The line with the incarnations of its topics."""
    incarnations = dict(line.incarnations)
    for topic, queue in line.offsets:
        source = snapshot.sources.get((topic, queue.broker_name))
        if source is not None:
            incarnations.setdefault((topic, queue.broker_name), source.incarnation)
    return replace(line, incarnations=incarnations)
