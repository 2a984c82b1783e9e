"""Check rounds: which producers are checked when, the content of a check, and half messages without an answer.

Covers `transactions/transaction_config.py`.
"""

from __future__ import annotations

import pytest

from tests.store.store_parts import draft
from tests.transactions.transaction_parts import COMMIT, TIMEOUT_MS, TOPIC, Named, World
from thermocline.remoting.errors import IllegalOperationError, ServiceUnavailableError
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import decode_record
from thermocline.store.log.message_draft import MessageDraft, PutResult
from thermocline.transactions import check_round
from thermocline.transactions.check_round import CheckRound
from thermocline.transactions.half_message import SET_BACK_MS
from thermocline.transactions.transaction_config import TransactionConfig

HALF, OP, PARKED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
MINUTE_MS = 60_000


def test_a_question_shows_the_message_and_names_its_copy() -> None:
    world = World()
    half = world.send(b"paid", queue_id=3, TAGS="red", WAIT="true")
    world.clock.now_ms += TIMEOUT_MS + 1
    (question,) = world.check()
    assert (question.producer_group, question.half_offset, question.transaction_id) == ("shop", 1, "ID1")
    assert question.physical_offset > half.physical_offset
    assert decode_message_id(question.offset_message_id).physical_offset == question.physical_offset
    record = decode_record(question.record)
    assert (record.topic, record.queue_id, record.body, record.tags) == (TOPIC, 3, b"paid", "red")
    assert (record.queue_offset, record.physical_offset) == (1, question.physical_offset)
    assert record.properties == {
        "UNIQ_KEY": "ID1",
        "TRAN_MSG": "true",
        "PGROUP": "shop",
        "TAGS": "red",
        "WAIT": "false",
        "__transactionId__": "ID1",
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "3",
        "TRANSACTION_CHECK_TIMES": "1",
    }
    copy = world.record(HALF, 1)
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert copy.properties["WAIT"] == "true"
    assert copy.born_timestamp_ms == record.born_timestamp_ms
    world.end(question)
    assert world.committed() == [b"paid"]


def test_no_check_is_sent_too_early_or_after_the_end() -> None:
    world = World()
    ended, young = world.send(), None
    world.end(ended)
    world.clock.now_ms += TIMEOUT_MS
    young = world.send()
    waiting = world.send(b"waiting")
    world.clock.now_ms += TIMEOUT_MS
    assert world.check() == []
    world.clock.now_ms += 1
    world.end(young)
    assert [decode_record(each.record).body for each in world.check()] == [b"waiting"]
    world.end(waiting)
    assert world.check() == []


def test_a_young_one_does_not_stop_those_behind_it() -> None:
    """A producer's clock may be behind: then what was stored later is older."""
    world = World()
    world.send(b"young")
    world.clock.now_ms -= 10_000
    world.send(b"old")
    world.clock.now_ms += 10_000 + 1
    assert [decode_record(each.record).body for each in world.check()] == [b"old"]


