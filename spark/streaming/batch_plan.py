"""Batch plan: the tasks of one micro-batch, from its two offsets.

    of each queue   [start, end):   cold runs | declared holes | what no cold run covers: live, from the broker

Cold is preferred wherever it has the range, so a batch that was live when it was planned first is cold when it is
planned again after sealing; the rows are the same, since the broker gives the very records that it seals. The range
alone decides which rows those are, and which task has them (`task_cuts.py`); every plan finds anew where they are
stored.

A missing offset of the range is an error, or with failOnDataLoss=false a warning: messages that expired before they
were read, records in quarantine, gaps. A queue that the query has not read before begins at its first visible message.

`tags`, `keys` and `where` choose rows; they change no offset and no error. Live offsets that `where` rules out are not
pulled.

Tasks follow the queues, and offsets rise within a queue from task to task: a sink that keeps the order of partitions
and rows has every queue in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from thermocline.remoting.errors import CorruptDataError, MQError, OffsetOutOfRangeError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.reading.row_choice import row_selection, wants_offsets
from thermocline.spark.reading.source_options import QueueName
from thermocline.spark.streaming.batch_bounds import record_bytes_from, wanted_from_ms
from thermocline.spark.streaming.cold_line import ColdLine, Span
from thermocline.spark.streaming.first_visible import first_visible
from thermocline.spark.streaming.live_reader import LivePart
from thermocline.spark.streaming.offset_line import OffsetLine
from thermocline.spark.streaming.stream_options import StreamOptions
from thermocline.spark.streaming.stream_sources import SourceSnapshot, TopicSource
from thermocline.spark.streaming.task_cuts import Part, Share, clipped, cut_tasks
from thermocline.tiered.catalog import QueueGaps
from thermocline.tiered.objects import QuarantinedError

logger = logging.getLogger(__name__)

OpenStore: TypeAlias = Callable[[str, StoreOptions], BlockingStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueBatch:
    """One queue's share of the batch, [share_start, end): the same in every plan. `start`: where this plan reads from,
    behind what has expired of a queue of which nothing was read before (`is_beginning`)."""

    source: TopicSource
    queue: QueueName
    share_start: QueueOffset
    start: QueueOffset
    end: QueueOffset
    record_bytes: int
    incarnation: int | None
    is_beginning: bool

    @property
    def line(self) -> ColdLine:
        """What the cold tier holds of the queue; an empty line when nothing."""
        return self.source.cold_line(self.queue.queue_id) or ColdLine(self.queue.queue_id, runs=())

    def names(self, start: QueueOffset, end: QueueOffset) -> dict[str, object]:
        """The context of an error about a part of it."""
        return {"topic": self.source.topic, "queue": self.queue, "offsets": f"[{start}, {end})"}


class BatchPlanner:
    """Plans micro-batches; `options` are those that count for the batch's line."""

    def __init__(self, options: StreamOptions, *, open_store: OpenStore, may_read_live: bool) -> None:
        self._options = options
        self._open_store = open_store
        self._may_read_live = may_read_live

    def tasks(self, snapshot: SourceSnapshot, start: OffsetLine, end: OffsetLine) -> list[tuple[Part, ...]]:
        """The tasks of the batch, some perhaps without a part; none when it has no offsets.

        Raises:
            OffsetOutOfRangeError: Messages expired before they were read.
            CorruptDataError: Offsets are missing, or in quarantine, or the topic was made again.
            UnavailableError: The store gave no answer, or a broker with cold messages is not there.
        """
        parts: list[list[Part]] = []
        shares: list[Share] = []
        for queue in self._queues(snapshot, start, end):
            found = list(self._parts(queue, snapshot.now_ms))
            if self._is_wanted(queue):
                parts.append(found)
                shares.append(_share(queue))
        cuts = cut_tasks(shares, partition_bytes_max=self._options.read.partition_bytes_max)
        return [tuple(part for cut in task for part in clipped(parts[cut.index], cut.start, cut.end)) for task in cuts]

    def _queues(self, snapshot: SourceSnapshot, start: OffsetLine, end: OffsetLine) -> Iterator[_QueueBatch]:
        if start == end:
            return  # Spark asks so when a query starts again; `batch` is about offsets that are done
        for (topic, queue), end_offset in sorted(end.offsets.items()):
            source = snapshot.sources.get((topic, queue.broker_name))
            begun, move = start.offsets.get((topic, queue)), end.batch.get((topic, queue))
            # Of a first batch the line decides: where the query began, `start` may say otherwise after a restart.
            share_start = begun if move is None else move.start
            if share_start == end_offset or not self._options.read.wants_queue(queue):
                continue
            if source is None:
                # Nothing is sealed, and the broker does not answer: the tasks wait for it.
                source = TopicSource(topic=topic, broker_name=queue.broker_name, incarnation=0, cold=None, live=None)
            beginning = QUEUE_START
            if begun is None:
                from_ms = wanted_from_ms(source, self._options, now_ms=snapshot.now_ms)
                beginning = source.beginning(queue.queue_id, from_ms)
            if share_start is None:
                share_start = beginning
            if share_start < end_offset:
                yield _QueueBatch(
                    source=source,
                    queue=queue,
                    share_start=share_start,
                    start=min(max(share_start, beginning), end_offset),
                    end=end_offset,
                    record_bytes=record_bytes_from(source, queue.queue_id, share_start)
                    if move is None
                    else move.record_bytes,
                    incarnation=end.incarnations.get((topic, queue.broker_name)),
                    is_beginning=begun is None,
                )

    def _parts(self, batch: _QueueBatch, now_ms: int) -> Iterator[Part]:
        """What is read of one queue, by rising offset."""
        source, line = batch.source, batch.line
        visible_from_ms = 0 if source.cold is None else source.cold.visible_from_ms(now_ms)
        self._check_expired(batch, line, visible_from_ms)
        self._check_quarantine(batch, line, visible_from_ms)
        pieces: list[tuple[int, Part]] = []
        if source.cold is not None:
            cold, selection = source.cold, self._selection(batch, visible_from_ms)
            for _, part in line.slices(cold.source, cold.entry, start=batch.start, end=batch.end, selection=selection):
                pieces.append((part.start_offset, part))
        for start, end in line.uncovered(batch.start, batch.end):
            live = self._live(batch, line, start, end)
            if live is not None:
                pieces.append((live.start, live))
        pieces.sort(key=lambda piece: piece[0])
        for _, piece in pieces:
            yield piece

    def _live(self, batch: _QueueBatch, line: ColdLine, start: QueueOffset, end: QueueOffset) -> LivePart | None:
        """Offsets that no cold run covers, to be read from the broker; None when there is nothing to read."""
        source = batch.source
        queue = source.live_queue(batch.queue.queue_id)
        if not self._may_read_live or (source.live is not None and queue is None):
            if not (batch.is_beginning and start <= batch.start):
                where = "the cold tier" if not self._may_read_live else "the cold tier and the broker"
                self._lose(
                    CorruptDataError(
                        f"offsets are missing from {where}; failOnDataLoss=false reads what is there",
                        **batch.names(start, end),
                    )
                )
            return None
        if queue is not None and start < queue.visible_start:
            lost_end = min(end, queue.visible_start)
            if not batch.is_beginning:
                self._lose(_expired(batch, start, lost_end))
            start = lost_end
        if start >= end or not wants_offsets(self._selection(batch, 0), start, end):
            return None
        return LivePart(
            topic=source.topic,
            broker_name=batch.queue.broker_name,
            queue_id=batch.queue.queue_id,
            start=start,
            end=end,
            incarnation=batch.incarnation,
            holes=tuple(hole for hole in line.holes if hole[0] < end and start < hole[1]),
            is_beginning=batch.is_beginning and start <= batch.start,
            record_bytes=queue.record_bytes if queue is not None else 0,
            starting_ms=self._options.read.starting_ms,
        )

    def _is_wanted(self, batch: _QueueBatch) -> bool:
        """Whether the condition leaves any offset of the share, stored or not."""
        selection = row_selection(
            self._options.read, topic=batch.source.topic, queue=batch.queue, start=batch.share_start, end=batch.end
        )
        return wants_offsets(selection, batch.share_start, batch.end)

    def _selection(self, batch: _QueueBatch, visible_from_ms: int) -> RowSelection:
        """The wanted rows of the batch's offsets."""
        return row_selection(
            self._options.read,
            topic=batch.source.topic,
            queue=batch.queue,
            start=batch.start,
            end=batch.end,
            visible_from_ms=visible_from_ms,
        )

    def _check_expired(self, batch: _QueueBatch, line: ColdLine, visible_from_ms: int) -> None:
        """Report offsets that the query has not read yet and whose runs have expired, or are gone."""
        if batch.is_beginning or batch.source.cold is None or visible_from_ms <= 0 or batch.start >= line.end:
            return
        end = min(batch.end, line.end)
        store = self._open_store(batch.source.cold.source.url, self._options.read.store)
        visible = first_visible(line, store, start=batch.start, end=end, visible_from_ms=visible_from_ms)
        for start, gap_end in _without(batch.start, visible, line.holes):
            self._lose(_expired(batch, start, gap_end))

    def _check_quarantine(self, batch: _QueueBatch, line: ColdLine, visible_from_ms: int) -> None:
        for lost in line.lost:
            start, end = max(batch.start, lost.start), min(batch.end, lost.end)
            if start < end and lost.max_store_ms >= visible_from_ms:
                names = batch.names(start, end) | {"objects": lost.objects}
                self._lose(QuarantinedError("records are lost; failOnDataLoss=false reads what is there", **names))

    def _lose(self, error: MQError) -> None:
        """Log the error and continue without the messages, or raise it with failOnDataLoss."""
        if self._options.read.fail_on_data_loss:
            raise error
        logger.warning("%s", error)


def _share(batch: _QueueBatch) -> Share:
    return Share(
        start=batch.share_start,
        end=batch.end,
        record_bytes=batch.record_bytes,
        gaps=QueueGaps.of(batch.line.holes),
    )


def _expired(batch: _QueueBatch, start: QueueOffset, end: QueueOffset) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        "messages have expired, or are gone, before they were read; failOnDataLoss=false goes on without them",
        **batch.names(start, end),
    )


def _without(start: QueueOffset, end: QueueOffset, holes: Sequence[Span]) -> Iterator[Span]:
    """[start, end) without the holes."""
    for hole_start, hole_end in holes:
        if hole_end <= start or hole_start >= end:
            continue
        if hole_start > start:
            yield start, hole_start
        start = max(start, hole_end)
    if start < end:
        yield start, end
