"""republish: sends the messages of a topic again, to another topic of any cluster, in order, in batches.

Spark reads a chunk on its executors; the process that runs the job sends it. What is kept of a message: body, tag,
keys, unique key, sharding key, flag, and the application's own properties. What brokers set is not, nor is a delay:
copies are delivered at once.

Order
  queue   all messages of a source queue go to one target queue, in their order: source queues, sorted, are dealt round
          the target queues
  key     equal keys go to one target queue (by the hash that the official clients use; without a key, as above). Of one
          key, messages of one source queue stay in order; chunks hold queues one after another

A rerun sends no message that the target holds
  Before the first send of a chunk the ends of all target queues are stored. A run that continues the chunk, after a
  crash or a send without an answer, first reads the target queues from there on and skips the messages that it finds:
  by unique key, as often as it occurs. A message without one gets one made of its place, the same in every run.
  So a copy can be there twice only
  - when a request that was on its way is stored after its queue has been read to the end: a broker that was cut off in
    the very moment and comes back later with what it had received;
  - when the target lost what was sent (time to live, deletion) before the job was continued: refused, unless
    `may_repeat`;
  - when two runs of one job go on at the same time.
  A copy is never missing: a chunk is done when every message of it was acknowledged, or found.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.consumer.consumer_calls import PullStatus
from thermocline.client.message import RESERVED_NAMES, Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.producer.queue_selector import select_by_hash
from thermocline.remoting.errors import InvalidRequestError, OffsetOutOfRangeError, UnavailableError
from thermocline.remoting.records.properties import PropertyName
from thermocline.spark.jobs.chunked_job import Outcome, begin, run_chunks
from thermocline.spark.jobs.chunked_read import ChunkedRead
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.job_record import DONE, JobRecord
from thermocline.spark.jobs.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ORDERS = ("queue", "key")
CHUNK_BYTES_DEFAULT = 64 << 20
"""Of records, in the memory of the process that sends."""
BATCH_BYTES_DEFAULT = 256 << 10
BATCH_BYTES_MAX = 2 << 20
REQUEST_BYTES_MAX = 3 << 20
"""Of a batch with all that is around its bodies: brokers take 4 MiB. Properties may be more than the bodies."""
BATCH_HEAD_BYTES = 22
"""Of a message in a batch, beside its body and properties."""
ATTEMPTS_MAX = 5
RETRY_PAUSE_S = 1.0
SEND_TIMEOUT_MS = 10_000
PULL_COUNT_MAX = 1_024
GROUP = "thermocline-republish"
BEGUN, TARGETS = "begun", "targets"
Answer = TypeVar("Answer")
_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "key", "tag", "value", "msgId", "flag", "properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishReport:
    """`sent_count` and `found_count` (there already, from an earlier run) of the whole job."""

    target: str
    sent_count: int
    found_count: int
    elapsed_ms: int
    outcome: Outcome = "written"
    notes: tuple[str, ...] = ()


def republish(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    namesrv: str,
    target: str,
    state: str,
    order: str = "queue",
    batch_bytes: int = BATCH_BYTES_DEFAULT,
    may_repeat: bool = False,
    options: Mapping[str, str] | None = None,
    chunk_bytes: int = CHUNK_BYTES_DEFAULT,
    on_progress: Progress | None = None,
) -> RepublishReport:
    """Send the messages of `topic` (one or several, comma separated) under `url` to the topic `target`.

    `state`: a new directory for the job's record, in which an interrupted run goes on.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, `state` holds something else, or a message cannot
            be sent (an empty body, one that is too large).
        UnavailableError: Store, NameServer or broker failed, after some attempts; run it again to go on.
    """
    started_ns = time.monotonic_ns()
    if order not in ORDERS:
        raise InvalidRequestError(f"{order!r} is no order; write queue or key")
    if not 1 <= batch_bytes <= BATCH_BYTES_MAX:
        raise InvalidRequestError(
            "that is more than travels in one request, or nothing",
            batch_bytes=batch_bytes,
            batch_bytes_max=BATCH_BYTES_MAX,
        )
    if target in [name.strip() for name in topic.split(",")]:
        raise InvalidRequestError("a topic is not sent to itself; name another target", target=target)
    form = {"target": target, "order": order}
    chosen = dict(options or {}) | {"decompressBody": "true"}
    record, read = begin(spark, JobFiles(spark, state), "republish", url, topic, chosen, form, chunk_bytes=chunk_bytes)
    report = record.report
    outcome: Outcome = "finished before" if report else "continued" if record.is_continued else "written"
    if report is None:
        targets = _target_queues(record, namesrv, target)
        choice = _QueueChoice(order=order, targets=targets, sources=_source_queues(read))

        def send(read: ChunkedRead, number: int) -> None:
            table = read.columns(_COLUMNS).table(spark, read.chunks[number]).toArrow()
            sender = _ChunkSender(record, number, choice, namesrv=namesrv, batch_bytes=batch_bytes)
            _finish(sender.send(table, target=target, may_repeat=may_repeat))

        read = run_chunks(spark, record, read, send, on_progress, description="republish")
        results = record.done().values()
        report = {name: sum(int(result[name]) for result in results) for name in ("sent", "found")}
        record.finish(report)
    return RepublishReport(
        target=target,
        sent_count=int(report["sent"]),
        found_count=int(report["found"]),
        elapsed_ms=(time.monotonic_ns() - started_ns) // 1_000_000,
        outcome=outcome,
        notes=read.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueChoice:
    """Which target queue a message goes to; the same in every run of the job."""

    order: str
    targets: Sequence[MessageQueue]
    sources: Mapping[tuple[str, str, int], int]

    def queue_of(self, source: tuple[str, str, int], message: Message) -> MessageQueue:
        if self.order == "key" and message.keys:
            return select_by_hash(self.targets, message, message.keys)
        return self.targets[self.sources[source] % len(self.targets)]


class _ChunkSender:
    """Sends one chunk, and keeps its steps."""

    def __init__(self, record: JobRecord, number: int, choice: _QueueChoice, *, namesrv: str, batch_bytes: int) -> None:
        self._record = record
        self._number = number
        self._choice = choice
        self._namesrv = namesrv
        self._batch_bytes = batch_bytes

    async def send(self, table: pa.Table, *, target: str, may_repeat: bool) -> None:
        """Send every message that the target does not hold yet; the chunk is done. Raises as `republish` does."""
        ordered = table.sort_by([(name, "ascending") for name in ("topic", "brokerName", "queueId", "queueOffset")])
        begun = self._record.step(BEGUN, self._number)
        async with (
            AsyncAdminClient(namesrv=self._namesrv) as admin,
            AsyncProducer(
                group=GROUP,
                namesrv=self._namesrv,
                send_timeout_ms=SEND_TIMEOUT_MS,
                retry_times_when_send_failed=0,
            ) as producer,
        ):
            for attempt in range(ATTEMPTS_MAX):
                waiting, found = self._waiting(ordered, target), 0
                try:
                    if begun is None:
                        ends = {_name(queue): await admin.max_offset(queue) for queue in self._choice.targets}
                        begun = self._record.keep_step(BEGUN, self._number, {"ends": ends})
                    else:
                        found = await self._drop_stored(admin, waiting, begun["ends"], may_repeat=may_repeat)
                    sent = await self._send_all(producer, waiting)
                except UnavailableError:
                    if attempt == ATTEMPTS_MAX - 1:
                        raise
                    # The running sends may have been stored: the target is read before anything is sent again.
                    await asyncio.sleep(RETRY_PAUSE_S)
                else:
                    break
        assert sent + found == len(table)
        self._record.keep_step(DONE, self._number, {"sent": sent, "found": found})

    def _waiting(self, ordered: pa.Table, target: str) -> dict[MessageQueue, list[Message]]:
        """The messages of a chunk, by their target queues, in order."""
        waiting: dict[MessageQueue, list[Message]] = defaultdict(list)
        for row in ordered.to_pylist():
            message = message_of(row, target)
            source = (row["topic"], row["brokerName"], row["queueId"])
            waiting[self._choice.queue_of(source, message)].append(message)
        return waiting

    async def _drop_stored(
        self,
        admin: AsyncAdminClient,
        waiting: dict[MessageQueue, list[Message]],
        ends: Mapping[str, int],
        *,
        may_repeat: bool,
    ) -> int:
        """Leave out what the target queues hold since the chunk was begun; returns how many that were."""
        dropped = 0
        for queue, messages in waiting.items():
            stored = await _stored_keys(admin, queue, ends[_name(queue)], may_repeat=may_repeat)
            unsent = []
            for message in messages:
                if stored[message.unique_key]:
                    stored[message.unique_key] -= 1
                    dropped += 1
                else:
                    unsent.append(message)
            waiting[queue] = unsent
        return dropped

    async def _send_all(self, producer: AsyncProducer, waiting: Mapping[MessageQueue, Sequence[Message]]) -> int:
        """Send each queue's messages in order, the queues side by side; every send has ended on return."""
        outcomes = await asyncio.gather(
            *(self._send_queue(producer, queue, messages) for queue, messages in waiting.items()),
            return_exceptions=True,
        )
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in errors:
            if not isinstance(error, UnavailableError):
                raise error
        if errors:
            raise errors[0]
        return sum(map(len, waiting.values()))

    async def _send_queue(self, producer: AsyncProducer, queue: MessageQueue, messages: Sequence[Message]) -> None:
        for batch in batches(messages, batch_bytes=self._batch_bytes):
            if len(batch) == 1:
                await producer.send(batch[0], queue=queue)  # compressed when it is long; batches are not
            else:
                await producer.send_batch(batch, queue=queue)


