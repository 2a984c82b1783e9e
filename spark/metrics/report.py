"""MetricsReport: the reports that the driver received from reads: sums, and each task and plan by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thermocline.spark.metrics.task_counts import COUNT_NAMES, TaskCounts

OUTCOMES = ("done", "stopped", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One attempt of one task. `outcome`: done, stopped (the reader needed no more rows), failed."""

    stage: int
    partition: int
    attempt: int
    engine: str
    outcome: str
    counts: TaskCounts

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> TaskReport:
        """From a task's report; ValueError when it is none."""
        if values.get("outcome") not in OUTCOMES:
            raise ValueError("no outcome")
        return cls(
            stage=_integer(values, "stage"),
            partition=_integer(values, "partition"),
            attempt=_integer(values, "attempt"),
            engine=str(values.get("engine")),
            outcome=str(values["outcome"]),
            counts=TaskCounts.from_dict(values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """One plan: segments with offsets in the range of the read, how many of them no task reads, and its tasks."""

    engine: str
    segments: int
    segments_pruned: int
    index_gets: int
    tasks: int

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> PlanReport:
        """From a plan's report; ValueError when it is none."""
        names = ("segments", "segments_pruned", "index_gets", "tasks")
        return cls(engine=str(values.get("engine")), **{name: _integer(values, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReport:
    """`total` sums the tasks that succeeded; attempts that failed are counted and listed, not summed."""

    task_count: int
    failed_count: int
    total: TaskCounts
    tasks: tuple[TaskReport, ...]
    plans: tuple[PlanReport, ...]

    @property
    def segments(self) -> int:
        """Segments in the range of all plans."""
        return sum(plan.segments for plan in self.plans)

    @property
    def segments_pruned(self) -> int:
        """Of these, those that no task had to read."""
        return sum(plan.segments_pruned for plan in self.plans)

    def __str__(self) -> str:
        lines = {
            "plans": len(self.plans),
            "segments": self.segments,
            "segments_pruned": self.segments_pruned,
            "tasks": self.task_count,
            "failed_attempts": self.failed_count,
            **{name: getattr(self.total, name) for name in COUNT_NAMES},
        }
        return "\n".join(f"{name:<18}{value:>16,}" for name, value in lines.items())


def _integer(values: Mapping[str, object], name: str) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is no number")
    return value
