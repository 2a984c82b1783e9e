"""ConsumeQueueTable: who is written when, and how far that has come."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from thermocline.remoting.errors import ServiceUnavailableError, StoreClosedError
from thermocline.store.message_store import MessageStore


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk) -> MessageStore:
    return open_store(disk)


def test_topics_and_queues(store: MessageStore) -> None:
    table = store.queues
    live = table.of_topic("orders")
    assert live == {}
    assert table.topics == []
    assert table.find("orders", 0) is None
    queue = table.find_or_create("orders", 0)
    assert table.find_or_create("orders", 0) is queue is live[0]
    table.create("orders", 3, next_offset=9, min_offset=4)
    assert sorted(live) == [0, 3]
    assert (len(table), len(list(table)), table.topics) == (2, 2, ["orders"])
    removed = table.remove_topic("orders")
    assert removed[0] is queue
    assert live == {}
    assert len(table) == 0


def test_written_offset_rises_while_all_queues_are_busy(store: MessageStore) -> None:
    """Queues are written in the order of their oldest unit, so the mark is that of the next one."""
    starts = [store.put(draft(queue_id=number % 4)).physical_offset for number in range(12)]
    assert store.queues.written_offset == starts[0]
    assert store.queues.write_dirty(2) == 2
    assert store.queues.written_offset == starts[2]
    again = store.put(draft(queue_id=0)).physical_offset
    assert store.queues.write_dirty(2) == 2
    assert store.queues.written_offset == again
    assert store.queues.write_dirty() == 1
    assert store.queues.written_offset == store.commit_log.append_offset
    assert store.queues.write_dirty() == 0


def test_no_room_for_units_stops_the_sends_until_there_is(disk: SimulatedDisk, store: MessageStore) -> None:
    store.put(draft())
    disk.is_full = True
    store.tick()
    with pytest.raises(ServiceUnavailableError):
        store.put(draft())
    store.tick()
    disk.is_full = False
    store.tick()
    assert store.put(draft()).queue_offset == 1


def test_a_broken_queue_file_makes_the_log_read_only(
    disk: SimulatedDisk, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("broken")

    store.put(draft())
    monkeypatch.setattr(disk, "open", broken)
    store.tick()
    with pytest.raises(StoreClosedError):
        store.put(draft())
