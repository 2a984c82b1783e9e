"""Recovery: torn tails, missing parts, foreign hands, each by itself; all together they are in test_power_cut.py."""

from __future__ import annotations

import struct

import pytest

from tests.clock import Clock
from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.store_parts import (
    LOG_FILE_BYTES,
    UNITS_PER_FILE,
    add_topic,
    bodies_of,
    delete_topic,
    draft,
    open_store,
    records_of,
    small_config,
)
from thermocline.remoting.errors import CorruptDataError, UnavailableError
from thermocline.remoting.offsets import LOG_START
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.string_hash import tags_code
from thermocline.store.files.disk import BACKUP_SUFFIX
from thermocline.store.files.mapped_file import file_name
from thermocline.store.late_placement import place_late
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import FILLER, UNIT
from thermocline.store.queues.queue_ends import QueueEnds
from thermocline.store.state.incarnation import Incarnation

FIRST_LOG_FILE = "/store/commitlog/" + file_name(0)
QUEUE_ENDS = "/store/thermocline/queueEnds"


def killed(disk: SimulatedDisk) -> SimulatedDisk:
    """The process is gone, what it wrote is there."""
    disk.revive()
    return disk


def forget_queue_ends(disk: SimulatedDisk) -> None:
    for path in (QUEUE_ENDS, QUEUE_ENDS + BACKUP_SUFFIX):
        if disk.exists(path):
            disk.remove(path)


def filled(disk: SimulatedDisk, count: int = 60, *, topics: int = 2, queues: int = 2) -> MessageStore:
    """A store with messages `0`, `1` ... in turn in its queues, over several log files."""
    store = open_store(disk)
    for number in range(count):
        topic, queue_id = f"topic{number % topics}", number // topics % queues
        store.put(draft(topic, queue_id, b"%d" % number, properties=b"TAGS\x01a\x02"))
    return store


def all_bodies(store: MessageStore) -> list[int]:
    return sorted(int(record.body) for queue in store.queues for record in records_of(store, queue))


def test_an_empty_folder_becomes_a_store() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    assert (store.commit_log.min_offset, store.commit_log.append_offset) == (0, 0)
    assert disk.read("/store/abort") == b"7"
    assert disk.read("/store/lock") == b"lock"
    store.close()
    store.close()
    assert not disk.exists("/store/abort")


def test_a_store_is_open_once() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    with pytest.raises(UnavailableError):
        open_store(disk)
    store.close()
    open_store(disk).close()


def test_a_clean_stop_leaves_nothing_to_scan() -> None:
    disk = SimulatedDisk()
    filled(disk).close()
    store = open_store(disk)
    report = store.recovery_report
    assert (report.was_clean, report.used_queue_ends, report.record_count) == (True, True, 0)
    assert all_bodies(store) == list(range(60))


def test_after_a_kill_only_records_after_the_last_sync_are_scanned() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.sync_derived()
    position = store.recovery_offset
    for number in range(60, 70):
        store.put(draft("topic0", 0, b"%d" % number))
    store = open_store(killed(disk))
    report = store.recovery_report
    assert (report.was_clean, report.scan_start_offset, report.record_count) == (False, position, 10)
    assert all_bodies(store) == list(range(70))


def test_what_a_recovery_has_scanned_is_not_scanned_again() -> None:
    """Killed right after a start: the next one begins where the first ended."""
    disk = SimulatedDisk()
    filled(disk)
    store = open_store(killed(disk))
    assert store.recovery_report.record_count > 0
    store = open_store(killed(disk))
    report = store.recovery_report
    assert (report.was_clean, report.record_count) == (False, 0)
    assert report.scan_start_offset == store.commit_log.append_offset
    assert all_bodies(store) == list(range(60))


def test_store_time_goes_on_from_the_log() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, clock=Clock(5_000_000))
    store.put(draft())
    for reopened in (killed, lambda disk: disk):
        store = open_store(reopened(disk), clock=Clock(1_000))
        assert store.put(draft()).store_timestamp_ms == 5_000_000
        store.close()


