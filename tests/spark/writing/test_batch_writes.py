"""DataFrames written to a topic in real Spark, through a real broker."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.full_cases import full
from tests.spark.writing.conftest import WriteCluster
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.queue_selector import select_by_hash
from thermocline.spark.writing.write_notes import NAMESPACE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def write(table: DataFrame, cluster: WriteCluster, *, mode: str = "append", **options: str) -> None:
    (table.write.format("thermocline").options(**{"namesrvAddr": cluster.namesrv} | options).mode(mode).save())


def failure_of(action: Callable[[], object]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as failure:
        action()
    return str(failure.value)


PADDING = 200  # Spark hands its Python workers some 64 KiB at a time


def numbered(spark: SparkSession, count: int) -> DataFrame:
    """Rows of one partition with the body `message N ...`; every third one has an equal twin."""
    body = f"concat('message ', id - id % 3 % 2, ' ', repeat('.', {PADDING})) AS value"
    return spark.range(0, count, 1, 1).selectExpr(body)


def numbered_bodies(count: int) -> Counter[bytes]:
    return Counter(b"message %d %b" % (number - number % 3 % 2, b"." * PADDING) for number in range(count))


def test_every_column_arrives_in_its_field(spark_session: SparkSession, cluster: WriteCluster) -> None:
    topic = cluster.make_topic("columns")
    table = spark_session.sql(
        """SELECT 'paid 1' AS value, 'k1' AS key, 'paid' AS tag, map('region', 'eu', 'shop', 'Köln') AS properties,
                  7 AS flag, CAST(NULL AS INT) AS queueId
           UNION ALL SELECT 'plain', NULL, NULL, NULL, NULL, 2"""
    )
    write(table, cluster, topic=topic)
    paid, plain = sorted(cluster.messages(topic), key=lambda message: message.body)
    assert (paid.body, paid.keys, paid.tags, paid.flag) == (b"paid 1", "k1", "paid", 7)
    assert {name: paid.properties[name] for name in ("region", "shop")} == {"region": "eu", "shop": "Köln"}
    assert (plain.body, plain.keys, plain.tags, plain.flag, plain.queue.queue_id) == (b"plain", "", "", 0, 2)
    queues = [MessageQueue(topic=topic, broker_name="broker-a", queue_id=number) for number in range(4)]
    assert paid.queue == select_by_hash(queues, paid.to_message(), "k1")


def test_messages_of_one_key_stay_in_order_in_one_queue(spark_session: SparkSession, cluster: WriteCluster) -> None:
    topic = cluster.make_topic("ordered")
    table = spark_session.range(0, 3_000, 1, 1).selectExpr("CAST(id AS STRING) AS value", "concat('k', id % 50) AS key")
    write(table, cluster, topic=topic, batchBytes="4k")
    places: dict[str, set[int]] = {}
    for queue_id, messages in cluster.queues(topic).items():
        last: dict[str, int] = {}
        for message in messages:
            places.setdefault(message.keys, set()).add(queue_id)
            assert last.get(message.keys, -1) < int(message.body)
            last[message.keys] = int(message.body)
    assert len(places) == 50
    assert all(len(queue_ids) == 1 for queue_ids in places.values())
    assert cluster.bodies(topic) == Counter(b"%d" % number for number in range(3_000))


def test_rows_name_their_topics_and_binary_bodies_travel(spark_session: SparkSession, cluster: WriteCluster) -> None:
    first, second = cluster.make_topic("several-a"), cluster.make_topic("several-b")
    table = spark_session.sql(
        f"""SELECT X'00FF01' AS value, '{first}' AS topic, array('a', 'b') AS keys
            UNION ALL SELECT X'FE', '{second}', NULL"""
    )
    write(table, cluster)
    (one,), (other,) = cluster.messages(first), cluster.messages(second)
    assert (one.body, one.keys, other.body) == (b"\x00\xff\x01", "a b", b"\xfe")
    text = failure_of(lambda: write(table, cluster, topics=first))
    assert "a row names a topic that the option topics does not" in text


def test_a_message_may_wait_for_its_time(spark_session: SparkSession, cluster: WriteCluster) -> None:
    topic = cluster.make_topic("timed")
    table = spark_session.sql("SELECT 'late' AS value, current_timestamp() + INTERVAL 3 SECONDS AS deliverAt")
    begun = time.time()
    write(table, cluster, topic=topic)
    while not cluster.messages(topic):
        assert time.time() - begun < 120
        time.sleep(0.1)
    (message,) = cluster.messages(topic)
    assert message.body == b"late"
    assert message.store_timestamp_ms >= (begun + 2) * 1_000


# -- attempts ------------------------------------------------------------------------------------------------------


FAILING_ROW = 2_000


def failing_after(
    table: DataFrame, *, namesrv: str, topic: str, kind: str, stored_min: int, notes: Path | None = None
) -> DataFrame:
    """The rows again; half-way the first attempt ends badly, once the topic holds `stored_min` messages.

    `kind`: "raise" fails the task that makes the rows, "kill" kills the Python worker that sends them, "always" fails
    every attempt. `notes`: where to write down which notes there are then.
    """

    def end_badly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        is_bad = context.attemptNumber() == 0 or kind == "always"
        row_count = 0
        for batch in batches:
            yield batch
            row_count += batch.num_rows
            if is_bad and row_count >= FAILING_ROW:
                is_bad = False
                with AdminClient(namesrv=namesrv) as admin:
                    deadline = time.monotonic() + 60  # no other process ends this one when the sender has failed
                    while sum(stats.max_offset for stats in admin.topic_stats(topic)) < stored_min:
                        assert time.monotonic() < deadline
                        time.sleep(0.02)
                    if notes is not None:
                        notes.write_text("\n".join(admin.list_kv(NAMESPACE)))
                    if kind != "kill":
                        raise ValueError("this attempt fails")
                    groups = admin.list_producers()
                    for group in [name for name in groups if name.endswith("-0")]:
                        (producer,) = groups[group]
                        os.kill(int(producer.client_id.split("@")[1].partition("#")[0]), signal.SIGKILL)

    return table.mapInArrow(end_badly, table.schema)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("kind", ["kill", *full("raise")])
def test_a_second_attempt_sends_only_missing_messages(
    spark_session: SparkSession, cluster: WriteCluster, kind: str
) -> None:
    topic = cluster.make_topic(f"retried-{kind}")
    rows = failing_after(
        numbered(spark_session, 4_000), namesrv=cluster.namesrv, topic=topic, kind=kind, stored_min=300
    )
    write(rows, cluster, topic=topic, deduplicate="true", batchBytes="8k")
    assert cluster.bodies(topic) == numbered_bodies(4_000)
    messages = cluster.messages(topic)
    assert len({message.message_id for message in messages}) == 4_000


@pytest.mark.usefixtures("small_batches")
def test_without_deduplication_a_second_attempt_sends_everything_again(
    spark_session: SparkSession, cluster: WriteCluster
) -> None:
    topic = cluster.make_topic("retried-plainly")
    rows = failing_after(
        numbered(spark_session, 4_000), namesrv=cluster.namesrv, topic=topic, kind="raise", stored_min=300
    )
    write(rows, cluster, topic=topic, batchBytes="8k")
    stored, wanted = cluster.bodies(topic), numbered_bodies(4_000)
    assert stored.keys() == wanted.keys()
    assert stored >= wanted
    assert stored.total() > 4_000


@pytest.mark.usefixtures("small_batches")
def test_an_aborted_write_leaves_no_notes(spark_session: SparkSession, cluster: WriteCluster, tmp_path: Path) -> None:
    topic = cluster.make_topic("aborted")
    seen = tmp_path / "notes"
    rows = failing_after(
        numbered(spark_session, 4_000), namesrv=cluster.namesrv, topic=topic, kind="always", stored_min=1, notes=seen
    )
    text = failure_of(lambda: write(rows, cluster, topic=topic, deduplicate="true", batchBytes="8k"))
    assert "this attempt fails" in text
    notes = seen.read_text().splitlines()
    assert any("." in key for key in notes)
    assert any("." not in key for key in notes)
    assert not set(notes) & set(cluster.admin.list_kv(NAMESPACE))


def test_a_later_write_removes_forgotten_notes(spark_session: SparkSession, cluster: WriteCluster) -> None:
    topic = cluster.make_topic("forgotten")
    now_ms = time.time_ns() // 1_000_000
    cluster.admin.put_kv(NAMESPACE, "killed", json.dumps({"began": now_ms - 3_600_000}))
    cluster.admin.put_kv(NAMESPACE, "killed.3", json.dumps({"batch": 0, "began": now_ms - 3_500_000, "offsets": {}}))
    cluster.admin.put_kv(NAMESPACE, "living", json.dumps({"began": now_ms}))
    write(numbered(spark_session, 10), cluster, topic=topic, deduplicate="true", noteRetention="3000000")
    notes = cluster.admin.list_kv(NAMESPACE)
    assert "living" in notes
    assert not {"killed", "killed.3"} & notes.keys()
    cluster.admin.delete_kv(NAMESPACE, "living")


@pytest.mark.usefixtures("small_batches")
def test_rows_that_change_between_attempts_are_noticed(spark_session: SparkSession, cluster: WriteCluster) -> None:
    topic = cluster.make_topic("changing")
    changing = spark_session.range(0, 4_000, 1, 1).selectExpr(
        f"repeat('.', {PADDING}) AS value", "CAST(id AS STRING) AS id"
    )

    def with_attempt_number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            numbers = batch.column(1).to_pylist()
            values = [
                f"{context.attemptNumber()} {n} {dots}" for n, dots in zip(numbers, batch[0].to_pylist(), strict=True)
            ]
            yield pa.RecordBatch.from_arrays([pa.array(values), batch.column(1)], names=["value", "id"])

    rows = changing.mapInArrow(with_attempt_number, changing.schema)
    rows = failing_after(rows, namesrv=cluster.namesrv, topic=topic, kind="raise", stored_min=100)
    text = failure_of(lambda: write(rows.select("value"), cluster, topic=topic, deduplicate="true", batchBytes="8k"))
    assert "the rows of this task changed between its attempts" in text
    # With a column that tells the rows apart, each is there once.
    topic = cluster.make_topic("changing-with-id")
    rows = changing.mapInArrow(with_attempt_number, changing.schema)
    rows = failing_after(rows, namesrv=cluster.namesrv, topic=topic, kind="raise", stored_min=100)
    write(rows, cluster, topic=topic, deduplicate="true", batchBytes="8k")
    numbers = Counter(message.body.split(b" ")[1] for message in cluster.messages(topic))
    assert numbers == Counter(b"%d" % number for number in range(4_000))


# -- errors --------------------------------------------------------------------------------------------------------


def test_invalid_arguments_are_refused_before_a_send(spark_session: SparkSession, cluster: WriteCluster) -> None:
    topic = cluster.make_topic("checked")
    cluster.make_topic("read-only", perm=4)
    table = numbered(spark_session, 10)
    cases: list[tuple[DataFrame, dict[str, Any], str]] = [
        (table, {"topic": "nowhere"}, "there is no such topic, and a write makes none topic=nowhere"),
        (table, {"topic": "read-only"}, "no broker takes messages for this topic now"),
        (table, {"topic": topic, "namesrvAddr": "127.0.0.1:9"}, "no NameServer answers"),
        (table, {"topic": topic, "mode": "overwrite"}, "a topic cannot be overwritten"),
        (table, {}, "name the topic to write to"),
        (table, {"topic": topic, "batchBytes": "much"}, "'much' is no size"),
        (table, {"topic": topic, "deduplciate": "true"}, "there is no option 'deduplciate'; is it deduplicate?"),
        (table.selectExpr("value AS body"), {"topic": topic}, "a write has no column 'body'"),
        (table.selectExpr("1 AS value"), {"topic": topic}, "the column 'value' must be binary or string type=int"),
        (table.selectExpr("value", "map('a', 1) AS properties"), {"topic": topic}, "map<string,string>"),
    ]
    for rows, options, sentence in cases:
        assert sentence in failure_of(lambda: write(rows, cluster, **options)), options  # noqa: B023 - called at once
    assert not cluster.messages(topic)


def test_an_impossible_row_is_named_and_nothing_of_its_batch_is_sent(
    spark_session: SparkSession, cluster: WriteCluster
) -> None:
    topic = cluster.make_topic("impossible")
    table = spark_session.range(0, 10, 1, 1)
    large = table.selectExpr("repeat('x', IF(id = 7, 5000, 1)) AS value")
    text = failure_of(lambda: write(large, cluster, topic=topic, maxMessageBytes="4k"))
    assert "message too large" in text
    assert "row=7" in text
    empty = table.selectExpr("IF(id = 3, NULL, 'x') AS value")
    assert "a message needs a body" in failure_of(lambda: write(empty, cluster, topic=topic))
    queue = table.selectExpr("'x' AS value", "9 AS queueId")
    assert "no queue has this id" in failure_of(lambda: write(queue, cluster, topic=topic))
    assert not cluster.messages(topic)
