"""The positions of a segment's frames by the coarse frames in its catalog entry alone.

A piece of a pack lists every frame: all values are known except the greatest store time of a frame, which is replaced
by the least of the next one; store times rise along a queue, so no record of the frame is newer. A segment of its own
lists every few frames: then a record is somewhere between two of them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import FRAME, MAGIC_BYTES, LogFooter, QueueRun

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Frames of which the catalog notes the first alone are no more stored bytes together, but for one that is larger."""


def known_frames(entry: SegmentEntry) -> LogFooter | None:
    """The footer of the `.log` part, except greatest store times; None unless the entry lists every frame."""
    if not entry.runs or len(entry.coarse) != entry.runs[-1].frame_end:
        return None
    runs, coarse = tuple(entry.runs), tuple(entry.coarse)
    frames = np.zeros(len(coarse), FRAME)
    for name in ("position", "raw_position", "start_offset", "min_store_ms"):
        frames[name] = [getattr(each, name) for each in coarse]
    ends = (*(each.position for each in coarse[1:]), body_end(entry))
    raw_ends = (*(each.raw_position for each in coarse[1:]), entry.raw_bytes)
    frames["stored_bytes"] = np.array(ends, np.int64) - frames["position"].astype(np.int64)
    frames["raw_bytes"] = np.array(raw_ends, np.int64) - frames["raw_position"].astype(np.int64)
    frames["end_offset"][:-1] = frames["start_offset"][1:]
    frames["max_store_ms"][:-1] = frames["min_store_ms"][1:]
    for run in runs:
        frames["end_offset"][run.frame_end - 1] = run.end_offset
        frames["max_store_ms"][run.frame_end - 1] = run.max_store_ms
    return LogFooter(
        segment_id=entry.id,
        topic=entry.topic,
        incarnation=entry.incarnation,
        record_count=entry.record_count,
        raw_bytes=entry.raw_bytes,
        runs=runs,
        frames=frames,
    )


class FrameGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Frames that follow one another: positions [start, end) of the part, the first at `start_offset`."""

    start: int
    end: int
    start_offset: QueueOffset
    frame_count: int


def group_of(entry: SegmentEntry, run: QueueRun, queue_offset: QueueOffset) -> FrameGroup | None:
    """The smallest group of frames that holds the record by the catalog entry; None when that lists no frames."""
    assert run.start_offset <= queue_offset < run.end_offset
    coarse = tuple(entry.coarse)
    for number, each in enumerate(coarse):
        following = coarse[number + 1] if number + 1 < len(coarse) else None
        is_last_of_run = following is None or following.frame_index >= run.frame_end
        if run.frame_start <= each.frame_index < run.frame_end and (
            is_last_of_run or (following is not None and queue_offset < following.start_offset)
        ):
            end = following.position if following is not None else body_end(entry)
            frame_end = run.frame_end if following is None or is_last_of_run else following.frame_index
            return FrameGroup(
                start=each.position,
                end=end,
                start_offset=each.start_offset,
                frame_count=frame_end - each.frame_index,
            )
    return None


def body_end(entry: SegmentEntry) -> int:
    """Where in the `.log` part the last frame ends."""
    end = entry.log.footer_start - entry.log.start
    assert end >= MAGIC_BYTES
    return end
