"""What can be wrong with a read, each as one clear sentence in real Spark that names what it is about."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.cold_tier import ColdTier, directory_url, flights
from thermocline.tiered.ledger_entry import LedgerChanges, SegmentOut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = r"object=\S+\.log topic=orders queue=broker-a:0 version=\d+"


@pytest.fixture
def tier(tmp_path: Path) -> ColdTier:
    """300 messages of one queue in three segments."""
    made = ColdTier(directory_url(tmp_path))
    made.seal_in_pieces(flights("orders", 300, queue_count=1), 3)
    return made


def load(spark: SparkSession, tier: ColdTier, **options: str) -> DataFrame:
    return spark.read.format("thermocline").options(**{"topic": "orders"} | options).load(tier.url)


def sentence(action: Callable[[], object]) -> str:
    """The last line of the error that names the error of ours: what people read."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as failure:
        action()
    lines = [line for line in str(failure.value).splitlines() if re.match(r"thermocline\.\S+Error: ", line)]
    assert lines, str(failure.value)
    return lines[-1].partition(": ")[2]


def test_a_segment_that_has_expired_since_it_was_planned(spark_session: SparkSession, tier: ColdTier) -> None:
    """A pinned version goes on naming what the ledger has let go of and the collector has deleted."""
    first = tier.entries("orders")[0]
    pinned = {"snapshotVersion": str(tier.version), "snapshotTimestamp": "0", "maxPartitionBytes": "256m"}
    tier.commit(LedgerChanges(segments_out=(SegmentOut(topic="orders", segment_id=first.segment_id),)))
    tier.delete_object(first.log.key)
    text = sentence(lambda: load(spark_session, tier, **pinned).collect())
    assert "its messages have expired since; load again" in text
    assert re.search(rf"object={first.log.key} .*offsets=\[0, 100\)", text)
    assert load(spark_session, tier, failOnDataLoss="false", **pinned).count() == 200
    assert load(spark_session, tier).count() == 200


def test_a_footer_and_a_truncated_object_are_named_or_skipped(spark_session: SparkSession, tier: ColdTier) -> None:
    first, second, _ = tier.entries("orders")
    tier.change_object(first.log.key, position=(first.log.footer_start + first.log.end) // 2)
    text = sentence(lambda: load(spark_session, tier).collect())
    assert text.startswith("the footer of a cold segment is damaged; onCorruptFrame=skip leaves its messages out")
    assert re.search(PLACE + r" offsets=\[0, 100\) reason=", text)
    tier.write_object(second.log.key, tier.read_object(second.log.key)[: second.log.size_bytes // 2])
    assert load(spark_session, tier, onCorruptFrame="skip").count() == 100


def test_a_version_that_is_not_there(spark_session: SparkSession, tier: ColdTier) -> None:
    text = sentence(lambda: load(spark_session, tier, snapshotVersion="99").count())
    assert text == "there is no such version, or not any more version=99"


def test_a_topic_and_an_offset_that_are_not_there(spark_session: SparkSession, tier: ColdTier) -> None:
    text = sentence(lambda: load(spark_session, tier, topic="payments").count())
    assert text.startswith("topic 'payments' has no messages in the cold tier url=file://")
    text = sentence(lambda: load(spark_session, tier, startingOffsets='{"orders": {"0": 301}}').count())
    assert text.startswith("offset 301 of queue broker-a:0 is not in the cold tier yet; failOnDataLoss=false reads")
    assert "earliest=0 latest=300" in text
