"""Decisions: their effects, the reasons of refusals, and that each counts once, whichever copy it names."""

from __future__ import annotations

import logging

import pytest

from tests.store.store_parts import add_topic, delete_topic, draft
from tests.transactions.transaction_parts import COMMIT, ROLL_BACK, TIMEOUT_MS, TOPIC, Kept, Named, World
from thermocline.remoting.errors import (
    IllegalOperationError,
    InvalidRequestError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from thermocline.remoting.records.message_record import HEAD, encode_record
from thermocline.remoting.records.properties import encode_properties
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT
from thermocline.store.retention import DISK_NEARLY_FULL
from thermocline.transactions.transaction_config import TransactionConfig
from thermocline.transactions.transaction_coordinator import Decision

HALF, OP, PARKED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


def asked(world: World, *, after_ms: int = TIMEOUT_MS + 1) -> list[Named]:
    """The copies that a round asks about some time later."""
    world.clock.now_ms += after_ms
    return [Named(each.half_offset, each.physical_offset) for each in world.check()]


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_a_commit_makes_the_message_visible() -> None:
    world = World()
    half = world.send(b"paid", queue_id=2, TAGS="red")
    assert world.visible(queue_id=2) == []
    world.end(half)
    record = world.record(TOPIC, 0, queue_id=2)
    assert (record.body, record.tags, record.sys_flag) == (b"paid", "red", TRANSACTION_COMMIT)
    assert record.prepared_transaction_offset == half.physical_offset
    assert "REAL_TOPIC" not in record.properties
    assert world.counts[TOPIC] == 0


def test_a_rollback_shows_nothing() -> None:
    world = World()
    half = world.send()
    world.end(half, ROLL_BACK)
    assert world.committed() == []
    assert world.counts[TOPIC] == 0
    assert world.check() == []


@pytest.mark.parametrize("decision", [COMMIT, ROLL_BACK])
def test_a_decision_that_is_repeated_changes_nothing(decision: object) -> None:
    world = World()
    half = world.send()
    world.end(half, decision)  # type: ignore[arg-type]
    world.end(half, decision)  # type: ignore[arg-type]
    other = ROLL_BACK if decision is COMMIT else COMMIT
    with pytest.raises(IllegalOperationError, match="ended before"):
        world.end(half, other)
    assert len(world.committed()) == (1 if decision is COMMIT else 0)
    assert world.counts[TOPIC] == 0


def test_notes_are_batched_and_announced() -> None:
    world = World(config=TransactionConfig(op_bytes_max=6))
    halves = [world.send() for _ in range(5)]
    for number, half in enumerate(halves):
        world.end(half, ROLL_BACK if number % 2 else COMMIT)
        assert world.waiting_notices == (1 if number < 2 else number)  # the first, then each that fills a body
    assert world.visible(OP) == []
    world.coordinator.write_ops()
    assert world.visible(OP) == [b"0,1,2,", b"3,4,"]
    assert world.coordinator.table.base == 5


def test_an_awaited_rollback_is_written_at_once() -> None:
    world = World()
    first, second = world.send(), world.send()
    world.end(first, ROLL_BACK)
    assert world.visible(OP) == []
    world.end(second, ROLL_BACK, waits=True)
    assert world.visible(OP) == [b"0,1,"]
    world = world.kill()
    assert world.counts[TOPIC] == 0


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_required_references_of_a_decision(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    half = world.send()
    other = world.send()
    plain = world.store.put(draft("plain"))
    for named, remark in (
        (Named(half.half_offset, half.physical_offset + 1), "Find prepared transaction message failed"),
        (Named(half.half_offset, 1 << 40), "Find prepared transaction message failed"),
        (Named(half.half_offset, -1), "Find prepared transaction message failed"),
        (Named(0, plain.physical_offset), "Find prepared transaction message failed"),
        (Named(other.half_offset, half.physical_offset), "The transaction state table offset wrong"),
    ):
        with pytest.raises(InvalidRequestError, match=f"^{remark}$"):
            world.end(named)
    with pytest.raises(InvalidRequestError, match=r"^The producer group wrong$"):
        world.end(half, group="others")
    assert world.committed() == []
    world.coordinator.catch_up()
    assert world.coordinator.table.open_count == 2
    assert not caplog.records, "the code that refuses the request logs it once"


def test_a_record_that_looks_like_a_commit_of_nothing_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer's retry of a committed message keeps the bits, and names a place where nothing begins."""
    world = World()
    world.store.put(draft("plain"))
    world.store.put(draft("%RETRY%group", sys_flag=TRANSACTION_COMMIT, prepared_transaction_offset=1))
    world = world.kill()
    assert world.store.recovery_report.committed_offsets, "it was looked at"
    assert world.committed() == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_half_message_without_a_group_can_only_be_parked() -> None:
    world = World(config=TransactionConfig(check_max=1))
    half = world.send(group=None)
    with pytest.raises(InvalidRequestError, match="The producer group wrong"):
        world.end(half)
    assert asked(world) == []
    assert asked(world) == []
    assert world.visible(PARKED) == [b"1"]


def test_a_late_decision_has_to_come_by_a_check() -> None:
    world = World()
    half = world.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    world.clock.now_ms += 60_001
    for decision in (COMMIT, ROLL_BACK):
        with pytest.raises(IllegalOperationError, match="by a check"):
            world.end(half, decision)
    (copy,) = world.check()
    world.end(copy)
    assert world.committed() == [b"1"]


def test_without_an_immunity_time_of_its_own_no_decision_is_late() -> None:
    world = World()
    half = world.send()
    world.clock.now_ms += 3_600_000
    world.end(half)
    assert world.committed() == [b"1"]


def test_a_commit_that_cannot_be_put_leaves_the_transaction_open() -> None:
    world = World()
    half = world.send()
    world.fails = True
    with pytest.raises(ServiceUnavailableError):
        world.end(half)
    world.fails = False
    assert world.counts[TOPIC] == 1
    world.end(half)
    assert world.committed() == [b"1"]


def test_a_rollback_that_cannot_be_written_is_not_confirmed() -> None:
    world = World()
    half = world.send()
    world.fails = True
    with pytest.raises(ServiceUnavailableError):
        world.end(half, ROLL_BACK, waits=True)
    world.fails = False
    world.end(half, ROLL_BACK, waits=True)
    assert world.visible(OP) == [b"0,"]


# -- deleted topics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_message_for_a_deleted_topic_is_dropped(is_made_again: bool) -> None:
    world = World()
    add_topic(world.store, TOPIC)
    half, other = world.send(), world.send()
    delete_topic(world.store, TOPIC)
    if is_made_again:
        add_topic(world.store, TOPIC)
    with pytest.raises(TopicNotFoundError):
        world.end(half)
    assert asked(world) == []  # the other is dropped, too
    assert world.counts[TOPIC] == 0
    assert world.committed() == []
    with pytest.raises(IllegalOperationError):
        world.end(other)


def test_a_copy_does_not_outlive_its_topic() -> None:
    world = World()
    add_topic(world.store, TOPIC)
    world.send()
    (copy,) = asked(world)
    delete_topic(world.store, TOPIC)
    add_topic(world.store, TOPIC)
    assert asked(world) == []
    with pytest.raises(IllegalOperationError):
        world.end(copy)


# -- copies ------------------------------------------------------------------------------------------------------------


def test_an_early_copy_stands_for_the_last() -> None:
    world = World()
    half = world.send()
    (first,) = asked(world)
    (second,) = asked(world)
    world.end(first)
    for named in (half, first, second):
        world.end(named)  # confirmed, and nothing more
    assert world.committed() == [b"1"]
    assert world.record(TOPIC, 0).prepared_transaction_offset == second.physical_offset
    assert asked(world) == []


def test_an_early_copy_is_known_when_everything_else_is_forgotten() -> None:
    world = World()
    half = world.send()
    (copy,) = asked(world)
    world.end(copy)
    world.coordinator.write_ops()
    assert world.coordinator.table.base == 2
    for named in (half, copy):
        with pytest.raises(IllegalOperationError, match="ended before"):
            world.end(named)
    assert world.committed() == [b"1"]


def test_copies_are_one_transaction_after_a_restart_too() -> None:
    world = World()
    half, other = world.send(), world.send()
    (copy, _) = asked(world)
    world = world.stop()
    assert (world.counts[TOPIC], world.coordinator.table.open_count) == (2, 2)
    world = world.kill()
    assert (world.counts[TOPIC], world.coordinator.table.open_count) == (2, 2)
    world.end(half)
    world.end(copy)
    assert world.committed() == [b"1"]
    world.end(other, ROLL_BACK)
    assert world.counts[TOPIC] == 0


def test_two_transactions_with_one_id_are_two() -> None:
    """A producer that sends the same message object twice keeps its id."""
    world = World()
    first = world.send(UNIQ_KEY="same")
    second = world.send(UNIQ_KEY="same")
    world.end(first, ROLL_BACK, waits=True)
    world.end(second)
    assert world.committed() == [b"2"]
    world = world.kill()
    assert world.counts[TOPIC] == 0
    assert asked(world) == []


# -- resume ------------------------------------------------------------------------------------------------------------


def parked_world() -> World:
    world = World(config=TransactionConfig(check_max=1))
    world.send(b"parked")
    asked(world)
    assert asked(world) == []
    assert world.counts[TOPIC] == 0
    return world


def test_a_parked_message_is_asked_about_again() -> None:
    world = parked_world()
    for number in range(2):  # with the table, and with an empty one
        world.coordinator.resume(world.record(PARKED, number))
        assert world.counts[TOPIC] == 1
        (copy,) = world.check()
        if not number:
            assert asked(world) == []  # parked again
    world.end(copy)
    assert world.committed() == [b"parked"]


def test_a_parked_message_is_resumed_after_a_restart() -> None:
    world = parked_world().stop()
    world.coordinator.resume(world.record(PARKED, 0))
    world = world.kill()
    assert world.counts[TOPIC] == 1
    (copy,) = world.check()
    world.end(copy)
    assert world.committed() == [b"parked"]


def test_resuming_twice_is_one_transaction() -> None:
    world = parked_world()
    world.coordinator.resume(world.record(PARKED, 0))
    world.coordinator.resume(world.record(PARKED, 0))
    assert world.counts[TOPIC] == 1
    (copy,) = world.check()
    world.end(copy)
    with pytest.raises(IllegalOperationError, match="ended before"):
        world.coordinator.resume(world.record(PARKED, 0))
    assert world.committed() == [b"parked"]


def test_an_open_half_message_starts_over() -> None:
    world = World(config=TransactionConfig(check_max=1))
    world.send()
    asked(world)
    world.coordinator.resume(world.record(HALF, 1))
    assert world.counts[TOPIC] == 1
    assert len(asked(world)) == 1  # not parked


def test_messages_that_cannot_be_resumed() -> None:
    world = World()
    world.store.put(draft("plain"))
    with pytest.raises(InvalidRequestError, match="of no transaction"):
        world.coordinator.resume(world.record("plain", 0))
    half = world.send()
    world.end(half)
    with pytest.raises(InvalidRequestError, match="of no transaction"):
        world.coordinator.resume(world.record(TOPIC, 0))
    with pytest.raises(IllegalOperationError):
        world.coordinator.resume(world.record(HALF, 0))


# -- progress, files, stops --------------------------------------------------------------------------------------------


def test_progress_waits_for_the_flush() -> None:
    world = World()
    world.end(world.send())
    world.coordinator.write_ops()
    assert not world.coordinator.advance_progress()
    assert world.coordinator.progress == (0, 0)
    world.store.commit_log.flush()
    assert world.coordinator.advance_progress()
    assert world.coordinator.progress == (1, 1)
    assert not world.coordinator.advance_progress()


def test_log_files_of_open_half_messages_stay() -> None:
    world = World(log_file_bytes=4_096)
    early = world.send(b"x" * 1_000)
    world.end(early)
    half = world.send(b"y" * 1_000)
    for _ in range(12):
        world.store.put(draft("filler", body=bytes(1_000)))
    world.coordinator.write_ops()
    world.store.commit_log.flush()
    world.coordinator.advance_progress()
    assert world.coordinator.held_offset == half.physical_offset
    world.retain()
    assert world.store.commit_log.min_offset <= half.physical_offset
    world.end(half)
    assert world.committed()[-1] == b"y" * 1_000
    world.store.put(draft("filler", body=bytes(1_000)))
    world.retain()
    assert world.store.commit_log.min_offset <= half.physical_offset  # its note is not durable, or not published
    world.coordinator.advance_progress()
    assert world.coordinator.held_offset is None
    world.retain()
    assert world.store.commit_log.min_offset > half.physical_offset


@pytest.mark.parametrize("decision", [COMMIT, ROLL_BACK])
def test_a_body_that_looks_like_a_half_message_ends_no_transaction(decision: Decision) -> None:
    """Its sender may know where in the log it will be, and choose the rest: the offset of another's half message."""
    world = World()
    victim = world.send(b"victim")
    forged_offset = world.store.commit_log.append_offset + HEAD.size
    forged = encode_record(
        topic=HALF,
        queue_id=0,
        queue_offset=victim.half_offset,
        physical_offset=forged_offset,
        body=b"forged",
        properties_text=encode_properties({"REAL_TOPIC": TOPIC, "REAL_QID": "0", "PGROUP": "attackers"}),
        born_timestamp_ms=world.clock(),
        born_host=("10.0.0.3", 4000),
        store_timestamp_ms=world.clock(),
        store_host=("10.0.0.1", 10911),
    )
    world.store.put(draft("attackers", body=forged))
    assert world.store.read_record(forged_offset).body == b"forged"
    with pytest.raises(InvalidRequestError, match="commit log offset"):
        world.end(Named(victim.half_offset, forged_offset), decision, group="attackers")
    with pytest.raises(InvalidRequestError, match="not in its queue"):
        world.coordinator.resume(world.store.read_record(forged_offset))
    world.end(victim)
    assert world.visible() == [b"victim"]


def test_a_full_disk_lets_decisions_and_notes_pass() -> None:
    world = World()
    first, second = world.send(), world.send()
    world.store.commit_log.pause(DISK_NEARLY_FULL)
    with pytest.raises(ServiceUnavailableError):
        world.send()
    world.end(first)
    world.end(second, ROLL_BACK, waits=True)
    assert world.visible() == [b"1"]
    assert world.visible(OP) == [b"0,1,"]
    assert world.store.commit_log.refusal == DISK_NEARLY_FULL


def test_a_full_disk_lets_copies_pass_that_free_files() -> None:
    world = World(log_file_bytes=4_096, config=TransactionConfig(check_max=2))
    half = world.send()
    for _ in range(4):
        world.store.put(draft("filler", body=bytes(1_500)))
    world.store.commit_log.pause(DISK_NEARLY_FULL)
    world.clock.now_ms += TIMEOUT_MS + 1
    world.coordinator.release_below(0)
    with pytest.raises(ServiceUnavailableError):
        world.check()
    world.coordinator.release_below(4_096)  # the file with the half message
    assert world.coordinator.is_release_wanted
    (copy,) = world.check()
    world.store.commit_log.flush()
    world.coordinator.advance_progress()
    assert world.coordinator.held_offset == copy.physical_offset > half.physical_offset
    assert not world.coordinator.is_release_wanted
    world.clock.now_ms += TIMEOUT_MS + 1
    with pytest.raises(ServiceUnavailableError):
        world.check()


def test_nothing_is_held_before_the_first_half_message() -> None:
    world = World()
    assert world.coordinator.held_offset is None
    assert world.check() == []
    assert world.coordinator.progress == (0, 0)


def test_a_promise_waits_for_notes() -> None:
    world = World()
    world.end(world.send())
    world.fails = True
    with pytest.raises(ServiceUnavailableError):
        world.store.sync_derived()
    world.fails = False
    world.store.sync_derived()
    assert world.visible(OP) == [b"0,"]


def test_a_stop_that_cannot_write_notes_is_no_clean_one() -> None:
    world = World()
    world.end(world.send(), COMMIT)
    world.fails = True
    world.coordinator.close()
    world.coordinator.close()
    world.fails = False
    with pytest.raises(ServiceUnavailableError, match="not written down"):
        world.store.close()
    world = world.kill()
    assert not world.store.recovery_report.was_clean
    assert world.counts[TOPIC] == 0
    assert world.visible(OP) == [b"0,"]


def test_a_clean_stop_leaves_nothing_to_find() -> None:
    world = World()
    world.end(world.send())
    open_half = world.send()
    world = world.stop()
    assert world.counts[TOPIC] == 1
    assert world.visible(OP) == [b"0,"]
    world.end(open_half)
    assert world.visible() == [b"1", b"2"]


def test_progress_behind_the_log_counts_as_its_end() -> None:
    """A power cut took the messages back that it speaks of."""
    world = World(Kept(progress=(7, 9)))
    assert world.coordinator.progress == (0, 0)
    world = World(Kept())
    world.send()
    world.kept.progress = (7, 9)
    world = world.kill()
    assert world.coordinator.progress == (1, 0)
