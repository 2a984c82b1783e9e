"""compare: which messages of two topics are only here, only there, or differ.

    by          what makes two messages the same one                   where a message has none
    unique-key  the unique id that the producer made (UNIQ_KEY)         key and body
    key         the property KEYS                                      body
    body        key and body
    offset      broker, queue and offset, for two copies of one cluster

Messages that are the same one are compared by body, keys, tag and flag, and by the application's properties when asked.
One that is there twice here and once there differs: all messages of one identity are compared as a bag, in no order.
With an output each chunk's digests are stored, and an interrupted run continues; without one nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from thermocline.client.message import RESERVED_NAMES
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.jobs.chunked_job import Outcome, begin, run_chunks
from thermocline.spark.jobs.chunked_read import CHUNK_BYTES_DEFAULT, ChunkedRead
from thermocline.spark.jobs.file_output import FileOutput, OutputFormat
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.job_record import FOLDER, JobRecord, harmless_options, harmless_url
from thermocline.spark.jobs.part_output import PartOutput
from thermocline.spark.jobs.progress import Progress, ProgressMeter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

IDENTITIES = ("unique-key", "key", "body", "offset")
ONLY_HERE, ONLY_THERE, DIFFERS, SAME = "only here", "only there", "differs", "same"
EXAMPLES_MAX_DEFAULT = 20
WHOLE = 1 << 62
_SIDES = ("here", "there")
_SEPARATOR = "\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two: a topic under a URL, with options of the data source."""

    url: str = field(repr=False)
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def repeated_arguments(self) -> dict[str, object]:
        """The arguments that a continued comparison must repeat."""
        return {
            "from": harmless_url(self.url),
            "topic": self.topic,
            "options": harmless_options(self.options),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Counts of identities by what came of them, and of messages. `examples`: some that are not the same."""

    same: int
    differs: int
    only_here: int
    only_there: int
    here_messages: int
    there_messages: int
    examples: tuple[Mapping[str, Any], ...]
    elapsed_ms: int
    outcome: Outcome = "written"
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same messages."""
        return not (self.differs or self.only_here or self.only_there)


def compare(
    spark: SparkSession,
    here: Side,
    there: Side,
    *,
    by: str = "unique-key",
    with_properties: bool = False,
    output: str | None = None,
    output_format: OutputFormat = "json",
    examples_max: int = EXAMPLES_MAX_DEFAULT,
    chunk_bytes: int = CHUNK_BYTES_DEFAULT,
    on_progress: Progress | None = None,
) -> Comparison:
    """Compare two topics. `output`: a new directory for all that is not the same; an interrupted run goes on there.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, or `output` holds something else.
        UnavailableError: A store gave no answer, or refused.
    """
    started_ns = time.monotonic_ns()
    if by not in IDENTITIES:
        raise InvalidRequestError(f"{by!r} is nothing to compare by; write one of {', '.join(IDENTITIES)}")
    digests = _Digests(by=by, with_properties=with_properties)
    outcome: Outcome = "written"
    notes: tuple[str, ...] = ()
    if output is None:
        tables = _read_at_once(spark, (here, there), digests, on_progress)
        found = _summed_up(_side_by_side(*tables), None, examples_max)
        for table in tables:
            table.unpersist()
    else:
        files = JobFiles(spark, output)
        sides = dict(zip(_SIDES, (here, there), strict=True))
        form = {name: side.repeated_arguments() for name, side in sides.items()} | {
            "by": by,
            "with_properties": with_properties,
            "output_format": output_format,
        }
        record = JobRecord.open(files, job="compare", arguments=form)
        report = record.report
        outcome = "finished before" if report else "continued" if record.is_continued else "written"
        differences = FileOutput(record, output_format=output_format)
        if not record.is_continued:
            record.save_plan({})
        if report is None:
            runs = [_SideRun(spark, files, name, side, digests, chunk_bytes) for name, side in sides.items()]
            total = sum(run.read.raw_bytes for run in runs)
            done = 0
            for run in runs:
                run.keep(spark, on_progress, done_bytes=done, total_bytes=total)
                done += run.read.raw_bytes
            report = _summed_up(_side_by_side(*(run.parts.table(spark) for run in runs)), differences, examples_max)
            differences.finish()
            report["notes"] = [note for run in runs for note in run.read.notes]
            record.finish(report)
        found = {name: value for name, value in report.items() if name != "notes"}
        notes = tuple(report["notes"])
    return Comparison(
        **{name: value for name, value in found.items() if name != "examples"},
        examples=tuple(found["examples"]),
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
        outcome=outcome,
        notes=notes,
    )


class _SideRun:
    """One side of a comparison that is kept: a job of its own in a directory in the record of the whole."""

    def __init__(
        self, spark: SparkSession, files: JobFiles, name: str, side: Side, digests: _Digests, chunk_bytes: int
    ) -> None:
        self._digests = digests
        self._record, self.read = begin(
            spark,
            JobFiles(spark, files.url(f"{FOLDER}/sides/{name}")),
            f"compare, {name}",
            side.url,
            side.topic,
            side.options,
            {},
            chunk_bytes=chunk_bytes,
        )
        self.parts = PartOutput(self._record)

    def keep(self, spark: SparkSession, on_progress: Progress | None, *, done_bytes: int, total_bytes: int) -> None:
        def work(read: ChunkedRead, number: int) -> None:
            self.parts.write_chunk(number, self._digests.of_chunk(spark, read, number))

        def report(done: int, _: int) -> None:
            assert on_progress is not None
            on_progress(done_bytes + done, total_bytes)

        on_part = None if on_progress is None else report
        self.read = run_chunks(spark, self._record, self.read, work, on_part, description="compare")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digests:
    """The columns kept of each message: its identity, the digest of its content, and its place."""

    by: str
    with_properties: bool

    def of_chunk(self, spark: SparkSession, read: ChunkedRead, number: int) -> DataFrame:
        from pyspark.sql import functions as f

        names = ["brokerName", "queueId", "queueOffset", "key", "tag", "value", "msgId", "flag"]
        if self.with_properties:
            names.append("properties")
        table = read.columns(names).table(spark, read.chunks[number])
        place = f.concat_ws(":", "brokerName", f.col("queueId").cast("string"), f.col("queueOffset").cast("string"))
        content = [
            f.sha2("value", 256),
            f.coalesce("key", f.lit("")),
            f.coalesce("tag", f.lit("")),
            f.col("flag").cast("string"),
        ]
        if self.with_properties:
            content.append(_own_properties())
        return table.select(
            self._identity(place).alias("id"),
            f.sha2(f.concat_ws(_SEPARATOR, *content), 256).alias("digest"),
            place.alias("place"),
        )

    def _identity(self, place: Column) -> Column:
        from pyspark.sql import functions as f

        body = f.concat(f.lit("body "), f.sha2("value", 256))
        key_and_body = f.concat_ws(" ", "key", body)
        if self.by == "offset":
            return place
        if self.by == "body":
            return key_and_body
        if self.by == "key":
            return f.coalesce(f.col("key"), body)
        return f.coalesce(f.col("msgId"), key_and_body)


def _own_properties() -> Column:
    """The application's own properties as one text, in the order of their names."""
    from pyspark.sql import functions as f

    reserved = [f.lit(name) for name in sorted(RESERVED_NAMES)]
    own = f.map_filter("properties", lambda name, _: ~name.isin(*reserved))
    pairs = f.transform(f.map_entries(own), lambda pair: f.concat_ws("\x01", pair["key"], pair["value"]))
    return f.concat_ws(_SEPARATOR, f.array_sort(pairs))


def _read_at_once(
    spark: SparkSession, sides: tuple[Side, Side], digests: _Digests, on_progress: Progress | None
) -> list[DataFrame]:
    """The digests of both sides, each read once and kept by Spark, in memory or on its disks."""
    reads = [
        ChunkedRead.plan(spark, side.url, topic=side.topic, options=side.options, chunk_bytes=WHOLE) for side in sides
    ]
    meter = ProgressMeter(spark, on_progress, total_bytes=sum(read.raw_bytes for read in reads))
    tables = []
    for read in reads:
        parts = [digests.of_chunk(spark, read, chunk.number) for chunk in read.chunks]
        table = reduce(lambda one, other: one.unionAll(other), parts).persist()
        with meter.part(read.raw_bytes, task_count=sum(map(read.task_count, read.chunks)), description="compare"):
            table.count()
        tables.append(table)
    return tables


def _side_by_side(here: DataFrame, there: DataFrame) -> DataFrame:
    """One row an identity: its message count and first place on each side, and the result."""
    from pyspark.sql import functions as f

    both = here.withColumn("is_here", f.lit(True)).unionAll(there.withColumn("is_here", f.lit(False)))
    # A bag of digests as two sums of 60 bits each: they take no memory that grows with the bag.
    halves = [f.conv(f.substring("digest", start, 15), 16, 10).cast("decimal(20,0)") for start in (1, 16)]

    def of(is_here: bool, value: Column) -> Column:
        return f.when(f.col("is_here") == f.lit(is_here), value)

    grouped = both.groupBy("id").agg(
        *(
            column
            for name, is_here in (("here", True), ("there", False))
            for column in (
                f.count(of(is_here, f.lit(1))).alias(f"{name}_count"),
                f.min(of(is_here, f.col("place"))).alias(f"{name}_place"),
                *(f.sum(of(is_here, half)).alias(f"{name}_sum_{index}") for index, half in enumerate(halves)),
            )
        )
    )
    is_same = f.col("here_count") == f.col("there_count")
    for index in range(len(halves)):
        is_same &= f.col(f"here_sum_{index}") == f.col(f"there_sum_{index}")
    outcome = (
        f.when(f.col("there_count") == 0, ONLY_HERE)
        .when(f.col("here_count") == 0, ONLY_THERE)
        .when(is_same, SAME)
        .otherwise(DIFFERS)
    )
    return grouped.select(outcome.alias("outcome"), "id", "here_count", "there_count", "here_place", "there_place")


def _summed_up(table: DataFrame, differences: FileOutput | None, examples_max: int) -> dict[str, Any]:
    """The counts and the first examples; all that is not the same goes to the files."""
    from pyspark.sql import functions as f

    table = table.persist()
    try:
        sums = {
            row["outcome"]: row
            for row in table.groupBy("outcome")
            .agg(f.count(f.lit(1)).alias("ids"), f.sum("here_count").alias("here"), f.sum("there_count").alias("there"))
            .collect()
        }
        others = table.filter(f.col("outcome") != SAME)
        examples = [row.asDict() for row in others.orderBy("outcome", "id").limit(examples_max).collect()]
        if differences is not None:
            differences.write_chunk(0, others.orderBy("outcome", "id"))
    finally:
        table.unpersist()
    return {
        "same": sums[SAME]["ids"] if SAME in sums else 0,
        "differs": sums[DIFFERS]["ids"] if DIFFERS in sums else 0,
        "only_here": sums[ONLY_HERE]["ids"] if ONLY_HERE in sums else 0,
        "only_there": sums[ONLY_THERE]["ids"] if ONLY_THERE in sums else 0,
        "here_messages": sum(int(row["here"]) for row in sums.values()),
        "there_messages": sum(int(row["there"]) for row in sums.values()),
        "examples": examples,
    }
