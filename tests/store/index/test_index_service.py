"""IndexService: follows the log, survives its own death, answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.files.test_disk import mapped_bytes_in_memory
from tests.store.store_parts import draft, open_store, small_config
from thermocline.remoting.errors import CorruptDataError, DiskFullError
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.files.mapped_file import file_name
from thermocline.store.index import index_service
from thermocline.store.index.index_service import IndexService
from thermocline.store.message_store import MessageStore

ALWAYS = (0, 1 << 50)


@pytest.fixture(autouse=True)
def small_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_service, "RECORDS_PER_BUILD", 5)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000)


@pytest.fixture
def store(disk: SimulatedDisk, clock: Clock) -> Iterator[MessageStore]:
    return open_store(disk, clock=clock)


def open_index(store: MessageStore, disk: SimulatedDisk, *, was_clean: bool = True) -> IndexService:
    return IndexService.open(
        disk,
        small_config(),
        log_end_offset=store.commit_log.append_offset,
        was_clean=was_clean,
        clock=Clock(1_700_000_000_000),
    )


def put(store: MessageStore, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        store.put(draft(body=b"%d" % number, properties=b"UNIQ_KEY\x01id%d\x02KEYS\x01k%d\x02" % (number, number % 3)))
    store.commit_log.flush()


def build(index: IndexService, store: MessageStore) -> None:
    while index.build(store.commit_log.flush_offset):
        continue


def find(index: IndexService, store: MessageStore, key: str, count_max: int = 1_000) -> list[int]:
    """The numbers of the messages that really have the key."""
    offsets = index.query("orders", key, begin_ms=ALWAYS[0], end_ms=ALWAYS[1], count_max=count_max)
    records = [store.read_record(offset) for offset in offsets]
    return [int(record.body) for record in records if key in (record.unique_key, record.keys)]


def check_all_once(index: IndexService, store: MessageStore, count: int) -> None:
    for number in range(count):
        assert find(index, store, f"id{number}") == [number]
    for key in range(3):
        assert find(index, store, f"k{key}") == [number for number in reversed(range(count)) if number % 3 == key]


def test_every_record_is_found_over_many_files(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 100)
    index = open_index(store, disk)
    assert index.build(store.commit_log.flush_offset) == 5
    build(index, store)
    assert index.next_offset == store.commit_log.flush_offset
    assert len(disk.list_directory("/store/index")) == 7
    check_all_once(index, store, 100)
    assert len(find(index, store, "k0", count_max=4)) == 4
    index.close()


def test_its_last_time_is_that_of_the_last_record(disk: SimulatedDisk, store: MessageStore, clock: Clock) -> None:
    """The broker's checkpoint says so, by which Apache RocketMQ begins to index again."""
    index = open_index(store, disk)
    assert index.last_timestamp_ms == 0
    for start in range(0, 40, 10):
        clock.now_ms += 5_000
        put(store, 10, start=start)
        build(index, store)
        assert index.last_timestamp_ms == clock.now_ms
    assert len(disk.list_directory("/store/index")) > 2
    index.close()


def test_names_are_times_and_rise(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 40)
    index = open_index(store, disk)
    build(index, store)
    names = disk.list_directory("/store/index")
    assert all(len(name) == 17 and name.startswith("202311") for name in names)
    assert names == sorted(set(names))


def test_only_flushed_records_are_indexed(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 3)
    store.put(draft(properties=b"UNIQ_KEY\x01unflushed\x02"))
    index = open_index(store, disk)
    build(index, store)
    assert index.next_offset == store.commit_log.flush_offset < store.commit_log.append_offset
    assert index.query("orders", "unflushed", begin_ms=0, end_ms=1 << 50, count_max=9) == []


def test_it_dies_at_every_step_and_loses_or_doubles_nothing(disk: SimulatedDisk, store: MessageStore) -> None:
    """kill -9 in the middle of anything: the disk keeps what was written, the memory is lost."""
    put(store, 60)
    deaths = 0
    for step in range(400):
        disk.cut_at_step = disk.step_count + step // 3 + 1
        try:
            index = open_index(store, disk)
            while index.build(store.commit_log.flush_offset):
                index.checkpoint(write_slots=bool(step % 2))
            index.close()
            break
        except PowerCut:
            deaths += 1
            disk.revive()
    assert deaths > 50
    disk.cut_at_step = None
    index = open_index(store, disk)
    assert index.next_offset == store.commit_log.flush_offset
    check_all_once(index, store, 60)


def test_index_entries_after_the_checkpoint_are_built_again(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 30)
    index = open_index(store, disk)
    index.build(store.commit_log.flush_offset)
    index.checkpoint()
    durable = index.durable_offset
    build(index, store)
    again = open_index(store, disk)
    assert again.next_offset == durable
    build(again, store)
    check_all_once(again, store, 30)


@pytest.mark.parametrize("entry_count", [0, 1 << 20])
def test_a_checkpoint_that_no_file_can_hold_is_not_followed(
    disk: SimulatedDisk, store: MessageStore, entry_count: int
) -> None:
    put(store, 30)
    index = open_index(store, disk)
    build(index, store)
    index.close()
    path = "/store/thermocline/indexCheckpoint.json"
    checkpoint = json.loads(disk.read(path))
    disk.open(path, create=True).write_at(json.dumps(checkpoint | {"entryCount": entry_count}).encode(), 0)
    index = open_index(store, disk)
    assert index.next_offset == 0
    build(index, store)
    check_all_once(index, store, 30)


