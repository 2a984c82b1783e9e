"""The plan of a read: which frames of which segments each task reads, made from the catalog alone.

A slice is some frames of one queue's run in one segment. It owns the frames whose first wanted offset is in
[start_offset, end_offset), so neighbouring slices may be cut at any offset, without knowing where frames start, and
every frame still belongs to exactly one of them. Rows are selected exactly by the range of the queue, which all slices
of the queue carry.

Pruning at planning: runs outside the offset range or the time range of the read, and by key what the segments' own
indexes rule out (`key_places.py`). (Frames are pruned in the task, from the segment's footer, by the same and by the
tags codes in `.cq`; the catalog holds no tags.)

Sizing: the slices of a queue, laid end to end, are cut into equal tasks of at most `partition_bytes_max` raw bytes, at
least TASKS_PER_QUEUE_MIN of them while that leaves TASK_BYTES_MIN for each (a task costs about 30 ms before its first
row). Queues too small for a task of their own share tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.decoding.arrow_decoder import INT64_MAX, RowSelection
from thermocline.tiered.catalog import NO_GAPS, QueueGaps
from thermocline.tiered.segments import PartLocator, QueueRun, SegmentEntry

TASKS_PER_QUEUE_MIN = 4
TASK_BYTES_MIN = 4 << 20
TASKS_MAX = 1_000_000
"""Of one queue, or of one micro-batch; Spark's driver keeps some kilobytes of each."""

