"""lag: how far a consumer group is behind, how much of that is in the cold tier, and how old it is.

The group's offsets come from the brokers when a NameServer is named; else from the brokers' newest state in the bucket,
which is some seconds to minutes old and leaves out messages that are not sealed yet.
A queue in which the group has no position counts from its first message. Nothing is written, and only the first offsets
of each queue are read (OLDEST_WINDOW, more where all of these have expired): an interrupted report is run again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import (
    GroupNotFoundError,
    IllegalOperationError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.access.hadoop_options import read_options
from thermocline.spark.handoff.same_store import check_same_stores, stores_of
from thermocline.spark.jobs.chunked_read import Chunk, ChunkedRead, QueueEnd, split_engine
from thermocline.spark.jobs.progress import Progress, ProgressMeter
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.pruning_filters import PruningFilters
from thermocline.spark.reading.read_plan import ReadPlan
from thermocline.spark.reading.source_options import ReadOptions, read_options_from
from thermocline.tiered.catalog import NO_GAPS, QueueGaps
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import CONSUMER_OFFSETS, read_newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thermocline.client.admin.admin_client import AdminClient

OLDEST_WINDOW = 1_000
"""Offsets in which the oldest message is looked for first; what is in front of it may have expired."""
WHOLE = 1 << 62


@dataclass(frozen=True, slots=True, order=True)
class QueuePlace:
    """One queue of one topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """One queue. Counts are of offsets that have, or had, a message: declared holes do not count. None: not known, or
    there is none."""

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: QueueOffset | None
    cold_end_offset: QueueOffset | None
    broker_end_offset: QueueOffset | None
    behind_count: int
    """What there is to consume still."""
    cold_count: int
    """How much of it is in the cold tier."""
    expired_count: int
    """What was gone before the group came to it."""
    oldest_timestamp_ms: int | None
    """Store time of the first message to consume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """`as_of_ms`: when the positions were true."""

    group: str
    queues: tuple[QueueLag, ...]
    as_of_ms: int
    elapsed_ms: int

    @property
    def behind_count(self) -> int:
        """Over all queues."""
        return sum(queue.behind_count for queue in self.queues)


@dataclass(frozen=True, slots=True)
class _Oldest:
    """The first message to consume."""

    queue_offset: QueueOffset
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brokers:
    """The group's positions, from the brokers or the bucket; the range of each queue, if brokers were asked."""

    positions: Mapping[QueuePlace, QueueOffset]
    ranges: Mapping[QueuePlace, tuple[QueueOffset, QueueOffset]]
    as_of_ms: int
    stores: Mapping[str, str] = field(default_factory=dict)
    """The ids of their stores, by name, if they were asked."""


