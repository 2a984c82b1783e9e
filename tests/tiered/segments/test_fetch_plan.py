"""A reader that reads a part to its end sends few and large requests, in whatever order its queues are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from random import Random

import numpy as np
import pytest

from thermocline.tiered.reading.frame_cache import FETCH_BYTES_MAX
from thermocline.tiered.segments.fetch_plan import RANGE_BYTES_MIN, FetchUnits, plan_fetches
from thermocline.tiered.segments.segment_format import FRAME, MAGIC_BYTES, FrameInfo, LogFooter, QueueRun, SegmentId

KIB, MIB = 1024, 1024 * 1024


def footer_of(runs: Sequence[Sequence[int]]) -> LogFooter:
    """A part with frames of these stored bytes for each queue; one record a frame."""
    sizes = [size for run in runs for size in run]
    frames = np.zeros(len(sizes), FRAME)
    frames["stored_bytes"] = sizes
    frames["position"] = [MAGIC_BYTES, *(MAGIC_BYTES + end for end in accumulate(sizes))][:-1]
    bounds = list(pairwise([0, *accumulate(len(run) for run in runs)]))
    for start, end in bounds:
        frames["start_offset"][start:end] = range(end - start)
        frames["end_offset"][start:end] = range(1, end - start + 1)
    return LogFooter(
        segment_id=SegmentId(1, 1),
        topic="orders",
        incarnation=1,
        record_count=len(sizes),
        raw_bytes=sum(sizes),
        runs=tuple(
            QueueRun(
                queue_id=queue_id,
                start_offset=0,
                end_offset=end - start,
                min_store_ms=0,
                max_store_ms=0,
                frame_start=start,
                frame_end=end,
                min_physical_offset=0,
                end_physical_offset=0,
            )
            for queue_id, (start, end) in enumerate(bounds)
        ),
        frames=frames,
    )


def random_runs(random: Random) -> list[list[int]]:
    """Queues of uneven sizes, frames as they come out of the writer: a short one ends a run."""
    frame_bytes = random.choice([30 * KIB, 200 * KIB, 510 * KIB, 700 * KIB, MIB, 3 * MIB])
    least = random.choice([1, frame_bytes // 2, frame_bytes])
    return [
        [random.randint(least, frame_bytes) for _ in range(random.choice([0, 0, 1, 1, 2, 3, 9, 30]))]
        + [random.randint(1, frame_bytes)]
        for _ in range(random.choice([1, 1, 2, 3, 8, 20]))
    ]


def units_of(footer: LogFooter) -> list[range]:
    units = FetchUnits.of(footer)
    found, index = [], 0
    while index < len(footer.frames):
        found.append(units.unit(index))
        assert found[-1].start == index < found[-1].stop
        assert all(units.unit(other) == found[-1] for other in found[-1])
        index = found[-1].stop
    return found


def size_of(footer: LogFooter, frames: range) -> int:
    return int(footer.frames["stored_bytes"][frames.start : frames.stop].sum())


def test_units_are_large_enough_and_not_much_larger(case_count: Callable[..., int]) -> None:
    for seed in range(case_count(quick=300, soak=20_000)):
        footer = footer_of(random_runs(Random(seed)))
        units = units_of(footer)
        largest = int(footer.frames["stored_bytes"].max())
        for unit in units:
            assert size_of(footer, unit) >= RANGE_BYTES_MIN or len(units) == 1, seed
            assert size_of(footer, unit) < largest + 3 * RANGE_BYTES_MIN, seed
        starts = {unit.start for unit in units}
        for before, run in pairwise(footer.runs):
            # Of two runs side by side that could be read apart nothing is read together.
            if all(size_of(footer, range(each.frame_start, each.frame_end)) >= RANGE_BYTES_MIN for each in footer.runs):
                assert run.frame_start == before.frame_end
                assert run.frame_start in starts, seed


def test_units_written_out() -> None:
    small, half = 100 * KIB, 512 * KIB
    assert units_of(footer_of([[small]])) == [range(1)]
    assert units_of(footer_of([[half, half]])) == [range(1), range(1, 2)]
    assert units_of(footer_of([[half, half, small]])) == [range(1), range(1, 3)], "the rest goes with the one before"
    assert units_of(footer_of([[small], [half, half]])) == [range(2), range(2, 3)], "a small run with what follows"
    assert units_of(footer_of([[half], [half], [small]])) == [range(1), range(1, 3)], "at the end with what is before"
    assert units_of(footer_of([[small] * 12])) == [range(6), range(6, 12)]


@pytest.mark.parametrize("fetch_bytes_max", [FETCH_BYTES_MAX, 8 * MIB])
def test_readers_of_all_queues_send_large_requests_alone(case_count: Callable[..., int], fetch_bytes_max: int) -> None:
    """In any order, each with a window of its own, ahead of need or at need: nothing is fetched twice, no request is
    smaller, and each frame is there when it is read."""
    for seed in range(case_count(quick=300, soak=20_000)):
        random = Random(seed)
        footer = footer_of(random_runs(random))
        units = FetchUnits.of(footer)
        here: set[int] = set()
        requests: list[list[FrameInfo]] = []
        at = {run: run.frame_start for run in footer.runs}
        windows = dict.fromkeys(footer.runs, 0)
        is_in_turn = random.random() < 0.5
        while at:
            run = random.choice(list(at)) if is_in_turn else next(iter(at))
            index = at[run]
            if index not in here or random.random() < 0.5:
                wanted = units.ahead(run, index, window_frames=windows[run], is_coming=here.__contains__)
                assert len(set(wanted)) == len(wanted)
                assert not here & set(wanted)
                requests += plan_fetches(map(footer.frame, wanted), fetch_bytes_max=fetch_bytes_max)
                here.update(wanted)
            assert index in here, seed
            windows[run] = min(max(1, 2 * windows[run]), random.choice([1, 8, 16]))
            at[run] += 1
            if at[run] == run.frame_end:
                del at[run]
        assert sorted(info.index for group in requests for info in group) == list(range(len(footer.frames)))
        largest = int(footer.frames["stored_bytes"].max())
        for group in requests:
            size_bytes = sum(info.stored_bytes for info in group)
            assert size_bytes >= RANGE_BYTES_MIN or len(here) == len(group), seed
            assert size_bytes <= max(fetch_bytes_max, largest) + 2 * RANGE_BYTES_MIN, seed


def test_used_and_foreign_frames_are_not_fetched_again() -> None:
    """In a cache that evicts frames: a frame that a reader has used is not fetched again with its next frames."""
    footer = footer_of([[200 * KIB] * 3, [100 * KIB], [MIB, 100 * KIB]])
    units = FetchUnits.of(footer)
    first, second, third = footer.runs
    assert units_of(footer) == [range(3), range(3, 6)]
    assert units.ahead(first, 0, window_frames=0, is_coming=lambda index: False) == (0, 1, 2)
    assert units.ahead(first, 1, window_frames=8, is_coming=lambda index: False) == (1, 2)
    assert units.ahead(second, 3, window_frames=1, is_coming=lambda index: False) == (3, 4, 5)
    assert units.ahead(third, 4, window_frames=0, is_coming=lambda index: False) == (3, 4, 5)
    assert units.ahead(third, 5, window_frames=0, is_coming=lambda index: False) == (5,)
    assert units.ahead(third, 4, window_frames=8, is_coming=lambda index: index > 3) == (), "the cache holds them"


def test_of_a_small_piece_everything_comes() -> None:
    footer = footer_of([[MIB, 10 * KIB], [20 * KIB], [MIB]])
    units = FetchUnits.whole(footer)
    assert units.unit(2) == range(4)
    assert units.ahead(footer.runs[1], 2, window_frames=0, is_coming=lambda index: index == 3) == (0, 1, 2)


def test_fetches_are_planned_by_adjacency_and_size() -> None:
    footer = footer_of([[MIB] * 4, [600 * KIB] * 2, [100 * KIB]])
    frames = [footer.frame(index) for index in range(len(footer.frames))]

    def planned(frames: Sequence[FrameInfo], fetch_bytes_max: int) -> list[list[int]]:
        return [[info.index for info in group] for group in plan_fetches(frames, fetch_bytes_max=fetch_bytes_max)]

    assert planned(frames, 10**9) == [[0, 1, 2, 3, 4, 5, 6]]
    assert planned(frames, 1) == [[0], [1], [2], [3], [4], [5], [6]]
    assert planned(frames, 2 * MIB) == [[0, 1], [2, 3], [4, 5, 6]]
    assert planned(frames[:1] + frames[2:4], 10**9) == [[0], [2, 3]]
    assert planned([], 1) == []
    assert planned([*frames[2:6], frames[6]], 2 * MIB + 600 * KIB) == [[2, 3, 4], [5, 6]], "no rest is left"
    uneven = footer_of([[10 * KIB, 4 * MIB, 10 * KIB]])
    assert planned([uneven.frame(index) for index in range(3)], 4 * MIB) == [[0, 1, 2]]
