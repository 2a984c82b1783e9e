"""A slave's log is its master's, byte by byte, whatever breaks: see replica_pair.py.

Covers `replication/log_copy.py`, `replication/master_session.py`, `replication/slave_session.py`,
`store/unit_placement.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.replication.replica_pair import BODY_BYTES_MAX, ReplicaPair, bytes_of
from tests.simulated_disk import SimulatedDisk
from tests.store.power_cut import seed_shown
from tests.store.store_parts import LOG_FILE_BYTES, draft, open_store, records_of, small_config
from thermocline.remoting.errors import CorruptDataError, MQError, ServiceUnavailableError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.replication import log_copy
from thermocline.replication.confirmations import Confirmations
from thermocline.replication.log_copy import LogCopy
from thermocline.store.config.store_config import SlaveStoreConfig
from thermocline.store.log.message_draft import PutStatus

STEPS = 250


def test_copies_are_byte_identical_through_cuts_kills_and_lost_power(case_count: Callable[..., int]) -> None:
    assert run_seeds(case_count(quick=300, full=1_000, soak=10_000))


def test_a_connection_that_breaks_at_any_byte() -> None:
    """Of three files: records, their blanks, heads. What was half there comes again."""
    for cut_at in range(0, 2 * LOG_FILE_BYTES, 37):
        pair = ReplicaPair(1)
        while pair.master.commit_log.append_offset < 2.5 * LOG_FILE_BYTES:
            pair.put()
        # The slave has a record already, so it gets all files, not the last one alone.
        end = pair.master.read_record(PhysicalOffset(0)).size_bytes
        pair.copy.receive(PhysicalOffset(0), memoryview(bytes_of(pair.master, 0, end)))
        pair.connect()
        pair.deliver_reports(len(pair.to_master))
        delivered = 0
        while delivered < cut_at:
            if not pair.to_slave:
                pair.send()
            count = min(cut_at - delivered, len(pair.to_slave))
            pair.deliver(count)
            delivered += count
        pair.check()
        pair.cut()
        pair.catch_up()
        pair.check_whole()


def test_an_empty_slave_begins_with_the_last_file() -> None:
    pair = ReplicaPair(2)
    while len(pair.master.commit_log.files) < 4:
        pair.put()
    pair.catch_up()
    assert pair.slave.commit_log.min_offset == 3 * LOG_FILE_BYTES
    pair.check_whole()
    pair.kill_slave()
    pair.check_whole()
    pair.put()
    pair.catch_up()
    pair.check_whole()


@pytest.mark.parametrize(
    ("lacking_offset", "first_file"), [(0, 0), (LOG_FILE_BYTES + 5, 1), (2 * LOG_FILE_BYTES, 2), (1 << 40, 3)]
)
def test_an_empty_slave_begins_with_the_first_file_that_the_cold_tier_lacks(
    lacking_offset: int, first_file: int
) -> None:
    pair = ReplicaPair(2)
    while len(pair.master.commit_log.files) < 4:
        pair.put()
    pair.lacking_offset = PhysicalOffset(lacking_offset)
    pair.catch_up()
    assert pair.slave.commit_log.min_offset == first_file * LOG_FILE_BYTES
    pair.check_whole()


def test_files_that_a_take_over_has_left_blank_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are longer than any record may be; the connection breaks within one, too."""
    monkeypatch.setattr(log_copy, "RECORD_BYTES_MAX", 2_000)
    pair = ReplicaPair(9)
    pair.put()
    pair.catch_up()
    for _ in range(3):
        pair.master.commit_log.roll()
    pair.put()
    pair.cut()
    pair.connect()
    for _ in range(6):
        pair.deliver_reports(len(pair.to_master))
        pair.send()
        pair.deliver(len(pair.to_slave))
    pair.cut()
    pair.catch_up()
    pair.check_whole()
    assert pair.slave.commit_log.append_offset == pair.master.commit_log.append_offset


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_where_the_ledger_has_what_a_queue_lacks_the_local_queue_begins_behind_it(is_elsewhere: bool) -> None:
    """As a promoted master leaves it: its queue went on behind the ledger's end."""
    config = SlaveStoreConfig.of(small_config()) if is_elsewhere else small_config()
    master, disk = open_store(SimulatedDisk()), SimulatedDisk()
    slave = open_store(disk, config)
    copy = LogCopy(slave)

    def put_and_copy(count: int) -> None:
        for _ in range(count):
            master.put(draft())
        start = copy.end_offset
        copy.receive(start, master.commit_log.record_view(start, master.commit_log.append_offset - start))

    put_and_copy(5)
    slave.sync_derived()
    queue = master.queues.find("orders", 0)
    assert queue is not None
    master.queues.write_dirty()
    queue.restart_at(QueueOffset(40), min_offset=QueueOffset(40))
    put_and_copy(3)
    for _ in range(3):
        found = slave.queues.find("orders", 0)
        assert found is not None
        assert (found.min_offset, found.next_offset) == (40 if is_elsewhere else 0, 43)
        assert [record.queue_offset for record in records_of(slave, found)][-3:] == [40, 41, 42]
        disk.revive()
        slave = open_store(disk, config)
        slave.sync_derived()


