"""Counting messages and bytes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.cold_tier import ColdTier, directory_url, flights, rows_of
from tests.tiered.cold_data import Log
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import counts
from thermocline.spark.jobs.counts import add_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPED = {
    "topic": lambda row: (row["topic"],),
    "queue": lambda row: (row["brokerName"], row["queueId"]),
    "day,tag": lambda row: (row["timestamp"].strftime("%Y-%m-%d"), row["tag"]),
}


@pytest.mark.parametrize("by", GROUPED)
def test_counts_are_those_of_the_records(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], by: str, tmp_path: Path
) -> None:
    """In chunks, as kept in a directory; the groups are the report's, and the file's."""
    tier, log = two_days
    messages: Counter[Any] = Counter()
    body_bytes: Counter[Any] = Counter()
    for row in rows_of(log):
        group = GROUPED[by](row)
        messages[group] += 1
        body_bytes[group] += len(row["value"])
    output = tmp_path / "counts"
    report = counts(spark_session, tier.url, topic="orders", by=by, output=str(output), chunk_bytes=60_000)
    found = {tuple(row.values())[:-2]: (row["message_count"], row["body_bytes"]) for row in report.rows}
    assert found == {group: (messages[group], body_bytes[group]) for group in messages}
    assert (report.message_count, report.outcome) == (500, "written")
    assert [json.loads(line) for line in (output / "counts.json").read_text().splitlines()] == list(report.rows)
    again = counts(spark_session, tier.url, topic="orders", by=by, output=str(output))
    assert (again.rows, again.outcome) == (report.rows, "finished before")


def test_without_an_output_nothing_is_kept_and_the_command_says_the_same(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], capsys: pytest.CaptureFixture[str]
) -> None:
    from thermocline.cli.main import run

    tier, _ = two_days
    assert run(["spark", "counts", "orders", "--from", tier.url, "--by", "", "--tags", "UA", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == [{"message_count": report["message_count"], "body_bytes": report["body_bytes"]}]
    assert 0 < report["message_count"] < 500


def test_a_damaged_frame_is_one_sentence_on_the_command_line(
    spark_session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from thermocline.cli.main import run

    tier = ColdTier(directory_url(tmp_path / "cold"))
    tier.seal(flights("orders", 100, queue_count=1))
    (segment,) = tier.entries("orders")
    tier.change_object(segment.log.key, position=segment.log.start + 500)
    output = tmp_path / "counts"
    assert run(["spark", "counts", "orders", "--from", tier.url, "--to", str(output)]) == 1
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("thermocline: ")]
    assert len(warnings) == 1
    assert "a frame of the cold tier is damaged" in warnings[0]
    assert segment.log.key in warnings[0]


def test_groups_without_a_value_come_last() -> None:
    parts = [[{"tag": None, "message_count": 1, "body_bytes": 5}], [{"tag": "b", "message_count": 2, "body_bytes": 7}]]
    parts.append(
        [{"tag": "a", "message_count": 3, "body_bytes": 9}, {"tag": None, "message_count": 1, "body_bytes": 1}]
    )
    assert add_up(parts, ["tag"]) == [
        {"tag": "a", "message_count": 3, "body_bytes": 9},
        {"tag": "b", "message_count": 2, "body_bytes": 7},
        {"tag": None, "message_count": 2, "body_bytes": 6},
    ]


def test_columns_that_cannot_be_counted_by_are_refused(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log]
) -> None:
    with pytest.raises(InvalidRequestError, match="'colour' is nothing to count by"):
        counts(spark_session, two_days[0].url, topic="orders", by="day,colour")
