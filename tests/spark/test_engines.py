"""read_cold: both engines give equal rows, on files and on S3 servers, with only `fs.s3a.*` set; and equal errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.fixtures_s3 import S3Bucket, new_bucket
from tests.spark.cold_tier import ColdTier, by_place, directory_url, flights, rows_of
from tests.spark.message_rows import normal_rows
from tests.spark.reading.test_packs import write_packs
from tests.tiered.cold_data import Log
from thermocline.localstack import S3Server
from thermocline.remoting.errors import (
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    TopicNotFoundError,
)
from thermocline.spark import Side, catch_up, compare, counts, key_history, read_cold, task_metrics
from thermocline.spark.access.store_options import store_options
from thermocline.spark.cold_table import BINARY_FILE_BYTES_SETTING, s3a_url
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS, arrow_schema
from thermocline.tiered.objects.errors import ObjectStoreRefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pandas", reason="PySpark makes no mapInArrow without pandas")

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)


@pytest.fixture
def session(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session, which forgets afterwards what the test set."""
    before = dict(spark_session.conf.getAll)
    yield spark_session
    for name in spark_session.conf.getAll.keys() - before.keys():
        spark_session.conf.unset(name)
    spark_session.conf.unset(BINARY_FILE_BYTES_SETTING)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    """1000 messages of two queues in three segments, on disk."""
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = flights("orders", 1_000, queue_count=2)
    tier.seal_in_pieces(log, 3)
    return tier, log


def rows(table: DataFrame) -> dict[tuple[str, str, int, int], dict[str, Any]]:
    return by_place(normal_rows(table.toArrow().cast(arrow_schema(tuple(table.columns))).to_pylist()))


def s3a(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return read_cold(spark, url, topic="orders", engine="s3a", **options)


def set_s3a(spark: SparkSession, bucket: S3Bucket, **changed: str) -> None:
    """What the bucket needs, in settings of this bucket alone; s3a gives up at its first failure."""
    settings = {
        "endpoint": bucket.endpoint,
        "endpoint.region": bucket.region,
        "path.style.access": "true",
        "access.key": bucket.access_key,
        "secret.key": bucket.secret_key,
        "attempts.maximum": "1",
        "retry.limit": "1",
    }
    for name, value in (settings | changed).items():
        spark.conf.set(f"fs.s3a.bucket.{bucket.name}.{name}", value)


def tier_in(bucket: S3Bucket, folder: str = "cold") -> ColdTier:
    options = {
        "s3.endpoint": bucket.endpoint,
        "s3.region": bucket.region,
        "s3.accessKey": bucket.access_key,
        "s3.secretKey": bucket.secret_key,
    }
    return ColdTier(f"s3a://{bucket.name}/{folder}", options=store_options(options))


# -- equal rows ----------------------------------------------------------------------------------------------------


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["minio", pytest.param("localstack", marks=pytest.mark.full)])
def test_both_engines_give_equal_rows_with_only_s3a_settings(
    session: SparkSession, s3_servers: Callable[[str], S3Server], kind: str
) -> None:
    bucket = new_bucket(s3_servers(kind))
    tier, log = tier_in(bucket), flights("orders", 1_500, queue_count=2)
    tier.seal_in_pieces(log, 3)
    set_s3a(session, bucket)
    key = rows_of(log)[77]["key"]
    choices: tuple[dict[str, str], ...] = (
        {},
        {"startingOffsets": '{"orders": {"0": 100}}', "tags": "UA || DL", "maxPartitionBytes": "50k"},
        {"keys": key},
    )
    for options in choices:
        direct = rows(read_cold(session, tier.url, topic="orders", columns=ALL_COLUMNS, **options))
        assert direct
        assert rows(s3a(session, tier.url, columns=ALL_COLUMNS, **options)) == direct
        if not options:
            assert direct == by_place(rows_of(log))


@pytest.mark.parametrize(
    "kind",
    [
        "file",
        pytest.param("minio", marks=pytest.mark.s3),
        pytest.param("localstack", marks=[pytest.mark.s3, pytest.mark.full]),
    ],
)
def test_the_s3a_engine_reads_packs(
    session: SparkSession, tmp_path: Path, s3_servers: Callable[[str], S3Server], kind: str
) -> None:
    url = cold_url = tmp_path.as_uri()
    if kind != "file":
        bucket = new_bucket(s3_servers(kind))
        set_s3a(session, bucket)
        url, cold_url = f"s3a://{bucket.name}/cold", bucket.cold_url
    sent = asyncio.run(write_packs(cold_url))
    columns = "topic,brokerName,queueId,queueOffset,value"
    for topic in ("orders", "small"):
        found = rows(read_cold(session, url, topic=topic, engine="s3a", columns=columns))
        assert sorted((row["queueId"], row["queueOffset"], bytes(row["value"])) for row in found.values()) == sorted(
            (queue_id, offset, body) for name, queue_id, offset, body in sent if name == topic
        )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/pre%20fix/c", "s3a://bucket/pre fix/c"),
        ("s3a://bucket/plain", "s3a://bucket/plain"),
        ("file:///tmp/my%20data", "file:///tmp/my data"),
    ],
)
def test_a_url_names_the_same_place_to_both_engines(url: str, expected: str) -> None:
    """Hadoop takes %20 for what it says, and found no cold tier."""
    assert s3a_url(url) == expected


