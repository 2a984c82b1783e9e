"""Shared by jobs that read in chunks: begin or continue, loop over the chunks, replace a collected version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from thermocline.spark.jobs.chunked_read import CHUNK_BYTES_DEFAULT, ChunkedRead
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.job_record import JobRecord, harmless_options, harmless_url
from thermocline.spark.jobs.progress import Progress, ProgressMeter
from thermocline.tiered.objects import VersionExpiredError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Outcome: TypeAlias = Literal["written", "continued", "finished before"]
"""Whether a job was done in one run, went on where an earlier one was interrupted, or had been done before."""

ChunkWork: TypeAlias = Callable[[ChunkedRead, int], None]
"""Does one chunk of a read, by its number, and keeps its step `done`."""


def begin(
    spark: SparkSession,
    files: JobFiles,
    job: str,
    url: str,
    topic: str,
    options: Mapping[str, str],
    form: Mapping[str, object],
    *,
    chunk_bytes: int = CHUNK_BYTES_DEFAULT,
    plan: Callable[[], ChunkedRead] | None = None,
) -> tuple[JobRecord, ChunkedRead]:
    """Open the job's record and its read: the saved one, or a new one (by `plan` if given), saved.

    `form` are the job's other arguments that a continued run must repeat.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, the directory holds something else.
        UnavailableError: Store or file system failed.
    """
    repeated = {"from": harmless_url(url), "topic": topic, "options": harmless_options(options), **form}
    record = JobRecord.open(files, job=job, arguments=repeated)
    saved = record.plan if record.is_continued else None
    if saved is not None:
        return record, ChunkedRead.restore(spark, url, topic=topic, options=options, saved=saved)
    if plan is not None:
        read = plan()
    else:
        read = ChunkedRead.plan(spark, url, topic=topic, options=options, chunk_bytes=chunk_bytes)
    record.save_plan(read.saved())
    return record, read


def run_chunks(
    spark: SparkSession,
    record: JobRecord,
    read: ChunkedRead,
    work: ChunkWork,
    on_progress: Progress | None,
    *,
    description: str,
) -> ChunkedRead:
    """Do every chunk that is not done; returns the read as it was in the end.

    Raises:
        MQError: As the work does; what is done stays done.
    """
    meter = ProgressMeter(spark, on_progress, total_bytes=read.raw_bytes)
    done = record.done()
    for number in range(len(read.chunks)):
        part_bytes = read.chunks[number].raw_bytes
        if number in done:
            meter.add(part_bytes)
            continue
        try:
            task_count = read.task_count(read.chunks[number])
        except VersionExpiredError:
            # The version was collected while the job was running, or waiting to be continued.
            renewed = read.renewed()
            if renewed is None:
                raise
            read = renewed
            record.save_plan(read.saved())
            task_count = read.task_count(read.chunks[number])
        with meter.part(part_bytes, task_count=task_count, description=description):
            work(read, number)
    return read
