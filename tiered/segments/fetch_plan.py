"""Fetch plan: which frames of a `.log` part one request fetches, so that requests are few and large. Pure.

    unit     frames end to end, RANGE_BYTES_MIN or more together; a sequential reader fetches whole units
    fetch    adjacent units, or their missing frames, up to a size

Units
  - They cover the part, and depend on it alone, not on reads: after fetches of whole units the remaining frames are
    whole units too, never a smaller rest.
  - They end at the end of a queue's run, unless that leaves a smaller rest: the rest of a run joins the unit before it;
    a run smaller than a unit joins the next run, or at the end of the part the previous one. Readers of the other
    queues then find their frames in the cache.
  - So a unit is smaller than one frame and three times RANGE_BYTES_MIN; only a part that is smaller is a smaller unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np

from thermocline.tiered.segments.segment_format import FrameInfo, LogFooter, QueueRun

RANGE_BYTES_MIN = 512 * 1024
FETCH_PART_MIN = 8
"""A fetch is at least such a part of the largest one, if adjacent frames are wanted as well."""


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
        """The frames to fetch for a sequential reader of `run` at frame `index`, so that this frame and the run's next
        `window_frames` are cached: whole units, without frames under way and frames of the run that it has passed.
        Units that lack no frame of this reader are skipped, even if they lack frames of others."""
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
        """The approximate memory of the units."""
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
