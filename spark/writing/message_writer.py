"""The write side of the data source: what Spark calls, in the processes where it calls it.

BatchMessageWriter()   planner process on the driver, once a write    options, columns and topics are checked
.write                 Python worker of an executor, once an attempt  see task_writer
.commit, .abort        another process on the driver                  notes are removed, the report is logged
StreamMessageWriter    the same for each micro-batch; the query's id and the batch's number are known in tasks only
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.spark.writing.task_writer import TaskReport, WriteTask, writable_queues, write_task
from thermocline.spark.writing.write_columns import WriteColumns
from thermocline.spark.writing.write_notes import WriteNotes
from thermocline.spark.writing.write_options import WriteOptions, write_options_from

# Spark's local properties of a task that name its streaming query and micro-batch.
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"

logger = logging.getLogger(__name__)


class BatchMessageWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Pickled into every task, and to where it is committed."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        """Check everything that can be checked before a task runs.

        Raises:
            InvalidRequestError: An option or a column is wrong, or the mode is not `append`.
            TopicNotFoundError: A topic does not exist.
            UnavailableError: No NameServer answers.
        """
        self._options, self._columns = _checked(options, schema, overwrite=overwrite)
        self._write_id = uuid.uuid4().hex
        asyncio.run(self._begin())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows; see `write_task`."""
        context = _task_context()
        task = WriteTask(
            write_id=self._write_id,
            batch_id=0,
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            is_streaming=False,
        )
        return write_task(iterator, task, self._columns, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have sent everything."""
        _log_reports(logging.INFO, "write committed", self._write_id, messages)
        asyncio.run(self._end())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good. What was sent stays: a topic takes nothing back."""
        _log_reports(logging.WARNING, "write aborted, what was sent stays", self._write_id, messages)
        asyncio.run(self._end())

    async def _begin(self) -> None:
        async with AsyncAdminClient(namesrv=self._options.namesrv) as admin:
            for topic in self._options.topics:
                await writable_queues(admin, topic)
            if self._options.deduplicate:
                await WriteNotes(admin, self._write_id).begin(now_ms=wall_clock_ms())

    async def _end(self) -> None:
        if self._options.deduplicate:
            await _remove_notes(self._options, self._write_id)


class StreamMessageWriter(DataSourceStreamArrowWriter):
    """Writes a streaming query's micro-batches. Made anew for each, and for each commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        """Check options and columns; errors as in BatchMessageWriter."""
        self._options, self._columns = _checked(options, schema, overwrite=overwrite)
        asyncio.run(self._check_topics())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows; see `write_task`."""
        context = _task_context()
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
        batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
        if query_id is None or batch_id is None:
            raise InvalidRequestError("Spark does not say which query and micro-batch this task belongs to")
        task = WriteTask(
            write_id=query_id,
            batch_id=int(batch_id),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            is_streaming=True,
        )
        return write_task(iterator, task, self._columns, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks have sent everything; their notes stay, as Spark may repeat the micro-batch after a crash."""
        _log_reports(logging.INFO, f"micro-batch {batchId} committed", "", messages)
        if self._options.deduplicate:
            asyncio.run(_remove_notes(self._options, None))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """A task failed for good; the notes stay for the query's next start."""
        _log_reports(logging.WARNING, f"micro-batch {batchId} aborted, what was sent stays", "", messages)

    async def _check_topics(self) -> None:
        async with AsyncAdminClient(namesrv=self._options.namesrv) as admin:
            for topic in self._options.topics:
                await writable_queues(admin, topic)


async def _remove_notes(options: WriteOptions, write_id: str | None) -> None:
    """Remove the notes of a write, if it is named, and forgotten ones of other writes.

    If no NameServer answers, a later write removes them; the write has succeeded all the same.
    """
    try:
        async with AsyncAdminClient(namesrv=options.namesrv) as admin:
            if write_id is not None:
                await WriteNotes(admin, write_id).end()
            await WriteNotes(admin, "").remove_forgotten(before_ms=wall_clock_ms() - options.note_retention_ms)
    except MQError as error:
        logger.warning("notes of a Spark write were not removed write_id=%s error=%s", write_id, error)


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> tuple[WriteOptions, WriteColumns]:
    if overwrite:
        raise InvalidRequestError("a topic cannot be overwritten: write with mode('append')")
    checked = write_options_from(options)
    return checked, WriteColumns.of(schema, checked)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer's write runs in a task"
    return context


def _log_reports(level: int, event: str, write_id: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """One line for the write: what the tasks that succeeded have done."""
    reports = [message for message in messages if isinstance(message, TaskReport)]
    ranges: dict[str, tuple[int, int]] = {}
    for report in reports:
        for queue, one in report.queues.items():
            start, end = ranges.get(queue, (one.start_offset, one.end_offset))
            ranges[queue] = (min(start, one.start_offset), max(end, one.end_offset))
    logger.log(
        level,
        "%s write_id=%s tasks=%d of %d sent_count=%d found_count=%d within=%s",
        *(event, write_id, len(reports), len(messages)),
        *(sum(report.sent_count for report in reports), sum(report.found_count for report in reports)),
        " ".join(f"{queue}[{start},{end})" for queue, (start, end) in sorted(ranges.items())),
    )
