"""key_history: every message that has one of some keys, in the order of store time.

Messages with equal store times come by broker, queue and offset. A message has a key when it is one of the words of its
property KEYS; the comparison is exact.
With an output the rows found in each chunk are kept, and an interrupted run goes on; without one nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.records.properties import KEY_SEPARATOR
from thermocline.spark.jobs.chunked_job import Outcome, begin, run_chunks
from thermocline.spark.jobs.chunked_read import CHUNK_BYTES_DEFAULT, ChunkedRead
from thermocline.spark.jobs.file_output import FileOutput, OutputFormat
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.part_output import PartOutput
from thermocline.spark.jobs.progress import Progress, ProgressMeter
from thermocline.spark.jobs.replay import BodyForm, with_body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "timestamp",
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "key",
    "tag",
    "msgId",
    "bornTimestamp",
    "value",
)
ORDER = ("timestamp", "topic", "brokerName", "queueId", "queueOffset")
ROWS_MAX_DEFAULT = 10_000
WHOLE = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHistory:
    """`rows` in order, by the columns' names, None when they are in files; `is_cut`: there are more than `rows_max`."""

    rows: tuple[Mapping[str, Any], ...] | None
    row_count: int
    is_cut: bool
    versions: Mapping[str, int]
    elapsed_ms: int
    outcome: Outcome = "written"
    notes: tuple[str, ...] = ()


def key_history(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    keys: Sequence[str],
    output: str | None = None,
    output_format: OutputFormat = "json",
    body: BodyForm = "text",
    rows_max: int = ROWS_MAX_DEFAULT,
    options: Mapping[str, str] | None = None,
    chunk_bytes: int = CHUNK_BYTES_DEFAULT,
    on_progress: Progress | None = None,
) -> KeyHistory:
    """Find the messages of `topic` (one or several, comma separated) with any of `keys`.

    Without `output` at most `rows_max` rows, the oldest, are returned. `output`: a new directory for files that hold
    all of them, in order from file to file; an interrupted run goes on there.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, or `output` holds something else.
        UnavailableError: The store gave no answer, or refused.
    """
    started_ns = time.monotonic_ns()
    if not keys or any(not key or KEY_SEPARATOR in key for key in keys):
        raise InvalidRequestError("name keys, each a word without spaces", keys=list(keys))
    rows: tuple[Mapping[str, Any], ...] | None = None
    outcome: Outcome = "written"
    is_cut = False
    if output is None:
        read = ChunkedRead.plan(spark, url, topic=topic, options=options or {}, chunk_bytes=WHOLE)
        found = _find(spark, read, keys, rows_max, on_progress)
        is_cut = len(found) > rows_max
        rows = tuple(found[:rows_max])
        row_count = len(rows)
    else:
        form = {"keys": sorted(keys), "output_format": output_format, "body": body}
        files = JobFiles(spark, output)
        record, read = begin(spark, files, "key-history", url, topic, options or {}, form, chunk_bytes=chunk_bytes)
        sorted_files = FileOutput(record, output_format=output_format)
        report = record.report
        outcome = "finished before" if report else "continued" if record.is_continued else "written"
        if report is None:
            parts = PartOutput(record)

            def keep(read: ChunkedRead, number: int) -> None:
                parts.write_chunk(number, having_keys(spark, read, number, keys))

            read = run_chunks(spark, record, read, keep, on_progress, description="key history")
            table = parts.table(spark).orderBy(*ORDER)
            count = sorted_files.write_chunk(
                len(read.chunks), with_body(table, body) if output_format == "json" else table
            )
            sorted_files.finish()
            report = {"rows": count}
            record.finish(report)
        row_count = int(report["rows"])
    return KeyHistory(
        rows=rows,
        row_count=row_count,
        is_cut=is_cut,
        versions=read.versions,
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
        outcome=outcome,
        notes=read.notes,
    )


def having_keys(spark: SparkSession, read: ChunkedRead, number: int, keys: Iterable[str]) -> DataFrame:
    """The messages of a chunk with one of the keys, found through the key indexes where that pays."""
    return read.columns(COLUMNS).with_keys(keys).table(spark, read.chunks[number])


def _find(
    spark: SparkSession, read: ChunkedRead, keys: Sequence[str], rows_max: int, on_progress: Progress | None
) -> list[dict[str, Any]]:
    """The oldest rows, up to `rows_max` + 1."""
    tables = [having_keys(spark, read, chunk.number, keys) for chunk in read.chunks]
    table = reduce(lambda one, other: one.unionAll(other), tables).orderBy(*ORDER).limit(rows_max + 1)
    meter = ProgressMeter(spark, on_progress, total_bytes=read.raw_bytes)
    task_count = sum(map(read.task_count, read.chunks))
    with meter.part(read.raw_bytes, task_count=task_count, description="key history"):
        # By Arrow: its times are UTC, where rows of Spark would have the session's zone.
        found: list[dict[str, Any]] = table.toArrow().to_pylist()
        return found