def message_of(row: Mapping[str, Any], target: str) -> Message:
    """The copy of a message."""
    properties = dict(row["properties"] or ())
    place = f"{row['topic']} {row['brokerName']} {row['queueId']} {row['queueOffset']}"
    return Message(
        target,
        row["value"],
        tags=row["tag"] or "",
        keys=row["key"] or "",
        flag=row["flag"],
        sharding_key=properties.get(PropertyName.SHARDING_KEY, ""),
        properties={name: value for name, value in properties.items() if name not in RESERVED_NAMES},
        unique_key=row["msgId"] or hashlib.sha256(place.encode()).hexdigest()[:32].upper(),
    )


def batches(messages: Iterable[Message], *, batch_bytes: int) -> Iterator[list[Message]]:
    """Runs of messages whose bodies have about `batch_bytes` together, and that fit one request; one that has more goes
    alone."""
    batch: list[Message] = []
    size_bytes = request_bytes = 0
    for message in messages:
        properties_text = message.properties_text(message.unique_key)
        message_bytes = BATCH_HEAD_BYTES + len(message.body) + len(properties_text.encode())
        if batch and (
            size_bytes + len(message.body) > batch_bytes or request_bytes + message_bytes > REQUEST_BYTES_MAX
        ):
            yield batch
            batch, size_bytes, request_bytes = [], 0, 0
        batch.append(message)
        size_bytes += len(message.body)
        request_bytes += message_bytes
    if batch:
        yield batch


