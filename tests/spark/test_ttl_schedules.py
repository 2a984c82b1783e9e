"""Buckets that random schedules of time to live leave (tests/boundary), in real Spark: rows are what is visible."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from tests.boundary.ttl_model import TtlModel
from tests.boundary.ttl_schedule import TOPICS, Schedule, check_rows, spark_options
from tests.boundary.whole_broker import WholeBroker
from thermocline.spark.access.hadoop_options import FORMAT
from thermocline.tiered.stores.object_store_url import open_object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 9_000


@dataclass(frozen=True, slots=True)
class Left:
    """A bucket, copied to a directory, and the model of what is visible in it."""

    seed: int
    url: str
    model: TtlModel


def run_schedules(folder: Path, count: int, witness: Counter[str]) -> list[Left]:
    """Run so many, and keep what each of them leaves."""
    results: list[Left] = []
    socket_folder = Path(tempfile.mkdtemp(prefix="tc-"))  # short enough for a socket

    async def run(seed: int) -> None:
        url = (folder / str(seed)).as_uri()

        async def keep(broker: WholeBroker, model: TtlModel) -> None:
            copy = await open_object_store(url)
            for key, data in broker.objects.objects.items():
                await copy.put(key, data)
            await copy.close()
            results.append(Left(seed, url, deepcopy(model)))

        case = socket_folder / str(seed)
        case.mkdir()
        await Schedule(seed, case, witness).run(keep=keep)

    with asyncio.Runner() as runner:
        for seed in range(SEED, SEED + count):
            runner.run(run(seed))
    shutil.rmtree(socket_folder)
    return results


def rows_of(spark_session: SparkSession, bucket: Left, topic: str) -> list[dict[str, Any]]:
    """All rows; none of a topic that the ledger does not know, or that was deleted."""
    options = spark_options(bucket.url, topic, now_ms=bucket.model.now_ms)
    try:
        return [row.asDict() for row in spark_session.read.format(FORMAT).options(**options).load().collect()]
    except AnalysisException as error:
        if f"TopicNotFoundError: topic '{topic}' has no messages in the cold tier" not in str(error):
            raise
        return []


def test_spark_reads_visible_messages(
    spark_session: SparkSession, tmp_path: Path, case_count: Callable[..., int]
) -> None:
    witness: Counter[str] = Counter()
    for bucket in run_schedules(tmp_path, case_count(quick=3, soak=150), witness):
        for topic in TOPICS:
            rows = rows_of(spark_session, bucket, topic)
            check_rows(rows, bucket.model, topic)
            witness["rows in Spark"] += len(rows)
            hidden = [each for each in bucket.model.topics[topic].messages if each.has_expired]
            witness["hidden from Spark"] += len(hidden)
    assert witness["rows in Spark"], witness
    assert witness["hidden from Spark"], witness
