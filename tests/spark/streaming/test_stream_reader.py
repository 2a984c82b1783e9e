"""Streams in real Spark, over a cold tier and brokers that are real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.cold_tier import ColdTier, directory_url, flights
from tests.spark.streaming.live_cluster import LiveCluster, bodies, live_cluster
from tests.spark.streaming.queries import (
    TIMEOUT_S,
    by_queue,
    load_stream,
    offsets_of,
    run_available,
    sink_rows,
    start_query,
)
from tests.tiered.cold_data import Log
from tests.waiting import wait_until
from thermocline.remoting.records.message_record import decode_record
from thermocline.spark import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture(scope="module")
def cluster(module_folder: Path) -> Iterator[LiveCluster]:
    with live_cluster(module_folder, "broker-a", "broker-b") as cluster:
        yield cluster


def log_bodies(log: Log, *, starts: dict[int, int] | None = None) -> dict[tuple[str, int], list[bytes]]:
    return {
        ("broker-a", queue_id): [
            decode_record(record).body for record in queue.records[(starts or {}).get(queue_id, 0) :]
        ]
        for queue_id, queue in log.queues.items()
    }


def test_cold_history_comes_in_bounded_batches_and_goes_on_after_a_restart(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    tier = ColdTier(directory_url(tmp_path / "cold"))
    log = flights("orders", 3_000, queue_count=3)
    tier.seal_in_pieces(log, 3)
    raw_bytes = sum(len(record) for queue in log.queues.values() for record in queue.records)
    stream = load_stream(spark_session, tier.url, maxBytesPerTrigger=str(raw_bytes // 5))
    progress = run_available(stream, tmp_path)
    moved = [each["numInputRows"] for each in progress if each["numInputRows"]]
    assert 5 <= len(moved) <= 8
    assert max(moved) < 3_000 / 3
    assert by_queue(sink_rows(tmp_path)) == log_bodies(log)
    assert offsets_of(progress[-1], "latestOffset") == {f"broker-a/{queue}": end for queue, end in log.ends().items()}

    before = log.ends()
    log.append_flights(100)
    tier.seal(log, starts=before)
    progress = run_available(stream, tmp_path)
    assert sum(each["numInputRows"] for each in progress) == 100
    assert by_queue(sink_rows(tmp_path)) == log_bodies(log)
    assert sum(each["numInputRows"] for each in run_available(stream, tmp_path)) == 0


def test_a_first_batch_that_failed_starts_where_the_query_began(spark_session: SparkSession, tmp_path: Path) -> None:
    """Spark asks for the beginning anew: from `latest` on a busy topic it was behind the messages of that batch."""
    tier = ColdTier(directory_url(tmp_path / "cold"))
    log = flights("orders", 140, queue_count=1)
    tier.seal(log)
    found: list[int] = []
    is_broken = True

    def sink(batch: DataFrame, batch_id: int) -> None:
        if is_broken:
            raise ValueError(f"batch {batch_id} is not taken")
        found.extend(row["queueOffset"] for row in batch.collect())

    def start(starting_offsets: str) -> StreamingQuery:
        writer = load_stream(spark_session, tier.url, startingOffsets=starting_offsets).writeStream
        writer = writer.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="batch 0 is not taken"):
        start('{"orders": {"0": 100}}').awaitTermination(TIMEOUT_S)
    is_broken = False
    assert start("latest").awaitTermination(TIMEOUT_S)
    assert found == list(range(100, 140))


def test_cold_then_live_on_two_brokers_is_one_line(
    spark_session: SparkSession, cluster: LiveCluster, tmp_path: Path
) -> None:
    cluster.make_topic("orders", queues=2)
    for broker in ("broker-a", "broker-b"):
        cluster.send("orders", bodies(400), broker=broker, queue_id=0)
        cluster.send("orders", bodies(300, start=1_000), broker=broker, queue_id=1)
    cluster.seal("orders")
    for broker in ("broker-a", "broker-b"):
        cluster.send("orders", bodies(200, start=2_000), broker=broker, queue_id=0)
    cluster.wait_until_flushed("orders")
    stream = load_stream(spark_session, cluster.cold_url, namesrvAddr=cluster.namesrv, maxOffsetsPerTrigger="500")
    progress = run_available(stream, tmp_path)
    assert max(each["numInputRows"] for each in progress) <= 500
    assert by_queue(sink_rows(tmp_path)) == cluster.expected("orders")
    cluster.send("orders", bodies(50, start=3_000), broker="broker-b", queue_id=1)
    cluster.wait_until_flushed("orders")
    run_available(stream, tmp_path)
    assert by_queue(sink_rows(tmp_path)) == cluster.expected("orders")


def test_a_condition_and_keys_choose_rows_of_both_parts(
    spark_session: SparkSession, cluster: LiveCluster, tmp_path: Path
) -> None:
    cluster.make_topic("chosen", queues=1, broker="broker-a")
    cluster.send("chosen", bodies(90))
    cluster.seal("chosen")
    cluster.send("chosen", bodies(90, start=90))
    cluster.wait_until_flushed("chosen")
    columns = "brokerName,queueId,queueOffset,key,tag,value"
    stream = read_stream(
        spark_session,
        cluster.cold_url,
        topic="chosen",
        where="queueOffset >= 30 AND (tag = 't1' OR key = 'k90') AND key IN ('k31', 'k89', 'k90', 'k91', 'k94', 'k95')",
        columns=columns,
        keys="k3 k31 k89 k90 k94 k95",
        namesrvAddr=cluster.namesrv,
    )
    run_available(stream, tmp_path)
    assert [row["queueOffset"] for row in sink_rows(tmp_path)] == [31, 90, 94]


def test_a_running_query_takes_in_queues_that_come_meanwhile(
    spark_session: SparkSession, cluster: LiveCluster, tmp_path: Path
) -> None:
    """One run of one query, cold and live before; afterwards each broker has a queue more, and then one more again."""
    cluster.make_topic("grown", queues=1)
    cluster.send("grown", bodies(120))
    cluster.seal("grown")
    cluster.send("grown", bodies(30, start=120))
    stream = load_stream(spark_session, cluster.cold_url, topic="grown", namesrvAddr=cluster.namesrv)
    query = start_query(stream, tmp_path, processingTime="0 seconds")
    run_id = query.runId

    def has_arrived() -> bool:
        assert query.isActive, query.exception()
        return len(sink_rows(tmp_path)) == sum(map(len, cluster.expected("grown").values()))

    try:
        wait_until(has_arrived, what="the first queue is in the sink", timeout_s=TIMEOUT_S)
        for count in (2, 3):
            cluster.admin.update_topic("grown", read_queue_nums=count, write_queue_nums=count)
            for broker in ("broker-a", "broker-b"):
                cluster.send("grown", bodies(40, start=1_000 * count), broker=broker, queue_id=count - 1)
            cluster.send("grown", bodies(10, start=150 + 10 * count))
            wait_until(has_arrived, what=f"queue {count - 1} is in the sink", timeout_s=TIMEOUT_S)
        assert query.runId == run_id
        assert query.isActive
    finally:
        query.stop()
    found = by_queue(sink_rows(tmp_path))
    assert found == cluster.expected("grown")
    assert set(found) == {
        ("broker-a", 0),
        *((broker, number) for broker in ("broker-a", "broker-b") for number in (1, 2)),
    }


def test_a_query_behind_the_time_to_live_stops_unless_an_option_lets_it_continue(
    spark_session: SparkSession, cluster: LiveCluster, tmp_path: Path
) -> None:
    """What it had not read has expired, and is deleted from the bucket."""
    cluster.make_topic("behind", queues=1, broker="broker-a")
    cluster.send("behind", bodies(100))
    options = {"topic": "behind", "namesrvAddr": cluster.namesrv}
    stream = load_stream(spark_session, cluster.cold_url, **options)
    run_available(stream, tmp_path)
    cluster.send("behind", bodies(50, start=100))
    cluster.seal("behind")
    cluster.admin.set_ttl("behind", 1)
    time.sleep(0.01)
    cluster.admin.set_ttl("behind", None)
    cluster.admin.tier_purge("behind")
    cluster.send("behind", bodies(20, start=150))
    cluster.wait_until_flushed("behind")
    with pytest.raises(StreamingQueryException) as failure:
        run_available(stream, tmp_path)
    text = str(failure.value)
    assert (
        "messages have expired, or are gone, before they were read; failOnDataLoss=false goes on without them" in text
    )
    assert "topic=behind queue=broker-a:0 offsets=[100, 150)" in text
    run_available(load_stream(spark_session, cluster.cold_url, failOnDataLoss="false", **options), tmp_path)
    assert [row["queueOffset"] for row in sink_rows(tmp_path)] == [*range(100), *range(150, 170)]
