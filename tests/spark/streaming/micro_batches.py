"""MicroBatches: what Spark's micro-batch engine does with a reader, in this process: the same calls in the same order,
offsets as JSON text, reader and partitions pickled. Starting a JVM takes longer than most tests.

A new object over the same journal is a query that was started again: it plans the last batch anew if it was not done.
"""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from thermocline.spark.streaming.stream_options import stream_options_from
from thermocline.spark.streaming.stream_reader import StreamPartition, StreamReader
from thermocline.spark.streaming.task_cuts import Part

BATCHES_MAX = 1_000


@dataclass(slots=True)
class Journal:
    """A checkpoint: the end offsets of all batches that were planned, and how many are done; the sink's rows."""

    ends: list[str] = field(default_factory=list)
    done_count: int = 0
    batches: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of the sink."""
        return [row for batch in self.batches for row in batch]

    def queues(self) -> dict[str, int]:
        """The offsets reached, of the topic `orders`."""
        found: dict[str, int] = json.loads(self.ends[-1])["queues"].get("orders", {}) if self.ends else {}
        return found


class MicroBatches:
    """One run of a query."""

    def __init__(
        self, journal: Journal, url: str, topic: str = "orders", *, now_ms: int | None = None, **options: str
    ) -> None:
        """`now_ms`: by which messages expire; now by default."""
        self.journal = journal
        columns = "topic,brokerName,queueId,queueOffset,tag,value"
        self.options = {"path": url, "topic": topic, "columns": columns, **options}
        self.clock_s = 1_000.0
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self.reader = StreamReader(stream_options_from(self.options), now_ms=lambda: now, clock_s=self._tick)
        self._limit: Any = None

    def _tick(self) -> float:
        """A monotonic clock by which each look finds that long enough has passed to look again."""
        self.clock_s += 100.0
        return self.clock_s

    def run_available(self) -> int:
        """`availableNow`: batches until nothing is left of what is there now; how many had offsets."""
        self.reader.prepareForTriggerAvailableNow()
        count = 0
        while self.run_batch():
            count += 1
            assert count < BATCHES_MAX
        return count

    def run_once(self) -> None:
        """`once`: one batch without a limit."""
        self._limit = ReadAllAvailable()
        self.run_batch()

    def run_batch(self) -> bool:
        """The batch that was not done, or the next one; False when there is none."""
        journal = self.journal
        if self._limit is None:
            self._limit = self.reader.getDefaultReadLimit()
        if journal.done_count == len(journal.ends) and not self.plan():
            return False
        rows = [row for part in self.partitions() for row in self.read(part)]
        journal.batches.append(rows)
        journal.done_count += 1
        self.reader.commit(json.loads(journal.ends[-1]))
        return True

    def plan(self) -> bool:
        """Write down the end of the next batch; False when there is none."""
        journal = self.journal
        if self._limit is None:
            self._limit = self.reader.getDefaultReadLimit()
        start = journal.ends[-1] if journal.ends else json.dumps(self.reader.initialOffset())
        if not journal.ends:
            assert json.dumps(self.reader.initialOffset()) == start  # asked twice
        end = json.dumps(self.reader.latestOffset(json.loads(start), self._limit))
        if end == start:
            return False
        journal.ends.append(end)
        return True

    def partitions(self) -> list[StreamPartition]:
        """The tasks of the last batch that was planned. Of the first one Spark keeps no start, and asks for it anew."""
        ends = self.journal.ends
        start = ends[-2] if len(ends) > 1 else json.dumps(self.reader.initialOffset())
        found = self.reader.partitions(json.loads(start), json.loads(ends[-1]))
        copies: list[StreamPartition] = pickle.loads(pickle.dumps(found))
        return copies

    def parts(self) -> list[Part]:
        """What the tasks of the last batch read."""
        return [part for partition in self.partitions() for part in partition.parts]

    def read(self, partition: StreamPartition) -> list[dict[str, Any]]:
        """One task's rows."""
        worker = pickle.loads(pickle.dumps(self.reader))
        return [row for batch in worker.read(partition) for row in batch.to_pylist()]
