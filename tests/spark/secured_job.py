"""A Spark application that reads and writes through a broker with TLS and access control; run as a program.

    python -m tests.spark.secured_job COLD_URL NAMESRV FOLDER MASTER

It writes `FOLDER/result.json`: what it read, its plans and the pages of its UI, or the error that ended a step. Keys
come from the environment alone.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thermocline.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGES = ("environment/", "executors/", "jobs/", "stages/", "SQL/", "StreamingQuery/", "storage/")
API = ("environment", "executors", "jobs", "stages", "sql?details=true")
QUERY_TIMEOUT_S = 240
SOURCE, WRITTEN, STREAMED = "orders", "copies", "streamed"


def plans(frame: DataFrame) -> str:
    """All of a query's plans."""
    return str(frame._jdf.queryExecution().toString())


class Job:
    """The steps; each leaves its result, or its error."""

    def __init__(self, spark: SparkSession, cold_url: str, namesrv: str, folder: Path) -> None:
        self._spark, self._cold_url, self._namesrv, self._folder = spark, cold_url, namesrv, folder
        self.results: dict[str, Any] = {}
        self.shown: list[str] = []

    def step(self, name: str, work: Callable[[], Any]) -> None:
        try:
            self.results[name] = work()
        except Exception:  # noqa: BLE001 - what a user would see
            self.results[name] = {"error": traceback.format_exc()}

    def batch_read(self) -> list[int]:
        frame = self._spark.read.format("thermocline").option("topic", SOURCE).load(self._cold_url)
        self.shown.append(plans(frame))
        return sorted(int(row.queueOffset) for row in frame.select("queueOffset").collect())

    def batch_write(self) -> None:
        rows = self._spark.range(20).selectExpr("CAST(id AS STRING) AS value", "CAST(id AS STRING) AS key")
        self.shown.append(plans(rows))
        (
            rows.write.format("thermocline")
            .option("namesrvAddr", self._namesrv)
            .option("topic", WRITTEN)
            .option("deduplicate", "true")
            .mode("append")
            .save()
        )

    def stream(self) -> None:
        """From the source, cold and live, to a topic."""
        query = (
            self._spark.readStream.format("thermocline")
            .option("topic", SOURCE)
            .option("namesrvAddr", self._namesrv)
            .option("brokerTimeoutMs", "20000")
            .load(self._cold_url)
            .select("value")
            .writeStream.format("thermocline")
            .option("namesrvAddr", self._namesrv)
            .option("topic", STREAMED)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        self.shown.append(query._jsq.explainInternal(True))
        self.shown.append(json.dumps([dict(progress) for progress in query.recentProgress], default=str))

    def pages(self) -> None:
        """Everything that the UI shows of the application."""
        context = self._spark.sparkContext
        base = context.uiWebUrl
        assert base is not None
        port = base.rpartition(":")[2]
        for page in PAGES:
            self.shown.append(fetched(f"http://127.0.0.1:{port}/{page}"))
        for page in API:
            self.shown.append(fetched(f"http://127.0.0.1:{port}/api/v1/applications/{context.applicationId}/{page}"))


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as page:
        text: str = page.read().decode(errors="replace")
    return f"{url}\n{text}"


def main() -> None:
    cold_url, namesrv, folder_name, master = sys.argv[1:]
    folder = Path(folder_name)
    (folder / "events").mkdir()
    executors = {
        f"spark.executorEnv.{name}": value for name, value in os.environ.items() if name.startswith("THERMOCLINE_")
    }
    spark = local_session(
        app_name="secured",
        settings={
            "spark.master": master,
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": folder.joinpath("events").as_uri(),
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **(executors if master.startswith("local-cluster") else {}),
        },
    )
    job = Job(spark, cold_url, namesrv, folder)
    job.step("batch read", job.batch_read)
    job.step("batch write", job.batch_write)
    job.step("stream", job.stream)
    job.step("pages", job.pages)
    (folder / "result.json").write_text(json.dumps({"results": job.results, "shown": job.shown}))
    spark.stop()


if __name__ == "__main__":
    main()
