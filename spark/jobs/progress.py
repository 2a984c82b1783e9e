"""Progress of a job: how much of the records it has read, from what Spark says of its tasks."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS_INTERVAL_S = 0.25
Progress = Callable[[int, int], None]
"""Called with the bytes of records that are done, and the total; also from a thread of the meter."""


class ProgressMeter:
    """Adds up the bytes of the finished parts of a job, and passes them to `tell`, if there is one."""

    def __init__(self, spark: SparkSession, tell: Progress | None, *, total_bytes: int) -> None:
        self._spark = spark
        self._tell = tell
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def add(self, part_bytes: int) -> None:
        """A part is done."""
        self._done_bytes += part_bytes
        if self._tell is not None:
            self._tell(self._done_bytes, self._total_bytes)

    @contextmanager
    def part(self, part_bytes: int, *, task_count: int, description: str) -> Iterator[None]:
        """Watch the Spark jobs that this thread starts within; leaving without an error, the part is done."""
        if self._tell is None:
            yield
            return
        tell, context, group = self._tell, self._spark.sparkContext, f"thermocline-{uuid.uuid4().hex}"
        tracker = context.statusTracker()
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(PROGRESS_INTERVAL_S):
                done = 0
                for job_id in tracker.getJobIdsForGroup(group):
                    job = tracker.getJobInfo(job_id)
                    for stage_id in job.stageIds if job is not None else ():
                        stage = tracker.getStageInfo(stage_id)
                        done += stage.numCompletedTasks if stage is not None else 0
                tell(self._done_bytes + part_bytes * min(done, task_count) // max(task_count, 1), self._total_bytes)

        before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
        context.setJobGroup(group, description)
        watcher = threading.Thread(target=watch, name="job-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]
        self.add(part_bytes)


_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
