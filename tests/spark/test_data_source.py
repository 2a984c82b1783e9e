"""The data source in real Spark over real cold tiers: files and S3 servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures_s3 import S3Bucket
from tests.spark.cold_tier import ColdTier, by_place, directory_url, flights, rows_of
from tests.spark.message_rows import normal_rows
from tests.tiered.cold_data import Log
from thermocline.spark import configure, read_options
from thermocline.spark.access.store_options import store_options
from thermocline.spark.decoding.message_columns import DEFAULT_COLUMNS, MESSAGE_COLUMNS, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL_COLUMNS = tuple(column.name for column in MESSAGE_COLUMNS)

Load = Callable[..., "DataFrame"]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    """4000 messages of two queues in three segments, on disk."""
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = flights("orders", 4_000, queue_count=2)
    tier.seal_in_pieces(log, 3)
    return tier, log


def load(spark: SparkSession, url: str, topic: str = "orders", **options: str) -> DataFrame:
    return spark.read.format("thermocline").option("topic", topic).options(**options).load(url)


def rows(table: DataFrame) -> list[dict[str, Any]]:
    """The table's rows as the witness has them, times in UTC."""
    arrow = table.toArrow()
    assert arrow.schema.names == table.columns
    return normal_rows(arrow.cast(arrow_schema(tuple(table.columns))).to_pylist())


