"""ChunkedRead: a read that was resolved once, cut into chunks that can be read one by one, by another process too.

A chunk is a range of offsets of each of some queues of one topic. The chunks of a read hold each of its messages once.
Offset ranges mean the same in every version of the catalog, so a read whose version has been collected meanwhile can go
on: its remaining chunks are resolved in the newest version, under today's time to live. Messages that have expired
since are missing, and `notes` reports it. A topic that was deleted and made again meanwhile is refused.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.access.hadoop_options import FORMAT, read_options
from thermocline.spark.access.store_options import HADOOP_PREFIX
from thermocline.spark.access.store_url import S3_SCHEMES
from thermocline.spark.cold_table import ENGINES, Engine, check_s3a_options, load_cold, s3a_url
from thermocline.spark.connector.s3a_connector import check_connector
from thermocline.spark.data_source import table_schema
from thermocline.spark.reading.cold_plan import pinned_options, resolve_plan
from thermocline.spark.reading.read_plan import QueueRange, ReadPlan, SegmentSlice
from thermocline.spark.reading.source_options import QueueName, read_options_from
from thermocline.tiered.objects import VersionExpiredError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK_BYTES_DEFAULT = 1 << 30
# Option names ignore case; here they are in lower case, so that each occurs once.
_PINS = ("snapshotVersion", "snapshotTimestamp")
_HELD = "snapshotpin"
_FIXED = ("startingoffsets", "endingoffsets", _HELD, *(name.lower() for name in _PINS))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnd:
    """The range of one queue that a job reads: [start_offset, end_offset)."""

    topic: str
    broker_name: str
    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    incarnation: int = field(default=0, repr=False)

    @property
    def name(self) -> str:
        """As options spell it."""
        return str(QueueName(self.broker_name, self.queue_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Ranges of queues of one topic; `raw_bytes` of records is an estimate."""

    number: int
    topic: str
    ranges: tuple[QueueEnd, ...]
    raw_bytes: int


