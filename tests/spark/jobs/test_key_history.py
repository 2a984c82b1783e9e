"""All messages of some keys, in order."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.spark.cold_tier import ColdTier, rows_of
from tests.tiered.cold_data import Log
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import key_history
from thermocline.spark.jobs.key_history import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def expected(log: Log, keys: set[str]) -> list[dict[str, Any]]:
    rows = [row for row in rows_of(log) if keys & set((row["key"] or "").split(" "))]
    rows.sort(key=lambda row: (row["timestamp"], row["brokerName"], row["queueId"], row["queueOffset"]))
    return [{name: row[name] for name in COLUMNS} for row in rows]


def some_keys(log: Log) -> set[str]:
    """Keys of several messages each, one of which is the second word of its message's keys."""
    return {str(row["key"]) for row in rows_of(log)[100:104]} | {"A1"}


def test_the_rows_come_in_order_and_are_cut_when_asked(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log]
) -> None:
    tier, log = two_days
    keys = some_keys(log)
    whole = key_history(spark_session, tier.url, topic="orders", keys=sorted(keys))
    assert whole.rows is not None
    assert list(whole.rows) == expected(log, keys)
    assert (whole.row_count, whole.is_cut) == (len(expected(log, keys)), False)
    cut = key_history(spark_session, tier.url, topic="orders", keys=sorted(keys), rows_max=2)
    assert cut.rows == whole.rows[:2]
    assert cut.is_cut


def test_files_hold_all_in_order_from_file_to_file(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = two_days
    keys = some_keys(log)
    output = tmp_path / "history"
    report = key_history(
        spark_session,
        tier.url,
        topic="orders",
        keys=sorted(keys),
        output=str(output),
        output_format="parquet",
        chunk_bytes=60_000,
    )
    assert report.row_count == len(expected(log, keys))
    files = sorted(output.glob("*.parquet"))
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    # Spark writes instants; pyarrow reads them without their zone, which is UTC.
    times = ("timestamp", "bornTimestamp")
    found = [row | {name: row[name].replace(tzinfo=UTC) for name in times} for row in found]
    assert found == expected(log, keys)
    assert sorted(path.name for path in output.iterdir() if not path.name.startswith(".")) == sorted(
        ["_SUCCESS", "_thermocline", *(file.name for file in files)]
    )


def test_the_command_shows_a_table_for_programs(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], capsys: pytest.CaptureFixture[str]
) -> None:
    from thermocline.cli.main import run

    tier, log = two_days
    assert run(["spark", "key-history", "orders", "lonely", "--from", tier.url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    (wanted,) = expected(log, {"lonely"})
    assert (row["body"], row["tag"], row["queue_offset"]) == ("untagged", None, wanted["queueOffset"])
    assert row["store_timestamp_ms"] == wanted["timestamp"].timestamp() * 1000


def test_a_key_is_one_word(spark_session: SparkSession, two_days: tuple[ColdTier, Log]) -> None:
    with pytest.raises(InvalidRequestError, match="without spaces"):
        key_history(spark_session, two_days[0].url, topic="orders", keys=["two words"])
