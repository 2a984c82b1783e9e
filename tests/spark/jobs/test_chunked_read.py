"""Cutting a plan into chunks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.jobs.chunked_read import cut_chunks
from thermocline.spark.reading.read_plan import ColdSource, QueueRange, ReadPlan, SegmentSlice
from thermocline.tiered.segments.segment_entry import PartLocator

SOURCE = ColdSource(url="file:///cold", root="test/broker-a", broker_name="broker-a", version=3)


def slice_of(topic: str, queue_id: int, start: int, end: int) -> SegmentSlice:
    part = PartLocator(key="k", start=0, end=1, footer_start=0, crc32=0)
    selection = RowSelection(start_offset=0, end_offset=10_000, start_ms=0, end_ms=1, tags=None)
    return SegmentSlice(
        source=SOURCE,
        topic=topic,
        queue_id=queue_id,
        segment_id="0000000001-0000000001",
        log=part,
        cq=part,
        start_offset=start,
        end_offset=end,
        raw_bytes=(end - start) * 10,
        selection=selection,
    )


def plan_of(queues: Sequence[tuple[str, int, Sequence[int]]], tasks: Sequence[Sequence[SegmentSlice]]) -> ReadPlan:
    return ReadPlan(
        snapshot_ms=1,
        sources=(SOURCE,),
        queues=tuple(
            QueueRange(
                source=SOURCE,
                topic=topic,
                incarnation=1,
                queue_id=queue_id,
                start_offset=cuts[0],
                end_offset=cuts[-1],
                visible_from_ms=0,
            )
            for topic, queue_id, cuts in queues
        ),
        tasks=tuple(tuple(task) for task in tasks),
    )


@given(data=st.data(), chunk_bytes=st.integers(1, 800))
def test_every_offset_of_the_slices_is_in_exactly_one_chunk(data: st.DataObject, chunk_bytes: int) -> None:
    """However tasks share the slices of small queues, and in whatever order."""
    queues = []
    for topic, queue_id in itertools.product(("a", "b"), range(data.draw(st.integers(0, 3)))):
        cuts = sorted(data.draw(st.sets(st.integers(0, 60), min_size=2, max_size=6)))
        queues.append((topic, queue_id, cuts))
    slices = [slice_of(topic, queue_id, *pair) for topic, queue_id, cuts in queues for pair in itertools.pairwise(cuts)]
    shuffled = data.draw(st.permutations(slices))
    chunks = list(cut_chunks(plan_of(queues, [shuffled]), chunk_bytes=chunk_bytes))
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    found = [
        (chunk.topic, part.queue_id, offset)
        for chunk in chunks
        for part in chunk.ranges
        for offset in range(part.start_offset, part.end_offset)
    ]
    wanted = {(topic, queue_id, offset) for topic, queue_id, cuts in queues for offset in range(cuts[0], cuts[-1])}
    assert sorted(found) == sorted(wanted)
    for chunk in chunks:
        names = [part.name for part in chunk.ranges]
        assert len(set(names)) == len(names)
        assert {part.topic for part in chunk.ranges} <= {chunk.topic}
        cut = sum((part.end_offset - part.start_offset) * 10 for part in chunk.ranges)
        assert chunk.raw_bytes == cut
        longest = max((part.raw_bytes for part in slices), default=0)
        assert cut <= max(chunk_bytes, longest)


def test_a_read_of_nothing_is_one_empty_chunk() -> None:
    (chunk,) = cut_chunks(plan_of([("a", 0, [5, 5])], []), chunk_bytes=100)
    assert (chunk.topic, chunk.ranges, chunk.raw_bytes) == ("a", (), 0)


def test_a_gap_that_nothing_is_wanted_of_is_inside_a_chunk_or_between_two() -> None:
    """Segments that the time range rules out are in no task; reading their offsets again gives no row."""
    tasks = [[slice_of("a", 0, 0, 10), slice_of("a", 0, 50, 60)]]
    (whole,) = cut_chunks(plan_of([("a", 0, [0, 60])], tasks), chunk_bytes=1_000)
    assert [(part.start_offset, part.end_offset) for part in whole.ranges] == [(0, 60)]
    parts = list(cut_chunks(plan_of([("a", 0, [0, 60])], tasks), chunk_bytes=100))
    assert [(part.start_offset, part.end_offset) for chunk in parts for part in chunk.ranges] == [(0, 10), (50, 60)]


def test_chunks_name_their_queues_as_options_do() -> None:
    (chunk,) = cut_chunks(plan_of([("a", 2, [0, 10])], [[slice_of("a", 2, 0, 10)]]), chunk_bytes=100)
    assert chunk.ranges[0].name == "broker-a:2"
