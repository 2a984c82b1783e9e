"""TaskWriter: one attempt of one task, from Arrow batches to stored messages.

    open    the topics' queues; with deduplication: be the only attempt, find or leave the task's note, read back
    write   batch by batch: rows -> checked messages -> their queues -> requests, while the next batch is decoded
    close   settle what is under way, leave the brokers

With deduplication an attempt goes through these steps, and each makes the next one safe:
  1. It becomes the only producer of (write id, partition): no other attempt sends, and none that died has anything
     under way (client/producer/async_sole_producer.py).
  2. It looks for the task's note. None: it is the first attempt; it notes where all queues end, before it sends.
  3. There is one: it reads the queues back from the places in it and counts which rows are stored.
  4. It sends the rows that are not. Messages are batched into requests that are stored whole or not at all.
A request without an answer ends the attempt: the next attempt reads back whether it was stored.

Two threads: Spark's, which waits for rows and turns them into messages, and a loop's, which sends and stays alive while
Spark's thread waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.blocking import BackgroundLoop
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.producer.async_sole_producer import AnotherProducerError, AsyncSoleProducer
from thermocline.client.producer.queue_selector import select_by_hash
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import ClosedError, InvalidRequestError, MQError, TopicNotFoundError, UnavailableError
from thermocline.spark.writing.queue_sender import QueueReport, QueueSender
from thermocline.spark.writing.row_keys import ROW_NUMBER_BITS, RowKeys
from thermocline.spark.writing.stored_rows import StoredRows, read_stored_rows
from thermocline.spark.writing.write_columns import OutgoingRow, WriteColumns
from thermocline.spark.writing.write_notes import TaskNote, WriteNotes
from thermocline.spark.writing.write_options import WriteOptions

logger = logging.getLogger(__name__)

# For brokers that hand received sends to other threads (see async_sole_producer), and whose queues follow their log.
SETTLE_PAUSE_S = 0.5
ANOTHER_ATTEMPT_PAUSE_S = 0.3


class WriteTaskError(MQError):
    """A task could not send all of its rows; the context names the stored offsets and the sends without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Which task this is, in which attempt."""

    write_id: str
    """Of a batch write, or the streaming query's id."""
    batch_id: int
    """The micro-batch; 0 in a batch write."""
    partition: int
    attempt: int
    is_streaming: bool


@dataclass(slots=True)
class TaskReport(WriterCommitMessage):
    """What an attempt that succeeded did; goes to the driver."""

    partition: int
    sent_count: int = 0
    found_count: int = 0
    """Rows that an earlier attempt had stored already."""
    queues: dict[str, QueueReport] = field(default_factory=dict)


def write_task(
    batches: Iterator[pa.RecordBatch], task: WriteTask, columns: WriteColumns, options: WriteOptions
) -> TaskReport:
    """Send all rows of a task, and return when brokers have stored them.

    Raises:
        WriteTaskError: Not everything was stored.
        InvalidRequestError: A row is no message; nothing of its Arrow batch was sent.
        MQError: The task could not begin.
    """
    loop = BackgroundLoop(name=f"thermocline write {task.partition}")
    loop.start()
    try:
        writer = TaskWriter(task, options)
        try:
            loop.run(writer.open())
            for batch in batches:
                loop.run(writer.add(columns.rows(batch, options)))
            return loop.run(writer.finish())
        finally:
            loop.run(writer.close())
    finally:
        loop.close()