@pytest.mark.parametrize("with_queue_ends", [True, False])
def test_a_torn_tail_at_every_byte_of_the_last_record(*, with_queue_ends: bool) -> None:
    """Whatever part of it arrived, the record is there whole or not at all, and the log goes on."""
    disk = SimulatedDisk()
    store = open_store(disk)
    bodies = [b"first", b"second, which is longer", b"last"]
    for body in bodies[:2]:
        store.put(draft(body=body, properties=b"KEYS\x01k\x02"))
    result = store.put(draft(body=bodies[2], properties=b"KEYS\x01k\x02"))
    whole = disk.read(FIRST_LOG_FILE)
    for kept_bytes in range(result.size_bytes + 1):
        torn = whole[: result.physical_offset + kept_bytes].ljust(len(whole), b"\0")
        disk.revive()
        disk.corrupt(FIRST_LOG_FILE, 0, torn)
        if not with_queue_ends:
            forget_queue_ends(disk)
        store = open_store(disk)
        expected = bodies if torn == whole else bodies[:2]
        assert bodies_of(store) == expected, kept_bytes
        again = store.put(draft(body=b"new"))
        assert again.queue_offset == len(expected)
        assert bodies_of(store) == [*expected, b"new"]
        store.close()
        # Back to the state before: the log again as it was, and queue ends from before the last record.
        disk = SimulatedDisk()
        store = open_store(disk)
        for body in bodies:
            store.put(draft(body=body, properties=b"KEYS\x01k\x02"))
        whole = disk.read(FIRST_LOG_FILE)


@pytest.mark.parametrize("position", [0, 4, 12, 20, 28, 40, 60, 84, 90, 95])
def test_a_flipped_byte_ends_the_log(position: int) -> None:
    """In fields that the checks cover; records behind it are dropped, records before it are served."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(body=b"good"))
    bad = store.put(draft(body=b"damaged"))
    store.put(draft(body=b"behind"))
    byte = disk.read(FIRST_LOG_FILE)[bad.physical_offset + position]
    disk.revive()
    disk.corrupt(FIRST_LOG_FILE, bad.physical_offset + position, bytes([byte ^ 0x80]))
    store = open_store(disk)
    bodies = bodies_of(store)
    if position in (40, 60):  # born and store time: any value can be one
        assert bodies == [b"good", b"damaged", b"behind"]
    else:
        assert bodies == [b"good"]
        assert store.commit_log.append_offset == bad.physical_offset


def test_a_lost_sector_of_properties_is_a_torn_record() -> None:
    """No checksum covers them. A sector that a power cut lost reads as zeroes."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(body=b"good"))
    bad = store.put(draft(body=b"torn", properties=b"KEYS\x01" + b"k" * 1_500 + b"\x02"))
    disk.revive()
    disk.corrupt(FIRST_LOG_FILE, 1_024, bytes(512))
    assert bad.physical_offset < 1_024 < 1_536 < bad.end_offset
    store = open_store(disk)
    assert bodies_of(store) == [b"good"]


def test_zero_bytes_in_properties_are_no_tear() -> None:
    """As many as a put takes, wherever the sectors' borders are: a kill must not cut the log there."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for padding in range(0, 512, 37):
        store.put(draft(body=b"x" * padding, properties=b"KEYS\1" + bytes(255) + b"\2"))
        store.put(draft(body=b"x" * padding, properties=bytes(255) + b"\2"))
    expected = bodies_of(store)
    assert bodies_of(open_store(killed(disk))) == expected


def test_what_was_durable_is_not_taken_for_torn() -> None:
    """Records of RocketMQ may hold more zero bytes in their properties than a put takes."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(body=b"zeroes", properties=b"KEYS\1" + bytes(1_500) + b"\2"), was_accepted=True)
    store.put(draft(body=b"behind"))
    store.sync_derived()
    disk.revive()
    disk.remove_tree("/store/consumequeue")  # so that all is scanned
    assert bodies_of(open_store(disk)) == [b"zeroes", b"behind"]


@pytest.mark.parametrize("was_clean", [True, False])
def test_damage_in_front_of_whole_files_deletes_none_of_them(*, was_clean: bool) -> None:
    """Queues were removed by hand, so all is scanned; a record of long ago has rotted."""
    disk = SimulatedDisk()
    store = filled(disk, 100)
    store.sync_derived()
    if was_clean:
        store.close()
    disk.revive()
    names = disk.list_directory("/store/commitlog")
    assert len(names) > 2
    disk.remove_tree("/store/consumequeue")
    byte = disk.read(FIRST_LOG_FILE)[4]
    disk.corrupt(FIRST_LOG_FILE, 4, bytes([byte ^ 0x80]))
    for _ in range(2):
        with pytest.raises(CorruptDataError, match="damaged"):
            open_store(disk)
        disk.revive()
    assert disk.list_directory("/store/commitlog") == names
    disk.corrupt(FIRST_LOG_FILE, 4, bytes([byte]))
    assert all_bodies(open_store(disk)) == list(range(100))


