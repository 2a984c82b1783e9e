"""Pending holes against plain sets of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thermocline.tiered.catalog.ledger_entry import QueueHole
from thermocline.tiered.sealing.pending_holes import PendingHoles

ranges = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(1, 12)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    max_size=6,
)


def offsets(found: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {(queue_id, offset) for queue_id, start, end in found for offset in range(start, end)}


@given(dropped=ranges, held=ranges)
def test_declared_ranges_were_dropped_and_no_object_holds_them(
    dropped: list[tuple[int, int, int]], held: list[tuple[int, int, int]]
) -> None:
    pending = PendingHoles()
    for queue_id, start, end in dropped:
        pending.add("T", 3, QueueHole(queue_id, start, end))
    holes = pending.take_declared("T", 3, held)
    assert offsets([(hole.queue_id, hole.start_offset, hole.end_offset) for hole in holes]) == (
        offsets(dropped) - offsets(held)
    )
    assert all(hole.start_offset < hole.end_offset for hole in holes)
    assert len(pending) == 0
    assert pending.take_declared("T", 3, ()) == ()


def test_incarnations_of_a_topic_are_apart() -> None:
    pending = PendingHoles()
    pending.add("T", 3, QueueHole(0, 0, 5))
    pending.add("T", 4, QueueHole(0, 7, 9))
    pending.add("U", 1, QueueHole(0, 1, 2))
    pending.forget_before("T", 4)
    assert pending.take_declared("T", 3, ()) == ()
    assert pending.take_declared("T", 4, ()) == (QueueHole(0, 7, 9),)
    assert len(pending) == 1


def test_adjacent_drops_are_one_hole() -> None:
    pending = PendingHoles()
    for start in range(0, 100, 10):
        pending.add("T", 3, QueueHole(0, start, start + 10))
        pending.add("T", 3, QueueHole(1, start, start + 4))
    assert len(pending) == 1 + 10
    assert pending.take_declared("T", 3, ((0, 0, 95), (1, 0, 94)))[:1] == (QueueHole(0, 95, 100),)
