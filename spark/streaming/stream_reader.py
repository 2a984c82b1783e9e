"""StreamReader: the data source `thermocline` as Spark's micro-batch engine calls it.

    initialOffset, latestOffset, partitions, commit, ...   one long-lived planner process on the driver, one a query
    read                                                   Python workers of the executors

Rules that Spark's engine makes
  - `initialOffset` is called more than once, so what it resolves is kept. A run that repeats the first batch of an
    earlier one asks for it anew, and passes that as the batch's start: where the batch started is in its end.
  - `partitions` may be called for a batch of an earlier run, before `latestOffset`: it depends only on its two offsets
    and the present state of brokers and cold tier; which rows are in which of its tasks on the two offsets alone.
  - `latestOffset` gives `start` back while there is nothing new.
  - `commit` comes one batch late, and never for the last one: the checkpoint alone holds the progress, so it does
    nothing here.
  - With `trigger(once=True)` no limit holds. With `availableNow` the query ends where every queue ended when it began.
  - The reader is pickled into the tasks: it holds checked options, and nothing that is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.bodies.body_reader import BodyBatches
from thermocline.spark.plain_errors import plain_errors
from thermocline.spark.reading.cold_plan import check_named
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import EARLIEST, LATEST
from thermocline.spark.streaming.batch_bounds import BatchLimit, Targets, newest_line, next_line
from thermocline.spark.streaming.batch_plan import BatchPlanner
from thermocline.spark.streaming.cold_view import ColdView
from thermocline.spark.streaming.live_client import live_client
from thermocline.spark.streaming.live_reader import LivePart, LiveReader
from thermocline.spark.streaming.live_view import LiveView
from thermocline.spark.streaming.offset_line import OffsetLine
from thermocline.spark.streaming.stream_options import StreamOptions
from thermocline.spark.streaming.stream_sources import SourceSnapshot, StreamSources
from thermocline.spark.streaming.task_cuts import Part


class StreamPartition(InputPartition):
    """What one task reads, in this order."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(None)
        self.parts = parts


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module's header."""

    def __init__(
        self,
        options: StreamOptions,
        *,
        bodies: BodyBatches | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`bodies`: puts them into columns. `now_ms`: by which messages expire. `clock_s` never steps back."""
        self._options = options
        self._bodies = bodies
        self._now_ms = now_ms
        self._clock_s = clock_s
        self._planning: _Planning | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins.

        Raises:
            TopicNotFoundError: Neither cold tier nor brokers have a topic.
            UnavailableError: The store, or for `latest` a broker, gives no answer in time.
        """
        with plain_errors():
            return self._planner.initial().json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the batch that begins at `start` ends.

        Raises:
            InvalidRequestError: `start` is of a query of other topics.
            CorruptDataError: The topic was deleted, or made again; a queue is shorter than the query has read.
            UnavailableError: The store gives no answer at the first call.
        """
        with plain_errors():
            return self._planner.next(OffsetLine.from_json(start), limit).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The bytes of one batch; the reader itself holds the bound on offsets."""
        return ReadMaxBytes(self._options.trigger_bytes_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of all queues, for the query's progress; None while a broker is away."""
        with plain_errors():
            return self._planner.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the query ends.

        Raises:
            UnavailableError: The store or a broker gives no answer in time.
        """
        with plain_errors():
            self._planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[StreamPartition]:
        """The tasks of a batch. Raises as BatchPlanner.tasks."""
        with plain_errors():
            tasks = self._planner.tasks(OffsetLine.from_json(start), OffsetLine.from_json(end))
        return [StreamPartition(parts) for parts in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, StreamPartition)
        with plain_errors():
            rows = read_parts(self._options, partition.parts)
            yield from rows if self._bodies is None else self._bodies.append(rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint holds the offsets; none are committed to a broker."""

    def __reduce__(self) -> tuple[Callable[..., StreamReader], tuple[StreamOptions, BodyBatches | None]]:
        return _reader_of_tasks, (self._options, self._bodies)

    @property
    def _planner(self) -> _Planning:
        if self._planning is None:
            self._planning = _Planning(self._options, now_ms=self._now_ms, clock_s=self._clock_s)
        return self._planning


def _reader_of_tasks(options: StreamOptions, bodies: BodyBatches | None) -> StreamReader:
    return StreamReader(options, bodies=bodies)


def read_parts(options: StreamOptions, parts: tuple[Part, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of parts, one after another; cold ones that follow each other are fetched ahead together."""
    slices: list[SegmentSlice] = []
    for part in parts:
        if isinstance(part, LivePart):
            yield from FrameReader(options.read).read(slices)
            slices = []
            yield from LiveReader(options, live_client(options.name_servers)).read(part)
        else:
            slices.append(part)
    yield from FrameReader(options.read).read(slices)


class _Planning:
    """What the planner process keeps for its query."""

    def __init__(self, options: StreamOptions, *, now_ms: Callable[[], int], clock_s: Callable[[], float]) -> None:
        self._options = options
        self._now_ms = now_ms
        live = None
        if options.name_servers:
            client = live_client(options.name_servers)
            live = LiveView(client, options.read.topics, clock_s=clock_s, sleep=time.sleep)
        self._sources = StreamSources(options, ColdView(options.read, clock_s=clock_s), live)
        self._may_read_live = live is not None
        self._initial: OffsetLine | None = None
        self._targets: Targets | None = None

    def initial(self) -> OffsetLine:
        if self._initial is None:
            wanted = self._options.read.starting_offsets
            # Of brokers that are away, too: a queue without an entry begins at its oldest message.
            needs_ends = {wanted.default, *wanted.offsets.values()} != {EARLIEST}
            snapshot = self._snapshot(fresh=True, wait_ms=self._options.broker_timeout_ms if needs_ends else 0)
            if snapshot.is_complete or needs_ends:
                snapshot.check_topics(self._options.read.topics)
            check_named(self._options.read, snapshot.broker_names)
            ends = newest_line(snapshot, self._options)
            offsets = dict(ends.offsets)
            for topic, queue in ends.offsets:
                offset = wanted.offset_of(topic, queue)
                if offset == EARLIEST:
                    del offsets[(topic, queue)]
                elif offset != LATEST:
                    offsets[(topic, queue)] = offset
            for (topic, queue), offset in wanted.offsets.items():
                is_read = topic in self._options.read.topics and self._options.read.wants_queue(queue)
                if is_read and queue.broker_name and offset >= 0:  # also of a queue without messages
                    offsets[(topic, queue)] = offset
            brokers = {(topic, queue.broker_name) for topic, queue in offsets}
            incarnations = {key: value for key, value in ends.incarnations.items() if key in brokers}
            starting_ms = max(self._options.read.starting_ms or 0, 0)
            self._initial = OffsetLine(offsets=offsets, incarnations=incarnations, starting_ms=starting_ms)
        return self._initial

    def next(self, start: OffsetLine, limit: ReadLimit) -> OffsetLine:
        self._check_topics(start)
        snapshot = self._snapshot()
        snapshot.check_line(start)
        self._check_ends(snapshot, start)
        allowed = BatchLimit()
        if not isinstance(limit, ReadAllAvailable):
            bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.trigger_bytes_max
            allowed = BatchLimit(bytes_max=bytes_max, offsets_max=self._options.trigger_offsets_max)
        return next_line(snapshot, start, self._options_of(start), allowed, targets=self._targets)

    def newest(self) -> dict[str, Any] | None:
        snapshot = self._snapshot()
        return newest_line(snapshot, self._options).json() if snapshot.is_complete else None

    def freeze(self) -> None:
        snapshot = self._snapshot(fresh=True, wait_ms=self._options.broker_timeout_ms)
        self._targets = newest_line(snapshot, self._options).offsets

    def tasks(self, start: OffsetLine, end: OffsetLine) -> list[tuple[Part, ...]]:
        self._check_topics(end)
        snapshot = self._snapshot()
        snapshot.check_line(end)
        planner = BatchPlanner(self._options_of(end), open_store=blocking_store, may_read_live=self._may_read_live)
        return planner.tasks(snapshot, start, end)

    def _options_of(self, line: OffsetLine) -> StreamOptions:
        """The options with the time that the query was begun with; a restarted one may have been given another."""
        if line.starting_ms is None:
            return self._options
        return replace(self._options, read=replace(self._options.read, starting_ms=line.starting_ms))

    def _snapshot(self, *, fresh: bool = False, wait_ms: int = 0) -> SourceSnapshot:
        return self._sources.snapshot(now_ms=self._now_ms(), fresh=fresh, wait_ms=wait_ms)

    def _check_topics(self, line: OffsetLine) -> None:
        """Refuse the checkpoint of other topics: their last batch would be read, then these from the oldest."""
        found, wanted = {topic for topic, _ in line.offsets}, self._options.read.topics
        if found and found.isdisjoint(wanted):
            raise InvalidRequestError(
                "this checkpoint is of a query of other topics; the query needs one of its own",
                topic=", ".join(wanted),
                checkpoint_topic=", ".join(sorted(found)),
            )

    def _check_ends(self, snapshot: SourceSnapshot, start: OffsetLine) -> None:
        """Every queue that its broker has spoken of is as long as the query has read it."""
        for (topic, queue), offset in start.offsets.items():
            source = snapshot.sources.get((topic, queue.broker_name))
            if source is None or source.live_queue(queue.queue_id) is None:
                continue
            end = source.end_offset(queue.queue_id)
            if end < offset and self._options.read.fail_on_data_loss:
                raise CorruptDataError(
                    "a queue ends before the place that this query has reached; failOnDataLoss=false waits until it"
                    " has grown that far",
                    topic=topic,
                    queue=queue,
                    offset=offset,
                    end=end,
                )