@pytest.mark.parametrize("lost", ["all", "one", "checkpoint"])
def test_missing_files_are_made_anew(disk: SimulatedDisk, store: MessageStore, lost: str) -> None:
    put(store, 60)
    index = open_index(store, disk)
    build(index, store)
    index.close()
    if lost == "all":
        disk.remove_tree("/store/index")
    elif lost == "one":
        disk.remove("/store/index/" + disk.list_directory("/store/index")[-1])
    else:
        disk.remove("/store/thermocline/indexCheckpoint.json")
    index = open_index(store, disk)
    assert (index.next_offset == 0) is (lost != "checkpoint")
    build(index, store)
    check_all_once(index, store, 60)


def test_files_of_another_broker_are_taken_over_as_its_checkpoint_covers_them(
    disk: SimulatedDisk, store: MessageStore
) -> None:
    """After an unclean stop: those that end before the checkpoint's index time stamp."""
    put(store, 60)
    index = open_index(store, disk)
    build(index, store)
    index.close()
    disk.remove("/store/thermocline/indexCheckpoint.json")
    index = open_index(store, disk, was_clean=False)
    assert index.next_offset == 0
    index.close()
    disk.remove("/store/thermocline/indexCheckpoint.json")
    index = open_index(store, disk)
    build(index, store)
    index.close()
    store.index_timestamp_ms = index.slots_timestamp_ms
    put(store, 1, start=60)
    store.sync_derived()
    disk.remove("/store/thermocline/indexCheckpoint.json")
    index = open_index(store, disk, was_clean=False)
    assert index.next_offset > 0
    build(index, store)
    check_all_once(index, store, 61)


def test_a_log_that_became_shorter_takes_its_entries_with_it(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 60)
    index = open_index(store, disk)
    build(index, store)
    index.close()
    queue = store.queues.of_topic("orders")[0]
    for kept in (55, 10, 0):
        end = queue.unit(kept).physical_offset
        index = IndexService.open(disk, small_config(), log_end_offset=end, was_clean=False, clock=Clock(1_000_000))
        assert index.next_offset == end
        for number in range(60):
            assert find(index, store, f"id{number}") == ([number] if number < kept else [])
        index.close()
    index = open_index(store, disk)
    build(index, store)
    check_all_once(index, store, 60)


def test_old_log_files_are_passed_over(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 100)
    disk.remove("/store/commitlog/" + file_name(0))
    index = open_index(store, disk)
    assert index.next_offset == 4_096
    build(index, store)
    assert index.next_offset == store.commit_log.flush_offset
    count = len(disk.list_directory("/store/index"))
    assert index.delete_before(store.commit_log.append_offset) == count - 1
    assert len(disk.list_directory("/store/index")) == 1


def test_a_full_disk_leaves_the_index_as_it_was(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 60)
    index = open_index(store, disk)
    disk.is_full = True
    with pytest.raises(DiskFullError):
        build(index, store)
    disk.is_full = False
    while index.next_offset < store.commit_log.flush_offset:
        disk.is_full = not disk.is_full
        try:
            index.build(store.commit_log.flush_offset)
        except DiskFullError:
            continue
    disk.is_full = False
    check_all_once(index, store, 60)


def test_a_log_that_cannot_be_read_further_is_reported(disk: SimulatedDisk, store: MessageStore) -> None:
    put(store, 3)
    end = store.commit_log.flush_offset
    index = open_index(store, disk)
    disk.corrupt("/store/commitlog/" + file_name(0), 4, b"xxxx")
    with pytest.raises(CorruptDataError):
        index.build(end)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up where Linux shows it")
def test_the_log_that_was_read_does_not_count_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_service, "RECORDS_PER_BUILD", 100)
    config = StoreConfig(root_path=str(tmp_path), log_file_bytes=8 << 20, index_slot_count=100, index_entry_count=5_000)
    clock = Clock(1_700_000_000_000)
    store = MessageStore.open(config, disk=RealDisk(), clock=clock)
    for _ in range(2_000):
        store.put(draft(body=bytes(6_000)))
    store.commit_log.flush()
    end = store.commit_log.flush_offset
    store.close()  # its helper thread maps the next file while it makes it
    index = IndexService.open(config=config, disk=RealDisk(), log_end_offset=0, was_clean=True, clock=clock)
    while index.build(end):
        pass
    assert index.next_offset == end > 8 << 20
    bytes_max = index_service.LEAVE_BYTES + 2 * index_service.FOLIO_BYTES_MAX
    assert mapped_bytes_in_memory(config.commit_log_path) < bytes_max
    index.close()


def test_tags_and_times(disk: SimulatedDisk) -> None:
    clock = Clock(100_000)
    store = open_store(disk, clock=clock)
    for number in range(20):
        clock.now_ms += 1_000
        store.put(draft(body=b"%d" % number, properties=b"TAGS\x01red\x02KEYS\x01red\x02"))
    store.commit_log.flush()
    index = open_index(store, disk)
    build(index, store)
    for index_type in ("K", "T"):
        offsets = index.query("orders", "red", begin_ms=105_000, end_ms=108_000, count_max=99, index_type=index_type)
        assert [int(store.read_record(offset).body) for offset in offsets] == [7, 6, 5, 4]


def test_nothing_to_file(disk: SimulatedDisk, store: MessageStore) -> None:
    store.put(draft())
    store.commit_log.flush()
    index = open_index(store, disk)
    assert (index.last_timestamp_ms, index.last_physical_offset) == (0, 0)
    build(index, store)
    assert disk.list_directory("/store/index") == []
    index.checkpoint(write_slots=True)
    assert open_index(store, disk).next_offset == store.commit_log.flush_offset
    index.close()
    index.close()
