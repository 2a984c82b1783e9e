"""Popped offsets: the first message of a queue that a group has not acknowledged."""

from __future__ import annotations

import asyncio

from thermocline.broker.state.popped_offsets import CHECK_POINTS_PER_SLICE, popped_offsets
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.in_flight import InFlight, Pending


def pop(in_flight: InFlight, *offsets: int) -> Pending:
    """Pop messages for a consumer, which now holds them."""
    check_point = CheckPoint(
        topic="orders",
        group="g",
        queue_id=2,
        start_offset=offsets[0],
        offsets=offsets,
        pop_time_ms=offsets[0],
        invisible_ms=60_000,
        broker_name="b",
    )
    return in_flight.add(check_point, revive_queue_id=0, revive_offset=offsets[0], physical_offset=offsets[0] * 500)


async def test_the_first_that_is_not_acknowledged() -> None:
    in_flight = InFlight("b")
    assert await popped_offsets(in_flight) == []
    first, _ = pop(in_flight, 3, 4, 6), pop(in_flight, 7, 8)
    assert await popped_offsets(in_flight) == [("orders", "g", 2, 3)]
    in_flight.ack(first, 3)
    assert await popped_offsets(in_flight) == [("orders", "g", 2, 4)]
    in_flight.ack(first, 6)
    in_flight.ack(first, 4)
    assert await popped_offsets(in_flight) == [("orders", "g", 2, 7)]


async def test_others_are_served_between_two_slices() -> None:
    in_flight = InFlight("b")
    for offset in range(3 * CHECK_POINTS_PER_SLICE):
        pop(in_flight, offset)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await popped_offsets(in_flight) == [("orders", "g", 2, 0)]
    counting.cancel()
    assert turns >= 2
