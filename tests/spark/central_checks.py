"""What reading must do whatever PySpark and wherever the tasks run; a program, for a process and a session of its own.

    python -m tests.spark.central_checks FOLDER --version 4.3 --master 'local[2]'

Ends with status 0 and the line `checked ...` when everything held; otherwise with the traceback of what did not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.cold_tier import ColdTier, by_place, directory_url, flights, rows_of
from tests.spark.message_rows import normal_rows
from tests.spark.reading.test_packs import write_packs
from tests.tiered.cold_data import Log
from thermocline.spark import local_session, read_cold, task_metrics
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)
MESSAGE_COUNT = 2_000


def main() -> None:
    """Check everything in one session."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--version", required=True, help="what the version of PySpark has to begin with")
    parser.add_argument("--executors", type=int, default=0, help="how many processes besides the driver run tasks")
    arguments = parser.parse_args()
    import pyspark

    assert pyspark.__version__.startswith(arguments.version), pyspark.__version__
    session = local_session(app_name="central checks", settings={"spark.master": arguments.master})
    tier, log = ColdTier(directory_url(arguments.folder / "cold")), flights("orders", MESSAGE_COUNT, queue_count=2)
    tier.seal_in_pieces(log, 3)
    check_rows(session, tier, log)
    check_filters_and_metrics(session, tier, log)
    check_engines(session, tier)
    if arguments.executors:
        check_executors(session, arguments.executors)
    else:
        check_keys_and_packs(session, arguments.folder / "packs")
        check_errors(session, arguments.folder / "damaged")
    session.stop()
    sys.stdout.write(f"checked {pyspark.__version__} {arguments.master}\n")


def rows(table: DataFrame) -> dict[tuple[str, str, int, int], dict[str, Any]]:
    """The table's rows by place, times in UTC."""
    return by_place(normal_rows(table.toArrow().cast(arrow_schema(tuple(table.columns))).to_pylist()))


def check_executors(session: SparkSession, count: int) -> None:
    """Tasks run in `count` processes that are not the driver's; they give the same results as elsewhere."""
    context = session.sparkContext
    assert context._jsc is not None
    assert context._jsc.sc().getExecutorMemoryStatus().size() == count + 1
    parents = context.parallelize(range(8), 8).map(lambda _: os.getppid()).distinct().collect()
    assert len(parents) == count, parents  # one daemon of workers for each executor


def check_rows(session: SparkSession, tier: ColdTier, log: Log) -> None:
    """All columns of all messages, and a choice by offsets, tags and columns."""
    source = session.read.format("thermocline").option("topic", "orders")
    whole = source.options(columns=ALL_COLUMNS, maxPartitionBytes="100k").load(tier.url)
    assert whole.rdd.getNumPartitions() >= 4
    assert rows(whole) == by_place(rows_of(log))
    chosen = source.options(tags="UA || DL", startingOffsets='{"orders": {"0": 100}}').load(tier.url)
    expected = [row for row in rows_of(log) if row["tag"] in ("UA", "DL")]
    assert chosen.count() == sum(1 for row in expected if row["queueId"] or row["queueOffset"] >= 100)


def check_filters_and_metrics(session: SparkSession, tier: ColdTier, log: Log) -> None:
    """A condition prunes segments and frames, and the driver gets the metrics."""
    with task_metrics(session) as metrics:
        where = "queueId = 1 AND queueOffset BETWEEN 10 AND 19 AND tag <> 'UA'"
        found = read_cold(session, tier.url, topic="orders", where=where, columns="queueId,queueOffset,tag").collect()
    expected = [
        row for row in rows_of(log) if row["queueId"] == 1 and 10 <= row["queueOffset"] < 20 and row["tag"] != "UA"
    ]
    assert sorted(row["queueOffset"] for row in found) == [row["queueOffset"] for row in expected]
    report = metrics.report()
    assert (report.segments, report.segments_pruned, report.total.rows) == (3, 2, 10), report
    assert report.total.frames_pruned == 0
    assert report.total.frames_read <= 2


def check_keys_and_packs(session: SparkSession, folder: Path) -> None:
    """Messages of one key, out of packs."""
    asyncio.run(write_packs(folder.as_uri()))
    table = session.read.format("thermocline").options(topic="orders", columns="key").load(directory_url(folder))
    wanted = [row["key"] for row in table.collect() if row["key"] and "seven4" in row["key"].split(" ")]
    found = session.read.format("thermocline").options(topic="orders", columns="key", keys="seven4")
    assert [row["key"] for row in found.load(directory_url(folder)).collect()] == wanted
    assert len(wanted) > 5


def check_engines(session: SparkSession, tier: ColdTier) -> None:
    """Objects that the JVM fetched give the same rows."""
    direct = read_cold(session, tier.url, topic="orders", columns=ALL_COLUMNS)
    assert rows(read_cold(session, tier.url, topic="orders", engine="s3a", columns=ALL_COLUMNS)) == rows(direct)


def check_errors(session: SparkSession, folder: Path) -> None:
    """A damaged frame is named, or skipped and counted."""
    from pyspark.errors import PySparkException

    tier, log = ColdTier(directory_url(folder)), flights("orders", 300, queue_count=1)
    tier.seal(log)
    (entry,) = tier.entries("orders")
    tier.change_object(entry.log.key, position=entry.log.footer_start // 2)
    with pytest.raises(PySparkException, match=rf"object={entry.log.key} .*frame=\d+"):
        read_cold(session, tier.url, topic="orders").collect()
    with task_metrics(session) as metrics:
        kept = read_cold(session, tier.url, topic="orders", onCorruptFrame="skip").count()
    assert metrics.report().total.messages_skipped == 300 - kept > 0


if __name__ == "__main__":
    main()
