"""Streaming queries written to a topic, through restarts that repeat a micro-batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.cold_tier import ColdTier, directory_url, flights, rows_of
from tests.spark.streaming.queries import TIMEOUT_S, load_stream
from tests.spark.writing.conftest import WriteCluster
from thermocline.client.admin.admin_client import AdminClient
from thermocline.spark.writing.write_notes import NAMESPACE
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


PADDING = "." * 200  # Spark hands its Python workers some 64 KiB at a time


class Stream:
    """A query that reads text files as they come to a folder, and writes their lines."""

    def __init__(self, spark: SparkSession, cluster: WriteCluster, directory: Path, topic: str) -> None:
        self.topic = cluster.make_topic(topic)
        self.broken = directory / "broken"
        """While this file is there, tasks fail behind half of their rows."""
        self._spark, self._cluster, self._directory = spark, cluster, directory
        (directory / "in").mkdir()

    def add_file(self, name: str, lines: range) -> None:
        path = self._directory / "in" / name
        path.with_suffix(".new").write_text("".join(f"line {line} {PADDING}\n" for line in lines))
        path.with_suffix(".new").rename(path)

    def run(self) -> StreamingQuery:
        """Write all there is, and end."""
        broken, namesrv, topic = str(self.broken), self._cluster.namesrv, self.topic

        def perhaps_fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            row_count = 0
            for batch in batches:
                yield batch
                row_count += batch.num_rows
                if row_count >= 2_000 and Path(broken).exists():
                    with AdminClient(namesrv=namesrv) as admin:
                        deadline = time.monotonic() + 60
                        while sum(stats.max_offset for stats in admin.topic_stats(topic)) < 800:
                            assert time.monotonic() < deadline
                            time.sleep(0.02)
                    raise ValueError("broken")

        lines = self._spark.readStream.option("pathGlobFilter", "*.txt").option("maxFilesPerTrigger", "1")
        table = lines.text(str(self._directory / "in"))
        return (
            table.mapInArrow(perhaps_fail, table.schema)
            .writeStream.format("thermocline")
            .option("namesrvAddr", self._cluster.namesrv)
            .option("topic", self.topic)
            .option("deduplicate", "true")
            .option("batchBytes", "8k")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def forget_last_commit(self) -> None:
        """See the function."""
        forget_last_commit(self._directory / "checkpoint")


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between the sink's commit and its own."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def lines(count: int) -> Counter[bytes]:
    return Counter(f"line {line} {PADDING}".encode() for line in range(count))


@pytest.mark.usefixtures("small_batches")
def test_a_repeated_micro_batch_stores_each_row_once(
    spark_session: SparkSession, cluster: WriteCluster, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    stream = Stream(spark_session, cluster, tmp_path, "streamed")
    stream.add_file("a.txt", range(500))
    query = stream.run()
    query.awaitTermination()
    assert cluster.bodies("streamed") == lines(500)
    # A task fails in all of its attempts, the query ends, and the next run repeats the micro-batch.
    stream.add_file("b.txt", range(500, 4_500))
    stream.broken.touch()
    query = stream.run()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    half_way = cluster.bodies("streamed").total()
    assert 500 < half_way < 4_500
    stream.broken.unlink()
    query = stream.run()
    query.awaitTermination()
    assert cluster.bodies("streamed") == lines(4_500)
    # The sink has committed, and Spark does not know.
    stream.forget_last_commit()
    query = stream.run()
    query.awaitTermination()
    query_id = str(query.id)
    assert cluster.bodies("streamed") == lines(4_500)
    stream.add_file("c.txt", range(4_500, 4_700))
    stream.run().awaitTermination()
    assert cluster.bodies("streamed") == lines(4_700)
    notes = [key for key in cluster.admin.list_kv(NAMESPACE) if key.startswith(query_id)]
    assert notes == [f"{query_id}.0"]


def test_a_micro_batch_from_the_cold_tier_is_repeated_after_a_merge(
    spark_session: SparkSession, cluster: WriteCluster, tmp_path: Path
) -> None:
    """Tasks were cut by segments: rows came to other tasks, which sent them again, and theirs failed for good."""
    tier = ColdTier(directory_url(tmp_path / "cold"))
    log = flights("orders", 400, queue_count=2)
    tier.seal_in_pieces(log, 3)
    topic = cluster.make_topic("copied")
    stream = load_stream(spark_session, tier.url, columns="value", maxPartitionBytes="40k")

    def run() -> None:
        writer = stream.writeStream.format("thermocline").option("namesrvAddr", cluster.namesrv)
        writer = writer.option("topic", topic).option("deduplicate", "true")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)

    run()
    sent = Counter(row["value"] for row in rows_of(log))
    assert cluster.bodies(topic) == sent
    forget_last_commit(tmp_path / "checkpoint")
    old = tier.entries("orders")
    tier.commit(LedgerChanges(segments_out=tuple(SegmentOut("orders", entry.segment_id) for entry in old)))
    tier.seal(log)
    run()
    assert cluster.bodies(topic) == sent