async def _stored_keys(admin: AsyncAdminClient, queue: MessageQueue, start: int, *, may_repeat: bool) -> Counter[str]:
    """How often each unique key is in the queue from an offset on."""
    first, end = await admin.min_offset(queue), await admin.max_offset(queue)
    if first > start or end < start:
        if not may_repeat:
            raise OffsetOutOfRangeError(
                "what an earlier run sent cannot be looked for: the target does not hold these offsets any more;"
                " --may-repeat sends it again",
                queue=str(queue),
                queue_offset=start,
                min_offset=first,
                max_offset=end,
            )
        start = min(max(start, first), end)
    stored: Counter[str] = Counter()
    offset = start
    while offset < end:
        pulled = await admin.pull(queue, offset, count_max=PULL_COUNT_MAX)
        if pulled.status is PullStatus.FOUND:
            stored.update(message.message_id for message in pulled.messages)
        if pulled.next_begin_offset <= offset:
            raise UnavailableError("the target queue cannot be read to its end", queue=str(queue), queue_offset=offset)
        offset = pulled.next_begin_offset
    return stored


def _target_queues(record: JobRecord, namesrv: str, target: str) -> list[MessageQueue]:
    """The queues of the target, as the first run found them: later ones must choose alike."""
    kept = record.step(TARGETS, 0)
    if kept is None:
        queues = _finish(_publish_queues(namesrv, target))
        if not queues:
            raise InvalidRequestError("the target has no queue that may be written to", target=target)
        kept = record.keep_step(TARGETS, 0, {"queues": [[queue.broker_name, queue.queue_id] for queue in queues]})
    return [
        MessageQueue(topic=target, broker_name=broker_name, queue_id=queue_id)
        for broker_name, queue_id in kept["queues"]
    ]


async def _publish_queues(namesrv: str, target: str) -> list[MessageQueue]:
    async with AsyncAdminClient(namesrv=namesrv) as admin:
        route = await admin.topic_route(target)
    return list(route.publish_queues)


def _finish(call: Coroutine[Any, Any, Answer]) -> Answer:
    """Run it on an event loop of its own, in a thread: a notebook's has a loop that runs already."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="republish") as executor:
        return executor.submit(asyncio.run, call).result()


def _source_queues(read: ChunkedRead) -> dict[tuple[str, str, int], int]:
    places = sorted((queue.topic, queue.broker_name, queue.queue_id) for queue in read.queues)
    return {place: index for index, place in enumerate(places)}


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"
