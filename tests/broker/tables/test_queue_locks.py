"""Queue locks: one client at a time, for as long as it renews."""

import pytest

from tests.clock import Clock
from thermocline.broker.tables.queue_locks import QueueLocks
from thermocline.remoting.bodies import MessageQueue
from thermocline.remoting.connections import LimitCounts


@pytest.fixture
def clock() -> Clock:
    return Clock(0)


@pytest.fixture
def locks(clock: Clock) -> QueueLocks:
    return QueueLocks(live_ms=60_000, clock=clock, address_max=lambda: 4, total_max=lambda: 6, limits=LimitCounts())


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="broker-a", queue_id=queue_id)


def test_a_locked_queue_is_left_out_of_anothers_answer(locks: QueueLocks) -> None:
    assert locks.lock("G", [queue(0), queue(1)], "one") == [queue(0), queue(1)]
    assert locks.lock("G", [queue(1), queue(2)], "two") == [queue(2)]
    assert locks.lock("Other", [queue(0)], "two") == [queue(0)]
    assert locks.lock("G", [queue(1)], "one") == [queue(1)], "it is still its own"


def test_a_lock_ends_when_it_is_not_renewed(locks: QueueLocks, clock: Clock) -> None:
    locks.lock("G", [queue(0)], "one")
    clock.now_ms = 50_000
    assert locks.lock("G", [queue(0)], "one") == [queue(0)]
    clock.now_ms = 110_000
    assert locks.lock("G", [queue(0)], "two") == []
    assert locks.is_locked("G")
    clock.now_ms = 110_001
    assert not locks.is_locked("G")
    assert locks.lock("G", [queue(0)], "two") == [queue(0)]


def test_only_the_owner_unlocks(locks: QueueLocks) -> None:
    locks.lock("G", [queue(0)], "one")
    locks.unlock("G", [queue(0), queue(1)], "two")
    assert locks.is_locked("G")
    locks.unlock("G", [queue(0)], "one")
    assert not locks.is_locked("G")
    locks.unlock("no such group", [queue(0)], "one")


def test_expired_locks_leave_nothing_behind(locks: QueueLocks, clock: Clock) -> None:
    locks.lock("G", [queue(0)], "one")
    locks.lock("H", [queue(0)], "one")
    clock.now_ms = 60_001
    locks.lock("H", [queue(1)], "one")
    locks.expire()
    assert locks.lock("H", [queue(1)], "two") == []
    assert locks.lock("G", [], "two") == []


def test_bounds_of_an_address_and_of_all(locks: QueueLocks, clock: Clock) -> None:
    """Beyond them queues are left out of the answer; locks that end, and those that are given up, make room."""
    first = [queue(number) for number in range(6)]
    assert locks.lock("G", first, "one", "10.0.0.1") == first[:4]
    assert locks.lock("G", first, "one", "10.0.0.1") == first[:4], "to renew takes no room"
    second = [queue(number) for number in range(10, 15)]
    assert locks.lock("G", second, "two", "2001:db8::1") == second[:2], "six in all"
    locks.unlock("G", first[:1], "one")
    assert locks.lock("G", second, "two", "2001:db8::2") == second[:3], "one network, one address"
    clock.now_ms = 60_001
    locks.expire()
    assert len(locks) == 0
    assert locks.lock("G", first, "two", "10.0.0.1") == first[:4]
