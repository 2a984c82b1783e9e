"""Retention: what may go, when, and in which order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import (
    LOG_FILE_BYTES,
    UNITS_PER_FILE,
    add_topic,
    bodies_of,
    delete_topic,
    draft,
    open_store,
    small_config,
)
from thermocline.remoting.errors import ServiceUnavailableError, StoreClosedError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate, verdict_of

HOUR_MS = 3_600_000
DELETE_HOUR, OTHER_HOUR = 4, 5
OLD_MS = 80 * HOUR_MS


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def full_store(disk: SimulatedDisk, **settings: Any) -> MessageStore:
    """Six log files, all durable, of a time long ago."""
    store = open_store(disk, small_config(**settings))
    number = 0
    while store.commit_log.append_offset < 5 * LOG_FILE_BYTES + 100:
        store.put(draft(body=b"%d" % number + b"." * 300))
        number += 1
    store.sync_derived()
    return store


def run(
    store: MessageStore, gate: RetentionGate | None = None, *, now_ms: int = OLD_MS, hour: int = DELETE_HOUR
) -> int:
    """One round; how many log files are left."""
    plan = store.retention.plan(gate or RetentionGate(), now_ms=now_ms, hour=hour)
    store.retention.execute(plan)
    return len(store.commit_log.files)


def test_old_files_go_but_the_tail(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    assert run(store, now_ms=71 * HOUR_MS) == 6
    assert run(store) == 1
    assert store.commit_log.min_offset == 5 * LOG_FILE_BYTES
    assert disk.list_directory("/store/commitlog") == [f"{5 * LOG_FILE_BYTES:020d}"]
    queue = store.queues.find("orders", 0)
    assert queue is not None
    assert store.read_record(queue.unit(queue.min_offset).physical_offset).queue_offset == queue.min_offset
    assert len(bodies_of(store)) == queue.next_offset - queue.min_offset


def test_only_at_the_hour_unless_the_disk_fills(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    assert run(store, hour=OTHER_HOUR) == 6
    disk.free_bytes_left = disk.total_bytes_there * 24 // 100
    assert run(store, hour=OTHER_HOUR) == 1


def test_age_does_not_count_on_a_full_disk(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    disk.free_bytes_left = disk.total_bytes_there * 16 // 100
    assert run(store, now_ms=0, hour=OTHER_HOUR) == 6
    disk.free_bytes_left = disk.total_bytes_there * 14 // 100
    assert run(store, now_ms=0, hour=OTHER_HOUR) == 1


def test_without_forced_cleaning_files_stay_for_their_age_on_a_full_disk(disk: SimulatedDisk) -> None:
    store = full_store(disk, clean_forcibly=False)
    disk.free_bytes_left = disk.total_bytes_there * 14 // 100
    assert run(store, now_ms=0, hour=OTHER_HOUR) == 6
    assert run(store, hour=OTHER_HOUR) == 1


@pytest.mark.parametrize("name", ["committed_offset", "index_offset", "held_offset", "timers_offset"])
def test_no_needed_file_is_deleted(disk: SimulatedDisk, name: str) -> None:
    """However full the disk is."""
    store = full_store(disk)
    disk.free_bytes_left = 1
    gate = {name: 2 * LOG_FILE_BYTES - 1}
    assert run(store, RetentionGate(**gate)) == 5
    assert run(store, RetentionGate(**{name: 2 * LOG_FILE_BYTES})) == 4
    assert RetentionGate().offset > RetentionGate(**gate).offset == 2 * LOG_FILE_BYTES - 1


def test_nothing_goes_before_queue_ends_are_durable_past_it(disk: SimulatedDisk) -> None:
    store = open_store(disk)
    while store.commit_log.append_offset < 3 * LOG_FILE_BYTES:
        store.put(draft(body=b"." * 300))
    store.commit_log.flush()
    assert run(store) == 4
    store.sync_derived()
    assert run(store) == 1


def test_what_took_the_place_of_a_message_is_durable_before_its_file_goes(disk: SimulatedDisk) -> None:
    """As the copy of a delayed message that was delivered a moment ago."""
    store = full_store(disk)
    store.put(draft("delivered", body=b"copy"))
    assert run(store) == 1
    survivor = disk.after_power_cut(Random(1), kept_share=0.0)
    assert bodies_of(open_store(survivor), "delivered") == [b"copy"]


def test_a_log_that_cannot_be_flushed_keeps_its_files(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    store.put(draft("delivered", body=b"copy"))
    disk.fail_syncs.add(SyncSite.LOG_FLUSH)
    for _ in range(2):
        with pytest.raises(StoreClosedError):
            run(store)
    assert len(disk.list_directory("/store/commitlog")) == 6


def test_a_bounded_number_goes_in_a_round(disk: SimulatedDisk) -> None:
    store = full_store(disk, delete_files_max=2)
    assert [run(store) for _ in range(3)] == [4, 2, 1]


def test_sends_are_refused_before_the_disk_is_full(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    gate = RetentionGate(committed_offset=0)
    disk.free_bytes_left = disk.total_bytes_there * 9 // 100
    run(store, gate)
    with pytest.raises(ServiceUnavailableError):
        store.put(draft())
    disk.free_bytes_left = disk.total_bytes_there * 11 // 100
    run(store, gate)
    store.put(draft())


def test_a_plan_that_failed_is_gone_on_with_oldest_first(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later plan never unlinks a newer file before an older one: the hole would be taken for a lost file."""
    store = full_store(disk, delete_files_max=2)
    real_remove, failures = disk.remove, 1

    def remove(path: str) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("broken")
        real_remove(path)

    monkeypatch.setattr(disk, "remove", remove)
    plan = store.retention.plan(RetentionGate(), now_ms=OLD_MS, hour=DELETE_HOUR)
    with pytest.raises(OSError, match="broken"):
        store.retention.execute(plan)
    assert len(disk.list_directory("/store/commitlog")) == 6
    assert store.commit_log.min_offset == 2 * LOG_FILE_BYTES
    run(store)
    assert disk.list_directory("/store/commitlog")[0] == f"{4 * LOG_FILE_BYTES:020d}"
    assert store.retention.plan(RetentionGate(held_offset=0), now_ms=0, hour=0).is_empty


