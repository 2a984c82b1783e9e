"""Planning from catalog entries alone: every wanted offset in exactly one slice, tasks of about equal size."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.reading.read_plan import (
    ColdSource,
    QueueRange,
    SegmentSlice,
    cut_queue,
    pack_tasks,
)
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, PartLocator, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import QueueRun

SOURCE = ColdSource(url="memory://cold", root="c/broker-a", broker_name="broker-a", version=3)
FRAME_BYTES = 1 << 20
FRAME_RECORDS = 1_000


def segment(number: int, *runs: tuple[int, int, int], store_ms: int = 0) -> SegmentEntry:
    """A segment of runs (queue id, start offset, end offset), in frames of 1000 records and 1 MiB."""
    queue_runs: list[QueueRun] = []
    coarse: list[CoarseFrame] = []
    frame_index = 0
    for queue_id, start, end in runs:
        frames = -(-(end - start) // FRAME_RECORDS)
        queue_runs.append(
            QueueRun(queue_id, start, end, store_ms, store_ms + 99, frame_index, frame_index + frames, 0, 1)
        )
        coarse.extend(
            CoarseFrame(
                index, start + (index - frame_index) * FRAME_RECORDS, index * 100, index * FRAME_BYTES, store_ms
            )
            for index in range(frame_index, frame_index + frames, 8)
        )
        frame_index += frames
    locator = PartLocator(
        key=f"c/broker-a/topics/orders/{number}.log", start=0, end=10_000, footer_start=9_000, crc32=number
    )
    return SegmentEntry(
        segment_id=f"{1:010}-{number:010}",
        topic="orders",
        incarnation=1,
        log=locator,
        cq=locator,
        idx=locator,
        runs=RunRows.of(queue_runs),
        coarse=CoarseRows.of(coarse),
        record_count=sum(run.record_count for run in queue_runs),
        raw_bytes=frame_index * FRAME_BYTES,
        key_count=0,
        bloom_page_bytes=0,
        bloom_page_count=0,
        created_ms=0,
    )


def slices(entries: list[SegmentEntry], start: int, end: int, *, queue_id: int = 0, **times: int) -> list[SegmentSlice]:
    queue = QueueRange(
        source=SOURCE,
        topic="orders",
        incarnation=1,
        queue_id=queue_id,
        start_offset=start,
        end_offset=end,
        visible_from_ms=0,
    )
    return cut_queue(queue, entries, RowSelection(start_offset=start, end_offset=end, **times))


def covered(tasks: list[tuple[SegmentSlice, ...]], queue_id: int = 0) -> list[tuple[int, int]]:
    parts = sorted((part.start_offset, part.end_offset) for task in tasks for part in task if part.queue_id == queue_id)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))
    return [(parts[0][0], parts[-1][1])] if parts else []


def test_only_segments_with_wanted_offsets_are_read() -> None:
    entries = [segment(1, (0, 0, 5_000)), segment(2, (0, 5_000, 9_000)), segment(3, (0, 9_000, 12_000))]
    assert [(part.start_offset, part.end_offset) for part in slices(entries, 5_500, 9_000)] == [(5_500, 9_000)]
    assert [(part.start_offset, part.end_offset) for part in slices(entries, 4_999, 9_001)] == [
        (4_999, 5_000),
        (5_000, 9_000),
        (9_000, 9_001),
    ]


def test_only_segments_with_wanted_times_are_read() -> None:
    entries = [segment(number, (0, number * 10, number * 10 + 10), store_ms=number * 100) for number in range(4)]
    found = slices(entries, 0, 40, start_ms=199, end_ms=300)
    assert [part.segment_id[-1] for part in found] == ["1", "2"]


def test_a_task_size_that_makes_millions_of_tasks_is_refused() -> None:
    """128 for 128 MiB: the driver made a list for each 128 bytes of the topic."""
    whole = slices([segment(1, (0, 0, 4_000_000))], 0, 4_000_000)
    assert whole[0].raw_bytes == 4_000 << 20
    with pytest.raises(InvalidRequestError, match=r"too many tasks; .* option=maxPartitionBytes tasks=32768000"):
        pack_tasks([whole], partition_bytes_max=128)
    assert len(pack_tasks([whole], partition_bytes_max=128 << 20)) == 32


def test_other_queues_are_left_out() -> None:
    entries = [segment(1, (0, 0, 10), (2, 100, 110))]
    assert [(part.start_offset, part.end_offset) for part in slices(entries, 0, 1_000, queue_id=2)] == [(100, 110)]
    assert slices(entries, 0, 1_000, queue_id=1) == []


def test_sizes_come_from_the_coarse_frames() -> None:
    entries = [segment(1, (0, 0, 16_000), (1, 0, 8_000))]
    whole, other = slices(entries, 0, 16_000), slices(entries, 0, 8_000, queue_id=1)
    half = slices(entries, 4_000, 12_000)
    assert (whole[0].raw_bytes, half[0].raw_bytes, other[0].raw_bytes) == (16 << 20, 8 << 20, 8 << 20)


def test_a_large_queue_is_cut_into_four_tasks_at_least() -> None:
    entries = [segment(1, (0, 0, 20_000))]
    tasks = pack_tasks([slices(entries, 0, 20_000)], partition_bytes_max=256 << 20)
    assert len(tasks) == 4
    assert covered(tasks) == [(0, 20_000)]
    assert [task[0].raw_bytes for task in tasks] == [5 << 20] * 4


def test_no_task_is_larger_than_the_limit() -> None:
    entries = [segment(number, (0, number * 3_000, number * 3_000 + 3_000)) for number in range(10)]
    tasks = pack_tasks([slices(entries, 0, 30_000)], partition_bytes_max=1 << 20)
    assert len(tasks) == 30
    assert covered(tasks) == [(0, 30_000)]


def test_small_queues_share_tasks() -> None:
    entries = [segment(1, *((queue_id, 0, 100) for queue_id in range(50)))]
    tasks = pack_tasks(
        [slices(entries, 0, 100, queue_id=queue_id) for queue_id in range(50)], partition_bytes_max=256 << 20
    )
    # Each run is a frame of its own here, so 50 MiB of estimate: far fewer tasks than queues.
    assert len(tasks) == 4
    assert all(covered(tasks, queue_id) == [(0, 100)] for queue_id in range(50))


def test_nothing_to_read_is_no_task() -> None:
    assert pack_tasks([[]], partition_bytes_max=1) == []
    assert pack_tasks([], partition_bytes_max=1) == []


@given(
    lengths=st.lists(st.integers(1, 30_000), min_size=1, max_size=8),
    data=st.data(),
    partition_bytes_max=st.sampled_from([1 << 18, 1 << 20, 3 << 20, 256 << 20]),
)
def test_every_wanted_offset_is_in_exactly_one_slice(
    lengths: list[int], data: st.DataObject, partition_bytes_max: int
) -> None:
    ends = list(itertools.accumulate(lengths))
    starts = [0, *ends[:-1]]
    entries = [segment(number, (0, start, end)) for number, (start, end) in enumerate(zip(starts, ends, strict=True))]
    start = data.draw(st.integers(0, ends[-1] - 1))
    end = data.draw(st.integers(start + 1, ends[-1]))
    tasks = pack_tasks([slices(entries, start, end)], partition_bytes_max=partition_bytes_max)
    assert covered(tasks) == [(start, end)]
    total = sum(part.raw_bytes for task in tasks for part in task)
    assert len(tasks) <= max(4, total // partition_bytes_max + 1)