@pytest.mark.parametrize("url", ["s3a://b/a*", "s3a://b/a%2A", "s3a://b/a%23b", "s3a://b/a%2541", "s3a://b/a#b"])
def test_urls_that_hadoop_or_spark_would_take_for_others_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match='with engine="s3a"'):
        s3a_url(url)


def test_a_table_is_planned_once_and_counts_its_requests(session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, _ = orders
    with task_metrics(session) as metrics:
        table = s3a(session, tier.url)
        assert (table.count(), table.count()) == (1_000, 1_000)
    report = metrics.report()
    assert [plan.engine for plan in report.plans] == ["s3a"]
    assert (report.total.rows, report.total.gets) == (2_000, 6)
    assert report.total.fetched_bytes == 2 * sum(entry.log.size_bytes for entry in tier.entries("orders"))
    assert s3a(session, tier.url, startingTimestamp="1971-01-01", endingTimestamp="1972-01-01").count() == 0


# -- errors --------------------------------------------------------------------------------------------------------


def test_the_error_of_an_object_that_is_too_large_names_a_remedy(
    session: SparkSession, orders: tuple[ColdTier, Log]
) -> None:
    tier, _ = orders
    session.conf.set(BINARY_FILE_BYTES_SETTING, "5000")
    with pytest.raises(InvalidRequestError, match='read with engine="direct"') as failure:
        s3a(session, tier.url)
    assert tier.entries("orders")[0].log.key in str(failure.value)


def test_a_damaged_frame_is_named_or_skipped(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    tier, log = ColdTier(directory_url(tmp_path)), flights("orders", 300, queue_count=1)
    tier.seal(log)
    (entry,) = tier.entries("orders")
    tier.change_object(entry.log.key, position=entry.log.footer_start // 2)
    with pytest.raises(PySparkException) as failure:
        s3a(session, tier.url).collect()
    assert f"onCorruptFrame=skip leaves its messages out object={entry.log.key}" in str(failure.value)
    assert "frame=" in str(failure.value)
    assert "offsets=[" in str(failure.value)
    with task_metrics(session) as metrics:
        kept = s3a(session, tier.url, onCorruptFrame="skip").count()
    assert metrics.report().total.messages_skipped == 300 - kept > 0


def test_an_object_that_goes_before_the_action_is_left_out_when_that_is_wanted(
    session: SparkSession, tmp_path: Path
) -> None:
    tier = ColdTier(directory_url(tmp_path))
    tier.seal_in_pieces(flights("orders", 300, queue_count=1), 3)
    table = s3a(session, tier.url, failOnDataLoss="false")
    strict = s3a(session, tier.url)
    tier.delete_object(tier.entries("orders")[1].log.key)
    assert table.count() == 200
    with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"):
        strict.count()


def test_a_missing_object_is_named_or_left_out(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier, log = ColdTier(directory_url(tmp_path)), flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    entry = tier.entries("orders")[1]
    tier.delete_object(entry.log.key)
    with pytest.raises(ObjectNotFoundError, match=rf"object={entry.log.key} .*offsets=\[100, 200\)"):
        s3a(session, tier.url)
    with caplog.at_level(logging.WARNING), task_metrics(session) as metrics:
        assert s3a(session, tier.url, failOnDataLoss="false").count() == 200
    assert (metrics.report().total.objects_missing, metrics.report().total.messages_missing) == (1, 100)
    assert "messages were left out" in caplog.text


def test_wrong_topics_urls_and_options_are_one_sentence(session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, _ = orders
    with pytest.raises(TopicNotFoundError, match="topic 'payments' has no messages in the cold tier"):
        read_cold(session, tier.url, topic="payments", engine="s3a")
    with pytest.raises(ObjectNotFoundError, match="there is no cold tier at this URL"):
        s3a(session, f"{tier.url}/nothing/here")
    with pytest.raises(InvalidRequestError, match=r"fs\.s3a\.\* settings count alone"):
        s3a(session, tier.url, **{"s3.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(InvalidRequestError, match=r"fs\.s3a\.endpoint"):
        s3a(session, "s3://bucket/cold?endpoint=http://127.0.0.1:9")
    with pytest.raises(InvalidRequestError, match="pattern"):
        s3a(session, "s3a://bucket/c*ld")
    with pytest.raises(InvalidRequestError, match="is none of direct, s3a"):
        read_cold(session, tier.url, topic="orders", engine="magic")  # type: ignore[arg-type]


@pytest.mark.s3
def test_wrong_credentials_and_endpoints_are_one_sentence(session: SparkSession, s3_server: S3Server) -> None:
    bucket, other = new_bucket(s3_server), new_bucket(s3_server)
    for each in (bucket, other):
        tier_in(each).seal(flights("orders", 20))
    set_s3a(session, bucket, **{"secret.key": "wrong-secret"})
    with pytest.raises(ObjectStoreRefusedError, match="the object store refuses s3a") as refused:
        s3a(session, f"s3a://{bucket.name}/cold")
    assert "wrong-secret" not in str(refused.value)
    assert f"url=s3a://{bucket.name}/cold" in str(refused.value)
    set_s3a(session, other, endpoint="http://127.0.0.1:9", **{"connection.establish.timeout": "1s"})
    with pytest.raises(ObjectStoreUnavailableError, match="gave s3a no answer") as away:
        s3a(session, f"s3a://{other.name}/cold")
    assert f"url=s3a://{other.name}/cold" in str(away.value)
    for error in (refused.value, away.value):
        assert error.__cause__ is None  # py4j's would be read before the sentence
        assert error.__suppress_context__


# -- credentials ---------------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_a_credentials_provider_is_the_same_to_both_engines(
    session: SparkSession, s3_servers: Callable[[str], S3Server], tmp_path: Path
) -> None:
    """The keys of the session are wrong ones: who reads, reads by the provider that is named."""
    bucket, package = new_bucket(s3_servers("minio")), "org.apache.hadoop.fs.s3a."
    tier_in(bucket).seal(flights("orders", 100))
    url = f"s3a://{bucket.name}/cold"
    profile = tmp_path / "profiles"
    profile.write_text(
        f"[history]\naws_access_key_id = {bucket.access_key}\naws_secret_access_key = {bucket.secret_key}\n"
    )
    provider = f"{package}auth.ProfileAWSCredentialsProvider"
    set_s3a(session, bucket, **{"secret.key": "wrong-secret", "aws.credentials.provider": provider})
    session.conf.set("fs.s3a.auth.profile.name", "history")
    session.conf.set("fs.s3a.auth.profile.file", str(profile))
    assert rows(s3a(session, url)) == rows(read_cold(session, url, topic="orders"))
    set_s3a(session, bucket, **{"aws.credentials.provider": f"{package}AnonymousAWSCredentialsProvider"})
    with pytest.raises(Exception, match=r"the object store refuses .*code=AccessDenied"):
        read_cold(session, url, topic="orders").collect()
    set_s3a(session, bucket, **{"aws.credentials.provider": "com.acme.Provider"})
    with pytest.raises(Exception, match=r"runs in a JVM only: .*provider=com\.acme\.Provider"):
        read_cold(session, url, topic="orders").collect()
    session.conf.set(f"fs.s3a.bucket.{bucket.name}.connection.timeout", "soon")
    with pytest.raises(Exception, match=r"a duration is .*fs\.s3a\.connection\.timeout value=soon"):
        read_cold(session, url, topic="orders", **{"s3.credentials": "keys"}).collect()


# -- jobs ----------------------------------------------------------------------------------------------------------


@pytest.mark.full  # each job reads by `read_cold`, of which the engines are compared above
def test_jobs_give_the_same_by_either_engine(
    session: SparkSession, orders: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = orders
    key = rows_of(log)[77]["key"]
    by_s3a = {"engine": "s3a"}
    ways: tuple[dict[str, str], ...] = ({}, by_s3a)
    counted = [counts(session, tier.url, topic="orders", by="queue,tag", options=way).rows for way in ways]
    assert counted[0] == counted[1] != ()
    found = [key_history(session, tier.url, topic="orders", keys=[key], options=way).rows for way in ways]
    assert found[0] == found[1] != ()
    sides = [Side(url=tier.url, topic="orders", options=way) for way in ways]
    with task_metrics(session) as metrics:
        assert compare(session, *sides).same == len(rows_of(log))
    assert {task.engine for task in metrics.report().tasks} == {"direct", "s3a"}
    # An interrupted run may go on with the other engine: rows are the same.
    for number, way in enumerate(ways):
        output = (tmp_path / f"replayed-{number}").as_uri()
        report = catch_up(session, tier.url, topic="orders", output=output, options=way)
        assert report.row_count == len(rows_of(log))
        again = catch_up(session, tier.url, topic="orders", output=output, options=ways[1 - number])
        assert again.outcome == "finished before"


def test_jobs_refuse_engines_and_options_that_do_not_count(session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, _ = orders
    with pytest.raises(InvalidRequestError, match="'magic' is none of direct, s3a"):
        counts(session, tier.url, topic="orders", options={"engine": "magic"})
    with pytest.raises(InvalidRequestError, match=r"fs\.s3a\.\* settings count alone option=s3\.region"):
        counts(session, tier.url, topic="orders", options={"engine": "s3a", "s3.region": "eu-west-1"})
    with pytest.raises(InvalidRequestError, match=r"fs\.s3a\.endpoint"):
        counts(session, "s3://bucket/cold?endpoint=http://127.0.0.1:9", topic="orders", options={"engine": "s3a"})
