"""catch_up: replays a range of topics from the cold tier into files, with Spark alone.

The range is resolved once, and its version held while the job runs (handoff/snapshot.py): the report names, for every
queue, the offset at which the replay ends, and the files hold exactly the messages in front of it that had not expired.
The receipt, written last, says the same to `hand_off`, which moves a consumer group there: it continues without gap or
duplicate.

    parquet   one row a message, columns as read
    json      one JSON object a line; `value` as text, or in base64 with body="base64"

Partitioned by `day` (of the store time, UTC), `tag` or both, the files lie in folders `day=2026-01-31/tag=paid`; a
column that is a folder is not in the files.

The job goes on when it is run again with the same arguments: see job_record and file_output. No row is written twice,
and none is missing, wherever it was killed. The receipt is made when the range is resolved, and kept with the plan: a
run that goes on ends at the same offsets. Messages that expired while no run held the version are in no file; they are
invisible to every other reader too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import msgspec

from thermocline.spark.access.hadoop_options import read_options
from thermocline.spark.access.store_options import store_options
from thermocline.spark.decoding.message_columns import choose_columns
from thermocline.spark.handoff.receipt import Receipt, receipt_place, write_receipt
from thermocline.spark.handoff.snapshot import SnapshotQueue
from thermocline.spark.handoff.snapshot import open as open_snapshot
from thermocline.spark.jobs.chunked_job import Outcome, begin, run_chunks
from thermocline.spark.jobs.chunked_read import CHUNK_BYTES_DEFAULT, ChunkedRead, split_engine
from thermocline.spark.jobs.file_output import FileOutput, OutputFormat, partition_columns
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.job_record import harmless_url
from thermocline.spark.jobs.progress import Progress
from thermocline.spark.reading.source_options import read_options_from

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BodyForm = Literal["text", "base64"]
MICROSECONDS_A_DAY = 86_400_000_000
__all__ = ["CatchUpReport", "Progress", "catch_up", "day_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpReport:
    """What a replay wrote. `versions` are the catalog versions it read, by broker."""

    output: str
    receipt: str
    row_count: int
    queues: tuple[SnapshotQueue, ...]
    versions: Mapping[str, int]
    elapsed_ms: int
    """Of this run."""
    outcome: Outcome = "written"
    notes: tuple[str, ...] = field(default=())
    """Remarks on the result, such as a version that was replaced."""


def catch_up(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    output: str,
    output_format: OutputFormat = "parquet",
    body: BodyForm = "text",
    partition_by: str | Iterable[str] = (),
    options: Mapping[str, str] | None = None,
    receipt: str | None = None,
    from_group: str | None = None,
    seal: bool = False,
    namesrv: str | None = None,
    chunk_bytes: int = CHUNK_BYTES_DEFAULT,
    on_progress: Progress | None = None,
) -> CatchUpReport:
    """Write the messages of `topic` (one or several, comma separated) under `url` to the new directory `output`.

    `options` are those of the data source: offsets, times, tags, columns, s3.*, and `engine` as for `read_cold`;
    `from_group`, `seal` and `namesrv` those of `thermocline.spark.open`. The receipt goes to `receipt`, a path or URL,
    or beside the output. Returns when the files are complete. A run that was interrupted is continued with the same
    arguments; work is kept in chunks of `chunk_bytes` of records.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, or `output` holds something else.
        UnavailableError: The store gave no answer, or refused.
    """
    started_ns = time.monotonic_ns()
    engine, others = split_engine(options or {})
    place = receipt_place(output) if receipt is None else receipt
    partitions = partition_columns(partition_by)
    form = repeated_arguments(output_format, body, partitions, from_group=from_group, receipt=place)
    with ExitStack() as held:

        def plan() -> ChunkedRead:
            snapshot = held.enter_context(
                open_snapshot(
                    spark, url, topic=topic, options=others, from_group=from_group, seal=seal, namesrv=namesrv
                )
            )
            resolved = {**snapshot.options, "engine": engine}
            read = ChunkedRead.plan(spark, url, topic=topic, options=resolved, chunk_bytes=chunk_bytes)
            return replace(read, receipt=msgspec.to_builtins(snapshot.receipt(output=output)))

        record, read = begin(spark, JobFiles(spark, output), "catch-up", url, topic, options or {}, form, plan=plan)
        files = FileOutput(record, output_format=output_format, partition_by=partitions)
        report = record.report
        if report is None:

            def write(read: ChunkedRead, number: int) -> None:
                table = _partitioned(spark, read, number, partitions)
                files.write_chunk(number, with_body(table, body) if output_format == "json" else table)

            read = run_chunks(spark, record, read, write, on_progress, description="catch-up from the cold tier")
            files.finish()
            rows = sum(int(result["rows"]) for result in record.done().values())
            whole = msgspec.structs.replace(_receipt_of(read), row_count=rows)
            write_receipt(whole, place, store_options(read_options(spark, place) | dict(options or {})))
            report = {"rows": rows, **read.saved()}
            record.finish(report)
            outcome: Outcome = "continued" if record.is_continued else "written"
        else:
            outcome = "finished before"
    return CatchUpReport(
        output=output,
        receipt=place,
        row_count=int(report["rows"]),
        queues=_queues_of(_receipt_of(read)),
        versions=read.versions,
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
        outcome=outcome,
        notes=read.notes,
    )


def repeated_arguments(
    output_format: OutputFormat, body: BodyForm, partitions: Sequence[str], *, from_group: str | None, receipt: str
) -> dict[str, object]:
    """The arguments that a continued run must repeat. They are stored beside the output, so without a URL's keys."""
    return {
        "output_format": output_format,
        "body": body,
        "partition_by": list(partitions),
        "from_group": from_group,
        "receipt": harmless_url(receipt),
    }


def _queues_of(receipt: Receipt) -> tuple[SnapshotQueue, ...]:
    return tuple(
        SnapshotQueue(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            start_offset=queue.start_offset,
            end_offset=queue.end_offset,
        )
        for queue in receipt.queues
    )


def _receipt_of(read: ChunkedRead) -> Receipt:
    assert read.receipt is not None, "planned with one"
    return msgspec.convert(read.receipt, Receipt)


def day_of(column: str) -> Column:
    """The day of a time, in UTC whatever the session's time zone is."""
    from pyspark.sql import functions as f

    days = f.floor(f.unix_micros(column) / f.lit(MICROSECONDS_A_DAY)).cast("int")
    return f.date_add(f.lit("1970-01-01").cast("date"), days)


def _partitioned(spark: SparkSession, read: ChunkedRead, number: int, partitions: Sequence[str]) -> DataFrame:
    """The rows of a chunk with the columns that the options ask for, bodies too, and those of the partitions behind."""
    asked = read_options_from(read.options)
    columns = choose_columns(asked.columns, include_properties=asked.include_properties)
    if not partitions:
        return read.table(spark, read.chunks[number])
    needed = {"day": "timestamp", "tag": "tag"}
    wide = dict.fromkeys([*columns, *(needed[name] for name in partitions)])
    table = read.columns(wide).table(spark, read.chunks[number])
    bodies = [name for name in table.columns if name not in wide]
    if "day" in partitions:
        table = table.withColumn("day", day_of("timestamp"))
    return table.select(*(name for name in columns if name not in partitions), *bodies, *partitions)


def with_body(table: DataFrame, body: BodyForm) -> DataFrame:
    """For JSON, which has no bytes."""
    from pyspark.sql import functions as f

    if "value" not in table.columns:
        return table
    return table.withColumn("value", f.base64("value") if body == "base64" else f.col("value").cast("string"))
