"""Conditions, keys and metrics in real Spark: rows as Spark's own filter gives them, and less that is read for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.cold_tier import ColdTier, by_place, directory_url, flights, rows_of
from tests.spark.reading.test_packs import write_packs
from tests.tiered.cold_data import START_MS, Log
from thermocline.spark import read_cold, task_metrics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = "topic,brokerName,queueId,queueOffset,key,tag,timestamp"


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    """4000 messages of three queues in four segments, on disk; one message in a thousand has the key `rare`."""
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = flights("orders", 0)
    for number in range(4_000):
        log.append(
            number % 3,
            body=log.random.randbytes(1_500),
            keys="rare other" if number % 1_000 == 500 else f"k{number}",
            tag=[None, "plain", "UA", "DL"][number % 4],
        )
        log.now_ms += number % 2
    tier.seal_in_pieces(log, 4)
    return tier, log


def load(spark: SparkSession, url: str, where: str | Column | None = None, **options: str) -> DataFrame:
    return read_cold(spark, url, topic="orders", columns=COLUMNS, where=where, **options)


def rows(table: DataFrame) -> dict[tuple[str, str, int, int], dict[str, Any]]:
    return by_place(row.asDict() for row in table.collect())


def places(table: DataFrame) -> list[tuple[int, int]]:
    """Queue and offset of every row."""
    columns = table.select("queueId", "queueOffset").toArrow().to_pydict()
    return sorted(zip(columns["queueId"], columns["queueOffset"], strict=True))


# -- conditions ----------------------------------------------------------------------------------------------------


def expression(random: Random, depth: int = 2) -> str:
    """A condition in SQL."""
    if depth and random.random() < 0.7:
        joint = random.choice(["AND", "AND", "OR"])
        both = f"({expression(random, depth - 1)}) {joint} ({expression(random, depth - 1)})"
        return f"NOT ({both})" if random.random() < 0.2 else both
    compare = random.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    moment = START_MS * 1_000 + random.randint(-200_000, 2_200_000)
    return random.choice(
        [
            f"queueOffset {compare} {random.randint(-1, 1_400)}",
            f"queueOffset IN ({random.randint(0, 1_300)}, {random.randint(0, 1_300)}, 5)",
            f"queueOffset BETWEEN {random.randint(0, 700)} AND {random.randint(500, 1_300)}",
            f"queueId {compare} {random.randint(-1, 3)}",
            f"queueId IN ({random.randint(0, 2)}, 7)",
            f"brokerName {random.choice(['=', '<>', 'LIKE'])} 'broker-{random.choice(['a', 'b', '%'])}'",
            f"topic LIKE '{random.choice(['ord%', '%ers', '%x%'])}'",
            f"timestamp {compare} timestamp_micros({moment})",
            f"to_date(timestamp) = DATE'2023-11-{random.choice([14, 15])}'",
            f"tag {random.choice(['=', '<>', '<=>'])} '{random.choice(['UA', 'plain', 'none'])}'",
            "tag IN ('UA', 'DL')",
            f"tag IS {random.choice(['', 'NOT '])}NULL",
            f"key = '{random.choice(['rare other', 'k500', 'k501', 'rare'])}'",
            f"key LIKE '{random.choice(['rare%', 'k1%', '%7'])}'",
        ]
    )


def test_any_condition_gives_the_rows_that_spark_gives(
    spark_session: SparkSession, orders: tuple[ColdTier, Log], case_count: Callable[..., int]
) -> None:
    tier, _ = orders
    plain, sizes = load(spark_session, tier.url).cache(), set()
    for seed in range(case_count(quick=8, soak=1_000)):
        condition = expression(Random(seed))
        expected = places(plain.where(condition))
        assert places(load(spark_session, tier.url, condition)) == expected, condition
        sizes.add(len(expected))
    assert len(sizes) > 3, "the conditions were all alike"
    plain.unpersist()


def test_tables_of_conditions_are_tables_like_others(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    """What Spark's own push-down gets wrong: one table under several filters, also in one query."""
    from pyspark.sql import functions as f

    tier, log = orders
    tagged = load(spark_session, tier.url, f.col("tag") == "UA")
    counts = [tagged.where("queueOffset < 100").count(), tagged.count(), tagged.where("queueId = 2").count()]
    expected = [row for row in rows_of(log) if row["tag"] == "UA"]
    assert counts == [
        sum(1 for row in expected if row["queueOffset"] < 100),
        len(expected),
        sum(1 for row in expected if row["queueId"] == 2),
    ]
    halves = [load(spark_session, tier.url, f"queueOffset {side} 700") for side in ("<", ">=")]
    assert halves[0].union(halves[1]).count() == 4_000
    assert load(spark_session, tier.url, "queueOffset < 0").count() == 0
    assert load(spark_session, tier.url, "1 = 0").count() == 0