def lag(
    spark: SparkSession,
    url: str,
    *,
    group: str,
    topic: str,
    namesrv: str | None = None,
    options: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> LagReport:
    """How far `group` is behind in `topic` (one or several, comma separated).

    Raises:
        GroupNotFoundError: The group has no position in any of the topics.
        InvalidRequestError: An option is wrong, a topic is not there, brokers and cold tier do not belong together.
        UnavailableError: The store, a NameServer or a broker gave no answer.
    """
    started_ns = time.monotonic_ns()
    topics = [name.strip() for name in topic.split(",")]
    read: ChunkedRead | None = None
    try:
        read = ChunkedRead.plan(spark, url, topic=topic, options=options or {}, chunk_bytes=WHOLE)
    except TopicNotFoundError:
        if namesrv is None:
            raise  # with brokers: nothing is sealed yet, and they hold all messages
    plan: ReadPlan | None = None
    chosen = _options(spark, url, topic, options or {})
    if read is not None:
        plan = resolve_plan(chosen, now_ms=wall_clock_ms())
    if namesrv is None:
        assert plan is not None
        brokers = _ask_bucket(plan, chosen, group)
    else:
        brokers = _ask(namesrv, group, topics)
        if plan is not None:
            check_same_stores(brokers.stores, plan.sources)
    if not brokers.positions:
        raise GroupNotFoundError("the group has no position in this topic", group=group, topic=topic)
    cold = {} if read is None else {_place(queue): queue for queue in read.queues}
    gaps = {} if plan is None else _gaps(plan)
    places = sorted(cold.keys() | brokers.ranges.keys() | brokers.positions.keys())
    following = {place: _following(place, cold.get(place), brokers, gaps.get(place, NO_GAPS)) for place in places}
    oldest: dict[QueuePlace, _Oldest] = {}
    if read is not None:
        wanted = [
            replace(queue, start_offset=max(queue.start_offset, following[place]))
            for place, queue in cold.items()
            if following[place] < queue.end_offset
        ]
        meter = ProgressMeter(spark, on_progress, total_bytes=len(wanted))
        with meter.part(len(wanted), task_count=1, description="lag"):
            oldest = _oldest(spark, read, wanted)
        if not _is_filtered(chosen):
            for part in wanted:  # what the table does not give any more has expired
                found = oldest.get(_place(part))
                following[_place(part)] = part.end_offset if found is None else found.queue_offset
    queues = [
        _queue_lag(place, cold.get(place), brokers, gaps.get(place, NO_GAPS), following[place], oldest.get(place))
        for place in places
    ]
    if namesrv is not None:
        queues = _oldest_at_brokers(namesrv, queues, following)
    return LagReport(
        group=group,
        queues=tuple(queues),
        as_of_ms=brokers.as_of_ms,
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
    )


def _is_filtered(options: ReadOptions) -> bool:
    """Whether the table leaves out messages that have not expired."""
    is_chosen = options.tags is not None or options.keys is not None or options.starting_ms is not None
    return is_chosen or options.filters != PruningFilters()


def _gaps(plan: ReadPlan) -> dict[QueuePlace, QueueGaps]:
    return {QueuePlace(queue.topic, queue.source.broker_name, queue.queue_id): queue.gaps for queue in plan.queues}


def _range(place: QueuePlace, cold: QueueEnd | None, brokers: _Brokers) -> tuple[QueueOffset, QueueOffset]:
    """What the queue holds: by its broker, else by the cold tier."""
    held = brokers.ranges.get(place)
    if held is not None:
        return held
    return (QUEUE_START, QUEUE_START) if cold is None else (cold.start_offset, cold.end_offset)


def _following(place: QueuePlace, cold: QueueEnd | None, brokers: _Brokers, gaps: QueueGaps) -> QueueOffset:
    """Where the group goes on."""
    start, end = _range(place, cold, brokers)
    position = brokers.positions.get(place)
    offset = start if position is None else max(position, start)
    return min(gaps.next_offset(offset), max(offset, end))


def _queue_lag(
    place: QueuePlace,
    cold: QueueEnd | None,
    brokers: _Brokers,
    gaps: QueueGaps,
    following: QueueOffset,
    oldest: _Oldest | None,
) -> QueueLag:
    position, held = brokers.positions.get(place), brokers.ranges.get(place)
    _, end = _range(place, cold, brokers)
    cold_start, cold_end = (cold.start_offset, cold.end_offset) if cold is not None else (QUEUE_START, QUEUE_START)
    following = min(gaps.next_offset(following), max(following, end))
    return QueueLag(
        topic=place.topic,
        broker_name=place.broker_name,
        queue_id=place.queue_id,
        consumer_offset=position,
        cold_end_offset=None if cold is None else cold_end,
        broker_end_offset=None if held is None else end,
        behind_count=gaps.count(following, end),
        cold_count=gaps.count(max(following, cold_start), cold_end),
        expired_count=0 if position is None else gaps.count(position, following),
        oldest_timestamp_ms=None if oldest is None else oldest.timestamp_ms,
    )


def _oldest(spark: SparkSession, read: ChunkedRead, wanted: Sequence[QueueEnd]) -> dict[QueuePlace, _Oldest]:
    """The first message of each range that has not expired."""
    found: dict[QueuePlace, _Oldest] = {}
    for window in (OLDEST_WINDOW, None):
        missing = [part for part in wanted if _place(part) not in found]
        for topic in sorted({part.topic for part in missing}):
            ranges = tuple(
                part if window is None else replace(part, end_offset=min(part.end_offset, part.start_offset + window))
                for part in missing
                if part.topic == topic
            )
            found |= _first_messages(spark, read, Chunk(number=0, topic=topic, ranges=ranges, raw_bytes=0))
    return found


def _first_messages(spark: SparkSession, read: ChunkedRead, chunk: Chunk) -> dict[QueuePlace, _Oldest]:
    from pyspark.sql import functions as f

    table = read.columns(["brokerName", "queueId", "queueOffset", "timestamp"]).table(spark, chunk)
    first = table.groupBy("brokerName", "queueId").agg(
        f.min("queueOffset").alias("queue_offset"),
        f.unix_millis(f.min_by("timestamp", "queueOffset")).alias("timestamp_ms"),
    )
    return {
        QueuePlace(chunk.topic, row["brokerName"], row["queueId"]): _Oldest(row["queue_offset"], row["timestamp_ms"])
        for row in first.collect()
    }


# -- where the group is --------------------------------------------------------------------------------------------


def _ask(namesrv: str, group: str, topics: Sequence[str]) -> _Brokers:
    """Ask the brokers."""
    from thermocline.client.admin.admin_client import AdminClient

    positions: dict[QueuePlace, QueueOffset] = {}
    ranges: dict[QueuePlace, tuple[QueueOffset, QueueOffset]] = {}
    stores: dict[str, str] = {}
    now_ms = wall_clock_ms()
    with AdminClient(namesrv=namesrv) as admin:
        for topic in topics:
            try:
                places = admin.group_places(group, topic)
            except (IllegalOperationError, UnsupportedRequestError):  # a static topic, a broker of another make
                _ask_as_mqadmin_does(admin, group, topic, positions, ranges)
                continue
            stores |= stores_of(places)
            for place in places:
                ranges[_queue_place(place.queue)] = (QueueOffset(place.min_offset), QueueOffset(place.max_offset))
                if place.offset is not None:
                    positions[_queue_place(place.queue)] = QueueOffset(place.offset)
    return _Brokers(positions=positions, ranges=ranges, as_of_ms=now_ms, stores=stores)


def _ask_as_mqadmin_does(
    admin: AdminClient,
    group: str,
    topic: str,
    positions: dict[QueuePlace, QueueOffset],
    ranges: dict[QueuePlace, tuple[QueueOffset, QueueOffset]],
) -> None:
    """By RocketMQ's own requests, which say 0 of a group that has no position."""
    for stats in admin.topic_stats(topic):
        ranges[_queue_place(stats.queue)] = (QueueOffset(stats.min_offset), QueueOffset(stats.max_offset))
    for progress in admin.group_progress(group, topic=topic):
        if progress.consumer_offset >= 0 and progress.queue.topic == topic:
            positions[_queue_place(progress.queue)] = QueueOffset(progress.consumer_offset)


def _ask_bucket(plan: ReadPlan, chosen: ReadOptions, group: str) -> _Brokers:
    """The positions in the brokers' newest state in the bucket."""
    positions: dict[QueuePlace, QueueOffset] = {}
    as_of_ms: list[int] = []
    for source in plan.sources:
        store = blocking_store(source.url, chosen.store)
        snapshot = store.run(read_newest(store.store, BrokerKeys(source.root)))
        if snapshot is None:
            continue
        as_of_ms.append(snapshot.captured_ms)
        table = snapshot.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {})
        for name in chosen.topics:
            for queue_id, offset in table.get(f"{name}@{group}", {}).items():
                positions[QueuePlace(name, source.broker_name, int(queue_id))] = QueueOffset(int(offset))
    return _Brokers(positions=positions, ranges={}, as_of_ms=min(as_of_ms, default=0))


