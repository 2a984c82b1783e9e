"""Check points in flight."""

from thermocline.pop.check_point import CheckPoint
from thermocline.pop.in_flight import HEAP_SLACK, InFlight, Pending, key_of

HOUR_MS = 3_600_000


def check_point(start: int = 0, *, count: int = 3, pop_time_ms: int = 1_000, invisible_ms: int = 60_000) -> CheckPoint:
    return CheckPoint(
        topic="t",
        group="g",
        queue_id=0,
        start_offset=start,
        offsets=tuple(range(start, start + count)),
        pop_time_ms=pop_time_ms,
        invisible_ms=invisible_ms,
        broker_name="b",
    )


def add(in_flight: InFlight, place: CheckPoint, revive_offset: int = 0, *, revive_queue_id: int = 0) -> Pending:
    return in_flight.add(
        place, revive_queue_id=revive_queue_id, revive_offset=revive_offset, physical_offset=revive_offset * 500
    )


def test_found_until_the_last_acknowledgement() -> None:
    in_flight = InFlight("b")
    pending = add(in_flight, check_point())
    assert in_flight.find(key_of(pending.check_point)) is pending
    assert pending.is_acked(7) is None
    in_flight.ack(pending, 1)
    in_flight.ack(pending, 1)
    assert pending.is_acked(1)
    assert pending.open_offsets() == [0, 2]
    assert in_flight.message_count("t", "g", 0) == 2
    in_flight.ack(pending, 0)
    in_flight.ack(pending, 2)
    assert pending.is_finished
    assert len(in_flight) == in_flight.message_count("t", "g", 0) == 0
    assert in_flight.find(key_of(pending.check_point)) is None
    assert in_flight.next_due_ms is None


def test_due_in_the_order_of_their_times() -> None:
    in_flight = InFlight("b")
    late = add(in_flight, check_point(0, invisible_ms=9_000), 0)
    soon = add(in_flight, check_point(10, invisible_ms=2_000), 1)
    acked = add(in_flight, check_point(20, invisible_ms=1_000, count=1), 2)
    in_flight.ack(acked, 20)
    assert in_flight.next_due_ms == 3_000
    assert in_flight.take_due(2_999) is None
    assert in_flight.take_due(3_000) is soon
    assert in_flight.take_due(9_999) is None
    in_flight.put_off(soon, 20_000)
    assert in_flight.take_due(30_000) is late
    assert in_flight.take_due(30_000) is soon


def test_a_restart_reads_from_the_first_open_check_point() -> None:
    in_flight = InFlight("b")
    first, second = add(in_flight, check_point(0), 3), add(in_flight, check_point(10), 5)
    other = add(in_flight, check_point(20), 0, revive_queue_id=1)
    assert in_flight.first(0) is first
    assert in_flight.first(1) is other
    assert in_flight.first(2) is None
    in_flight.drop(second)
    assert in_flight.first(0) is first
    in_flight.drop(first)
    assert in_flight.first(0) is None
    assert in_flight.count_of(0) == 0
    assert in_flight.count_of(1) == 1


def test_one_that_is_put_anew_keeps_its_acknowledgements() -> None:
    in_flight = InFlight("b")
    old = add(in_flight, check_point(0), 0)
    behind = add(in_flight, check_point(10), 1)
    in_flight.ack(old, 1)
    in_flight.moved(old, revive_queue_id=0, revive_offset=2, physical_offset=1_000)
    assert old.is_finished
    assert in_flight.first(0) is behind
    moved = in_flight.find(key_of(old.check_point))
    assert moved is not None
    assert moved.open_offsets() == [0, 2]
    assert in_flight.message_count("t", "g", 0) == 5
    taken = {in_flight.take_due(HOUR_MS), in_flight.take_due(HOUR_MS)}
    assert taken == {moved, behind}
    assert in_flight.take_due(HOUR_MS) is None


def test_finished_ones_do_not_pile_up_behind_a_far_due_time() -> None:
    in_flight = InFlight("b")
    for number in range(5 * HEAP_SLACK):
        pending = add(in_flight, check_point(number, count=1, invisible_ms=HOUR_MS), number)
        in_flight.ack(pending, number)
    assert len(in_flight._heap) <= HEAP_SLACK + 1
