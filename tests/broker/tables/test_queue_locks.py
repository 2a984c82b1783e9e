"""Queue locks: one client at a time, for as long as it renews."""

import pytest

from tests.clock import Clock
from thermocline.broker.tables.queue_locks import QueueLocks
from thermocline.remoting.bodies import MessageQueue


@pytest.fixture
def clock() -> Clock:
    return Clock(0)


@pytest.fixture
def locks(clock: Clock) -> QueueLocks:
    return QueueLocks(live_ms=60_000, clock=clock)


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
