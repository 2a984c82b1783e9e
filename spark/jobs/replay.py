"""catch_up: replays a range of topics from the cold tier into files, with nothing but local Spark.

The range is resolved once and its version held until the files are complete (handoff/snapshot.py): the report names,
for every queue, the offset at which the replay ends, and the files hold exactly the messages in front of it that had
not expired. The receipt, written last, says the same to `hand_off`, which moves a consumer group there: it continues
without gap or duplicate.

    parquet   one row a message, columns as read
    json      one JSON object a line; `value` as text, or in base64 with body="base64"
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.handoff.receipt import receipt_place
from thermocline.spark.handoff.snapshot import SnapshotQueue
from thermocline.spark.handoff.snapshot import open as open_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRESS_INTERVAL_S = 0.25
OutputFormat = Literal["parquet", "json"]
BodyForm = Literal["text", "base64"]
Progress = Callable[[int, int], None]
"""Told how many tasks are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpReport:
    """What a replay wrote. `versions` are the catalog versions it read, by broker."""

    output: str
    receipt: str
    row_count: int
    queues: tuple[SnapshotQueue, ...]
    versions: Mapping[str, int]
    elapsed_ms: int


def catch_up(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    output: str,
    output_format: OutputFormat = "parquet",
    body: BodyForm = "text",
    options: Mapping[str, str] | None = None,
    receipt: str | None = None,
    from_group: str | None = None,
    seal: bool = False,
    namesrv: str | None = None,
    on_progress: Progress | None = None,
) -> CatchUpReport:
    """Write the messages of `topic` (one or several, comma separated) under `url` to the new directory `output`.

    `options` are those of the data source: offsets, times, tags, columns, s3.*; `from_group`, `seal` and `namesrv`
    those of `thermocline.spark.open`. The receipt goes to `receipt`, a path or URL, or beside the output. Returns when
    the files are complete.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, or `output` exists already.
        UnavailableError: The store gave no answer, or refused.
    """
    started_ns = time.monotonic_ns()
    place = receipt_place(output) if receipt is None else receipt
    with open_snapshot(
        spark, url, topic=topic, options=options, from_group=from_group, seal=seal, namesrv=namesrv
    ) as snapshot:
        row_count = _write(spark, snapshot.load(), snapshot.task_count, output, output_format, body, on_progress)
        snapshot.write_receipt(place, output=output, row_count=row_count)
    return CatchUpReport(
        output=output,
        receipt=place,
        row_count=row_count,
        queues=snapshot.queues,
        versions=snapshot.versions,
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
    )


def _write(
    spark: SparkSession,
    table: DataFrame,
    task_count: int,
    output: str,
    output_format: OutputFormat,
    body: BodyForm,
    on_progress: Progress | None,
) -> int:
    """Write the table and count its rows on the way."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if output_format == "json" and "value" in table.columns:
        table = table.withColumn("value", f.base64("value") if body == "base64" else f.col("value").cast("string"))
    counted = Observation()
    table = table.observe(counted, f.count(f.lit(1)).alias("rows"))
    with _watched(spark, task_count=task_count, on_progress=on_progress):
        try:
            table.write.format(output_format).mode("error").save(output)
        except AnalysisException as error:
            if error.getCondition() != "PATH_ALREADY_EXISTS":
                raise
            raise InvalidRequestError("the output exists already; name a new directory", output=output) from error
    return int(counted.get["rows"])


@contextmanager
def _watched(spark: SparkSession, *, task_count: int, on_progress: Progress | None) -> Iterator[None]:
    """Tell `on_progress` from a thread how many tasks of the jobs started within are done."""
    if on_progress is None:
        yield
        return
    group = f"thermocline-catch-up-{time.monotonic_ns()}"
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PROGRESS_INTERVAL_S):
            done = 0
            for job_id in tracker.getJobIdsForGroup(group):
                job = tracker.getJobInfo(job_id)
                for stage_id in job.stageIds if job is not None else ():
                    stage = tracker.getStageInfo(stage_id)
                    done += stage.numCompletedTasks if stage is not None else 0
            on_progress(min(done, task_count), task_count)

    spark.sparkContext.setJobGroup(group, "catch-up from the cold tier")
    watcher = threading.Thread(target=watch, name="catch-up-progress", daemon=True)
    watcher.start()
    try:
        yield
        on_progress(task_count, task_count)
    finally:
        ended.set()
        watcher.join()
