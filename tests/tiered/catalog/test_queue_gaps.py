"""Counting offsets without those that no message has, against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thermocline.tiered.catalog.queue_gaps import QueueGaps

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=5)


@given(spans=SPANS, start=st.integers(0, 50), length=st.integers(0, 60), count=st.integers(0, 30))
def test_it_counts_as_a_set_of_offsets_does(spans: list[tuple[int, int]], start: int, length: int, count: int) -> None:
    gaps = QueueGaps.of(spans)
    missing = {offset for first, last in spans for offset in range(first, last)}
    there = [offset for offset in range(start, 200) if offset not in missing]
    assert gaps.next_offset(start) == there[0]
    assert gaps.count(start, start + length) == len([offset for offset in there if offset < start + length])
    assert gaps.advance(start, count) == (there[count - 1] + 1 if count else there[0])
    clipped = gaps.within(start, start + length)
    assert {offset for first, last in clipped.spans for offset in range(first, last)} == {
        offset for offset in missing if start <= offset < start + length
    }
