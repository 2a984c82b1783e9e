"""TaskCounts: what one task of a read fetched, decoded, gave and left out. Plain numbers that add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(slots=True, kw_only=True)
class TaskCounts:
    """Of one task, or the sum of many. Sizes in bytes; `retries` are requests that were sent again."""

    gets: int = 0
    retries: int = 0
    fetched_bytes: int = 0  # as stored, footers and indexes included
    decoded_bytes: int = 0  # of raw records
    frames_read: int = 0
    frames_pruned: int = 0
    rows: int = 0
    frames_skipped: int = 0  # damaged (onCorruptFrame=skip)
    messages_skipped: int = 0  # requested offsets in them
    objects_missing: int = 0  # gone (failOnDataLoss=false), counted once for each part of it that a task was to read
    messages_missing: int = 0

    @property
    def messages_left_out(self) -> int:
        """Requested messages that the read did not return."""
        return self.messages_skipped + self.messages_missing

    def add(self, other: TaskCounts) -> None:
        """Add the counts of another task."""
        for name in COUNT_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_dict(self) -> dict[str, int]:
        """Every count by its name."""
        return {name: getattr(self, name) for name in COUNT_NAMES}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> TaskCounts:
        """From what `as_dict` gave; ValueError for anything else."""
        counts = cls()
        for name in COUNT_NAMES:
            value = values.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is no count")
            setattr(counts, name, value)
        return counts


COUNT_NAMES = tuple(field.name for field in fields(TaskCounts))
