"""Streaming queries for tests: into Parquet with a checkpoint, and what the sink holds, in the order of the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 300
COLUMNS = "topic,brokerName,queueId,queueOffset,value"


def load_stream(spark: SparkSession, url: str, topic: str = "orders", **options: str) -> DataFrame:
    """A stream of the columns that identify a message, unless `columns` says others."""
    return spark.readStream.format("thermocline").options(**{"topic": topic, "columns": COLUMNS, **options}).load(url)


def start_query(stream: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """Into Parquet files; sink and checkpoint lie in `folder`."""
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "sink"))


def run_available(stream: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Read what is there now into the sink; the progress of the batches that had rows or moved offsets."""
    query = start_query(stream, folder, availableNow=True)
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query goes on"
        return [json.loads(progress.json) for progress in query.recentProgress]
    finally:
        query.stop()


def sink_files(folder: Path) -> list[Path]:
    """The sink's committed files, by batch and partition, as its log lists them."""
    log = folder / "sink" / "_spark_metadata"
    listed = list(log.iterdir()) if log.is_dir() else []
    entries = [path for path in listed if path.name.removesuffix(".compact").isdecimal()]
    numbers = {int(path.name.removesuffix(".compact")): path for path in entries}
    # A compact entry lists the files of all batches up to its own.
    first = max((number for number, path in numbers.items() if path.suffix), default=-1)
    return [
        Path(unquote(urlsplit(json.loads(line)["path"]).path))
        for number, path in sorted(numbers.items())
        if number >= first
        for line in path.read_text().splitlines()[1:]
    ]


def sink_rows(folder: Path) -> list[dict[str, Any]]:
    """The sink's rows, in its order."""
    rows: list[dict[str, Any]] = []
    for path in sink_files(folder):
        rows += pq.ParquetFile(path).read().to_pylist()
    return rows


def by_queue(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[bytes]]:
    """Bodies by (broker name, queue id); fails unless the offsets of each rise by one from row to row."""
    queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for row in rows:
        queues.setdefault((row["brokerName"], row["queueId"]), []).append((row["queueOffset"], row["value"]))
    for key, queue in queues.items():
        offsets = [offset for offset, _ in queue]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), key
    return {key: [bytes(body) for _, body in queue] for key, queue in queues.items()}


def offsets_of(progress: Mapping[str, Any], name: str) -> dict[str, int]:
    """One of a progress's offsets, of the topic `orders`."""
    line = progress["sources"][0][name]
    found = json.loads(line) if isinstance(line, str) else line
    return dict(found["queues"].get("orders", {})) if found else {}
