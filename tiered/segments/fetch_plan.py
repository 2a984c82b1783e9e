"""Fetch plan: which frames of a `.log` part one request fetches, so that requests are few and large. No I/O.

    unit     adjacent frames, together at least RANGE_BYTES_MIN; a sequential reader fetches whole units
    fetch    one request: adjacent units, or their missing frames, up to a size

Units
  - The units cover the part. They depend on its footer alone, not on reads: when some units have been fetched, the
    other frames are whole units too, and no small remainder needs a request of its own.
  - A unit ends where a queue's run ends, unless a remainder below RANGE_BYTES_MIN would be left:
      - the remainder at the end of a run joins the unit before it;
      - a run smaller than a unit joins the next run; at the end of the part it joins the unit before it.
    The reader of the other queue then finds its frames in the cache.
  - So a unit is smaller than 3 * RANGE_BYTES_MIN plus one frame. Only in a part smaller than RANGE_BYTES_MIN is the
    unit smaller than that, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np

from thermocline.tiered.segments.segment_format import FrameInfo, LogFooter, QueueRun

RANGE_BYTES_MIN = 512 * 1024
FETCH_BYTES_MIN_DIVISOR = 8
"""A group of frames smaller than `fetch_bytes_max` divided by this gets no request of its own if it has a neighbour."""


class FetchUnits:
    """The units of one part; see the module's header."""

    __slots__ = ("_starts", "frame_count")

    def __init__(self, starts: Iterable[int], *, frame_count: int) -> None:
        """`starts`: the index of each unit's first frame, rising from 0."""
        self._starts = list(starts)
        self.frame_count = frame_count
        assert not frame_count or self._starts[0] == 0

    @classmethod
    def whole(cls, footer: LogFooter) -> FetchUnits:
        """Return all frames as one unit, for a small part."""
        return cls([0], frame_count=len(footer.frames))

    @classmethod
    def of(cls, footer: LogFooter) -> FetchUnits:
        """Divide a part into units by the sizes of its frames and the ends of its runs; see the module's header."""
        # bytes_before[index]: stored bytes of all frames before frame number `index`.
        bytes_before = np.concatenate(([0], np.cumsum(footer.frames["stored_bytes"].astype(np.int64))))
        starts: list[int] = []
        start = 0
        for run in footer.runs:
            while start < run.frame_end:
                stop = int(np.searchsorted(bytes_before, bytes_before[start] + RANGE_BYTES_MIN))
                if stop > run.frame_end:
                    break  # the frames from `start` to the run's end are too few for a unit: they join the next run
                starts.append(start)
                is_rest_a_unit = bytes_before[run.frame_end] - bytes_before[stop] >= RANGE_BYTES_MIN
                start = stop if is_rest_a_unit else run.frame_end
        return cls(starts or [0], frame_count=len(footer.frames))

    def unit(self, index: int) -> range:
        """Return the frames of the unit that contains frame `index`."""
        assert 0 <= index < self.frame_count
        number = bisect_right(self._starts, index) - 1
        return range(self._starts[number], self._end(number))

    def ahead(
        self, run: QueueRun, index: int, *, window_frames: int, is_coming: Callable[[int], bool]
    ) -> tuple[int, ...]:
        """Return the frames to fetch for a sequential reader of `run` at frame `index`.

        Afterwards this frame and the run's next `window_frames` are cached. `is_coming`: a frame is cached or being
        fetched already. The result is whole units, except:
          - frames that are coming;
          - frames before `index`, if the reader has passed frames of its run in the same unit;
          - units in which no frame of this run is missing, even if frames of other runs are.
        """
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
        """The approximate memory of this object."""
        return 8 * len(self._starts) + 200

    def _end(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self.frame_count


def plan_fetches(frames: Iterable[FrameInfo], *, fetch_bytes_max: int) -> list[list[FrameInfo]]:
    """Group adjacent frames; each group is one request. `frames` are in the order of their positions.

    A group has at most `fetch_bytes_max` stored bytes, or is one larger frame. Exception: a neighbour that is smaller
    than both RANGE_BYTES_MIN and `fetch_bytes_max` / FETCH_BYTES_MIN_DIVISOR is joined to it, at most one at each end.
    """
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
    group_bytes_min = min(RANGE_BYTES_MIN, fetch_bytes_max // FETCH_BYTES_MIN_DIVISOR)
    joined: list[list[FrameInfo]] = []
    for group in groups:
        previous = joined[-1] if joined else None
        if (
            previous is not None
            and previous[-1].end_position == group[0].position
            and min(_size_bytes(previous), _size_bytes(group)) < group_bytes_min
        ):
            previous += group
        else:
            joined.append(group)
    return joined


def _size_bytes(group: list[FrameInfo]) -> int:
    """Return the stored bytes of adjacent frames."""
    return group[-1].end_position - group[0].position