def test_one_of_the_future_is_asked_about_when_the_clock_was_set_back() -> None:
    """Else its producers are not asked until the clock is there again."""
    world = World()
    world.clock.now_ms += 86_400_000
    half = world.send(b"ahead", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    world.clock.now_ms -= SET_BACK_MS
    assert world.check() == []
    world.clock.now_ms -= 86_400_000
    (question,) = world.check()
    assert decode_record(question.record).body == b"ahead"
    world.end(half)
    assert world.committed() == [b"ahead"]


def test_each_round_asks_once_until_it_is_parked() -> None:
    world = World(config=TransactionConfig(check_max=3))
    half = world.send(b"undecided")
    for times in range(1, 4):
        world.clock.now_ms += TIMEOUT_MS + 1
        (question,) = world.check()
        assert decode_record(question.record).properties["TRANSACTION_CHECK_TIMES"] == str(times)
        assert world.counts[TOPIC] == 1
    world.clock.now_ms += TIMEOUT_MS + 1
    assert world.check() == []
    assert world.visible(PARKED) == [b"undecided"]
    parked = world.record(PARKED, 0)
    assert parked.properties["REAL_TOPIC"] == TOPIC
    assert parked.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert world.counts[TOPIC] == 0
    assert world.coordinator.table.open_count == 0
    with pytest.raises(IllegalOperationError, match="ended before"):
        world.end(half)
    assert world.visible(HALF) == [b"undecided"] * 4


def test_checks_are_counted_over_restarts() -> None:
    world = World(config=TransactionConfig(check_max=4))
    world.send()
    for number in range(4):
        world.clock.now_ms += TIMEOUT_MS + 1
        assert len(world.check()) == 1
        world = world.kill() if number % 2 else world.stop()
    world.clock.now_ms += TIMEOUT_MS + 1
    assert world.check() == []
    assert world.visible(PARKED) == [b"1"]


def test_the_parking_topic_is_requested_when_it_is_needed() -> None:
    world = World(config=TransactionConfig(check_max=1))
    world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    assert len(world.check()) == 1
    world.clock.now_ms += TIMEOUT_MS + 1
    one = CheckRound(world.coordinator, world.store, now_ms=world.clock())
    assert one.step() == []
    assert one.needs_parking_topic
    assert not one.is_done
    assert one.step() == []  # goes no further without it
    assert world.visible(PARKED) == []
    one.has_parking_topic = True
    assert one.step() == []
    assert one.is_done
    assert world.visible(PARKED) == [b"1"]


# -- immunity times ----------------------------------------------------------------------------------------------------


def test_an_immunity_time_of_its_own_holds_and_moves_nothing() -> None:
    world = World()
    world.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    hasty = world.send(b"hasty", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    world.clock.now_ms += 1_001
    assert [decode_record(each.record).body for each in world.check()] == [b"hasty"]
    world.end(hasty, is_checked=True)
    for _ in range(50):
        world.clock.now_ms += MINUTE_MS
        assert world.check() == []
    assert world.visible(HALF) == [b"patient", b"hasty", b"hasty"]
    world.clock.now_ms += 10 * MINUTE_MS
    (question,) = world.check()
    assert decode_record(question.record).properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("by", ["messages", "bytes", "wanted back"])
def test_one_that_holds_back_too_much_moves_without_a_question(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(log_file_bytes=4_096)
    half = world.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    if by == "messages":
        monkeypatch.setattr(check_round, "HELD_MESSAGES_MAX", 3)
        for _ in range(3):
            world.end(world.send())
    elif by == "bytes":
        for _ in range(3):
            world.store.put(draft("filler", body=bytes(1_500)))
    else:
        world.store.put(draft("filler", body=bytes(1_500)))
        world.coordinator.release_below(half.physical_offset + 1)
    assert world.check() == []
    copy = world.record(HALF, world.coordinator.table.end - 1)
    assert copy.body == b"patient"
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in copy.properties
    assert world.coordinator.table.base == copy.queue_offset
    assert world.check() == []
    assert world.coordinator.table.base == copy.queue_offset  # it stays there now
    world.end(half)
    assert world.committed()[-1] == b"patient"


def test_a_producer_whose_clock_is_ahead_is_not_asked_at_once() -> None:
    world = World()
    half = world.send(born_ahead_ms=MINUTE_MS)
    assert world.record(HALF, half.half_offset).born_timestamp_ms > world.clock.now_ms
    assert world.check() == []


# -- slices ------------------------------------------------------------------------------------------------------------


def test_work_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_round, "SLICE_MESSAGES_MAX", 4)
    world = World()
    for _ in range(10):
        world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    one = CheckRound(world.coordinator, world.store, now_ms=world.clock())
    counts = []
    while not one.is_done:
        counts.append(len(one.step()))
    assert counts == [4, 4, 2]
    assert one.asked_count == 10
    # The copies are noted before the slice returns, and none of them is asked about in the same round.
    assert world.visible(OP) == [b"0,1,2,3,", b"4,5,6,7,", b"8,9,"]


def test_large_messages_end_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_round, "SLICE_BYTES_MAX", 3_000)
    world = World()
    for _ in range(3):
        world.send(b"x" * 2_000)
    world.clock.now_ms += TIMEOUT_MS + 1
    one = CheckRound(world.coordinator, world.store, now_ms=world.clock())
    assert [len(one.step()), len(one.step())] == [2, 1]


def test_decisions_between_two_slices_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_round, "SLICE_MESSAGES_MAX", 1)
    world = World()
    first, second = world.send(), world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    one = CheckRound(world.coordinator, world.store, now_ms=world.clock())
    (question,) = one.step()
    world.end(second)
    world.end(first)
    assert one.step() == []
    with pytest.raises(IllegalOperationError, match="ended before"):
        world.end(question)
    assert sorted(world.committed()) == [b"1", b"2"]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_log_that_takes_nothing_ends_the_round_and_loses_nothing() -> None:
    world = World()
    world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    world.fails = True
    with pytest.raises(ServiceUnavailableError):
        world.check()
    world.fails = False
    assert len(world.check()) == 1


def check_without_notes(world: World) -> None:
    """A round that puts a copy and breaks off at its note; no note can be put from now on."""

    def put_no_notes(message: MessageDraft) -> PutResult:
        if message.topic == OP:
            raise ServiceUnavailableError("the test says so")
        return world.put(message)

    world.coordinator._put = put_no_notes
    with pytest.raises(ServiceUnavailableError):
        world.check()


def test_a_commit_after_a_round_that_broke_off_is_still_the_only_one() -> None:
    """The copy is in the log, the note that it stands for the first one is not: a commit writes that first."""
    world = World()
    half = world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    check_without_notes(world)
    assert world.coordinator.table.end == 2
    with pytest.raises(ServiceUnavailableError):
        world.end(half, COMMIT)
    assert world.committed() == []
    world.coordinator._put = world.put
    world.end(half, COMMIT)
    assert world.visible(OP) == [b"0,"]
    world = world.kill()
    assert world.counts[TOPIC] == 0
    assert world.check() == []
    assert world.visible() == [b"1"]


def test_a_commit_after_a_crash_that_took_the_note_of_a_copy_is_the_only_one() -> None:
    """The next life finds both copies; a second crash, behind the commit, must find the note of the first one."""
    world = World()
    world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    check_without_notes(world)
    world = world.kill()
    assert world.coordinator.table.open_count == 1
    world.clock.now_ms += TIMEOUT_MS + 1
    world.end(Named(0, world.record(HALF, 0).physical_offset), COMMIT, is_checked=True)
    assert world.visible() == [b"1"]
    world = world.kill()
    assert world.coordinator.table.open_count == 0
    assert world.check() == []
    assert world.visible() == [b"1"]


def test_a_half_message_that_cannot_be_read_is_passed_over() -> None:
    world = World()
    world.store.put(draft(HALF, body=b"nonsense"))
    world.send()
    world.clock.now_ms += TIMEOUT_MS + 1
    assert len(world.check()) == 1
    assert world.coordinator.table.base == 2
