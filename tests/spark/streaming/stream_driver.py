"""A Spark driver in a process of its own that streams a topic into Parquet until it is killed.

    python -m tests.spark.streaming.stream_driver '{"url": ..., "folder": ..., "master": ..., "options": {...},
                                                    "available_now": false, "processing_time": "0 seconds"}'

It writes a line for each batch: `batch ID ROWS`. A query that fails is started again. With `available_now` it ends by
itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from tests.spark.streaming.queries import load_stream, start_query
from thermocline.spark.session import local_session

POLL_S = 0.1
QUERIES_MAX = 50


def main() -> None:
    """Run until the end of all that is available, or for ever."""
    task = json.loads(sys.argv[1])
    folder = Path(task["folder"])
    session = local_session(
        app_name="stream driver",
        settings={
            "spark.master": task["master"],
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.executorEnv.PYTHONPATH": ":".join(sys.path),
        },
    )
    stream = load_stream(session, task["url"], **task["options"])
    trigger = {"availableNow": True} if task["available_now"] else {"processingTime": task["processing_time"]}
    for _ in range(QUERIES_MAX):
        try:
            follow(start_query(stream, folder, **trigger))
            break
        except StreamingQueryException as error:
            # As operators of a query do: start it again from its checkpoint.
            sys.stderr.write(f"{error}\n")
    session.stop()


def follow(query: StreamingQuery) -> None:
    """Tell of each batch until the query ends; StreamingQueryException when it fails."""
    reported_batch = -1
    while True:
        is_over = query.awaitTermination(POLL_S)
        for progress in query.recentProgress:
            if progress.batchId > reported_batch:
                reported_batch = progress.batchId
                sys.stdout.write(f"batch {progress.batchId} {progress.numInputRows}\n")
                sys.stdout.flush()
        if is_over:
            return


if __name__ == "__main__":
    main()
