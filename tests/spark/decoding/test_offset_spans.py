"""OffsetSpans against Python's own sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thermocline.spark.decoding.offset_spans import EVERY_OFFSET, OffsetSpans

LIMIT = 40
SPANS = st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT)), max_size=6)


def members(spans: OffsetSpans) -> set[int]:
    return {offset for start, end in spans.spans for offset in range(start, min(end, LIMIT + 5))}


def set_of(pairs: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in pairs for offset in range(start, end)}


@given(first=SPANS, second=SPANS)
def test_union_intersection_and_complement_are_those_of_sets(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    mine, other = OffsetSpans.of(first), OffsetSpans.of(second)
    assert members(mine) == set_of(first)
    assert members(mine.intersect(other)) == set_of(first) & set_of(second)
    assert members(mine.complement()) == set(range(LIMIT + 5)) - set_of(first)
    assert mine.complement().complement() == mine
    assert mine.intersect(EVERY_OFFSET) == mine


@given(pairs=SPANS, start=st.integers(0, LIMIT), count=st.integers(1, 10))
def test_questions_are_answered_as_by_sets(pairs: list[tuple[int, int]], start: int, count: int) -> None:
    spans, inside = OffsetSpans.of(pairs), set_of(pairs)
    offsets = np.arange(start, start + count)
    assert spans.overlaps(start, start + count) == bool(inside & set(offsets.tolist()))
    assert spans.holds(offsets).tolist() == [offset in inside for offset in offsets.tolist()]
    assert (spans.start, spans.end) == ((min(inside), max(inside) + 1) if inside else (0, 0))
