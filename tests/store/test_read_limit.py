"""What not all brokers of the SyncStateSet have is not read, and wakes those that wait for it when they have."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import bodies_of, draft, open_store, small_config
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.log.message_draft import GetStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import ConsumeQueue
from thermocline.store.read_limit import ReadLimit


class LimitedStore:
    """A store with a confirm offset that a test moves."""

    def __init__(self, *, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> None:
        self.confirmed = LOG_START
        self.store: MessageStore = open_store(SimulatedDisk(), small_config(flush_disk_type=flush))
        self.limit = self.store.read_limit = ReadLimit(lambda: self.confirmed)
        self.woken: list[str] = []
        self.store.on_append = self.show

    def show(self, queue: ConsumeQueue) -> None:
        self.limit.show([queue], self.store.commit_log.append_offset, self.wake)

    def wake(self, queues: object) -> None:
        assert isinstance(queues, list)
        self.woken += [queue.topic for queue in queues]

    def confirm(self, offset: int) -> None:
        self.confirmed = PhysicalOffset(offset)
        self.limit.advanced()


def test_messages_are_read_up_to_the_confirm_offset() -> None:
    parts = LimitedStore()
    ends = [parts.store.put(draft(body=b"%d" % number)).end_offset for number in range(3)]
    queue = parts.store.queues.find("orders", 0)
    assert queue is not None
    for confirmed, count in ((0, 0), (ends[0] - 1, 0), (ends[0], 1), (ends[0] + 1, 1), (ends[1], 2), (ends[2], 3)):
        parts.confirm(confirmed)
        assert parts.store.confirm_offset == confirmed
        assert parts.store.max_offset(queue) == count
        assert bodies_of(parts.store) == [b"%d" % number for number in range(count)]
    parts.confirm(ends[1] - 1)
    found = parts.store.get("orders", 0, queue.min_offset, count_max=9, bytes_max=1 << 20)
    assert (found.status, found.message_count, found.max_offset) == (GetStatus.FOUND, 1, 1)
    parts.store.read_limit = None
    assert parts.store.max_offset(queue) == 3


@pytest.mark.parametrize("is_flushed", [False, True])
def test_with_synchronous_flush_messages_are_durable_too(is_flushed: bool) -> None:
    parts = LimitedStore(flush=FlushDiskType.SYNC_FLUSH)
    parts.confirm(parts.store.put(draft()).end_offset)
    if is_flushed:
        parts.store.commit_log.flush()
    assert len(bodies_of(parts.store)) == is_flushed


def test_those_that_wait_are_woken_until_they_may_read_all() -> None:
    parts = LimitedStore()
    first = parts.store.put(draft("orders")).end_offset
    last = parts.store.put(draft("orders")).end_offset
    bill = parts.store.put(draft("bills")).end_offset
    assert (parts.woken, parts.limit.held_count) == ([], 2)
    parts.confirm(first)
    assert "orders" in parts.woken
    parts.woken.clear()
    parts.confirm(last)
    assert "orders" in parts.woken
    assert parts.limit.held_count == 1
    parts.confirm(bill)
    assert parts.limit.held_count == 0
    parts.woken.clear()
    parts.confirm(bill)
    assert parts.woken == []


def test_what_may_be_read_at_once_wakes_at_once() -> None:
    parts = LimitedStore()
    parts.confirm(1 << 30)
    parts.store.put(draft())
    assert parts.woken == ["orders"]
    assert parts.limit.held_count == 0


def test_all_look_again_when_the_role_ends() -> None:
    parts = LimitedStore()
    parts.store.put(draft())
    parts.limit.end()
    assert parts.woken == ["orders"]
    parts.limit.end()
    assert parts.woken == ["orders"]


def test_nothing_is_sealed_that_a_broker_that_could_be_elected_lacks() -> None:
    parts = LimitedStore()
    ends = [parts.store.put(draft()).end_offset for _ in range(2)]
    parts.store.commit_log.flush()
    assert parts.store.seal_offset == LOG_START
    parts.confirm(ends[0])
    assert parts.store.seal_offset == ends[0]
    parts.confirm(ends[1] + 100)
    assert parts.store.seal_offset == parts.store.commit_log.flush_offset == ends[1]