@dataclass(slots=True, kw_only=True)
class ChunkedRead:
    """See the module. `options` reach the bucket and are not saved; the rest is."""

    options: Mapping[str, str] = field(repr=False)  # may hold keys of the bucket
    queues: tuple[QueueEnd, ...]
    chunks: tuple[Chunk, ...]
    pins: Mapping[str, str]
    notes: tuple[str, ...] = ()
    receipt: Mapping[str, Any] | None = None
    """The data of a hand-off after the whole read."""
    engine: Engine = "direct"
    """The engine that fetches the rows; not saved. The driver always plans with the direct client."""

    @classmethod
    def plan(
        cls, spark: SparkSession, url: str, *, topic: str, options: Mapping[str, str], chunk_bytes: int
    ) -> ChunkedRead:
        """Resolve a read now, or by the options of an open snapshot.

        Raises:
            InvalidRequestError: An option is wrong, a topic is not there, two brokers have one name.
            UnavailableError: The store gave no answer, or refused.
        """
        engine, chosen = _chosen(spark, url, topic, options)
        asked = read_options_from(chosen)
        # No slice is longer than a chunk.
        asked = replace(asked, partition_bytes_max=min(asked.partition_bytes_max, chunk_bytes))
        plan = resolve_plan(asked, now_ms=wall_clock_ms())
        pinned = pinned_options(plan)
        return cls(
            options=_without(chosen, _FIXED),
            engine=engine,
            queues=tuple(_end(queue) for queue in plan.queues),
            chunks=tuple(cut_chunks(plan, chunk_bytes=chunk_bytes)),
            pins={name.lower(): pinned[name] for name in _PINS} | ({_HELD: chosen[_HELD]} if _HELD in chosen else {}),
        )

    @classmethod
    def restore(
        cls, spark: SparkSession, url: str, *, topic: str, options: Mapping[str, str], saved: Mapping[str, Any]
    ) -> ChunkedRead:
        """The read that an earlier run has saved; the options say how the bucket is reached now."""
        engine, chosen = _chosen(spark, url, topic, options)
        return cls(
            options=_without(chosen, _FIXED),
            engine=engine,
            queues=tuple(QueueEnd(**queue) for queue in saved["queues"]),
            chunks=tuple(
                Chunk(**chunk | {"ranges": tuple(QueueEnd(**part) for part in chunk["ranges"])})
                for chunk in saved["chunks"]
            ),
            pins=saved["pins"],
            notes=tuple(saved["notes"]),
            receipt=saved["receipt"],
        )

    def saved(self) -> dict[str, Any]:
        """For JSON; no secrets."""
        return {
            "queues": [asdict(queue) for queue in self.queues],
            "chunks": [asdict(chunk) for chunk in self.chunks],
            "pins": dict(self.pins),
            "notes": list(self.notes),
            "receipt": self.receipt,
        }

    @property
    def raw_bytes(self) -> int:
        """Of all chunks."""
        return sum(chunk.raw_bytes for chunk in self.chunks)

    @property
    def versions(self) -> dict[str, int]:
        """The catalog versions that are read, by cluster/broker."""
        versions: dict[str, int] = json.loads(self.pins["snapshotversion"])
        return versions

    def columns(self, columns: Iterable[str]) -> ChunkedRead:
        """The same read with these columns."""
        others = _without(self.options, ("includeproperties",))
        return replace(self, options=others | {"columns": ",".join(columns)})

    def with_keys(self, keys: Iterable[str]) -> ChunkedRead:
        """The same read, of messages that have one of these keys."""
        return replace(self, options={**self.options, "keys": " ".join(keys)})

    def renewed(self) -> ChunkedRead | None:
        """The rest of the read after its version was collected: the same chunks, cut to what exists today; None when
        the version is still readable.

        Raises:
            InvalidRequestError: A topic is not there any more, or was deleted and made again.
            UnavailableError: The store gave no answer, or refused.
        """
        if not self.queues:
            return None
        now_ms = wall_clock_ms()
        topics = dict.fromkeys(queue.topic for queue in self.queues)
        everything = {**self.options, "topic": ",".join(topics), "failondataloss": "false"}
        try:
            resolve_plan(read_options_from({**everything, **self.pins}), now_ms=now_ms)
        except VersionExpiredError:
            pass
        else:
            return None
        plan = resolve_plan(read_options_from(everything), now_ms=now_ms)
        there = {(queue.topic, queue.source.broker_name, queue.queue_id): queue for queue in plan.queues}
        chunks = [replace(chunk, ranges=tuple(_still_there(chunk.ranges, there))) for chunk in self.chunks]
        pinned = pinned_options(plan)
        old = " ".join(f"{root}:{version}" for root, version in sorted(self.versions.items()))
        new = " ".join(f"{source.root}:{source.version}" for source in plan.sources)
        return replace(
            self,
            chunks=tuple(chunks),
            pins={name.lower(): pinned[name] for name in _PINS},
            notes=(*self.notes, f"version {old} is not readable any more; the rest is read at {new}"),
        )

    def chunk_options(self, chunk: Chunk) -> dict[str, str]:
        """Options of the data source with which exactly this chunk is read."""
        ranges = {part.name: part for part in chunk.ranges}
        return {
            **self.options,
            **self.pins,
            "topic": chunk.topic,
            "queues": ",".join(ranges),
            "startingoffsets": json.dumps({chunk.topic: {name: part.start_offset for name, part in ranges.items()}}),
            "endingoffsets": json.dumps({chunk.topic: {name: part.end_offset for name, part in ranges.items()}}),
        }

    def task_count(self, chunk: Chunk) -> int:
        """In how many tasks Spark will read a chunk.

        Raises:
            VersionExpiredError: The version is not readable any more: see `renewed`.
            InvalidRequestError: What is planned is not there any more.
            UnavailableError: The store gave no answer, or refused.
        """
        if not chunk.ranges:
            return 1
        plan = resolve_plan(read_options_from(self.chunk_options(chunk)), now_ms=wall_clock_ms())
        return max(1, len(plan.tasks))

    def table(self, spark: SparkSession, chunk: Chunk) -> DataFrame:
        """The rows of a chunk."""
        if not chunk.ranges:
            return spark.createDataFrame([], schema=table_schema(self.options))
        options = self.chunk_options(chunk)
        if self.engine == "direct":
            return spark.read.format(FORMAT).options(**options).load()
        given = {name: value for name, value in options.items() if not name.startswith(("s3.", HADOOP_PREFIX))}
        return load_cold(spark, given.pop("path"), given.pop("topic"), "s3a", given)


