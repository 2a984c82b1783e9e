"""What is due at a slave goes out, in slices; what could not be sent goes out later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.acting.bridge import Bridge
from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.due.test_delay_service import send_delayed
from tests.timers.timer_parts import NOW_MS, WINDOW_MS, World
from thermocline.broker.acting.due_escapes import SLICE_MAX, DelayEscapes, TimerEscapes
from thermocline.timers.timer_request import due_tick_ms

PRECISION_MS = 1_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        yield broker


@pytest.fixture
def bridge() -> Bridge:
    return Bridge()


@pytest.fixture
def delays(broker: ControlBroker, bridge: Any) -> DelayEscapes:
    return DelayEscapes(broker.parts.due.delays, bridge)


async def test_delayed_messages_go_out_when_they_are_due(
    broker: ControlBroker, bridge: Bridge, delays: DelayEscapes
) -> None:
    send_delayed(broker, 2, b"five seconds")
    send_delayed(broker, 1, b"one second")
    broker.clock.now_ms += 1_000
    assert await delays.deliver_slice()
    assert bridge.sent == [("T", b"one second", None)]
    broker.clock.now_ms += 4_000
    await delays.deliver_slice()
    await delays.deliver_slice()
    assert bridge.bodies == [b"one second", b"five seconds"]
    assert broker.parts.due.delays.progress() == {1: (1, 1), 2: (1, 1)}
    assert broker.parts.due.delays.changes.is_unsaved


async def test_a_level_waits_behind_what_cannot_be_sent(
    broker: ControlBroker, bridge: Bridge, delays: DelayEscapes
) -> None:
    for body in (b"first", b"second", b"third"):
        send_delayed(broker, 1, body)
    send_delayed(broker, 2, b"other level")
    broker.clock.now_ms += 5_000
    bridge.refused = {b"second"}
    assert await delays.deliver_slice() is None
    assert broker.parts.due.delays.progress() == {1: (1, 3), 2: (1, 1)}
    bridge.refused = set()
    assert await delays.deliver_slice()
    assert set(bridge.bodies) == {b"first", b"second", b"third", b"other level"}
    assert broker.parts.due.delays.progress()[1] == (3, 3)


async def test_a_full_slice_is_followed_by_another(broker: ControlBroker, bridge: Bridge, delays: DelayEscapes) -> None:
    for number in range(SLICE_MAX + 1):
        send_delayed(broker, 1, b"%d" % number)
    broker.clock.now_ms += 1_000
    assert await delays.deliver_slice() == 0
    assert await delays.deliver_slice()
    assert len(bridge.sent) == SLICE_MAX + 1


async def test_a_message_of_a_deleted_topic_is_passed_over(
    broker: ControlBroker, bridge: Bridge, delays: DelayEscapes
) -> None:
    send_delayed(broker, 1, b"gone")
    await broker.parts.tables.topics.delete("T")
    broker.clock.now_ms += 1_000
    assert await delays.deliver_slice()
    assert bridge.sent == []
    assert broker.parts.due.delays.progress() == {1: (1, 1)}


async def deliver(escapes: TimerEscapes) -> int | None:
    """Deliver until there is nothing to do now."""
    while (rest_ms := await escapes.deliver_slice()) == 0:
        continue
    return rest_ms


async def test_timed_messages_go_out_when_they_are_due(bridge: Any) -> None:
    world = World()
    escapes = TimerEscapes(world.timers, bridge, precision_ms=PRECISION_MS)
    world.send_at(NOW_MS + 5_000, body=b"timed")
    world.clock.now_ms += 4_000
    await deliver(escapes)
    assert bridge.sent == []
    world.clock.now_ms += 2_000
    assert await deliver(escapes)
    assert bridge.sent == [("orders", b"timed", None)]
    await deliver(escapes)
    assert len(bridge.sent) == 1


async def test_a_timed_message_that_could_not_be_sent_is_sent_again(bridge: Any) -> None:
    world = World()
    escapes = TimerEscapes(world.timers, bridge, precision_ms=PRECISION_MS)
    world.send_at(NOW_MS + 1_000, body=b"timed")
    world.clock.now_ms += 3_000
    bridge.refused = {b"timed"}
    assert await deliver(escapes) is None
    bridge.refused = set()
    assert await deliver(escapes)
    assert bridge.bodies == [b"timed"]


async def test_a_message_that_is_due_beyond_the_wheel_goes_out_with_its_time(bridge: Any) -> None:
    """Due in the same tick as it would be here."""
    world = World()
    escapes = TimerEscapes(world.timers, bridge, precision_ms=PRECISION_MS)
    due_ms = NOW_MS + 3 * WINDOW_MS
    world.send_at(due_ms, body=b"far")
    for _ in range(3 * WINDOW_MS // 1_000):
        await deliver(escapes)
        if bridge.sent:
            break
        world.clock.now_ms += 1_000
    ((topic, body, sent_due_ms),) = bridge.sent
    assert (topic, body) == ("orders", b"far")
    assert sent_due_ms is not None
    assert world.clock.now_ms < sent_due_ms
    assert due_tick_ms(sent_due_ms, PRECISION_MS) == due_tick_ms(due_ms, PRECISION_MS)
