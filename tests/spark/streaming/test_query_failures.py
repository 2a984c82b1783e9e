"""What can be wrong with a running query: its exception is one clear sentence, at planning and in tasks.

The sentences are those of batch reads (`tests/spark/test_read_failures.py`); here Spark carries them out of its planner
of streams and out of tasks, through a query that ends by them.
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
from tests.spark.streaming.queries import TIMEOUT_S, load_stream, run_available, sink_rows, start_query
from thermocline.localstack import S3Server
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut, TopicChange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ONE_SEGMENT = {"maxOffsetsPerTrigger": "100"}


def stopped_by(query: StreamingQuery) -> str:
    """Return the error sentence that ended a query; it is the same when read during the wait and afterwards."""
    try:
        text = sentence(lambda: query.awaitTermination(TIMEOUT_S))
    finally:
        query.stop()
    assert not query.isActive
    assert text in str(query.exception())
    return text


@pytest.fixture
def tier(tmp_path: Path) -> ColdTier:
    """300 messages of one queue in three segments."""
    made = ColdTier(directory_url(tmp_path / "cold"))
    made.seal_in_pieces(flights("orders", 300, queue_count=1), 3)
    return made


@pytest.fixture
def proxied(s3_server: S3Server) -> Iterator[ProxiedTier]:
    with contextlib.closing(ProxiedTier(new_bucket(s3_server))) as made:
        yield made


def offsets_in(folder: Path) -> list[int]:
    return [row["queueOffset"] for row in sink_rows(folder)]


# -- the store -----------------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_credentials_that_are_wrong(spark_session: SparkSession, proxied: ProxiedTier, tmp_path: Path) -> None:
    proxied.proxy.signed_wrongly = ""
    stream = load_stream(spark_session, proxied.tier.url, **proxied.options | {"s3.secretKey": "not-it"})
    text = stopped_by(start_query(stream, tmp_path, availableNow=True))
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} key=\S* code=\w+ status=403"
    assert re.fullmatch(rf"the object store refuses {place}", text)


@pytest.mark.full
@pytest.mark.s3
def test_credentials_that_are_taken_back_while_a_query_runs(
    spark_session: SparkSession, proxied: ProxiedTier, tmp_path: Path
) -> None:
    """The second segment is refused in a task: what was before it is in the sink, and the query goes on when it may."""
    second = proxied.tier.entries("orders")[1]
    proxied.proxy.signed_wrongly = second.log.key
    stream = load_stream(spark_session, proxied.tier.url, **proxied.options, **ONE_SEGMENT)
    text = stopped_by(start_query(stream, tmp_path, availableNow=True))
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} code=\w+ status=403"
    names = rf"object={second.log.key} topic=orders queue=broker-a:0 version=\d+ frames=\[0, \d+\) offsets=\[100, 200\)"
    assert re.fullmatch(rf"the object store refuses {names} {place}", text)
    assert offsets_in(tmp_path) == list(range(100))
    proxied.proxy.signed_wrongly = None
    run_available(stream, tmp_path)
    assert offsets_in(tmp_path) == list(range(300))


@pytest.mark.s3
def test_an_endpoint_that_is_away(spark_session: SparkSession, proxied: ProxiedTier, tmp_path: Path) -> None:
    """A query that begins, and one that is started again behind what it has read."""
    stream = load_stream(spark_session, proxied.tier.url, **proxied.options, **{"s3.attemptsMax": "2"}, **ONE_SEGMENT)
    run_available(stream, tmp_path / "before")
    proxied.go_away()
    place = rf"endpoint={proxied.bucket.endpoint} bucket={proxied.bucket.name} key=\S* reason=\w+: .*"
    for folder in ("before", "never"):
        text = stopped_by(start_query(stream, tmp_path / folder, availableNow=True))
        assert re.fullmatch(rf"the object store gives no answer {place}", text)


# -- options of the query, and stored data -------------------------------------------------------------------------


def test_a_topic_that_does_not_exist(spark_session: SparkSession, tier: ColdTier, tmp_path: Path) -> None:
    stream = load_stream(spark_session, tier.url, "payments")
    text = stopped_by(start_query(stream, tmp_path, availableNow=True))
    assert text == "topic 'payments' is neither in the cold tier nor on a broker"


def test_a_start_that_has_expired(spark_session: SparkSession, tier: ColdTier, tmp_path: Path) -> None:
    """Named by the options; the offsets before the first that is visible are the ones that are missing."""
    first = tier.entries("orders")[0]
    cut = TopicChange(topic="orders", incarnation=1, expired_before_ms=first.max_store_ms + 1)
    tier.commit(LedgerChanges(topics=(cut,), segments_out=(SegmentOut("orders", first.segment_id),)))
    options = {"startingOffsets": '{"orders": {"broker-a:0": 10}}'}
    text = stopped_by(start_query(load_stream(spark_session, tier.url, **options), tmp_path, availableNow=True))
    assert re.search(r"messages have expired, or are gone, before they were read.*offsets=\[10, 100\)", text)
    run_available(load_stream(spark_session, tier.url, failOnDataLoss="false", **options), tmp_path)
    assert offsets_in(tmp_path) == list(range(100, 300))


def test_a_damaged_frame(spark_session: SparkSession, tier: ColdTier, tmp_path: Path) -> None:
    second = tier.entries("orders")[1]
    position = second.log.footer_start // 2
    frame = tier.frame_at(second, position)
    tier.change_object(second.log.key, position=position)
    text = stopped_by(start_query(load_stream(spark_session, tier.url, **ONE_SEGMENT), tmp_path, availableNow=True))
    offsets = re.escape(f"[{frame.start_offset}, {frame.end_offset})")
    assert text.startswith("a frame of the cold tier is damaged; onCorruptFrame=skip leaves its messages out object=")
    assert re.search(
        rf"object={second.log.key} topic=orders queue=broker-a:0 .*frame={frame.index} offsets={offsets}", text
    )
    assert offsets_in(tmp_path) == list(range(100))
    run_available(load_stream(spark_session, tier.url, onCorruptFrame="skip", **ONE_SEGMENT), tmp_path)
    skipped = range(frame.start_offset, frame.end_offset)
    assert offsets_in(tmp_path) == [offset for offset in range(300) if offset not in skipped]
