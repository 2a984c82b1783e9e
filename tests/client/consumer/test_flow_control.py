"""Flow control: bounds for each queue and for all, who waits and who goes on, and what that costs with many queues."""

from __future__ import annotations

import asyncio

from thermocline.client.consumer.dispatch.held_messages import HeldMessages
from thermocline.client.consumer.flow_control import FlowControl, FlowLimits

QUEUES = 50


class Queue:
    """Counts how often flow control looks at it."""

    def __init__(self) -> None:
        self.dropped = False
        self.messages = HeldMessages()
        self.looks = 0
        self.span = 0

    @property
    def held(self) -> HeldMessages:
        self.looks += 1
        return self.messages


def flow_control(**limits: int) -> FlowControl:
    defaults = {"queue_messages_max": 10, "queue_bytes_max": 1_000, "queue_span_max": 20}
    totals = {"total_messages_max": 100, "total_bytes_max": 100_000}
    return FlowControl(FlowLimits(**(defaults | totals | limits)))


def queues_of(flow: FlowControl, count: int) -> list[Queue]:
    queues = [Queue() for _ in range(count)]
    for queue in queues:
        flow.add(queue)
    return queues


def test_each_bound_counts() -> None:
    flow = flow_control()
    one, other = queues_of(flow, 2)
    assert flow.has_room(one)
    one.messages.count_in(10, 10)
    assert not flow.has_room(one)
    one.messages.count_in(-1, 990)
    assert not flow.has_room(one)
    one.messages.count_in(0, -500)
    assert flow.has_room(one)
    one.span = 21
    assert not flow.has_room(one)
    other.messages.count_in(91, 0)
    one.span = 0
    assert not flow.has_room(one), "100 messages in all"
    flow.remove(other)
    assert flow.has_room(one)
    other.messages.count_in(-91, 0)
    one.messages.count_in(-9, -500)
    flow.remove(one)
    assert (flow._total.count, flow._total.size_bytes) == (0, 0)


async def test_a_queue_goes_on_when_it_has_room_or_is_dropped() -> None:
    flow = flow_control()
    one, other = queues_of(flow, 2)
    for queue in (one, other):
        queue.messages.count_in(10, 10)
    waits = [asyncio.create_task(flow.wait_for_room(queue)) for queue in (one, other)]
    await asyncio.sleep(0)
    one.messages.count_in(-1, -1)
    flow.changed()
    await waits[0]
    assert not waits[1].done()
    other.dropped = True
    flow.remove(other)
    await waits[1]
    assert not flow._waiting
    waiting = asyncio.create_task(flow.wait_for_room(other))
    await waiting


async def test_what_one_of_many_queues_has_done_costs_no_look_at_all_others() -> None:
    """With n queues that waited for room each finished message was n² looks: seconds, with thousands of queues."""
    flow = flow_control()
    queues = queues_of(flow, QUEUES)
    queues[0].messages.count_in(110, 0)
    waits = [asyncio.create_task(flow.wait_for_room(queue)) for queue in queues]
    await asyncio.sleep(0)
    for queue in queues:
        queue.looks = 0
    for _ in range(10):
        queues[0].messages.count_in(-1, 0)
        flow.changed()
        await asyncio.sleep(0)
    assert sum(queue.looks for queue in queues) == 0
    assert not any(wait.done() for wait in waits)
    queues[0].messages.count_in(-91, 0)
    flow.changed()
    await asyncio.gather(*waits)