def _options(spark: SparkSession, url: str, topic: str, options: Mapping[str, str]) -> ReadOptions:
    _, others = split_engine(options)
    return read_options_from(read_options(spark, url) | others | {"path": url, "topic": topic})


def _oldest_at_brokers(
    namesrv: str, queues: Sequence[QueueLag], following: Mapping[QueuePlace, QueueOffset]
) -> list[QueueLag]:
    """Fill in what is not cold yet: the first message to consume is still with its broker."""
    from thermocline.client.admin.admin_client import AdminClient

    filled = []
    with AdminClient(namesrv=namesrv) as admin:
        for queue in queues:
            oldest_ms = queue.oldest_timestamp_ms
            if oldest_ms is None and queue.behind_count:
                place = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)
                pulled = admin.pull(place, following[_of(queue)], count_max=1)
                oldest_ms = pulled.messages[0].store_timestamp_ms if pulled.messages else None
            filled.append(replace(queue, oldest_timestamp_ms=oldest_ms))
    return filled


def _place(queue: QueueEnd) -> QueuePlace:
    return QueuePlace(queue.topic, queue.broker_name, queue.queue_id)


def _of(queue: QueueLag) -> QueuePlace:
    return QueuePlace(queue.topic, queue.broker_name, queue.queue_id)


def _queue_place(queue: MessageQueue) -> QueuePlace:
    return QueuePlace(queue.topic, queue.broker_name, queue.queue_id)
