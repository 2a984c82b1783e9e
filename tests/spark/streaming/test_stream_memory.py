"""The memory of a stream's processes over a long lag: of the planner and of the workers, as the kernel counts it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.spark.streaming.driver_process import descendants
from tests.spark.streaming.live_cluster import LiveCluster, bodies, live_cluster
from tests.spark.streaming.micro_batches import Journal, MicroBatches
from tests.spark.streaming.queries import TIMEOUT_S, load_stream
from thermocline.spark.streaming.live_client import close_live_clients
from thermocline.spark.streaming.live_reader import LivePart
from thermocline.spark.streaming.pull_windows import ROUND_BYTES_MAX, WINDOWS_MAX, PullWindow, PullWindows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_BYTES = 800_000
LARGE_COUNT = 120
COLD_COUNT = 10_000
KINDS = {"planner": "python_streaming_source_runner", "worker": "pyspark.daemon"}
GROWTH_KIB_MAX = 48 << 10
SAMPLE_PAUSE_S = 0.05


@pytest.fixture(scope="module")
def cluster(module_folder: Path) -> Iterator[LiveCluster]:
    """Of topic `orders`: 10 MB in the bucket, then 96 MB of large messages and a few small ones on the broker."""
    with live_cluster(module_folder) as cluster:
        for topic in ("few", "orders"):
            cluster.make_topic(topic, queues=1)
        random = Random(1)
        for start in range(0, COLD_COUNT, 5_000):
            cluster.send("orders", bodies(5_000, start=start, size_bytes=1_000))
        cluster.seal("orders")
        for _ in range(0, LARGE_COUNT, 10):
            # Random, so that the producer's compression does not help.
            cluster.send("orders", [random.randbytes(LARGE_BYTES) for _ in range(10)])
        for topic in ("few", "orders"):
            cluster.send(topic, bodies(600, start=1_000_000))
            cluster.wait_until_flushed(topic)
        cluster.sent.clear()
        yield cluster
    close_live_clients()


def test_no_more_is_held_than_windows_that_are_full(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large messages in front of small ones: by the size of the last records eight windows of 128 would be small."""
    held: list[int] = []
    add = PullWindow.add
    opened: list[PullWindows] = []
    open_windows = PullWindows.__init__

    def opening(windows: PullWindows, start: int, end: int, *, record_bytes: int) -> None:
        opened.append(windows)
        open_windows(windows, start, end, record_bytes=record_bytes)

    def adding(window: PullWindow, body: bytes) -> None:
        add(window, body)
        held.append(opened[-1].held_bytes)

    monkeypatch.setattr(PullWindows, "__init__", opening)
    monkeypatch.setattr(PullWindow, "add", adding)
    start = f'{{"orders": {{"0": {COLD_COUNT}}}}}'
    batches = MicroBatches(
        Journal(),
        cluster.cold_url,
        namesrvAddr=cluster.namesrv,
        columns="queueOffset",
        startingOffsets=start,
        maxPartitionBytes="1g",
    )
    assert batches.plan()
    (part,) = batches.parts()
    assert isinstance(part, LivePart)
    assert part.record_bytes < 1_000
    (partition,) = batches.partitions()
    offsets = [row["queueOffset"] for row in batches.read(partition)]
    assert offsets == list(range(COLD_COUNT, COLD_COUNT + LARGE_COUNT + 600))
    assert max(held) <= ROUND_BYTES_MAX + WINDOWS_MAX * (LARGE_BYTES + 1_000)


class PeakMemory:
    """The greatest resident size of each kind of process below this one, while the block runs."""

    def __init__(self) -> None:
        self.peak_kib = dict.fromkeys(KINDS, 0)
        self._stopping = threading.Event()

    @contextlib.contextmanager
    def watched(self) -> Iterator[PeakMemory]:
        """Forget earlier peaks; watch until the block ends."""
        for pid, _ in self._processes():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")
        thread = threading.Thread(target=self._watch, name="peak-memory")
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join()

    def _watch(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopping.wait(SAMPLE_PAUSE_S)
            for pid, kind in self._processes():
                with contextlib.suppress(OSError):
                    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                        if line.startswith("VmHWM:"):
                            self.peak_kib[kind] = max(self.peak_kib[kind], int(line.split()[1]))

    @staticmethod
    def _processes() -> list[tuple[int, str]]:
        found = descendants(os.getpid()).items()
        return [(pid, kind) for pid, command in found for kind, word in KINDS.items() if word in command]


def read_everything(spark: SparkSession, cluster: LiveCluster, topic: str, folder: Path) -> tuple[int, dict[str, int]]:
    """Read a topic in batches without a bound, into nothing; how many rows, and the peaks in KiB."""
    stream = load_stream(
        spark,
        cluster.cold_url,
        topic=topic,
        namesrvAddr=cluster.namesrv,
        columns="queueOffset,value",
        maxPartitionBytes="1g",
    )
    with PeakMemory().watched() as memory:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query goes on"
        finally:
            query.stop()
    return sum(progress.numInputRows for progress in query.recentProgress), memory.peak_kib


@pytest.mark.full
def test_planner_and_workers_grow_no_more_than_their_bounds_over_a_long_lag(
    spark_session: SparkSession, cluster: LiveCluster, tmp_path: Path
) -> None:
    """One batch of 106 MB, of which a task has 96 MB alone: it is planned by the size of the last records."""
    few, before_kib = read_everything(spark_session, cluster, "few", tmp_path / "few")
    everything, peak_kib = read_everything(spark_session, cluster, "orders", tmp_path / "orders")
    assert few == 600
    assert everything == COLD_COUNT + LARGE_COUNT + 600
    for kind in KINDS:
        assert before_kib[kind] > 0, kind
        assert peak_kib[kind] - before_kib[kind] < GROWTH_KIB_MAX, (kind, before_kib, peak_kib)