def test_frames_excluded_by_a_filter_are_not_read(spark_session: SparkSession, orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    moment = log.now_ms - 100

    def costs(condition: str) -> tuple[int, int, int]:
        """Segments that are read, frames, and rows that the tasks gave."""
        with task_metrics(spark_session) as metrics:
            assert load(spark_session, tier.url, condition).count() > 0
        report = metrics.report()
        assert report.segments == 4
        return report.segments - report.segments_pruned, report.total.frames_read, report.total.rows

    whole = costs("true")
    assert whole == (4, whole[1], 4_000)
    assert costs("queueId = 1 AND queueOffset = 100") == (1, 1, 1)
    assert costs("queueOffset IN (3, 1300) AND queueId = 0") == (2, 2, 2)
    segments, frames, row_count = costs(f"timestamp >= timestamp_millis({moment}) AND queueId = 2")
    assert segments == 1
    assert frames < whole[1] // 10
    assert row_count < 150
    assert costs("tag = 'UA'")[2] == 1_000
    segments, frames, row_count = costs("key = 'rare other'")
    assert (segments, frames, row_count) == (4, 4, 4)
    assert costs("key = 'k17'") == (1, 1, 1)


# -- keys ----------------------------------------------------------------------------------------------------------


def test_messages_of_some_keys_are_read_through_the_key_index(
    spark_session: SparkSession, orders: tuple[ColdTier, Log]
) -> None:
    tier, log = orders
    with task_metrics(spark_session) as metrics:
        found = rows(load(spark_session, tier.url, keys="rare k17 nowhere"))
    expected = [row for row in rows_of(log) if {"rare", "k17"} & set((row["key"] or "").split(" "))]
    assert len(expected) == 5
    assert found == by_place({name: row[name] for name in COLUMNS.split(",")} | zone(row) for row in expected)
    report = metrics.report()
    assert report.total.rows == report.total.frames_read == 5
    assert report.total.frames_pruned > 20
    assert report.plans[0].index_gets == 4  # each index is small enough to be read whole
    assert report.total.gets < 10
    assert load(spark_session, tier.url, keys="nowhere").count() == 0


def zone(row: dict[str, Any]) -> dict[str, Any]:
    """The time as `collect` gives it: of this machine's zone, without saying so."""
    local = row["timestamp"].astimezone()
    return {"timestamp": local.replace(tzinfo=None)}


def test_keys_are_found_in_packs(spark_session: SparkSession, tmp_path: Path) -> None:
    sent = asyncio.run(write_packs(tmp_path.as_uri()))
    table = spark_session.read.format("thermocline").options(topic="orders", columns="queueId,queueOffset,key,msgId")
    everything = {
        (row["queueId"], row["queueOffset"]): row["key"] for row in table.load(directory_url(tmp_path)).collect()
    }
    assert len(everything) == sum(1 for topic, *_ in sent if topic == "orders")
    for key, least in (("all", 60), ("seven3", 5)):
        found = table.option("keys", key).load(directory_url(tmp_path)).collect()
        wanted = {place for place, keys in everything.items() if keys and key in keys.split(" ")}
        assert len(wanted) > least
        assert {(row["queueId"], row["queueOffset"]) for row in found} == wanted


# -- metrics -------------------------------------------------------------------------------------------------------


def test_skipped_rows_are_counted_and_logged_as_a_warning(
    spark_session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier, log = ColdTier(directory_url(tmp_path)), flights("orders", 600, queue_count=1)
    tier.seal_in_pieces(log, 3)
    first, second, _ = tier.entries("orders")
    tier.change_object(first.log.key, position=first.log.footer_start // 2)
    tier.delete_object(second.log.key)
    with caplog.at_level(logging.WARNING), task_metrics(spark_session) as metrics:
        count = load(spark_session, tier.url, onCorruptFrame="skip", failOnDataLoss="false").count()
    total = metrics.report().total
    assert total.rows == count
    assert (total.objects_missing, total.messages_missing) == (1, 200)
    assert total.frames_skipped == 1
    assert count + total.messages_left_out == 600
    assert f"messages were left out damaged={total.messages_skipped}" in caplog.text
    assert metrics.report().task_count == load(spark_session, tier.url).rdd.getNumPartitions()
