"""Fetch plan: which frames of a `.log` part come by one request, so that requests are few and large. Pure.

    unit     frames end to end, RANGE_BYTES_MIN or more together; whoever reads on and on fetches whole units
    fetch    units side by side, or what is missing of them, up to a size

Units
  - They cover the part, and follow from it alone, not from who reads what when: whatever has been fetched by whole
    units, what is left between is whole units, too, never a rest that is smaller.
  - They end where a queue's run does, unless that leaves a smaller rest: the rest of a run goes with the unit before
    it, a run that is smaller as a whole with what follows it, at the end of the part with what is before. Readers of
    the other queues find their frames in the cache then.
  - So a unit is smaller than one frame and three times RANGE_BYTES_MIN; only a part that is smaller is a smaller unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np

from thermocline.tiered.segments.segment_format import FrameInfo, LogFooter, QueueRun

RANGE_BYTES_MIN = 512 * 1024
FETCH_PART_MIN = 8
"""A fetch is not smaller than one such part of the largest, if what is beside it is wanted as well."""


class FetchUnits:
    """The units of one part; see the module's header."""

    __slots__ = ("_starts", "frame_count")

    def __init__(self, starts: Iterable[int], *, frame_count: int) -> None:
        """`starts`: the first frame of each, rising from 0."""
        self._starts = list(starts)
        self.frame_count = frame_count
        assert not frame_count or self._starts[0] == 0

    @classmethod
    def whole(cls, footer: LogFooter) -> FetchUnits:
        """All frames are one unit."""
        return cls([0], frame_count=len(footer.frames))

    @classmethod
    def of(cls, footer: LogFooter) -> FetchUnits:
        """By the frames' sizes and the queues' runs."""
        # ends[index]: stored bytes before frame number `index`.
        ends = np.concatenate(([0], np.cumsum(footer.frames["stored_bytes"].astype(np.int64))))
        starts: list[int] = []
        start = 0
        for run in footer.runs:
            while start < run.frame_end:
                stop = int(np.searchsorted(ends, ends[start] + RANGE_BYTES_MIN))
                if stop > run.frame_end:
                    break  # too small as a whole: it goes with the next run
                starts.append(start)
                start = stop if ends[run.frame_end] - ends[stop] >= RANGE_BYTES_MIN else run.frame_end
        return cls(starts or [0], frame_count=len(footer.frames))

    def unit(self, index: int) -> range:
        """The frames of the unit that a frame is in."""
        assert 0 <= index < self.frame_count
        number = bisect_right(self._starts, index) - 1
        return range(self._starts[number], self._end(number))

    def ahead(
        self, run: QueueRun, index: int, *, window_frames: int, is_coming: Callable[[int], bool]
    ) -> tuple[int, ...]:
        """What whoever reads on and on in `run`, and is at frame `index` now, should fetch, so that this frame and the
        next `window_frames` of the run are here: whole units, but for frames that are coming and those of the run that
        he has passed. Units of which he misses nothing are left alone, whatever others miss of them."""
        assert run.frame_start <= index < run.frame_end
        stop = min(index + 1 + window_frames, run.frame_end)
        wanted: list[int] = []
        while index < stop:
            unit = self.unit(index)
            if not all(map(is_coming, range(index, min(unit.stop, run.frame_end)))):
                start = unit.start if index <= max(unit.start, run.frame_start) else index
                wanted += [number for number in range(start, unit.stop) if not is_coming(number)]
            index = unit.stop
        return tuple(wanted)

    @property
    def memory_bytes(self) -> int:
        """About what keeping them costs."""
        return 8 * len(self._starts) + 200

    def _end(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self.frame_count


def plan_fetches(frames: Iterable[FrameInfo], *, fetch_bytes_max: int) -> list[list[FrameInfo]]:
    """Group adjacent frames: each group is one request of at most `fetch_bytes_max`, or one larger frame, and the
    eighth part more when a rest that is smaller would be left before or behind it."""
    groups: list[list[FrameInfo]] = []
    for frame in frames:
        group = groups[-1] if groups else None
        if (
            group is not None
            and group[-1].end_position == frame.position
            and frame.end_position - group[0].position <= fetch_bytes_max
        ):
            group.append(frame)
        else:
            groups.append([frame])
    least = min(RANGE_BYTES_MIN, fetch_bytes_max // FETCH_PART_MIN)
    joined: list[list[FrameInfo]] = []
    for group in groups:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before[-1].end_position == group[0].position
            and min(_size_bytes(before), _size_bytes(group)) < least
        ):
            before += group
        else:
            joined.append(group)
    return joined


def _size_bytes(group: list[FrameInfo]) -> int:
    """Of adjacent frames."""
    return group[-1].end_position - group[0].position
