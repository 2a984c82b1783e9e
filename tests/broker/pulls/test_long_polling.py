"""Waiting pulls: who is asked when, deadlines, bounds, and clients that leave.

Covers `broker/sends/send_targets.py`.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import TOPIC, Consumer
from tests.broker.wire import Wire
from thermocline.broker.pulls.long_polling import SLICE_MAX, TICK_MS, LongPolling
from thermocline.remoting.connections.connection import Connection
from thermocline.store.queues.consume_queue import ConsumeQueue


class Sleeper:
    """Records each retry of the pull, and answers when the test says so."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.looks = 0
        self.is_satisfied = False
        self.is_over = False

    def look_again(self) -> bool:
        self.looks += 1
        return self.is_satisfied

    def time_is_up(self) -> None:
        self.is_over = True


@pytest.fixture
async def case(tmp_path: Path) -> object:
    async with data_broker(tmp_path, start=False) as broker:
        yield broker


async def test_only_waiters_of_the_queue_are_asked(case: DataBroker) -> None:
    polling = LongPolling()
    connection = Wire(case.dispatcher).connection
    here, there = Sleeper(connection), Sleeper(connection)
    assert polling.park("T", 0, here, deadline_ms=1_000)
    assert polling.park("T", 1, there, deadline_ms=1_000)
    queue = case.store.queues.find_or_create("T", 0)
    polling.arrived([queue, queue])
    assert (here.looks, there.looks) == (1, 0)
    here.is_satisfied = True
    polling.arrived([queue])
    polling.arrived([queue])
    assert (here.looks, len(polling)) == (2, 1)


async def test_deadlines(case: DataBroker) -> None:
    """No pull is answered early or more than a tick late, and an answered pull is not retried."""
    polling = LongPolling()
    connection = Wire(case.dispatcher).connection
    sleepers = {deadline_ms: Sleeper(connection) for deadline_ms in (0, 1, TICK_MS, 950, 1_000, 5_000)}
    for deadline_ms, sleeper in sleepers.items():
        assert polling.park("T", 0, sleeper, deadline_ms=deadline_ms)
    for now_ms in range(0, 7_000, 30):
        polling.expire(now_ms)
        for deadline_ms, sleeper in sleepers.items():
            if now_ms < deadline_ms:
                assert not sleeper.is_over
            if now_ms >= deadline_ms + 2 * TICK_MS:
                assert sleeper.is_over
    assert len(polling) == 0
    late = Sleeper(connection)
    assert polling.park("T", 0, late, deadline_ms=100)  # already over: with the next tick
    polling.expire(7_000 + TICK_MS)
    assert late.is_over


async def test_many_deadlines_at_once_come_in_slices(case: DataBroker) -> None:
    """So that the loop serves others in between; every waiter answers once."""
    polling = LongPolling()
    connection = Wire(case.dispatcher).connection
    sleepers = [Sleeper(connection) for _ in range(2 * SLICE_MAX + 5)]
    for sleeper in sleepers:
        polling.park("T", 0, sleeper, deadline_ms=500)
    polling.forget(Wire(case.dispatcher).connection)
    waiting_counts = []
    while polling.expire(1_000):
        waiting_counts.append(len(polling))
    assert waiting_counts == [SLICE_MAX + 5, 5]
    assert all(sleeper.is_over for sleeper in sleepers)
    assert len(polling) == 0


async def test_many_waiters_of_a_queue_are_asked_in_slices(case: DataBroker) -> None:
    """A message wakes thousands; the loop serves others in between, and waiters of another queue do not wait for them.
    Those that do not want it are asked again for the next message, in turn, and none is left out."""
    polling = LongPolling()
    connection = Wire(case.dispatcher).connection
    crowd = [Sleeper(connection) for _ in range(3 * SLICE_MAX + 5)]
    for sleeper in crowd:
        polling.park("T", 0, sleeper, deadline_ms=60_000)
    other = Sleeper(connection)
    polling.park("T", 1, other, deadline_ms=60_000)
    queue, quiet_queue = case.store.queues.find_or_create("T", 0), case.store.queues.find_or_create("T", 1)

    def asked() -> int:
        return sum(sleeper.looks for sleeper in crowd)

    polling.arrived([queue])
    looks = [asked()]
    polling.arrived([quiet_queue])
    while asked() < len(crowd):
        await asyncio.sleep(0)
        looks.append(asked())
        assert other.looks or len(looks) <= 3
    steps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert looks[0] == SLICE_MAX
    assert max(steps) <= SLICE_MAX
    assert other.looks == 1
    assert {sleeper.looks for sleeper in crowd} == {1}
    for sleeper in crowd[::2]:
        sleeper.is_satisfied = True
    polling.arrived([queue])
    await asyncio.sleep(0)
    polling.arrived([queue])  # before the last of all was queried
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(polling) == len(crowd[1::2]) + 1
    assert min(sleeper.looks for sleeper in crowd[1::2]) >= 2
    polling.forget(connection)
    assert (len(polling), polling._by_queue, polling._by_connection) == (0, {}, {})


