"""Tasks of a micro-batch: each offset in one of them, and the same ones whatever holds the messages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.reading.read_plan import ColdSource, SegmentSlice
from thermocline.spark.streaming.live_reader import LivePart
from thermocline.spark.streaming.task_cuts import TASKS_MAX, Cut, Part, Share, clipped, cut_tasks
from thermocline.tiered.catalog.queue_gaps import NO_GAPS, QueueGaps
from thermocline.tiered.objects.segment_offset import SegmentOffset
from thermocline.tiered.segments.segment_entry import PartLocator

PART = PartLocator(key="a", start=SegmentOffset(0), end=SegmentOffset(1), footer_start=SegmentOffset(0), crc32=0)
MIB = 1 << 20


def cold(start: int, end: int, selection: RowSelection) -> SegmentSlice:
    return SegmentSlice(
        source=ColdSource(url="file:///cold", root="test/broker-a", broker_name="broker-a", version=1),
        topic="orders",
        queue_id=0,
        segment_id="a",
        log=PART,
        cq=PART,
        start_offset=start,
        end_offset=end,
        raw_bytes=(end - start) * 100,
        selection=selection,
    )


def live(start: int, end: int) -> LivePart:
    return LivePart(
        topic="orders",
        broker_name="broker-a",
        queue_id=0,
        start=start,
        end=end,
        incarnation=1,
        holes=(),
        is_beginning=True,
        record_bytes=7,
        starting_ms=None,
    )


def spans(tasks: list[list[Cut]], index: int) -> list[tuple[int, int]]:
    """What the tasks have of a share, adjoining ranges joined."""
    joined: list[tuple[int, int]] = []
    for cut in (cut for task in tasks for cut in task if cut.index == index):
        if joined and joined[-1][1] == cut.start:
            joined[-1] = (joined[-1][0], cut.end)
        else:
            joined.append((cut.start, cut.end))
    return joined


@given(
    ranges=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 3 * MIB)), max_size=5),
    partition_bytes_max=st.sampled_from([200 * MIB, 1 << 30, 1 << 40]),
)
def test_every_offset_is_in_one_task_and_tasks_are_about_equal(
    ranges: list[tuple[int, int, int]], partition_bytes_max: int
) -> None:
    shares = [Share(start=start, end=start + count, record_bytes=size) for start, count, size in ranges]
    tasks = cut_tasks(shares, partition_bytes_max=partition_bytes_max)
    for index, share in enumerate(shares):
        assert spans(tasks, index) == [(share.start, share.end)]
    total = sum(share.raw_bytes for share in shares)
    sizes = [sum((cut.end - cut.start) * shares[cut.index].record_bytes for cut in task) for task in tasks]
    largest = max((share.record_bytes for share in shares), default=0)
    assert all(size <= min(partition_bytes_max, max(4 * MIB, -(-total // TASKS_MAX))) + largest for size in sizes)
    assert len(tasks) <= max(TASKS_MAX, -(-total // partition_bytes_max))
    flat = [(cut.index, cut.start) for task in tasks for cut in task]
    assert all(one < other for one, other in pairwise(flat))


def test_gaps_take_no_room() -> None:
    """Behind a recovery offsets jump by 10^9: all messages would be in the first task and the last."""
    gaps = QueueGaps.of([(10, 10**9)])
    shares = [Share(start=0, end=10**9 + 10, record_bytes=MIB, gaps=gaps)]
    tasks = cut_tasks(shares, partition_bytes_max=1 << 30)
    assert [gaps.count(cut.start, cut.end) for (cut,) in tasks] == [4] * 5


def test_nothing_to_read_is_no_task() -> None:
    assert cut_tasks([], partition_bytes_max=1) == []


def test_a_task_size_that_makes_millions_of_tasks_is_refused() -> None:
    """128 for 128 MiB: the driver made a list for each 128 bytes of the batch."""
    share = Share(start=0, end=4_000_000, record_bytes=1_000)
    with pytest.raises(InvalidRequestError, match="option=maxPartitionBytes"):
        cut_tasks([share], partition_bytes_max=128)


@given(
    borders=st.lists(st.integers(1, 99), unique=True, max_size=5).map(sorted),
    kinds=st.lists(st.booleans(), min_size=6, max_size=6),
    cuts=st.lists(st.integers(1, 99), unique=True, max_size=5).map(sorted),
)
def test_parts_are_clipped_to_exactly_a_tasks_rows(borders: list[int], kinds: list[bool], cuts: list[int]) -> None:
    """However offsets are laid out in objects: rows of a frame that two tasks share are in one of them each."""
    selection = RowSelection(start_offset=0, end_offset=100)
    layout: list[Part] = [
        cold(start, end, selection) if is_cold else live(start, end)
        for (start, end), is_cold in zip(pairwise([0, *borders, 100]), kinds, strict=False)
    ]
    for start, end in pairwise([0, *cuts, 100]):
        offsets: list[int] = []
        for part in clipped(layout, start, end):
            if isinstance(part, LivePart):
                offsets += range(part.start, part.end)
                assert part.is_beginning == any(
                    part.start == each.start for each in layout if isinstance(each, LivePart)
                )
            else:
                first = max(part.start_offset, part.selection.start_offset)
                offsets += range(first, part.end_offset)
                assert part.selection.start_offset in (0, part.start_offset)
                assert part.selection.end_offset in (100, part.end_offset)
                assert part.raw_bytes == (part.end_offset - part.start_offset) * 100
        assert offsets == list(range(start, end))


def test_gaps_between_parts_stay_gaps() -> None:
    selection = RowSelection(start_offset=0, end_offset=100)
    parts: list[Part] = [cold(0, 10, selection), cold(50, 60, selection)]
    assert list(clipped(parts, 10, 50)) == []
    assert list(clipped(parts, 0, 100)) == parts
    assert NO_GAPS.count(0, 10) == 10