def test_queue_files_go_when_all_their_records_are_gone(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    while store.commit_log.append_offset < 12 * LOG_FILE_BYTES:
        store.put(draft(body=b"." * 300))
    store.sync_derived()
    before = len(disk.list_directory("/store/consumequeue/orders/0"))
    assert run(store, hour=OTHER_HOUR, now_ms=0) > 2
    for _ in range(4):
        run(store)
        assert len(disk.list_directory("/store/consumequeue/orders/0")) == before, "before its minimum is durable"
    store.sync_derived()
    for _ in range(3):
        run(store)
        store.sync_derived()
    queue = store.queues.find("orders", 0)
    assert queue is not None
    remaining = disk.list_directory("/store/consumequeue/orders/0")
    assert len(remaining) < before
    assert int(remaining[0]) // 20 <= queue.min_offset < int(remaining[0]) // 20 + UNITS_PER_FILE
    disk.revive()
    assert len(bodies_of(open_store(disk))) == queue.next_offset - queue.min_offset


@pytest.mark.parametrize("is_planned", [False, True], ids=["before the plan", "before it is carried out"])
def test_a_topic_made_anew_keeps_files_that_are_named_like_old_ones(disk: SimulatedDisk, is_planned: bool) -> None:
    store = full_store(disk)
    while store.commit_log.append_offset < 12 * LOG_FILE_BYTES:
        store.put(draft(body=b"." * 300))
    store.sync_derived()
    before = disk.list_directory("/store/consumequeue/orders/0")
    for _ in range(2):
        run(store)
        store.sync_derived()
    assert disk.list_directory("/store/consumequeue/orders/0") == before, "they are about to go"

    def make_anew() -> None:
        delete_topic(store, "orders")
        add_topic(store, "orders")
        for number in range(3):
            store.put(draft(body=b"%d" % number))
        store.sync_derived()

    if not is_planned:
        make_anew()
    plan = store.retention.plan(RetentionGate(), now_ms=OLD_MS, hour=DELETE_HOUR)
    if is_planned:
        assert plan.queue_files
        make_anew()
    store.retention.execute(plan)
    assert disk.list_directory("/store/consumequeue/orders/0") == before[:1]
    run(store, now_ms=0)
    queue = store.queues.find("orders", 0)
    assert queue is not None
    assert (queue.min_offset, queue.next_offset) == (0, 3)
    disk.revive()
    assert bodies_of(open_store(disk)) == [b"0", b"1", b"2"]


def test_an_idle_queue_keeps_its_end_when_all_is_gone(disk: SimulatedDisk) -> None:
    store = open_store(disk)
    for _ in range(3):
        store.put(draft("idle"))
    while store.commit_log.append_offset < 3 * LOG_FILE_BYTES:
        store.put(draft(body=b"." * 300))
    store.sync_derived()
    assert run(store) == 1
    idle = store.queues.find("idle", 0)
    assert idle is not None
    assert (idle.min_offset, idle.next_offset) == (3, 3)
    store.close()
    assert open_store(disk).put(draft("idle")).queue_offset == 3


def test_holders_that_can_append_their_records_again_are_asked_to_release(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    gate = RetentionGate(index_offset=3 * LOG_FILE_BYTES, timers_offset=0)
    assert store.retention.wanted_offset(gate, now_ms=71 * HOUR_MS, hour=DELETE_HOUR) == 0
    assert store.retention.wanted_offset(gate, now_ms=OLD_MS, hour=OTHER_HOUR) == 0
    assert store.retention.wanted_offset(gate, now_ms=OLD_MS, hour=DELETE_HOUR) == 3 * LOG_FILE_BYTES
    held = RetentionGate(held_offset=LOG_FILE_BYTES, timers_offset=0, transactions_offset=0)
    assert store.retention.wanted_offset(held, now_ms=OLD_MS, hour=DELETE_HOUR) == LOG_FILE_BYTES
    assert store.retention.awaited_offset(held, now_ms=OLD_MS, hour=DELETE_HOUR) == 5 * LOG_FILE_BYTES
    assert store.retention.awaited_offset(gate, now_ms=OLD_MS, hour=DELETE_HOUR) == 3 * LOG_FILE_BYTES
    assert run(store, gate) == 6


def test_the_reason_that_keeps_a_file_is_reported(disk: SimulatedDisk) -> None:
    store = full_store(disk)
    retention, names = store.retention, [file.name for file in store.commit_log.files]
    written_ms = disk.modified_ms(f"/store/commitlog/{names[0]}")
    gate = RetentionGate(committed_offset=LOG_FILE_BYTES, index_offset=2 * LOG_FILE_BYTES)
    verdicts = list(retention.verdicts(gate, now_ms=0, hour=OTHER_HOUR))
    assert [each.file_name for each in verdicts] == names
    assert [each.held_by for each in verdicts[:3]] == [(), ("committed",), ("committed", "index")]
    assert verdicts[0].old_at_ms == written_ms + 72 * HOUR_MS
    assert (verdicts[-1].held_by, verdicts[-1].old_at_ms) == ((), None), "messages are still appended to it"
    goes = [each.goes(now_ms=OLD_MS) for each in retention.verdicts(gate, now_ms=OLD_MS, hour=DELETE_HOUR)]
    assert goes == [True, False, False, False, False, False]
    # What holds the second one holds up the last.
    files = list(retention.verdicts(gate, now_ms=OLD_MS, hour=DELETE_HOUR))
    held_up = verdict_of(files, PhysicalOffset(4 * LOG_FILE_BYTES), now_ms=OLD_MS)
    assert (held_up.file_name, held_up.held_by) == (names[1], ("committed",))
    # `plan` agrees on which of them go.
    assert run(store, gate, now_ms=written_ms + 72 * HOUR_MS + 1) == 5