def cut_chunks(plan: ReadPlan, *, chunk_bytes: int) -> Iterator[Chunk]:
    """Chunks of about `chunk_bytes` raw bytes: queues laid end to end, cut between slices, and between topics.

    A read of nothing has one chunk, without a range.
    """
    slices: dict[tuple[str, str, int], list[SegmentSlice]] = defaultdict(list)
    for task in plan.tasks:
        for part in task:
            slices[(part.topic, part.source.root, part.queue_id)].append(part)
    open_topic, open_bytes, number = "", 0, 0
    ranges: list[QueueEnd] = []
    for queue in sorted(plan.queues, key=lambda queue: (queue.topic, queue.source.root, queue.queue_id)):
        # By offset: tasks that small queues share order their slices by object.
        parts = sorted(
            slices[(queue.topic, queue.source.root, queue.queue_id)],
            key=lambda part: (part.start_offset, part.segment_id),
        )
        for index, part in enumerate(parts):
            if ranges and (queue.topic != open_topic or open_bytes + part.raw_bytes > chunk_bytes):
                yield Chunk(number=number, topic=open_topic, ranges=tuple(ranges), raw_bytes=open_bytes)
                number, ranges, open_bytes = number + 1, [], 0
            open_topic = queue.topic
            open_bytes += part.raw_bytes
            is_new = not ranges or (ranges[-1].broker_name, ranges[-1].queue_id) != (
                queue.source.broker_name,
                queue.queue_id,
            )
            start = part.start_offset if is_new else ranges[-1].start_offset
            if not is_new:
                ranges.pop()
            ranges.append(replace(_end(queue), start_offset=start, end_offset=part.end_offset))
            assert index == 0 or parts[index - 1].end_offset <= part.start_offset, "slices of a queue do not overlap"
    if ranges or not number:
        topic = open_topic or (plan.queues[0].topic if plan.queues else "")
        yield Chunk(number=number, topic=topic, ranges=tuple(ranges), raw_bytes=open_bytes)


def _end(queue: QueueRange) -> QueueEnd:
    return QueueEnd(
        topic=queue.topic,
        broker_name=queue.source.broker_name,
        queue_id=queue.queue_id,
        start_offset=queue.start_offset,
        end_offset=queue.end_offset,
        incarnation=queue.incarnation,
    )


def _still_there(ranges: Iterable[QueueEnd], there: Mapping[tuple[str, str, int], QueueRange]) -> Iterator[QueueEnd]:
    """The ranges, cut to what is there today; a queue that is away has expired as a whole."""
    for part in ranges:
        queue = there.get((part.topic, part.broker_name, part.queue_id))
        if queue is None:
            continue
        if queue.incarnation != part.incarnation:
            raise InvalidRequestError(
                "the topic was deleted and made again since this job began; begin anew", topic=part.topic
            )
        start, end = max(part.start_offset, queue.start_offset), min(part.end_offset, queue.end_offset)
        if start < end:
            yield replace(part, start_offset=start, end_offset=end)


def split_engine(options: Mapping[str, str]) -> tuple[Engine, dict[str, str]]:
    """The option `engine`, which jobs take beside those of the data source, and the others."""
    others = {name: value for name, value in options.items() if name.lower() != "engine"}
    named = [value for name, value in options.items() if name.lower() == "engine"]
    for value in named:
        if value == "s3a":
            return "s3a", others
        if value != "direct":
            raise InvalidRequestError(f"{value!r} is none of {', '.join(ENGINES)}", option="engine")
    return "direct", others


def _chosen(spark: SparkSession, url: str, topic: str, options: Mapping[str, str]) -> tuple[Engine, dict[str, str]]:
    """The engine, and all options of the read by their names in lower case; the session's settings count last."""
    engine, others = split_engine(options)
    of_session = read_options(spark, url)
    if engine == "s3a":
        check_s3a_options({name: value for name, value in others.items() if of_session.get(name) != value})
        if urlsplit(s3a_url(url)).scheme in S3_SCHEMES:
            check_connector(spark)
    given = {name.lower(): value for name, value in (of_session | others).items()}
    return engine, given | {"path": url, "topic": topic}


def _without(options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    dropped = set(names)
    return {name: value for name, value in options.items() if name not in dropped}
