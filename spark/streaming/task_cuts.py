"""cut_tasks: which offsets of its queues each task of a micro-batch reads, by the batch's two offsets alone.

A batch may be planned again after a failure, days later, when its messages are in the bucket instead of with a broker,
or in other objects. A sink that knows rows by batch and task, as a write with `deduplicate` does, then has to find in
each task the rows that an earlier attempt of it had. So tasks are cut by offsets, by the sizes of records that the line
has kept, and by declared holes; never by where messages are stored, or how large they are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.reading.read_plan import SegmentSlice, check_task_count
from thermocline.spark.streaming.live_reader import LivePart
from thermocline.tiered.catalog import NO_GAPS, QueueGaps

TASKS_MAX = 16
TASK_BYTES_MIN = 4 << 20

Part: TypeAlias = SegmentSlice | LivePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A queue's share of a batch: offsets [start, end), of about `record_bytes` each, without its gaps."""

    start: QueueOffset
    end: QueueOffset
    record_bytes: int
    gaps: QueueGaps = NO_GAPS

    @property
    def raw_bytes(self) -> int:
        """About how much it is."""
        return self.gaps.count(self.start, self.end) * self.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Offsets [start, end) of a share; `index`: which of them."""

    index: int
    start: QueueOffset
    end: QueueOffset


def cut_tasks(shares: Sequence[Share], *, partition_bytes_max: int) -> list[list[Cut]]:
    """Shares in their order, laid end to end and cut into about equal tasks. Raises as `check_task_count`."""
    total = sum(share.raw_bytes for share in shares)
    task_bytes = min(max(TASK_BYTES_MIN, -(-total // TASKS_MAX)), partition_bytes_max)
    check_task_count(-(-total // task_bytes))
    tasks: list[list[Cut]] = []
    room = 0
    for index, share in enumerate(shares):
        position = share.start
        while position < share.end:
            if room <= 0:
                tasks.append([])
                room = task_bytes
            end = min(share.end, share.gaps.advance(position, -(-room // share.record_bytes)))
            tasks[-1].append(Cut(index=index, start=position, end=end))
            room -= share.gaps.count(position, end) * share.record_bytes
            position = end
    return tasks


def clipped(parts: Sequence[Part], start: QueueOffset, end: QueueOffset) -> Iterator[Part]:
    """What the parts of a queue, by rising offset, hold of [start, end): exactly these rows, wherever frames start."""
    for index in range(bisect_right(parts, start, key=_end_of), len(parts)):
        part = parts[index]
        if _start_of(part) >= end:
            return
        yield _clip(part, max(start, _start_of(part)), min(end, _end_of(part)))


def _clip(part: Part, start: QueueOffset, end: QueueOffset) -> Part:
    if isinstance(part, LivePart):
        return replace(part, start=start, end=end, is_beginning=part.is_beginning and start == part.start)
    if (start, end) == (part.start_offset, part.end_offset):
        return part
    chosen = part.selection
    return replace(
        part,
        start_offset=start,
        end_offset=end,
        raw_bytes=max(1, part.raw_bytes * (end - start) // (part.end_offset - part.start_offset)),
        selection=replace(chosen, start_offset=max(chosen.start_offset, start), end_offset=min(chosen.end_offset, end)),
    )


def _start_of(part: Part) -> QueueOffset:
    return part.start if isinstance(part, LivePart) else part.start_offset


def _end_of(part: Part) -> QueueOffset:
    return part.end if isinstance(part, LivePart) else part.end_offset