def test_truncated_records_never_come_back() -> None:
    """A record behind a torn one is whole; after a new record of the torn one's size it would fit on."""
    disk = SimulatedDisk()
    store = open_store(disk)
    results = [store.put(draft(body=b"%04d" % number)) for number in range(3)]
    disk.revive()
    disk.corrupt(FIRST_LOG_FILE, results[1].physical_offset + 90, b"xxxx")
    store = open_store(disk)
    assert bodies_of(store) == [b"0000"]
    store.put(draft(body=b"new!"))
    store = open_store(killed(disk))
    assert bodies_of(store) == [b"0000", b"new!"]


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("with_queue_ends", [True, False])
def test_queues_are_made_anew(*, was_clean: bool, with_queue_ends: bool) -> None:
    disk = SimulatedDisk()
    store = filled(disk, 100)
    store.sync_derived()
    if was_clean:
        store.close()
    disk.revive()
    disk.remove_tree("/store/consumequeue")
    if not with_queue_ends:
        forget_queue_ends(disk)
    store = open_store(disk)
    assert store.recovery_report.rebuilt_queue_count == (4 if with_queue_ends else 0)
    assert all_bodies(store) == list(range(100))
    store.close()
    assert open_store(disk).recovery_report.rebuilt_queue_count == 0


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("with_queue_ends", [True, False])
@pytest.mark.parametrize(("count", "units_per_file"), [(5, 32), (5, 8), (20, 32), (20, 8), (40, 32)])
def test_queues_with_files_of_another_length_are_made_anew(
    count: int, units_per_file: int, *, was_clean: bool, with_queue_ends: bool
) -> None:
    """The setting was changed. Units are found by the length, so what is there cannot be read, nor be built upon."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(count):
        store.put(draft(body=b"%d" % number))
    store.sync_derived()
    if was_clean:
        store.close()
    disk.revive()
    if not with_queue_ends:
        forget_queue_ends(disk)
    config = small_config(queue_file_bytes=UNIT.size * units_per_file)
    for expected in (count, count + 1):
        store = open_store(disk, config)
        assert all_bodies(store) == list(range(expected))
        store.put(draft(body=b"%d" % expected))
        store.close()
    assert all_bodies(open_store(disk, config)) == list(range(count + 2))


@pytest.mark.parametrize("was_clean", [True, False])
def test_queues_with_extension_files_are_made_anew(*, was_clean: bool) -> None:
    """RocketMQ with enableConsumeQueueExt has a place in another file where the hash of the tag is looked for."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(40):
        store.put(draft(body=b"%d" % number, properties=b"TAGS\1a\2"))
        store.put(draft("plain", body=b"%d" % number, properties=b"TAGS\1a\2"))
    store.sync_derived()
    if was_clean:
        store.close()
    disk.revive()
    forget_queue_ends(disk)
    address = struct.pack(">q", -(1 << 63) + 46 * 20)
    disk.corrupt(f"/store/consumequeue/orders/0/{file_name(2 * UNIT.size * UNITS_PER_FILE)}", 12, address)
    store = open_store(disk)
    for topic in ("orders", "plain"):
        found = store.get(topic, 0, 0, count_max=99, bytes_max=1 << 20, codes=frozenset((tags_code("a"),)))
        assert found.message_count == 40
    assert store.put(draft()).queue_offset == 40
    store.close()
    assert open_store(disk).recovery_report.record_count == 0


@pytest.mark.parametrize("with_queue_ends", [True, False])
def test_a_kill_while_all_queues_are_made_anew(monkeypatch: pytest.MonkeyPatch, *, with_queue_ends: bool) -> None:
    """More of them than are kept in memory. Half of the queues is not taken for the whole, not by the checkpoint that
    RocketMQ left either."""
    monkeypatch.setattr("thermocline.store.recovery.TAILS_BYTES_MAX", UNIT.size)  # written as they come
    cut_at, is_done = 1, False
    while not is_done:
        disk = SimulatedDisk()
        clock = Clock(1_000_000)
        store = open_store(disk, clock=clock)
        for number in range(60):
            clock.now_ms += 1_000
            store.put(draft("topic", number % 2, b"%d" % number))
        store.close()
        disk.remove_tree("/store/consumequeue")
        if not with_queue_ends:
            forget_queue_ends(disk)
        disk.cut_at_step = disk.step_count + cut_at
        try:
            open_store(disk)
            is_done = True
        except PowerCut:
            pass
        disk.revive()
        assert all_bodies(open_store(disk)) == list(range(60)), f"killed at step {cut_at}"
        cut_at += 3


