"""What can be wrong with a read, each as one clear sentence in real Spark that names what it is about, by each engine.

A sentence names object, frame and offsets where there are such, and endpoint and bucket where the store fails; and it
is what the user reads first: no traceback of a library stands before it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures_s3 import new_bucket
from tests.spark.cold_tier import ColdTier, directory_url, flights
from tests.spark.error_sentence import sentence
from tests.spark.proxied_tier import ProxiedTier
from thermocline.localstack import S3Server
from thermocline.spark import read_cold
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = r"object=\S+\.log topic=orders queue=broker-a:0 version=\d+"
ENGINES = ("direct", "s3a")


@pytest.fixture
def tier(tmp_path: Path) -> ColdTier:
    """300 messages of one queue in three segments."""
    made = ColdTier(directory_url(tmp_path))
    made.seal_in_pieces(flights("orders", 300, queue_count=1), 3)
    return made


def load(spark: SparkSession, tier: ColdTier, engine: str = "direct", **options: str) -> DataFrame:
    if engine == "s3a":
        pytest.importorskip("pandas", reason="PySpark makes no mapInArrow without pandas")
        return read_cold(spark, tier.url, engine="s3a", **{"topic": "orders"} | options)
    return spark.read.format("thermocline").options(**{"topic": "orders"} | options).load(tier.url)


# -- what is stored ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_frame(spark_session: SparkSession, tier: ColdTier, engine: str) -> None:
    second = tier.entries("orders")[1]
    position = second.log.footer_start // 2
    frame = tier.frame_at(second, position)
    tier.change_object(second.log.key, position=position)
    text = sentence(lambda: load(spark_session, tier, engine).collect())
    assert text.startswith("a frame of the cold tier is damaged; onCorruptFrame=skip leaves its messages out object=")
    offsets = re.escape(f"[{frame.start_offset}, {frame.end_offset})")
    assert re.search(PLACE + rf" frame={frame.index} offsets={offsets} reason=\S", text)
    assert f"object={second.log.key} " in text
    kept = load(spark_session, tier, engine, onCorruptFrame="skip").count()
    assert kept == 300 - (frame.end_offset - frame.start_offset)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_object(spark_session: SparkSession, tier: ColdTier, engine: str) -> None:
    second = tier.entries("orders")[1]
    frames = second.runs[0].frame_end
    tier.delete_object(second.log.key)
    text = sentence(lambda: load(spark_session, tier, engine).collect())
    assert text.startswith("an object that this read is planned on is gone: ")
    assert re.search(rf"object={second.log.key} .*frames=\[0, {frames}\) offsets=\[100, 200\)$", text)
    if engine == "direct":
        assert (
            "the ledger names it, so it was removed by other hands than the broker's; load again, or set fail" in text
        )
    part = '{"orders": {"0": 150}}'
    text = sentence(lambda: load(spark_session, tier, engine, startingOffsets=part).collect())
    first = max(frame.frame_index for frame in second.coarse if frame.start_offset <= 150)
    assert re.search(rf"frames=\[{first}, {frames}\) offsets=\[150, 200\)$", text)
    assert load(spark_session, tier, engine, failOnDataLoss="false").count() == 200


@pytest.mark.parametrize("engine", ENGINES)
def test_a_segment_that_has_expired_since_it_was_planned(
    spark_session: SparkSession, tier: ColdTier, engine: str
) -> None:
    """A pinned version goes on naming what the ledger has let go of and the collector has deleted."""
    first = tier.entries("orders")[0]
    pinned = {"snapshotVersion": str(tier.version), "snapshotTimestamp": "0", "maxPartitionBytes": "256m"}
    tier.commit(LedgerChanges(segments_out=(SegmentOut(topic="orders", segment_id=first.segment_id),)))
    tier.delete_object(first.log.key)
    text = sentence(lambda: load(spark_session, tier, engine, **pinned).collect())
    assert re.search(r"its messages have expired (since|or were merged into another since); load again", text)
    assert re.search(rf"object={first.log.key} .*frames=\[0, \d+\) offsets=\[0, 100\)", text)
    assert load(spark_session, tier, engine, failOnDataLoss="false", **pinned).count() == 200
    assert load(spark_session, tier, engine).count() == 200


@pytest.mark.parametrize("engine", ENGINES)
def test_a_footer_and_a_truncated_object_are_named_or_skipped(
    spark_session: SparkSession, tier: ColdTier, engine: str
) -> None:
    first, second, _ = tier.entries("orders")
    tier.change_object(first.log.key, position=(first.log.footer_start + first.log.end) // 2)
    text = sentence(lambda: load(spark_session, tier, engine).collect())
    assert text.startswith("the footer of a cold segment is damaged; onCorruptFrame=skip leaves its messages out")
    assert re.search(PLACE + r" frames=\[0, \d+\) offsets=\[0, 100\) reason=", text)
    tier.write_object(second.log.key, tier.read_object(second.log.key)[: second.log.size_bytes // 2])
    assert load(spark_session, tier, engine, onCorruptFrame="skip").count() == 100


# -- options of the read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_version_that_is_not_there(spark_session: SparkSession, tier: ColdTier, engine: str) -> None:
    text = sentence(lambda: load(spark_session, tier, engine, snapshotVersion="99").count())
    assert text == "there is no such version, or not any more version=99"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_topic_and_an_offset_that_are_not_there(spark_session: SparkSession, tier: ColdTier, engine: str) -> None:
    text = sentence(lambda: load(spark_session, tier, engine, topic="payments").count())
    assert text.startswith("topic 'payments' has no messages in the cold tier url=file://")
    text = sentence(lambda: load(spark_session, tier, engine, startingOffsets='{"orders": {"0": 301}}').count())
    assert text.startswith("offset 301 of queue broker-a:0 is not in the cold tier yet; failOnDataLoss=false reads")
    assert "earliest=0 latest=300" in text


def test_an_option_that_is_no_json(spark_session: SparkSession, tier: ColdTier) -> None:
    text = sentence(lambda: load(spark_session, tier, startingOffsets="{").count())
    assert text == "not understood, and no JSON either option=startingOffsets"


# -- the store -----------------------------------------------------------------------------------------------------


@pytest.fixture
def proxied(s3_server: S3Server) -> Iterator[ProxiedTier]:
    with contextlib.closing(ProxiedTier(new_bucket(s3_server))) as made:
        yield made


def planned(spark: SparkSession, proxied: ProxiedTier) -> DataFrame:
    """A table whose plan is made: what fails now, fails in a task."""
    table = load(spark, proxied.tier, **proxied.options)
    assert table.rdd.getNumPartitions() == 1
    return table


@pytest.mark.s3
def test_credentials_that_are_wrong(spark_session: SparkSession, proxied: ProxiedTier) -> None:
    wrong = proxied.options | {"s3.secretKey": "not-it"}
    proxied.proxy.signed_wrongly = ""
    text = sentence(lambda: load(spark_session, proxied.tier, **wrong).count())
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} key=\S* code=\w+ status=403"
    assert re.fullmatch(rf"the object store refuses {place}", text)


@pytest.mark.s3
def test_an_endpoint_that_is_away(spark_session: SparkSession, proxied: ProxiedTier) -> None:
    proxied.go_away()
    text = sentence(lambda: load(spark_session, proxied.tier, **proxied.options).count())
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} key=\S* reason=\w+: .*"
    assert re.fullmatch(rf"the object store gives no answer {place}", text)


@pytest.mark.s3
def test_credentials_that_are_taken_back_while_a_task_reads(spark_session: SparkSession, proxied: ProxiedTier) -> None:
    """The second of three segments alone is refused: it is the one that is named."""
    table = planned(spark_session, proxied)
    second = proxied.tier.entries("orders")[1]
    proxied.proxy.signed_wrongly = second.log.key
    text = sentence(table.collect)
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} code=\w+ status=403"
    names = rf"object={second.log.key} topic=orders queue=broker-a:0 version=\d+ frames=\[0, \d+\) offsets=\[100, 200\)"
    assert re.fullmatch(rf"the object store refuses {names} {place}", text)


@pytest.mark.s3
def test_an_endpoint_that_goes_away_while_a_task_reads(spark_session: SparkSession, proxied: ProxiedTier) -> None:
    table = planned(spark_session, proxied)
    proxied.go_away()
    text = sentence(table.collect)
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} reason=\w+: .*"
    names = r"object=\S+\.log topic=orders queue=broker-a:0 version=\d+ frames=\[0, \d+\) offsets=\[\d+, \d+\)"
    assert re.fullmatch(rf"the object store gives no answer {names} {place}", text)


@pytest.mark.s3
def test_spark_names_the_refusals_of_s3a_in_a_task(spark_session: SparkSession, proxied: ProxiedTier) -> None:
    """There no code of ours runs before the JVM has fetched the whole object: Spark names it, and s3a the reason."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    settings = {
        "endpoint": proxied.bucket.endpoint,
        "endpoint.region": proxied.bucket.region,
        "path.style.access": "true",
        "access.key": proxied.bucket.access_key,
        "secret.key": proxied.bucket.secret_key,
        "attempts.maximum": "1",
        "retry.limit": "1",
    }
    names = {f"fs.s3a.bucket.{proxied.bucket.name}.{name}": value for name, value in settings.items()}
    second = proxied.tier.entries("orders")[1]
    try:
        for name, value in names.items():
            spark_session.conf.set(name, value)
        table = load(spark_session, proxied.tier, "s3a")
        proxied.proxy.signed_wrongly = second.log.key
        with pytest.raises((PySparkException, Py4JJavaError)) as failure:
            table.collect()
    finally:
        for name in names:
            spark_session.conf.unset(name)
    text = str(failure.value)
    assert re.search(rf"\[FAILED_READ_FILE\..*s3a://{proxied.bucket.name}/cold/{second.log.key}", text)
    assert f"AccessDeniedException: s3a://{proxied.bucket.name}/cold/{second.log.key}" in text
