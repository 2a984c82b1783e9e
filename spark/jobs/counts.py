"""counts: how many messages there are and how many bytes their bodies have, by topic, queue, day, tag.

What has expired is not counted. A body counts with the bytes that a consumer would see; with the option
`decompressBody` false, with those that its producer sent. Days are those of the store time, in UTC.
With an output the sums of each chunk are kept, and an interrupted run goes on; without one nothing is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.jobs.chunked_job import Outcome, begin, run_chunks
from thermocline.spark.jobs.chunked_read import CHUNK_BYTES_DEFAULT, ChunkedRead
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.job_record import DONE, JobRecord
from thermocline.spark.jobs.progress import Progress, ProgressMeter
from thermocline.spark.jobs.replay import day_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS_FILE = "counts.json"
WHOLE = 1 << 62
GROUPINGS: Mapping[str, Mapping[str, str]] = {
    "topic": {"topic": "topic"},
    "queue": {"broker_name": "brokerName", "queue_id": "queueId"},
    "day": {"day": "timestamp"},
    "tag": {"tag": "tag"},
}
"""What may be grouped by: names in the report, and the columns that they come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountReport:
    """`rows`: the values grouped by (`tag` None: no tag; `day` as 2026-01-31), `message_count` and `body_bytes`."""

    rows: tuple[Mapping[str, Any], ...]
    message_count: int
    body_bytes: int
    versions: Mapping[str, int]
    elapsed_ms: int
    outcome: Outcome = "written"
    notes: tuple[str, ...] = ()


def counts(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    by: str | Iterable[str] = ("topic",),
    output: str | None = None,
    options: Mapping[str, str] | None = None,
    chunk_bytes: int = CHUNK_BYTES_DEFAULT,
    on_progress: Progress | None = None,
) -> CountReport:
    """Count the messages of `topic` (one or several, comma separated), grouped by any of topic, queue, day and tag.

    `output`: a new directory for `counts.json`, one object a line, in which an interrupted run goes on.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, or `output` holds something else.
        UnavailableError: The store gave no answer, or refused.
    """
    started_ns = time.monotonic_ns()
    groups = _groups(by)
    names = [name for group in groups for name in GROUPINGS[group]]
    outcome: Outcome = "written"
    if output is None:
        read = ChunkedRead.plan(spark, url, topic=topic, options=options or {}, chunk_bytes=WHOLE)
        meter = ProgressMeter(spark, on_progress, total_bytes=read.raw_bytes)
        parts = []
        for chunk in read.chunks:
            with meter.part(chunk.raw_bytes, task_count=read.task_count(chunk), description="counts"):
                parts.append(_count(spark, read, chunk.number, groups))
        rows = add_up(parts, names)
    else:
        record, read = begin(
            spark, JobFiles(spark, output), "counts", url, topic, options or {}, {"by": groups}, chunk_bytes=chunk_bytes
        )
        outcome = "finished before" if record.report else "continued" if record.is_continued else "written"
        read, rows = _run(spark, record, read, groups, names, on_progress)
    return CountReport(
        rows=tuple(rows),
        message_count=sum(int(row["message_count"]) for row in rows),
        body_bytes=sum(int(row["body_bytes"]) for row in rows),
        versions=read.versions,
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
        outcome=outcome,
        notes=read.notes,
    )


def add_up(parts: Iterable[Iterable[Mapping[str, Any]]], names: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each group, with the sums over all parts; sorted by the groups, None last."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for part in parts:
        for row in part:
            total = sums.setdefault(tuple(row[name] for name in names), [0, 0])
            total[0] += row["message_count"]
            total[1] += row["body_bytes"]
    ordered = sorted(sums, key=lambda group: [(value is None, "" if value is None else value) for value in group])
    return [
        dict(zip(names, group, strict=True)) | {"message_count": sums[group][0], "body_bytes": sums[group][1]}
        for group in ordered
    ]


def _run(
    spark: SparkSession,
    record: JobRecord,
    read: ChunkedRead,
    groups: Sequence[str],
    names: Sequence[str],
    on_progress: Progress | None,
) -> tuple[ChunkedRead, list[dict[str, Any]]]:
    if record.report is None:

        def count(read: ChunkedRead, number: int) -> None:
            record.keep_step(DONE, number, {"counts": _count(spark, read, number, groups)})

        read = run_chunks(spark, record, read, count, on_progress, description="counts")
    rows = add_up([result["counts"] for result in record.done().values()], names)
    record.files.create(COUNTS_FILE, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    record.finish({"groups": len(rows)})
    return read, rows


def _count(spark: SparkSession, read: ChunkedRead, number: int, groups: Sequence[str]) -> list[dict[str, Any]]:
    """The sums of one chunk."""
    from pyspark.sql import functions as f

    columns = {name: column for group in groups for name, column in GROUPINGS[group].items()}
    table = read.columns(dict.fromkeys([*columns.values(), "value"])).table(spark, read.chunks[number])
    keys = [
        (day_of(column).cast("string") if name == "day" else f.col(column)).alias(name)
        for name, column in columns.items()
    ]
    summed = table.groupBy(*keys).agg(
        f.count(f.lit(1)).alias("message_count"), f.coalesce(f.sum(f.length("value")), f.lit(0)).alias("body_bytes")
    )
    return [row.asDict() for row in summed.collect() if row["message_count"]]


def _groups(by: str | Iterable[str]) -> list[str]:
    """In the order of GROUPINGS; none at all counts everything together."""
    words = by.split(",") if isinstance(by, str) else by
    asked = {word.strip() for word in words if word.strip()}
    for name in sorted(asked - GROUPINGS.keys()):
        raise InvalidRequestError(f"{name!r} is nothing to count by; write some of {', '.join(GROUPINGS)}")
    return [name for name in GROUPINGS if name in asked]