def test_one_queue_is_made_anew() -> None:
    disk = SimulatedDisk()
    filled(disk, 100).close()
    disk.remove_tree("/store/consumequeue/topic1/1")
    store = open_store(disk)
    assert store.recovery_report.rebuilt_queue_count == 1
    assert all_bodies(store) == list(range(100))


def test_a_queues_end_outlives_its_messages_and_its_files() -> None:
    """An idle queue whose log and queue files are all gone goes on where it was."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for _ in range(5):
        store.put(draft("idle", 3))
    while store.commit_log.append_offset < 3 * LOG_FILE_BYTES:
        store.put(draft("busy", body=b"x" * 500))
    store.close()
    for number in range(2):
        disk.remove("/store/commitlog/" + file_name(number * LOG_FILE_BYTES))
    disk.remove_tree("/store/consumequeue")
    store = open_store(disk)
    queue = store.queues.find("idle", 3)
    assert queue is not None
    assert (queue.min_offset, queue.next_offset) == (5, 5)
    assert store.put(draft("idle", 3)).queue_offset == 5
    store.close()
    # Apache RocketMQ's rules find it, too: the file begins with fillers.
    assert disk.read(f"/store/consumequeue/idle/3/{file_name(0)}")[:100] == FILLER * 5
    forget_queue_ends(disk)
    store = open_store(disk)
    assert [
        record.queue_offset for queue in [store.queues.find("idle", 3)] if queue for record in records_of(store, queue)
    ] == [5]


def test_a_log_that_is_gone_takes_no_offset_with_it() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 10)
    append_offset = store.commit_log.append_offset
    store.close()
    disk.remove_tree("/store/commitlog")
    store = open_store(disk)
    assert store.commit_log.min_offset == LOG_FILE_BYTES >= append_offset
    assert all_bodies(store) == []
    assert store.put(draft("topic0", 0)).queue_offset == 3
    assert len(bodies_of(store, "topic0", 0)) == 1


def test_damaged_queue_ends_fall_back_to_those_before() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 20)
    store.sync_derived()
    store.put(draft("topic0", 0, b"20"))
    store.sync_derived()
    disk.revive()
    disk.corrupt(QUEUE_ENDS, 20, b"\xff")
    store = open_store(disk)
    assert store.recovery_report.used_queue_ends
    assert all_bodies(store) == list(range(21))


def test_a_missing_file_in_the_middle_is_an_error() -> None:
    """To serve around it would skip messages without a word."""
    disk = SimulatedDisk()
    filled(disk, 100).close()
    disk.remove("/store/commitlog/" + file_name(LOG_FILE_BYTES))
    with pytest.raises(CorruptDataError, match="missing"):
        open_store(disk)
    with pytest.raises(CorruptDataError):
        open_store(disk, small_config(log_file_bytes=2 * LOG_FILE_BYTES))


def test_a_deleted_topic_stays_deleted() -> None:
    """Its records are still in the log; the one made again starts clean."""
    disk = SimulatedDisk()
    store = filled(disk, 40)
    delete_topic(store, "topic0")
    assert bodies_of(store, "topic0") == []
    assert not disk.exists("/store/consumequeue/topic0")
    store = open_store(killed(disk))
    assert store.queues.topics == ["topic1"]
    add_topic(store, "topic0")
    assert store.put(draft("topic0", 0, b"1000")).queue_offset == 0
    for lose in (lambda: None, lambda: disk.remove_tree("/store/consumequeue"), lambda: forget_queue_ends(disk)):
        disk.revive()
        lose()
        store = open_store(disk)
        assert bodies_of(store, "topic0") == [b"1000"]
        assert len(all_bodies(store)) == 21


def test_stale_folders_of_an_older_incarnation_go() -> None:
    """The removal of the queues' folder was lost with the power."""
    disk = SimulatedDisk()
    store = filled(disk, 40)
    store.close()
    stale = {path: disk.read(path) for path in disk.paths() if "/consumequeue/topic0/" in path}
    store = open_store(disk)
    delete_topic(store, "topic0")
    add_topic(store, "topic0")
    store.put(draft("topic0", 0, b"1000"))
    disk.revive()
    for path, data in stale.items():
        disk.make_directory(path.rpartition("/")[0])
        disk.open(path, create=True).write_at(data, 0)
    for lose in (lambda: None, lambda: forget_queue_ends(disk)):
        disk.revive()
        lose()
        store = open_store(disk)
        assert bodies_of(store, "topic0", 0) == [b"1000"]
        assert bodies_of(store, "topic0", 1) == []


