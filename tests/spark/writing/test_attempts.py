"""Attempts of one task side by side and one after another, without Spark: who may send, and what is sent in the end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from tests.spark.writing.conftest import WriteCluster
from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.errors import ClosedError, InvalidRequestError, MQError, OffsetOutOfRangeError
from thermocline.spark.writing.task_writer import TaskReport, WriteTask, WriteTaskError, write_task
from thermocline.spark.writing.write_columns import WriteColumns
from thermocline.spark.writing.write_notes import NAMESPACE
from thermocline.spark.writing.write_options import WriteOptions, write_options_from

ROWS = 400
SCHEMA = t.StructType([t.StructField("value", t.StringType()), t.StructField("key", t.StringType())])


class Attempts:
    """One task of a write to a topic of its own, tried as often as a test likes."""

    def __init__(self, cluster: WriteCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = cluster.make_topic(topic)
        self.options: WriteOptions = write_options_from(
            {"namesrvAddr": cluster.namesrv, "topic": topic, "deduplicate": "true", "batchBytes": "2k"}
        )
        self.task = WriteTask(write_id=topic, batch_id=0, partition=5, attempt=0, is_streaming=False)
        cluster.admin.put_kv(NAMESPACE, topic, json.dumps({"began": time.time_ns() // 1_000_000}))

    def run(self, batches: Iterator[pa.RecordBatch], **changes: int) -> TaskReport:
        columns = WriteColumns.of(SCHEMA, self.options)
        return write_task(batches, replace(self.task, **changes), columns, self.options)

    def stored(self) -> Counter[bytes]:
        return self.cluster.bodies(self.topic)

    def end(self) -> None:
        self.cluster.admin.delete_kv(NAMESPACE, self.topic)
        self.cluster.admin.delete_kv(NAMESPACE, f"{self.topic}.5")


@pytest.fixture
def attempts(cluster: WriteCluster, request: pytest.FixtureRequest) -> Iterator[Attempts]:
    made = Attempts(cluster, "".join(c if c.isalnum() else "-" for c in request.node.name)[:100])
    yield made
    made.end()


def batches(
    *, order: list[int] | None = None, between: Callable[[int], None] = lambda _: None
) -> Iterator[pa.RecordBatch]:
    """All rows in batches of 50; `between` is called with the number of rows given so far."""
    numbers = list(range(ROWS)) if order is None else order
    for start in range(0, ROWS, 50):
        some = numbers[start : start + 50]
        yield pa.RecordBatch.from_pydict(
            {
                "value": [f"row {number // 2}" for number in some],
                "key": [None if number % 4 else f"k{number % 12}" for number in some],
            }
        )
        between(start + 50)


EXPECTED = Counter(b"row %d" % (number // 2) for number in range(ROWS))


def test_a_second_attempt_waits_for_the_first_and_finds_everything(attempts: Attempts) -> None:
    half_way, may_go_on = threading.Event(), threading.Event()

    def pause(count: int) -> None:
        if count == 200:
            half_way.set()
            may_go_on.wait()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(attempts.run, batches(between=pause))
        half_way.wait()
        second = pool.submit(attempts.run, batches(), attempt=1)
        with AdminClient(namesrv=attempts.cluster.namesrv) as admin:
            group = f"thermocline-spark-{attempts.topic}-5"
            # The second is heard of, and goes again, while the first is connected.
            seen: set[str] = set()
            while len(seen) < 3:
                seen |= {one.client_id for one in admin.producer_connections(group)}
        assert not second.done()
        before = attempts.stored().total()
        may_go_on.set()
        assert (first.result().sent_count, first.result().found_count) == (ROWS, 0)
        assert (second.result().sent_count, second.result().found_count) == (0, ROWS)
    assert before <= 200
    assert attempts.stored() == EXPECTED


def test_a_late_attempt_finds_messages_that_another_has_sent(attempts: Attempts) -> None:
    assert attempts.run(batches(), attempt=3).sent_count == ROWS
    # Spark may start a stage again, and count its attempts from nought.
    late = attempts.run(batches(order=list(reversed(range(ROWS)))), attempt=0)
    assert (late.sent_count, late.found_count) == (0, ROWS)
    assert attempts.stored() == EXPECTED


def test_attempts_that_stop_anywhere_store_each_row_once_in_the_end(attempts: Attempts) -> None:
    random = Random(6)
    for attempt in range(4):
        stop_at = random.randrange(0, ROWS, 50)

        def stop(count: int, stop_at: int = stop_at) -> None:
            if count > stop_at:
                raise RuntimeError("stopped")

        order = random.sample(range(ROWS), ROWS)
        with pytest.raises(RuntimeError, match="stopped"):
            attempts.run(batches(order=order, between=stop), attempt=attempt)
    report = attempts.run(batches(), attempt=4)
    assert report.sent_count + report.found_count == ROWS
    assert attempts.stored() == EXPECTED
    ids = [message.message_id for message in attempts.cluster.messages(attempts.topic)]
    assert len(set(ids)) == ROWS


def test_many_attempts_at_once_store_each_row_once(attempts: Attempts) -> None:
    with ThreadPoolExecutor(4) as pool:
        running: list[Future[TaskReport]] = [pool.submit(attempts.run, batches(), attempt=n) for n in range(4)]
        reports = [future.result() for future in running]
    assert sorted(report.sent_count for report in reports) == [0, 0, 0, ROWS]
    assert attempts.stored() == EXPECTED


def test_an_attempt_after_the_end_of_its_write_sends_nothing(attempts: Attempts) -> None:
    attempts.run(batches())
    attempts.end()
    with pytest.raises(ClosedError, match="this write has ended"):
        attempts.run(batches(), attempt=1)
    assert attempts.stored() == EXPECTED
    assert f"{attempts.topic}.5" not in attempts.cluster.admin.list_kv(NAMESPACE)


def test_keys_keep_their_order_over_attempts(attempts: Attempts) -> None:
    def stop(count: int) -> None:
        if count == 250:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        attempts.run(batches(between=stop))
    attempts.run(batches(), attempt=1)
    for messages in attempts.cluster.queues(attempts.topic).values():
        last: dict[str, int] = {}
        for message in messages:
            if message.keys:
                number = int(message.body.split()[1])
                assert last.get(message.keys, -1) < number
                last[message.keys] = number


def test_a_broker_that_dies_under_an_attempt(attempts: Attempts) -> None:
    """Messages in flight are not sent again unchecked: the attempt fails with its counts, and the next one checks."""
    broker = attempts.cluster.broker

    def kill(count: int) -> None:
        if count == 250:
            broker.kill()

    with pytest.raises(WriteTaskError) as failure:
        attempts.run(batches(between=kill))
    assert "not everything was sent" in failure.value.message
    stored_count = failure.value.context["stored_count"]
    assert isinstance(stored_count, int)
    broker.start()
    while not attempts.cluster.admin.list_topics():
        pass
    deadline = time.monotonic() + 120
    while True:
        try:
            report = attempts.run(batches(), attempt=1)
            break
        except MQError:  # not registered yet
            assert time.monotonic() < deadline
    assert report.found_count >= stored_count
    assert report.found_count + report.sent_count == ROWS
    assert attempts.stored() == EXPECTED


def test_offsets_that_cannot_be_read_back_are_not_guessed(attempts: Attempts) -> None:
    def stop(count: int) -> None:
        if count == 200:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        attempts.run(batches(between=stop))
    admin = attempts.cluster.admin
    key = f"{attempts.topic}.5"
    note = admin.get_kv(NAMESPACE, key)
    assert note is not None
    admin.put_kv(NAMESPACE, key, note.replace('"0": 0', '"0": 1000'))
    with pytest.raises(OffsetOutOfRangeError, match="cannot be read back"):
        attempts.run(batches(), attempt=1)


@pytest.mark.parametrize("deduplicate", [True, False])
def test_refusals_of_a_broker_are_reported(attempts: Attempts, deduplicate: bool) -> None:
    options = replace(attempts.options, deduplicate=deduplicate, message_bytes_max=16 << 20)
    columns = WriteColumns.of(SCHEMA, options)
    large = Random(1).randbytes(5 << 20).hex()  # does not compress below what a broker takes
    small = pa.RecordBatch.from_pydict({"value": ["first"], "key": ["k"]})
    batch = pa.RecordBatch.from_pydict({"value": [large, "last"], "key": ["k", "k"]})
    with pytest.raises(WriteTaskError) as failure:
        write_task(iter([small, batch]), attempts.task, columns, options)
    assert "not everything was sent" in failure.value.message
    assert failure.value.context["code"] == 13
    assert (failure.value.context["stored_count"], failure.value.context["unknown_count"]) == (1, 0)
    assert str(failure.value.context["stored"]).endswith("[0,1)")
    assert attempts.stored() == Counter([b"first"])


def test_a_micro_batch_that_was_begun_with_another_topic_is_not_sent_again(attempts: Attempts) -> None:
    """The option was changed before the restart: the task divided by its number of queues, which was zero."""
    first, other = attempts.options, attempts.cluster.make_topic(f"{attempts.topic}-b")
    attempts.run(batches(), batch_id=7, is_streaming=True)
    attempts.options = replace(first, topic=other, topics=(other,))
    with pytest.raises(InvalidRequestError, match=f"begun with other topics.* begun_with={attempts.topic}"):
        attempts.run(batches(), batch_id=7, is_streaming=True)
    assert attempts.run(batches(), batch_id=8, is_streaming=True).sent_count == ROWS
    assert (attempts.stored(), attempts.cluster.bodies(other)) == (EXPECTED, EXPECTED)


def test_streams_skip_messages_that_their_last_batch_has_stored(attempts: Attempts) -> None:
    first = attempts.run(batches(), batch_id=7, is_streaming=True)
    again = attempts.run(batches(), batch_id=7, is_streaming=True)
    following = attempts.run(batches(), batch_id=8, is_streaming=True)
    assert (first.sent_count, again.sent_count, again.found_count, following.sent_count) == (ROWS, 0, ROWS, ROWS)
    with pytest.raises(ClosedError, match="a later micro-batch has begun"):
        attempts.run(batches(), batch_id=7, is_streaming=True)
    assert attempts.stored() == EXPECTED + EXPECTED