def test_all_messages_with_all_columns(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    table = load(spark_session, tier.url, columns=",".join(ALL_COLUMNS))
    assert by_place(rows(table)) == by_place(rows_of(log))


def test_the_default_columns_and_a_plain_count(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, _ = orders
    table = load(spark_session, tier.url)
    assert tuple(table.columns) == DEFAULT_COLUMNS
    assert table.count() == 4_000
    assert load(spark_session, tier.url, columns="queueOffset").count() == 4_000


def test_spark_computes_on_the_bodies(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    from pyspark.sql import functions as f

    tier, log = orders
    table = load(spark_session, tier.url, columns="tag,value")
    delay = f.get_json_object(f.col("value").cast("string"), "$.dep_delay").cast("long")
    found = {
        row["tag"]: (row["n"], row["total"])
        for row in table.groupBy("tag").agg(f.count("*").alias("n"), f.sum(delay).alias("total")).collect()
    }
    expected: dict[str, tuple[int, int]] = {}
    for row in rows_of(log):
        count, total = expected.get(row["tag"], (0, 0))
        expected[row["tag"]] = (count + 1, total + json.loads(row["value"])["dep_delay"])
    assert found == expected


def test_offsets_times_and_tags_choose_rows(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    moment = rows_of(log)[900]["timestamp"]
    table = load(
        spark_session,
        tier.url,
        startingOffsets='{"orders": {"broker-a:0": 100}}',
        endingOffsets='{"orders": {"1": 1500}}',
        endingTimestamp=moment.isoformat(),
        tags="UA || DL",
        columns=",".join(ALL_COLUMNS),
    )
    expected = [
        row
        for row in rows_of(log)
        if row["timestamp"] < moment
        and row["tag"] in ("UA", "DL")
        and ((row["queueId"] == 0 and row["queueOffset"] >= 100) or (row["queueId"] == 1 and row["queueOffset"] < 1500))
    ]
    assert expected
    assert by_place(rows(table)) == by_place(expected)


def test_a_read_that_finds_nothing_is_an_empty_table(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, _ = orders
    table = load(spark_session, tier.url, startingTimestamp="1971-01-01", endingTimestamp="1971-02-01")
    assert rows(table) == []
    assert table.count() == 0


def test_a_large_queue_is_split(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    largest = sum(map(len, log.queues[0].records))
    table = load(
        spark_session, tier.url, queues="0", maxPartitionBytes=str(largest // 5), columns="queueId,queueOffset"
    )
    assert table.rdd.getNumPartitions() >= 5
    offsets = sorted(row["queueOffset"] for row in table.collect())
    assert offsets == list(range(len(log.queues[0].records)))


def test_every_plan_of_a_table_is_new_and_a_pinned_one_is_not(spark_session: SparkSession, tmp_path: Path) -> None:
    tier, log = ColdTier(directory_url(tmp_path)), flights("orders", 200, queue_count=1)
    tier.seal(log, ends={0: 120})
    bare = load(spark_session, tier.url, columns="queueOffset")
    pinned = load(spark_session, tier.url, columns="queueOffset", snapshotVersion=str(tier.version))
    assert (bare.count(), pinned.count()) == (120, 120)
    tier.seal(log, starts={0: 120})
    again = load(spark_session, tier.url, columns="queueOffset")
    assert (again.count(), pinned.count()) == (200, 120)


def test_several_topics_brokers_and_urls(spark_session: SparkSession, tmp_path: Path) -> None:
    logs = {}
    for number, (folder, broker) in enumerate([("x", "broker-a"), ("x", "broker-b"), ("y", "broker-c")]):
        log = logs[broker] = flights("orders", 60 + number, seed=number)
        ColdTier(directory_url(tmp_path / folder), broker_name=broker).seal(log)
    payments = flights("payments", 30)
    ColdTier(directory_url(tmp_path / "y"), broker_name="broker-c").seal(payments)
    reader = spark_session.read.format("thermocline").option("topic", "orders,payments")
    table = reader.option("columns", ",".join(ALL_COLUMNS)).load([f"file://{tmp_path}/x", f"file://{tmp_path}/y"])
    expected = [row for broker, log in logs.items() for row in rows_of(log, broker_name=broker)]
    expected += rows_of(payments, broker_name="broker-c")
    assert by_place(rows(table)) == by_place(expected)


@pytest.mark.parametrize("place", ["", "/", "/test", "/test/broker-b"])
def test_a_url_may_name_a_prefix_a_cluster_or_a_broker(spark_session: SparkSession, tmp_path: Path, place: str) -> None:
    for number, broker in enumerate(("broker-a", "broker-b")):
        ColdTier(directory_url(tmp_path), broker_name=broker).seal(flights("orders", 40, seed=number))
    table = load(spark_session, directory_url(tmp_path) + place, columns="brokerName")
    brokers = {row["brokerName"] for row in table.collect()}
    assert brokers == ({"broker-b"} if "broker" in place else {"broker-a", "broker-b"})


# -- errors --------------------------------------------------------------------------------------------------------


def failure_of(action: Callable[[], object]) -> str:
    """The text of the error that Spark raises."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as failure:
        action()
    return str(failure.value)


def test_an_unknown_topic_is_one_sentence(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, _ = orders
    text = failure_of(lambda: load(spark_session, tier.url, "payments").count())
    assert "topic 'payments' has no messages in the cold tier" in text


def test_a_wrong_option_is_refused_when_the_table_is_made(
    spark_session: SparkSession, orders: tuple[ColdTier, Log]
) -> None:
    tier, _ = orders
    assert "unknown column 'body'" in failure_of(lambda: load(spark_session, tier.url, columns="body"))


def test_a_directory_without_a_cold_tier_is_named(spark_session: SparkSession, tmp_path: Path) -> None:
    text = failure_of(lambda: load(spark_session, directory_url(tmp_path / "nothing")).count())
    assert "there is no cold tier at this URL" in text
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_frame_is_named_in_the_tasks_error(spark_session: SparkSession, tmp_path: Path) -> None:
    tier, log = ColdTier(directory_url(tmp_path)), flights("orders", 300, queue_count=1)
    tier.seal(log)
    (entry,) = tier.entries("orders")
    tier.change_object(entry.log.key, position=entry.log.footer_start // 2)
    text = failure_of(lambda: load(spark_session, tier.url).collect())
    assert (
        f"a frame of the cold tier is damaged; onCorruptFrame=skip leaves its messages out object={entry.log.key}"
        in text
    )
    assert "frame=" in text
    assert "offsets=[" in text
    kept = load(spark_session, tier.url, onCorruptFrame="skip").count()
    assert 200 < kept < 300


def test_a_missing_object_is_named_in_the_tasks_error(spark_session: SparkSession, tmp_path: Path) -> None:
    tier, log = ColdTier(directory_url(tmp_path)), flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    entry = tier.entries("orders")[1]
    tier.delete_object(entry.log.key)
    text = failure_of(lambda: load(spark_session, tier.url).collect())
    assert f"object={entry.log.key}" in text
    assert load(spark_session, tier.url, failOnDataLoss="false").count() == 200


# -- S3 ------------------------------------------------------------------------------------------------------------


def s3_options(bucket: S3Bucket) -> dict[str, str]:
    return {
        "s3.endpoint": bucket.endpoint,
        "s3.region": bucket.region,
        "s3.accessKey": bucket.access_key,
        "s3.secretKey": bucket.secret_key,
    }


@pytest.mark.s3
def test_a_bucket_is_read_from_every_kind_of_server(spark_session: SparkSession, any_s3_bucket: S3Bucket) -> None:
    options = s3_options(any_s3_bucket)
    url = f"s3a://{any_s3_bucket.name}/cold/tier"
    tier, log = ColdTier(url, options=store_options(options)), flights("orders", 1_500, queue_count=2)
    tier.seal_in_pieces(log, 2)
    table = load(spark_session, url, columns=",".join(ALL_COLUMNS), maxPartitionBytes="100k", **options)
    assert table.rdd.getNumPartitions() >= 4
    assert by_place(rows(table)) == by_place(rows_of(log))


@pytest.mark.s3
def test_the_sessions_s3a_settings_are_understood(spark_session: SparkSession, s3_bucket: S3Bucket) -> None:
    url = f"s3a://{s3_bucket.name}/cold"
    ColdTier(url, options=store_options(s3_options(s3_bucket))).seal(flights("orders", 50))
    settings = {
        "fs.s3a.endpoint": s3_bucket.endpoint,
        "fs.s3a.access.key": "other-key",
        "fs.s3a.secret.key": "nothing",
        f"fs.s3a.bucket.{s3_bucket.name}.access.key": s3_bucket.access_key,
        f"fs.s3a.bucket.{s3_bucket.name}.secret.key": s3_bucket.secret_key,
        f"fs.s3a.bucket.{s3_bucket.name}.encryption.algorithm": "AES256",
    }
    try:
        for name, value in settings.items():
            spark_session.conf.set(name, value)
        assert read_options(spark_session, url) == {
            name: value for name, value in settings.items() if value not in ("other-key", "nothing")
        }
        assert configure(spark_session, url).option("topic", "orders").load(url).count() == 50
    finally:
        for name in settings:
            spark_session.conf.unset(name)
    assert read_options(spark_session, "file:///cold") == {}


@pytest.mark.s3
def test_wrong_credentials_and_endpoints_are_one_sentence(spark_session: SparkSession, s3_bucket: S3Bucket) -> None:
    url = f"s3a://{s3_bucket.name}/cold"
    options = s3_options(s3_bucket)
    refused = failure_of(lambda: load(spark_session, url, **options | {"s3.secretKey": "wrong"}).count())
    place = f"endpoint={s3_bucket.endpoint} bucket={s3_bucket.name} key="
    assert f"ObjectStoreRefusedError: the object store refuses {place}" in refused
    assert "wrong" not in refused
    away = failure_of(lambda: load(spark_session, url, **options | {"s3.endpoint": "http://127.0.0.1:9"}).count())
    place = f"endpoint=http://127.0.0.1:9 bucket={s3_bucket.name} key="
    assert f"ObjectStoreUnavailableError: the object store gives no answer {place}" in away
    assert "botocore" not in refused + away  # a traceback of the client would stand before the sentence