@pytest.mark.parametrize("stop", ["ends written", "incarnations written", "both written", "clean"])
def test_a_topic_that_another_broker_counts_by_another_id_stays(stop: str) -> None:
    """A slave follows its master's id of a topic that both have, and stops between the two files."""
    disk = SimulatedDisk()
    store = open_store(disk)
    add_topic(store, "other")
    add_topic(store, "followed")
    for number in range(40):
        store.put(draft("followed", number % 2, b"%d" % number))
    store.incarnations.save(disk, store.config.incarnation_path)
    store.sync_derived()
    store.incarnations.follow("followed", Incarnation(id=7, start_offset=LOG_START))
    if stop in {"ends written", "both written"}:
        store.sync_derived()
    if stop in {"incarnations written", "both written"}:
        store.incarnations.save(disk, store.config.incarnation_path)
    if stop == "clean":
        store.close()
    for _ in range(2):
        store = open_store(disk if stop == "clean" else killed(disk))
        for queue_id in range(2):
            queue = store.queues.find("followed", queue_id)
            assert queue is not None
            assert (queue.min_offset, queue.next_offset) == (0, 20)
        assert len(all_bodies(store)) == 40
        store.sync_derived()
        stop = "once more"


@pytest.mark.parametrize("stop", ["ends written", "incarnations written", "both written"])
def test_a_topic_that_is_made_where_its_messages_are_already_stays(stop: str) -> None:
    """At a new master: the messages were copied, and the topic is made by the first send."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(20):
        store.put(draft("copied", 0, b"%d" % number))
    store.sync_derived()
    store.incarnations.create("copied", start_offset=store.topic_start_offset("copied"), has_queues=True)
    if stop in {"ends written", "both written"}:
        store.sync_derived()
    if stop in {"incarnations written", "both written"}:
        store.incarnations.save(disk, store.config.incarnation_path)
    store = open_store(killed(disk))
    assert len(all_bodies(store)) == 20
    assert store.put(draft("copied", 0, b"new")).queue_offset == 20


def test_a_topic_that_began_anew_at_the_master_has_what_was_placed_late() -> None:
    """The queue ends that late placement has written are older than the topic's new id."""
    disk = SimulatedDisk()
    store = open_store(disk)
    add_topic(store, "t")
    store.put(draft("t", 0, b"old"))
    delete_topic(store, "t")
    start_offset = store.commit_log.append_offset
    incarnations = store.incarnations
    begun = Incarnation(id=9, start_offset=start_offset)
    incarnations.follow("t", begun)  # so that records of it can be put here, as they come from a master
    for number in range(5):
        store.put(draft("t", 0, b"%d" % number))
    incarnations.delete("t")
    store.queues.remove_topic("t")
    incarnations.save(disk, store.config.incarnation_path)
    incarnations.begin_anew("t")
    list(place_late(store, "t", start_offset))
    incarnations.follow("t", begun)
    incarnations.save(disk, store.config.incarnation_path)
    store = open_store(killed(disk))
    assert all_bodies(store) == list(range(5))


def test_an_older_topic_by_another_id_goes() -> None:
    """Queue ends tell of a topic that was deleted and made again since."""
    disk = SimulatedDisk()
    store = open_store(disk)
    add_topic(store, "t")
    for number in range(10):
        store.put(draft("t", 0, b"%d" % number))
    store.sync_derived()
    recorded = disk.read(store.config.queue_ends_path)
    files = {path: disk.read(path) for path in disk.paths() if "/consumequeue/t/" in path}
    delete_topic(store, "t")
    add_topic(store, "t")
    disk.revive()
    for path, data in {store.config.queue_ends_path: recorded, **files}.items():
        disk.make_directory(path.rpartition("/")[0])
        disk.open(path, create=True).write_at(data, 0)
    store = open_store(disk)
    assert all_bodies(store) == []
    assert store.put(draft("t", 0, b"new")).queue_offset == 0