async def test_what_has_left_is_not_remembered_until_its_deadline(case: DataBroker) -> None:
    """A client that names a wait of ten minutes and is answered at once, or leaves, time after time, fills nothing."""
    polling = LongPolling()
    queue = case.store.queues.find_or_create("T", 0)
    for number in range(100):
        connection = Wire(case.dispatcher).connection
        answered, other = Sleeper(connection), Sleeper(connection)
        polling.park("T", 0, answered, deadline_ms=600_000 + number * TICK_MS)
        polling.park("T", 0, other, deadline_ms=600_000 + number * TICK_MS)
        answered.is_satisfied = True
        polling.arrived([queue])
        polling.forget(connection)
    staying = Sleeper(Wire(case.dispatcher).connection)
    polling.park("T", 0, staying, deadline_ms=600_000)
    assert [list(places) for places in polling._by_deadline.values()] == [
        list(polling._by_connection[staying.connection])
    ]
    while polling.expire(600_000 + 2 * TICK_MS):
        pass
    assert (staying.is_over, polling._by_deadline, len(polling)) == (True, {}, 0)


async def test_bounds(case: DataBroker) -> None:
    """Beyond them a pull is not parked, so it is answered at once."""
    polling = LongPolling(waiters_max=lambda: 3, connection_waiters_max=lambda: 2)
    first, second = Wire(case.dispatcher).connection, Wire(case.dispatcher).connection
    assert polling.park("T", 0, Sleeper(first), deadline_ms=1_000)
    assert polling.park("T", 0, Sleeper(first), deadline_ms=1_000)
    assert not polling.park("T", 0, Sleeper(first), deadline_ms=1_000)
    assert polling.park("T", 0, Sleeper(second), deadline_ms=1_000)
    assert not polling.park("T", 0, Sleeper(second), deadline_ms=1_000)
    polling.forget(first)
    assert polling.park("T", 0, Sleeper(second), deadline_ms=1_000)
    assert len(polling) == 2


async def test_a_client_that_leaves_while_it_is_asked(case: DataBroker) -> None:
    """Answering may close the connection, which forgets its waiters."""
    polling = LongPolling()
    connection = Wire(case.dispatcher).connection
    queue: ConsumeQueue = case.store.queues.find_or_create("T", 0)

    class Leaver(Sleeper):
        def look_again(self) -> bool:
            polling.forget(self.connection)
            return True

    leaver, neighbour = Leaver(connection), Sleeper(connection)
    polling.park("T", 0, leaver, deadline_ms=1_000)
    polling.park("T", 0, neighbour, deadline_ms=1_000)
    polling.arrived([queue])
    assert (len(polling), neighbour.looks) == (0, 0)
    polling.expire(10_000)
    assert not neighbour.is_over


async def test_the_wait_ends_with_its_time_though_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        consumer, steady_clock = Consumer(broker), broker.parts.base.steady_clock
        before = consumer.ask(0, sysFlag=6, queueId=3, suspendTimeoutMillis=5_000)
        broker.clock.set_back(3_600_000)
        broker.hot.tick(steady_clock())
        after = consumer.ask(0, sysFlag=6, queueId=3, suspendTimeoutMillis=6_000)
        for opaque, passed_ms in ((before, 5_000), (after, 1_000)):
            assert consumer.wire.take_commands() == []
            broker.clock.now_ms += passed_ms + TICK_MS
            broker.hot.tick(steady_clock())
            (answer,) = await consumer.wire.wait_commands()
            assert (answer.opaque, answer.code) == (opaque, 19)
