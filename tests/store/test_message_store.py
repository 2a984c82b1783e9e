"""MessageStore: put, get, lookups by time, limits, topics; and the whole beside a plain list.

Covers `store/log/message_draft.py`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import (
    LOG_FILE_BYTES,
    add_topic,
    bodies_of,
    delete_topic,
    draft,
    open_store,
    records_of,
    small_config,
)
from thermocline.remoting.errors import (
    DiskFullError,
    MessageIllegalError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    PropertiesTooLargeError,
    StoreClosedError,
    TopicNotFoundError,
)
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.string_hash import tags_code
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.files.disk import RealDisk
from thermocline.store.log.message_draft import GetStatus, PutStatus, TimeBoundary
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk, clock: Clock) -> MessageStore:
    return open_store(disk, clock=clock)


def get(store: MessageStore, offset: int, **changes: Any) -> Any:
    limits: dict[str, Any] = {"count_max": 32, "bytes_max": 1 << 20}
    return store.get("orders", 0, offset, **limits | changes)


# -- put -----------------------------------------------------------------------------------------------------------


def test_a_put_says_where(store: MessageStore, clock: Clock) -> None:
    first = store.put(draft())
    second = store.put(draft(body=b"other"))
    assert (first.status, first.physical_offset, first.queue_offset) == (PutStatus.PUT_OK, 0, 0)
    assert first.store_timestamp_ms == clock.now_ms
    assert (second.physical_offset, second.queue_offset) == (first.end_offset, 1)
    assert store.put(draft(queue_id=1)).queue_offset == 0


def test_a_record_holds_everything(store: MessageStore) -> None:
    message = draft(
        body=b"body",
        properties=b"KEYS\x01k\x02",
        flag=5,
        sys_flag=0x101,
        reconsume_times=3,
        prepared_transaction_offset=9,
        born_host=("2001:db8::1", 77),
    )
    result = store.put(message)
    record = store.read_record(result.physical_offset)
    assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 0, 0)
    assert (record.body, record.properties_text) == (b"body", b"KEYS\x01k\x02")
    assert (record.flag, record.sys_flag, record.reconsume_times) == (5, 0x111, 3)
    assert (record.prepared_transaction_offset, record.born_host) == (9, ("2001:db8::1", 77))
    assert (record.store_host, record.size_bytes) == (("10.0.0.1", 10911), result.size_bytes)


def test_a_batch_is_consecutive_and_in_one_file(store: MessageStore) -> None:
    store.put(draft(body=b"x" * 3_000))
    results = store.put_batch([draft(queue_id=number % 2, body=b"y" * 400) for number in range(4)])
    assert [result.queue_offset for result in results] == [1, 0, 2, 1]
    assert results[0].physical_offset == LOG_FILE_BYTES
    ends = [result.end_offset for result in results]
    assert [result.physical_offset for result in results[1:]] == ends[:-1]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"body": b"x" * 200}, MessageTooLargeError),
        ({"topic": ""}, MessageIllegalError),
        ({"topic": "t" * 128}, MessageIllegalError),
        ({"topic": "../t"}, MessageIllegalError),
        ({"topic": ".."}, MessageIllegalError),
        ({"topic": "t\0"}, MessageIllegalError),
        ({"topic": "%RETRY%" + "t" * 249}, MessageIllegalError),
        ({"queue_id": -1}, MessageIllegalError),
        ({"properties": b"p" * 32_768}, PropertiesTooLargeError),
        ({"properties": b"KEYS\1" + bytes(256) + b"\2"}, MessageIllegalError),
        ({"properties": b"KEYS\1k\0"}, MessageIllegalError),
        ({"body": b"x" * 99, "properties": b"p" * 4_000}, MessageTooLargeError),
    ],
)
def test_limits(disk: SimulatedDisk, changes: dict[str, Any], error: type[Exception]) -> None:
    store = open_store(disk, small_config(message_bytes_max=100))
    with pytest.raises(error):
        store.put_batch([draft(), draft(**changes)])
    assert store.commit_log.append_offset == 0
    assert len(store.queues) == 0


def test_long_names_of_internal_topics(store: MessageStore) -> None:
    topic = "%RETRY%" + "t" * 248
    store.put(draft(topic))
    assert bodies_of(store, topic) == [b"hello"]


def test_nothing_changes_when_there_is_no_room(disk: SimulatedDisk, store: MessageStore) -> None:
    store.put(draft(body=b"x" * 3_000))
    disk.is_full = True
    with pytest.raises(DiskFullError):
        store.put(draft(queue_id=9, body=b"y" * 2_000))
    assert store.queues.find("orders", 9) is None
    assert store.put(draft(body=b"z")).queue_offset == 1
    disk.is_full = False
    assert store.put(draft(body=b"y" * 2_000)).queue_offset == 2


def test_put_tells_who_waits(store: MessageStore) -> None:
    notices: list[tuple[str, int]] = []
    store.on_append = lambda queue: notices.append((queue.topic, queue.queue_id))
    store.put_batch([draft(), draft(queue_id=1)])
    store.put(draft(sys_flag=4))
    assert notices == [("orders", 0), ("orders", 1)]


# -- get -----------------------------------------------------------------------------------------------------------


def test_statuses_are_apache_rocketmqs(store: MessageStore) -> None:
    assert get(store, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    store.queues.find_or_create("orders", 0)
    assert get(store, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    for _ in range(3):
        store.put(draft())
    assert get(store, 0).status is GetStatus.FOUND
    at_end, behind = get(store, 3), get(store, 4)
    assert (at_end.status, at_end.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 3)
    assert (behind.status, behind.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 3)
    before = get(store, -1)
    assert (before.status, before.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
    assert (before.min_offset, before.max_offset) == (0, 3)


def test_adjacent_records_are_one_buffer(store: MessageStore) -> None:
    for _ in range(4):
        store.put(draft())
    result = get(store, 1)
    assert (result.message_count, len(result.buffers), result.next_begin_offset) == (3, 1, 4)
    assert result.size_bytes == len(result.buffers[0])
    store.put(draft(queue_id=1))
    store.put(draft())
    result = get(store, 0)
    assert (result.message_count, result.size_bytes) == (5, sum(map(len, result.buffers)))


def test_counts_and_bytes_are_limits(store: MessageStore) -> None:
    for _ in range(5):
        store.put(draft(body=b"x" * 100))
    size_bytes = store.put(draft(body=b"x" * 100)).size_bytes
    assert get(store, 0, count_max=2).message_count == 2
    assert get(store, 0, bytes_max=2 * size_bytes).message_count == 2
    assert get(store, 0, bytes_max=2 * size_bytes - 1).message_count == 1
    assert get(store, 0, bytes_max=1).message_count == 1


def test_tags_are_filtered_by_their_codes(store: MessageStore) -> None:
    for number in range(6):
        store.put(draft(body=b"%d" % number, properties=b"TAGS\x01%s\x02" % (b"odd" if number % 2 else b"even")))
    result = get(store, 0, codes=frozenset({tags_code("odd")}))
    bodies = [decode_record(buffer).body for buffer in result.buffers]
    assert (bodies, result.next_begin_offset) == ([b"1", b"3", b"5"], 6)
    none = get(store, 0, codes=frozenset({tags_code("prime")}))
    assert (none.status, none.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
    assert get(store, 0, codes=frozenset()).message_count == 6


def test_a_get_with_tags_looks_at_a_bounded_part(store: MessageStore) -> None:
    queue = store.queues.find_or_create("orders", 0)
    for number in range(2_000):
        queue.append_unit(number, 10, 1)
    result = get(store, 0, codes=frozenset({2}))
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)


def test_with_sync_flush_no_reader_gets_a_message_that_is_not_durable(disk: SimulatedDisk) -> None:
    store = open_store(disk, small_config(flush_disk_type=FlushDiskType.SYNC_FLUSH))
    results = [store.put(draft(body=b"%d" % number)) for number in range(3)]
    queue = store.queues.find_or_create("orders", 0)
    assert (store.max_offset(queue), store.confirm_offset) == (0, 0)
    assert get(store, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.flush.wait(results[-1].end_offset, lambda status: None)
    store.tick()
    store.put(draft(body=b"3"))
    assert store.max_offset(queue) == 3
    assert bodies_of(store) == [b"0", b"1", b"2"]
    assert get(store, 3).status is GetStatus.OFFSET_OVERFLOW_ONE


# -- time ----------------------------------------------------------------------------------------------------------


def test_offsets_by_time(store: MessageStore, clock: Clock) -> None:
    """Runs of equal times: LOWER gives the first of a run, UPPER the last."""
    for step_ms in (0, 0, 10, 0, 0, 10):
        clock.now_ms += step_ms
        store.put(draft())
    base = clock.now_ms - 20
    expected = {
        base - 1: (0, 0),
        base: (0, 1),
        base + 5: (2, 1),
        base + 10: (2, 4),
        base + 11: (5, 4),
        base + 20: (5, 5),
        base + 21: (6, 5),
    }
    for timestamp_ms, (lower, upper) in expected.items():
        assert store.offset_by_time("orders", 0, timestamp_ms, TimeBoundary.LOWER) == lower, timestamp_ms
        assert store.offset_by_time("orders", 0, timestamp_ms, TimeBoundary.UPPER) == upper, timestamp_ms
    assert store.offset_by_time("nothing", 0, base, TimeBoundary.LOWER) == 0
    assert store.message_time("orders", 0, 5) == base + 20
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRangeError):
            store.message_time("orders", 0, offset)


# -- topics --------------------------------------------------------------------------------------------------------


def test_a_topic_that_is_made_again_starts_clean(store: MessageStore) -> None:
    add_topic(store, "orders")
    store.put(draft())
    delete_topic(store, "orders")
    with pytest.raises(TopicNotFoundError):
        store.put(draft())
    assert get(store, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    add_topic(store, "orders")
    assert store.put(draft(body=b"new")).queue_offset == 0
    assert bodies_of(store) == [b"new"]


# -- closing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_store_whose_directory_is_gone_takes_nothing(tmp_path: Path, change: str) -> None:
    root = tmp_path / "store"
    store = open_store(RealDisk(), small_config(str(root)))
    store.put(draft())
    store.check_place()
    store.put(draft())
    root.rename(tmp_path / "moved")
    if change == "replaced":
        root.mkdir()
        Path(store.config.lock_path).touch()
    store.check_place()
    with pytest.raises(StoreClosedError, match="the store directory is gone"):
        store.put(draft())
    with contextlib.suppress(StoreClosedError, OSError):
        store.close()


def test_a_closed_store_takes_nothing(store: MessageStore) -> None:
    store.close()
    with pytest.raises(StoreClosedError):
        store.put(draft())


def test_a_store_whose_flush_failed_keeps_its_abort_mark(disk: SimulatedDisk, store: MessageStore) -> None:
    store.put(draft())
    disk.fail_syncs.add("log flush")
    with pytest.raises(StoreClosedError):
        store.close()
    assert disk.exists("/store/abort")
    disk.fail_syncs.clear()
    assert bodies_of(open_store(disk)) == [b"hello"]


def test_on_a_real_disk(tmp_path: Any) -> None:
    """The same on a file system, with the thread that makes log files ahead."""
    config = small_config(str(tmp_path / "store"))
    store = MessageStore.open(config, disk=RealDisk(), clock=Clock(1_000_000))
    for number in range(100):
        store.put(draft(body=b"%d" % number))
        store.tick()
    store.close()
    store = MessageStore.open(config, disk=RealDisk(), clock=Clock(1_000_000))
    assert bodies_of(store) == [b"%d" % number for number in range(100)]
    assert store.identity.store_id
    store.close()


# -- all of it -----------------------------------------------------------------------------------------------------


class StoreIsAList(RuleBasedStateMachine):
    """Whatever is done to a store, each queue is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.clock = Clock(1_000_000)
        self.store = open_store(self.disk, clock=self.clock)
        self.expected: dict[tuple[str, int], list[bytes]] = {}
        self.number = 0

    @rule(
        topic=st.sampled_from(["a", "b"]),
        queue_ids=st.lists(st.integers(0, 2), min_size=1, max_size=4),
        body_bytes=st.sampled_from([0, 10, 600]),
    )
    def put(self, topic: str, queue_ids: list[int], body_bytes: int) -> None:
        if self.store.incarnations.is_deleted(topic):
            add_topic(self.store, topic)
        bodies = []
        for _ in queue_ids:
            self.number += 1
            bodies.append(b"%d" % self.number + b"." * body_bytes)
        self.store.put_batch([draft(topic, queue_id, body) for queue_id, body in zip(queue_ids, bodies, strict=True)])
        for queue_id, body in zip(queue_ids, bodies, strict=True):
            self.expected.setdefault((topic, queue_id), []).append(body)

    @rule()
    def tick(self) -> None:
        self.store.tick()

    @rule()
    def sync(self) -> None:
        self.store.sync_derived()

    @rule(step_ms=st.integers(1, 1_000))
    def wait(self, step_ms: int) -> None:
        self.clock.now_ms += step_ms

    @rule(topic=st.sampled_from(["a", "b"]))
    def delete(self, topic: str) -> None:
        delete_topic(self.store, topic)
        self.expected = {key: bodies for key, bodies in self.expected.items() if key[0] != topic}

    @rule(clean=st.booleans())
    def reopen(self, *, clean: bool) -> None:
        if clean:
            self.store.close()
        self.disk.revive()
        self.store = open_store(self.disk, clock=self.clock)

    @precondition(lambda self: self.number > 5)
    @rule(name=st.sampled_from(["consumequeue", "checkpoint", "thermocline/queueEnds"]))
    def lose(self, name: str) -> None:
        self.store.close()
        path = f"/store/{name}"
        if self.disk.is_directory(path):
            self.disk.remove_tree(path)
        else:
            self.disk.remove(path)
        self.store = open_store(self.disk, clock=self.clock)

    @invariant()
    def every_queue_is_its_list(self) -> None:
        found = {(queue.topic, queue.queue_id): queue for queue in self.store.queues}
        assert set(found) == set(self.expected)
        for key, bodies in self.expected.items():
            assert [record.body for record in records_of(self.store, found[key])] == bodies
            assert (found[key].min_offset, found[key].next_offset) == (0, len(bodies))


TestStoreIsAList = StoreIsAList.TestCase
TestStoreIsAList.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_retention_and_slices(store: MessageStore) -> None:
    """A consumer that holds slices of a file keeps them when the file is deleted."""
    for number in range(40):
        store.put(draft(body=b"%03d" % number * 50))
    store.sync_derived()
    held = get(store, 0, count_max=3)
    store.retention.execute(store.retention.plan(RetentionGate(), now_ms=1 << 50, hour=4))
    assert store.commit_log.min_offset > 0
    assert get(store, 0).status is GetStatus.OFFSET_TOO_SMALL
    assert b"".join(held.buffers).count(b"002") == 50
