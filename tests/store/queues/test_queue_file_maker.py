"""QueueFileMaker: files that are made ahead are those that a write would make, and none comes back after its topic."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import (
    UNITS_PER_FILE,
    add_topic,
    bodies_of,
    delete_topic,
    draft,
    open_store,
    small_config,
)
from thermocline.store.message_store import MessageStore

TOPIC = "orders"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk) -> MessageStore:
    return open_store(disk)


def path_of(topic: str, queue_id: int) -> str:
    return f"{small_config().consume_queue_path}/{topic}/{queue_id}"


def test_a_file_is_ordered_once_and_written_by_the_tick(store: MessageStore, disk: SimulatedDisk) -> None:
    maker = store.queue_file_maker
    for queue_id in range(3):
        store.put(draft(queue_id=queue_id))
    orders = maker.order(2)
    assert [order.queue.queue_id for order in orders] == [0, 1]
    assert [order.queue.queue_id for order in maker.order(9)] == [2], "two are being made already"
    maker.make(orders)
    maker.take_orders(orders)
    assert maker.order(2) == []
    (name,) = disk.list_directory(path_of(TOPIC, 0))
    file = disk.open(f"{path_of(TOPIC, 0)}/{name}")
    assert file.size_bytes == store.config.queue_file_bytes
    store.tick()
    assert [bodies_of(store, queue_id=queue_id) for queue_id in range(3)] == [[b"hello"]] * 3


def test_a_file_behind_the_first_is_ordered_once(store: MessageStore, disk: SimulatedDisk) -> None:
    maker, file_bytes = store.queue_file_maker, store.config.queue_file_bytes
    for number in range(UNITS_PER_FILE):
        store.put(draft(body=b"%d" % number))
    store.tick()
    store.put(draft(body=b"next"))
    (order,) = orders = maker.order(1)
    assert (order.base_position, order.first_position) == (file_bytes, 0)
    assert maker.order(1) == [], "it is being made already"
    maker.make(orders)
    maker.take_orders(orders)
    assert maker.order(1) == [], "it is there"
    assert len(disk.list_directory(path_of(TOPIC, 0))) == 2
    store.tick()
    assert bodies_of(store)[-2:] == [b"%d" % (UNITS_PER_FILE - 1), b"next"]


def test_an_order_that_was_not_made_is_given_again(store: MessageStore) -> None:
    maker = store.queue_file_maker
    store.put(draft())
    orders = maker.order(1)
    maker.take_orders(orders)
    assert [each.queue for each in maker.order(1)] == [orders[0].queue]


def test_a_write_between_making_and_taking_is_kept(store: MessageStore) -> None:
    maker = store.queue_file_maker
    store.put(draft())
    orders = maker.order(1)
    store.tick()
    maker.make(orders)
    maker.take_orders(orders)
    store.put(draft(body=b"second"))
    store.tick()
    assert bodies_of(store) == [b"hello", b"second"]


@pytest.mark.parametrize("is_made_before", [True, False])
def test_a_topic_that_goes_meanwhile_leaves_no_file(
    store: MessageStore, disk: SimulatedDisk, *, is_made_before: bool
) -> None:
    maker = store.queue_file_maker
    store.put(draft())
    orders = maker.order(1)
    if is_made_before:
        maker.make(orders)
    delete_topic(store, TOPIC)
    if not is_made_before:
        maker.make(orders)
    maker.take_orders(orders)
    assert not disk.exists(path_of(TOPIC, 0))
    add_topic(store, TOPIC)
    store.put(draft(body=b"anew"))
    store.tick()
    assert bodies_of(store) == [b"anew"]


def test_no_room_is_met_by_the_write(store: MessageStore, disk: SimulatedDisk) -> None:
    maker = store.queue_file_maker
    store.put(draft())
    disk.is_full = True
    orders = maker.order(1)
    maker.make(orders)
    maker.take_orders(orders)
    store.tick()
    assert store.commit_log.refusal is not None
    disk.is_full = False
    store.tick()
    assert store.commit_log.refusal is None
    assert bodies_of(store) == [b"hello"]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_folder_without_room_for_its_file_is_durable_with_the_file_that_follows(
    store: MessageStore, disk: SimulatedDisk, *, is_ordered: bool
) -> None:
    """The folder was made by a try that met the full disk; the next try finds it, and its name is not synced yet."""
    store.put(draft(queue_id=1))
    disk.is_full = True
    if is_ordered:
        maker = store.queue_file_maker
        orders = maker.order(1)
        maker.make(orders)
        maker.take_orders(orders)
    else:
        store.tick()
    assert disk.exists(path_of(TOPIC, 1))
    disk.is_full = False
    sync = store.begin_derived_sync()
    while not sync.advance():
        continue
    sync.commit()
    store.end_derived_sync(sync, committed=True)
    after = open_store(disk.after_power_cut(Random(1), kept_share=0.0))
    assert bodies_of(after, queue_id=1) == [b"hello"]
    assert after.recovery_report.rebuilt_queue_count == 0, "the promised file is there"