@pytest.mark.parametrize("what", ["ahead", "deleted"])
def test_a_slave_that_cannot_be_followed_up_is_refused(what: str) -> None:
    """Its log ends behind the master's, or before the master's oldest file."""
    pair = ReplicaPair(3)
    pair.put()
    pair.catch_up()
    pair.cut()
    if what == "ahead":
        other = open_store(type(pair.master_disk)(), clock=pair.clock)
        pair.master = other
    else:
        while len(pair.master.commit_log.files) < 3:
            pair.put()
        pair.master.commit_log.flush()
        pair.master.commit_log.raise_minimum(PhysicalOffset(2 * LOG_FILE_BYTES))
    end = pair.slave.commit_log.append_offset
    assert end
    pair.connect()
    pair.deliver_reports(len(pair.to_master))
    assert len(pair.refusals) == 1
    assert pair.slave.commit_log.append_offset == end


def test_a_copied_log_takes_nothing_else() -> None:
    pair = ReplicaPair(4)
    pair.catch_up()
    with pytest.raises(ServiceUnavailableError):
        pair.slave.put(draft())
    pair.slave.commit_log.pause("the disk is full")
    pair.slave.commit_log.resume()
    with pytest.raises(ServiceUnavailableError):
        pair.slave.put(draft())
    pair.put()
    pair.catch_up()
    pair.check_whole()


def test_a_full_disk_interrupts_and_the_copy_goes_on() -> None:
    pair = ReplicaPair(5)
    pair.catch_up()
    pair.put()
    pair.slave.commit_log.pause("the disk is full")
    with pytest.raises(ServiceUnavailableError):
        pair.catch_up()
    pair.cut()
    pair.slave.commit_log.resume()
    pair.catch_up()
    pair.check_whole()


@pytest.mark.parametrize("damage", ["magic", "size", "body", "border"])
def test_bytes_that_are_no_part_of_a_log_are_refused(damage: str) -> None:
    pair = ReplicaPair(6)
    pair.slave = open_store(type(pair.slave_disk)(), clock=pair.clock)
    copy = LogCopy(pair.slave)
    result = pair.master.put(draft(body=b"x" * BODY_BYTES_MAX))
    record = bytearray(bytes_of(pair.master, result.physical_offset, result.end_offset))
    offset = 0 if damage != "border" else 100
    if damage == "magic":
        record[4] ^= 1
    elif damage == "size":
        record[:4] = (3).to_bytes(4, "big")
    elif damage == "body":
        record[len(record) // 2] ^= 1
    with pytest.raises(CorruptDataError):
        copy.receive(PhysicalOffset(offset), memoryview(bytes(record)))
    assert pair.slave.commit_log.append_offset == 0


def test_wakes_the_pulls_that_wait_at_queues_that_grew() -> None:
    pair = ReplicaPair(7)
    pair.catch_up()
    grown: list[str] = []
    pair.slave.on_append = lambda queue: grown.append(queue.topic)
    pair.put()
    pair.catch_up()
    assert len(grown) == 1


def test_a_slave_that_reports_what_it_cannot_have_is_refused() -> None:
    pair = ReplicaPair(8)
    pair.put()
    pair.connect()
    pair.deliver_reports(len(pair.to_master))
    session = pair.master_session
    assert session is not None
    with pytest.raises(MQError):
        session.receive((1 << 40).to_bytes(8, "big"), now_ms=pair.clock.now_ms)


@pytest.mark.parametrize(
    ("owner", "rule"), [(Confirmations, "began_at"), (LogCopy, "restart")], ids=["empty slave", "parts of records"]
)
def test_a_rule_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch, owner: type, rule: str) -> None:
    """Without it the simulation fails, so that it proves something of the rule."""
    monkeypatch.setattr(owner, rule, lambda *arguments: None)
    with pytest.raises((AssertionError, MQError)):
        run_seeds(1_000)


def run_seeds(count: int) -> int:
    """Run so many pairs; the number of puts that a slave has confirmed."""
    answered = 0
    for seed in range(count):
        with seed_shown(seed):
            pair = ReplicaPair(seed)
            for _ in range(STEPS):
                pair.step()
            pair.catch_up()
            pair.check_whole()
            assert pair.refusals == []
            answered += pair.answers.count(PutStatus.PUT_OK)
    return answered