ObjectName: TypeAlias = tuple[str, str]
"""Root of a broker, key of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdSource:
    """One broker's cold tier at one version of its catalog."""

    url: str = field(repr=False)  # of the prefix that holds clusters; may hold keys
    root: str  # cluster/broker, as keys have it
    broker_name: str
    version: int
    store_uuid: str = ""  # of the broker's directory


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """What a read gives of one queue: offsets [start_offset, end_offset), of which expired messages are left out.
    `gaps`: the queue's declared holes. `whole_from`: from here on `startingTimestamp` leaves no message out, as far as
    the catalog tells; None: from `start_offset` on."""

    source: ColdSource
    topic: str
    incarnation: int
    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    visible_from_ms: int
    gaps: QueueGaps = NO_GAPS
    whole_from: QueueOffset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSlice:
    """Some frames of one queue in one segment; `raw_bytes` is an estimate.

    `frames`: the frames of the segment that hold its offsets, by the catalog's coarse frames; frame a up to frame b.
    `places`: the queue offsets, rising, that a key index has named; frames that hold none of them are not read. None:
    every frame may hold what is wanted.
    """

    source: ColdSource
    topic: str
    queue_id: int
    segment_id: str
    log: PartLocator
    cq: PartLocator
    start_offset: QueueOffset
    end_offset: QueueOffset
    raw_bytes: int
    selection: RowSelection
    max_store_ms: int = INT64_MAX
    places: tuple[int, ...] | None = None
    frames: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """Counts of planning: segments in range, and those pruned. A segment counts once, however many queues it holds."""

    segments: int = 0  # with offsets in the range of the read
    segments_pruned: int = 0  # of these, in no task: by time, by a condition, by key
    index_gets: int = 0  # requests for key indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Everything that was resolved once, on the driver: the same plan gives the same rows, whenever it runs.

    `object_bytes`: sizes of the objects that hold more than one part of a segment. `empty_topics`: the wanted
    topics that exist and have no messages in the cold tier.
    """

    snapshot_ms: int
    sources: tuple[ColdSource, ...]
    queues: tuple[QueueRange, ...]
    tasks: tuple[tuple[SegmentSlice, ...], ...]
    counts: PlanCounts = field(default_factory=lambda: PlanCounts())
    object_bytes: Mapping[ObjectName, int] = field(default_factory=dict)
    empty_topics: tuple[str, ...] = ()


def cut_queue(queue: QueueRange, segments: Iterable[SegmentEntry], selection: RowSelection) -> list[SegmentSlice]:
    """The slices of one queue, one a segment, by rising offset; `selection` has the offsets wanted of the queue."""
    slices: list[SegmentSlice] = []
    for segment in segments:
        run = segment.run(queue.queue_id)
        if run is None or not _is_wanted(run, selection):
            continue
        start, end = max(run.start_offset, selection.start_offset), min(run.end_offset, selection.end_offset)
        if start >= end or (selection.spans is not None and not selection.spans.overlaps(start, end)):
            continue
        places = _raw_places(segment, run, [start, end])
        slices.append(
            SegmentSlice(
                source=queue.source,
                topic=queue.topic,
                queue_id=queue.queue_id,
                segment_id=segment.segment_id,
                log=segment.log,
                cq=segment.cq,
                start_offset=start,
                end_offset=end,
                raw_bytes=max(1, round(places[1] - places[0])),
                selection=selection,
                max_store_ms=run.max_store_ms,
                frames=_frames(segment, run, start, end),
            )
        )
    return sorted(slices, key=lambda part: part.start_offset)


def pack_tasks(queues: Sequence[Sequence[SegmentSlice]], *, partition_bytes_max: int) -> list[tuple[SegmentSlice, ...]]:
    """Tasks of about equal size from the slices of all queues. Raises as `check_task_count`."""
    small_bytes = min(TASK_BYTES_MIN, partition_bytes_max)
    shared: list[SegmentSlice] = []
    tasks: list[tuple[SegmentSlice, ...]] = []
    for slices in queues:
        if sum(part.raw_bytes for part in slices) >= small_bytes:
            tasks.extend(_cut_evenly(slices, partition_bytes_max))
        else:
            shared.extend(slices)
    # By object, so that neighbours are fetched together.
    shared.sort(key=lambda part: (part.source.url, part.log.key, part.log.start, part.queue_id))
    tasks.extend(_cut_evenly(shared, partition_bytes_max))
    return tasks


def check_task_count(count: int) -> None:
    """InvalidRequestError for a read that would be cut into more tasks than Spark runs: by a size of bytes for one of
    mebibytes, say."""
    if count > TASKS_MAX:
        raise InvalidRequestError(
            "the read would be cut into too many tasks; 256m are 256 MiB",
            option="maxPartitionBytes",
            tasks=count,
            tasks_max=TASKS_MAX,
        )


def _is_wanted(run: QueueRun, selection: RowSelection) -> bool:
    """Whether any store time of the run may be wanted."""
    return run.min_store_ms < selection.end_ms and run.max_store_ms >= selection.start_ms


def _cut_evenly(slices: Sequence[SegmentSlice], partition_bytes_max: int) -> list[tuple[SegmentSlice, ...]]:
    """Cut slices laid end to end into tasks of equal size."""
    if not slices:
        return []
    total = sum(part.raw_bytes for part in slices)
    count = max(-(-total // partition_bytes_max), min(TASKS_PER_QUEUE_MIN, total // TASK_BYTES_MIN), 1)
    check_task_count(count)
    tasks: list[list[SegmentSlice]] = [[] for _ in range(count)]
    position = 0
    for part in slices:
        rest = part
        while True:
            task = min(position * count // total, count - 1)
            room = -(-(task + 1) * total // count) - position
            head, tail = _split(rest, room) if task < count - 1 else (rest, None)
            tasks[task].append(head)
            position += head.raw_bytes
            if tail is None:
                break
            rest = tail
    return [tuple(task) for task in tasks if task]


def _split(part: SegmentSlice, room: int) -> tuple[SegmentSlice, SegmentSlice | None]:
    """The first `room` bytes of a slice, and the rest if there is any; by offsets in proportion."""
    if part.raw_bytes <= room or part.end_offset - part.start_offset < 2:
        return part, None
    count = part.end_offset - part.start_offset
    cut = part.start_offset + min(max(1, round(count * room / part.raw_bytes)), count - 1)
    return (
        replace(part, end_offset=cut, raw_bytes=max(1, room)),
        replace(part, start_offset=cut, raw_bytes=part.raw_bytes - room),
    )


def _frames(segment: SegmentEntry, run: QueueRun, start: QueueOffset, end: QueueOffset) -> tuple[int, int]:
    """The frames of a run that hold offsets [start, end), or a few more: the catalog lists one frame in several."""
    first, last = run.frame_start, run.frame_end
    for frame in segment.coarse:
        if run.frame_start <= frame.frame_index < run.frame_end:
            if frame.start_offset <= start:
                first = frame.frame_index
            elif frame.start_offset >= end:
                last = min(last, frame.frame_index)
    return first, last


def _raw_places(segment: SegmentEntry, run: QueueRun, offsets: Sequence[QueueOffset]) -> list[float]:
    """About where in the segment's records these offsets of a run start, from the catalog's coarse frames."""
    later = [frame for frame in segment.coarse if frame.frame_index >= run.frame_end]
    coarse = [frame for frame in segment.coarse if run.frame_start <= frame.frame_index < run.frame_end]
    end_position = later[0].raw_position if later else segment.raw_bytes
    known_offsets = [*(frame.start_offset for frame in coarse), run.end_offset]
    known_positions = [*(frame.raw_position for frame in coarse), end_position]
    places: list[float] = np.interp(offsets, known_offsets, known_positions).tolist()
    return places