def test_another_broker_deleted_a_topic_and_made_it_again() -> None:
    """Apache RocketMQ ran on this store meanwhile: the new topic's offsets begin at zero, behind our recorded end."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(3):
        store.put(draft("t", 0, b"old%d" % number))
    store.close()
    # What it leaves: records of the new topic behind ours, queue files of the new topic in the place of the old.
    log_file = disk.open(FIRST_LOG_FILE)
    physical_offset = store.commit_log.append_offset
    units = []
    for number in range(2):
        record = encode_record(
            topic="t",
            queue_id=0,
            queue_offset=number,
            physical_offset=physical_offset,
            body=b"new%d" % number,
            properties_text=b"",
            born_timestamp_ms=1,
            born_host=("10.0.0.1", 1),
            store_timestamp_ms=2_000_000,
            store_host=("10.0.0.1", 1),
        )
        log_file.write_at(record, physical_offset)
        units.append(UNIT.pack(physical_offset, len(record), 0))
        physical_offset += len(record)
    disk.corrupt(f"/store/consumequeue/t/0/{file_name(0)}", 0, b"".join(units) + bytes(20))
    store = open_store(disk)
    assert bodies_of(store, "t", 0) == [b"new0", b"new1"]
    queue = store.queues.find("t", 0)
    assert queue is not None
    assert (queue.min_offset, queue.next_offset) == (0, 2)


def test_a_jump_of_queue_offsets_is_stepped_over() -> None:
    """Offsets that a recovery from the cold tier skipped have no message, and no reader waits for one."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(body=b"0"))
    store.queues.remove_topic("orders")
    queue = store.queues.create("orders", 0, next_offset=40, min_offset=0)
    store.put(draft(body=b"40"))
    assert queue.next_offset == 41
    disk.revive()
    disk.remove_tree("/store/consumequeue")
    store = open_store(disk)
    queue = store.queues.find("orders", 0)
    assert queue is not None
    assert queue.next_offset == 41
    assert [record.queue_offset for record in records_of(store, queue)] == [0, 40]


def test_half_messages_have_no_unit() -> None:
    """A prepared or rolled back record is in the log alone."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(body=b"prepared", sys_flag=4))
    store.put(draft(body=b"rolled back", sys_flag=12))
    store.put(draft(body=b"committed", sys_flag=8))
    assert bodies_of(store) == [b"committed"]
    store = open_store(killed(disk))
    assert bodies_of(store) == [b"committed"]


def test_units_ahead_of_the_log_are_taken_back() -> None:
    """Apache RocketMQ's queue files may have been written back before its log was."""
    disk = SimulatedDisk()
    store = filled(disk, UNITS_PER_FILE * 8)
    store.sync_derived()
    end = store.commit_log.append_offset
    cut = store.read_record(store.queues.of_topic("topic0")[0].unit(20).physical_offset).physical_offset
    disk.revive()
    forget_queue_ends(disk)
    name = file_name(cut // LOG_FILE_BYTES * LOG_FILE_BYTES)
    position = cut % LOG_FILE_BYTES
    disk.corrupt(f"/store/commitlog/{name}", position, bytes(LOG_FILE_BYTES - position))
    store = open_store(disk)
    assert store.commit_log.append_offset == cut < end
    assert all_bodies(store) == list(range(store.recovery_report.record_count))
    assert store.put(draft("topic0", 0)).queue_offset == 20


def test_queue_ends_file_layout() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, clock=Clock(77))
    store.put(draft("a", 5))
    store.sync_derived()
    data = disk.read(QUEUE_ENDS)
    end = store.commit_log.append_offset
    fields = (
        b"TCQENDS1"
        + end.to_bytes(8, "little") * 2
        + (77).to_bytes(8, "little")
        + (1).to_bytes(4, "little")
        + b"\x01\x00a"
        + bytes(16)
        + (1).to_bytes(4, "little")
        + (5).to_bytes(4, "little")
        + (1).to_bytes(8, "little") * 2
        + bytes(8)
    )
    assert data[:-4] == fields
    ends = QueueEnds.decode(data)
    assert ends.encode() == data
    assert ends.topics["a"].queues == ((5, 1, 1, 0),)
    for damaged in (data[:-1], data[1:], b"", data[:30] + b"x" + data[31:]):
        with pytest.raises(CorruptDataError):
            QueueEnds.decode(damaged)