class TaskWriter:
    """See the module. Belongs to its loop."""

    def __init__(self, task: WriteTask, options: WriteOptions, *, clock_ms: Callable[[], int] | None = None) -> None:
        self._task = task
        self._options = options
        self._clock_ms = clock_ms or wall_clock_ms
        self._producer: AsyncProducer | None = None
        self._sender: QueueSender | None = None
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._turn = task.partition + task.batch_id  # micro-batches smaller than a request go round too
        self._keys: RowKeys | None = None
        self._stored = StoredRows()
        self._row_count = 0
        self._sent_count = 0
        self._found_count = 0

    async def open(self) -> None:
        """Be ready to send; see the module.

        Raises:
            TopicNotFoundError: A topic does not exist.
            UnavailableError: A broker or NameServer does not answer, or another attempt of the task does not end.
            InvalidRequestError: An earlier attempt was begun with other topics.
            ClosedError: The write has ended without this attempt.
        """
        if self._options.deduplicate:
            self._producer = await self._be_the_only_attempt()
            await self._find_out_what_is_stored(self._producer)
        else:
            self._producer = AsyncProducer(
                group=self._options.producer_group,
                namesrv=self._options.namesrv,
                send_timeout_ms=self._options.send_timeout_ms,
                max_message_bytes=self._options.message_bytes_max + (1 << 20),  # the headroom of a full batch
            )
            await self._producer.start()
        self._sender = QueueSender(
            self._producer, batch_bytes=self._options.batch_bytes, timeout_ms=self._options.send_timeout_ms
        )

    async def add(self, rows: list[OutgoingRow]) -> None:
        """Send these, or buffer them.

        Raises:
            WriteTaskError: Some row could not be sent.
            InvalidRequestError: A row names a queue that there is not.
        """
        assert self._sender is not None
        targets = [await self._queue_of(row) for row in rows]
        try:
            for row, queue in zip(rows, targets, strict=True):
                await self._add_row(row, queue)
        except MQError as error:
            raise await self._failed(error) from error

    async def finish(self) -> TaskReport:
        """Send what is buffered, and report.

        Raises:
            WriteTaskError: Some row could not be sent, or rows are stored that this attempt does not have.
        """
        assert self._sender is not None
        try:
            await self._sender.finish()
        except MQError as error:
            raise await self._failed(error) from error
        surplus_count = self._stored.count
        if surplus_count:
            raise WriteTaskError(
                "the rows of this task changed between its attempts, so some are stored that it has no more; give rows "
                "that do not change, or tell them apart by a column 'id'",
                partition=self._task.partition,
                attempt=self._task.attempt,
                surplus_count=surplus_count,
            )
        return TaskReport(
            partition=self._task.partition,
            sent_count=self._sent_count,
            found_count=self._found_count,
            queues={str(queue): report for queue, report in self._sender.reports.items()},
        )

    async def close(self) -> None:
        """Wait for the running sends and disconnect."""
        if self._sender is not None:
            await self._sender.settle()
        if self._producer is not None:
            await self._producer.close()

    # -- rows --------------------------------------------------------------------------------------------------------

    async def _add_row(self, row: OutgoingRow, queue: MessageQueue | None) -> None:
        assert self._sender is not None
        message = row.message
        if self._keys is not None:
            number, self._row_count = self._row_count, self._row_count + 1
            if self._stored.match(row.digest):
                self._found_count += 1
                return
            unique_key = self._keys.key(row.digest, number)
            while self._stored.is_taken(unique_key):
                unique_key = self._keys.key(row.digest, random.getrandbits(ROW_NUMBER_BITS))
            message = msgspec.structs.replace(message, unique_key=unique_key)
        is_bound = queue is not None or self._options.deduplicate
        if queue is None:
            queues = self._queues[message.topic]
            queue = queues[self._turn % len(queues)]
            if await self._sender.add(message, queue, is_bound=is_bound):
                self._turn += 1
        else:
            await self._sender.add(message, queue, is_bound=is_bound)
        self._sent_count += 1

    async def _queue_of(self, row: OutgoingRow) -> MessageQueue | None:
        """The queue that the row must go to; None when any will do."""
        topic = row.message.topic
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = await self._queues_of_new(topic)
        if row.queue_id is not None:
            found = [
                queue
                for queue in queues
                if queue.queue_id == row.queue_id and row.broker_name in (None, queue.broker_name)
            ]
            if len(found) == 1:
                return found[0]
            raise InvalidRequestError(
                "no queue has this id" if not found else "several brokers have a queue of this id: name brokerName too",
                topic=topic,
                queue_id=row.queue_id,
                broker_name=row.broker_name,
            )
        return select_by_hash(queues, row.message, row.key) if row.key else None

    async def _queues_of_new(self, topic: str) -> tuple[MessageQueue, ...]:
        async with AsyncAdminClient(namesrv=self._options.namesrv) as admin:
            return await writable_queues(admin, topic)

    async def _failed(self, error: MQError) -> WriteTaskError:
        """The error of an attempt that stops, made after all running sends have ended."""
        assert self._sender is not None
        await self._sender.settle()
        reports = self._sender.reports
        return WriteTaskError(
            f"not everything was sent: {error.message}",
            **{name: value for name, value in error.context.items() if name in ("address", "code", "topic")},
            partition=self._task.partition,
            attempt=self._task.attempt,
            stored_count=sum(report.stored_count for report in reports.values()),
            unknown_count=sum(report.unknown_count for report in reports.values()),
            found_count=self._found_count,
            stored=" ".join(f"{queue}[{one.start_offset},{one.end_offset})" for queue, one in sorted(reports.items())),
        )

    # -- deduplication -----------------------------------------------------------------------------------------------

    async def _be_the_only_attempt(self) -> AsyncSoleProducer:
        deadline = time.monotonic() + self._options.attempt_timeout_ms / 1_000
        while True:
            producer = AsyncSoleProducer(
                group=f"thermocline-spark-{self._task.write_id}-{self._task.partition}",
                namesrv=self._options.namesrv,
                topics=self._options.topics,
                send_timeout_ms=self._options.send_timeout_ms,
                max_message_bytes=self._options.message_bytes_max + (1 << 20),
            )
            try:
                await producer.start()
            except AnotherProducerError as error:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        "another attempt of this task is still connected",
                        write_id=self._task.write_id,
                        partition=self._task.partition,
                    ) from error
            else:
                return producer
            # Two attempts that met must not meet again: each waits for a random time.
            await asyncio.sleep(ANOTHER_ATTEMPT_PAUSE_S * random.uniform(0.5, 1.5))

    async def _find_out_what_is_stored(self, producer: AsyncSoleProducer) -> None:
        task = self._task
        async with AsyncAdminClient(namesrv=self._options.namesrv) as admin:
            notes = WriteNotes(admin, task.write_id)
            note = await notes.task(task.partition)
            if note is not None and note.batch_id > task.batch_id:
                raise ClosedError("a later micro-batch has begun", write_id=task.write_id, batch_id=note.batch_id)
            is_first = note is None or note.batch_id < task.batch_id
            if note is None or is_first:
                note = await self._leave_note(admin, notes, producer)
            self._queues = {
                topic: tuple(sorted(queue for queue in note.offsets if queue.topic == topic))
                for topic in self._options.topics
            }
            without = [topic for topic, queues in self._queues.items() if not queues]
            if without and is_first:
                raise UnavailableError("no broker takes messages for this topic now", topics=",".join(without))
            if without:
                raise InvalidRequestError(
                    "this micro-batch was begun with other topics, which may hold some of its rows: repeat it with"
                    " those, and change the topics afterwards",
                    topics=",".join(without),
                    begun_with=",".join(sorted({queue.topic for queue in note.offsets})),
                )
            self._keys = RowKeys(
                write_id=task.write_id, batch_id=task.batch_id, partition=task.partition, begun_ms=note.began_ms
            )
            if not is_first:
                await asyncio.sleep(SETTLE_PAUSE_S)
                self._stored = await read_stored_rows(admin, note.offsets, self._keys)
                logger.warning(
                    "a task is tried again write_id=%s partition=%d attempt=%d stored_count=%d",
                    *(task.write_id, task.partition, task.attempt, self._stored.count),
                )

    async def _leave_note(self, admin: AsyncAdminClient, notes: WriteNotes, producer: AsyncSoleProducer) -> TaskNote:
        # After the look for the task's note, so that "not there" was not the end of the write (write_notes.py).
        await self._check_not_ended(notes)
        queues = [queue for topic in self._options.topics for queue in producer.queues(topic)]
        ends = await asyncio.gather(*(admin.max_offset(queue) for queue in queues))
        note = TaskNote(
            batch_id=self._task.batch_id,
            began_ms=self._clock_ms(),
            offsets=dict(zip(queues, ends, strict=True)),
        )
        await notes.put_task(self._task.partition, note)
        try:
            await self._check_not_ended(notes)
        except ClosedError:
            await notes.remove_task(self._task.partition)
            raise
        return note

    async def _check_not_ended(self, notes: WriteNotes) -> None:
        # A query's notes stay, so there is no end of a query to be seen here.
        if not self._task.is_streaming and await notes.has_ended():
            raise ClosedError(
                "this write has ended, or its notes were lost with a NameServer", write_id=self._task.write_id
            )


async def writable_queues(admin: AsyncAdminClient, topic: str) -> tuple[MessageQueue, ...]:
    """The queues of a topic that messages may be sent to, sorted.

    Raises:
        TopicNotFoundError: There is no such topic; a write makes none.
        UnavailableError: No broker takes messages for it now, or no NameServer answers.
    """
    try:
        route = await admin.topic_route(topic)
    except TopicNotFoundError as error:
        raise TopicNotFoundError("there is no such topic, and a write makes none", topic=topic) from error
    if not route.publish_queues:
        raise UnavailableError("no broker takes messages for this topic now", topic=topic)
    return tuple(sorted(route.publish_queues))
