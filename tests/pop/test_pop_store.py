"""What is popped, acknowledged, kept longer and given out again, through restarts.

Covers `pop/order_record.py`, `pop/order_saves.py`, `pop/revival.py`, `pop/revive_log.py`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec
import pytest

from tests.clock import Clock
from tests.pop.pop_parts import (
    DLQ_TOPIC,
    GROUP,
    LOG_FILE_BYTES,
    RETRY_TOPIC,
    REVIVE_QUEUES,
    REVIVE_TOPIC,
    TOPIC,
    TRIES_MAX,
    Held,
    PopParts,
)
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import add_topic, bodies_of, delete_topic
from thermocline.pop import pop_store
from thermocline.pop.ack_record import AckRecord
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.order_info import make_order_info
from thermocline.pop.order_record import OrderRecord
from thermocline.pop.pop_store import Take
from thermocline.pop.revive_log import ACK_CODE, CHECK_POINT_CODE, ORDER_CODE, topic_of_record
from thermocline.remoting.errors import BrokerBusyError, ServiceUnavailableError, StoreClosedError
from thermocline.remoting.handles.pop_topics import REVIVE_GROUP
from thermocline.remoting.offsets import LOG_START, QueueOffset
from thermocline.store.retention import DISK_NEARLY_FULL

MINUTE_MS = 60_000
YEAR_MS = 365 * 86_400_000


@pytest.fixture
def parts() -> PopParts:
    parts = PopParts(SimulatedDisk(), Clock(1_000_000))
    for number in range(6):
        parts.send(b"%d" % number)
    return parts


def test_a_popped_message_is_not_popped_again(parts: PopParts) -> None:
    assert [held.body for held in parts.pop(4, invisible_ms=MINUTE_MS)] == [b"0", b"1", b"2", b"3"]
    assert [held.body for held in parts.pop(4, invisible_ms=MINUTE_MS)] == [b"4", b"5"]
    assert parts.pop(4, invisible_ms=MINUTE_MS) == []
    assert parts.pops.in_flight.message_count(TOPIC, GROUP, 0) == 6


def test_only_unacknowledged_messages_are_redelivered(parts: PopParts) -> None:
    first, second, third = parts.pop(3, invisible_ms=MINUTE_MS)
    parts.ack(first, third)
    assert parts.revive_due() == 0
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 1
    assert bodies_of(parts.store, RETRY_TOPIC) == [b"1"]
    (again,) = parts.pop(4, invisible_ms=MINUTE_MS, topic=RETRY_TOPIC)
    assert again.reconsume_times == 1
    parts.ack(second)  # too late: another consumer holds it
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 1
    assert bodies_of(parts.store, RETRY_TOPIC) == [b"1", b"1"]


def test_acknowledging_twice_puts_one_record(parts: PopParts) -> None:
    held, *_ = parts.pop(2, invisible_ms=MINUTE_MS)
    assert parts.ack(held) == parts.store.commit_log.append_offset
    assert parts.ack(held) == 0
    assert parts.ack(held, held) == 0


def test_several_check_points_are_acknowledged_in_one_write(parts: PopParts) -> None:
    helds = parts.pop(2, invisible_ms=MINUTE_MS) + parts.pop(2, invisible_ms=MINUTE_MS)
    before = sum(queue.next_offset for queue in parts.store.queues.of_topic(REVIVE_TOPIC).values())
    parts.ack(*helds)
    assert sum(queue.next_offset for queue in parts.store.queues.of_topic(REVIVE_TOPIC).values()) == before + 2
    assert len(parts.pops.in_flight) == 0


def test_kept_longer(parts: PopParts) -> None:
    first, second = parts.pop(2, invisible_ms=MINUTE_MS)
    kept = parts.renew(first, invisible_ms=3 * MINUTE_MS)
    assert kept is not None
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 1
    assert bodies_of(parts.store, RETRY_TOPIC) == [b"1"]
    assert parts.renew(second, invisible_ms=MINUTE_MS) is None
    parts.ack(first)  # the old receipt is worth nothing
    parts.clock.now_ms = kept.pop_time_ms + 3 * MINUTE_MS - 1
    assert parts.revive_due() == 0
    parts.clock.now_ms += 1
    assert parts.revive_due() == 1
    assert parts.renew(kept, invisible_ms=1) is None


def test_receipts_of_one_message_differ_within_a_millisecond(parts: PopParts) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    receipts = [held]
    for _ in range(3):
        kept = parts.renew(receipts[-1], invisible_ms=MINUTE_MS)
        assert kept is not None
        receipts.append(kept)
    assert len({receipt.pop_time_ms for receipt in receipts}) == 4
    for receipt in receipts[:-1]:
        assert parts.ack(receipt) == 0
    assert parts.ack(receipts[-1]) > 0


def test_a_suspended_message_comes_back_as_it_was(parts: PopParts) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    parts.renew(held, invisible_ms=1, is_suspended=True)
    parts.clock.now_ms += 2
    assert parts.revive_due() == 1
    (again,) = parts.pop(1, invisible_ms=MINUTE_MS, topic=RETRY_TOPIC)
    assert again.reconsume_times == 0


def test_a_message_with_too_many_retries_is_a_dead_letter(parts: PopParts) -> None:
    parts.pop(1, invisible_ms=MINUTE_MS)
    for tries in range(1, TRIES_MAX + 1):
        parts.clock.now_ms += MINUTE_MS
        assert parts.revive_due() == 1
        (held,) = parts.pop(1, invisible_ms=MINUTE_MS, topic=RETRY_TOPIC)
        assert held.reconsume_times == tries
    assert bodies_of(parts.store, DLQ_TOPIC) == []
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 1
    assert parts.pop(1, invisible_ms=MINUTE_MS, topic=RETRY_TOPIC) == []
    assert bodies_of(parts.store, DLQ_TOPIC) == [b"0"]
    record = parts.read(DLQ_TOPIC, 0, 0)
    assert record is not None
    assert record.property_text("DLQ_ORIGIN_TOPIC") == record.property_text("RETRY_TOPIC") == TOPIC
    assert record.property_text("1ST_POP_TIME") == "1000000"
    assert record.property_text("ORIGIN_GROUP") == GROUP


def test_after_a_kill_nothing_is_forgotten(parts: PopParts) -> None:
    parts.save()
    first, _second, _third = parts.pop(3, invisible_ms=MINUTE_MS)
    kept = parts.renew(first, invisible_ms=5 * MINUTE_MS)
    acked = parts.pop(1, invisible_ms=MINUTE_MS)
    parts.ack(*acked)
    parts = parts.killed()
    # The offsets' file is older than all that; the log is not.
    assert parts.offsets.query(TOPIC, GROUP, 0) == 4
    assert [held.body for held in parts.pop(9, invisible_ms=MINUTE_MS)] == [b"4", b"5"]
    assert kept is not None
    assert parts.pending(kept) is not None
    assert parts.pending(acked[0]) is None
    parts.clock.now_ms += MINUTE_MS
    parts.revive_due()
    assert sorted(bodies_of(parts.store, RETRY_TOPIC)) == [b"1", b"2", b"4", b"5"]
    assert parts.ack(kept) > 0


def test_a_message_put_for_retry_is_not_put_again_after_a_kill(parts: PopParts) -> None:
    parts.save()
    parts.pop(3, invisible_ms=MINUTE_MS)
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 3
    parts = parts.killed()
    assert parts.revive_due() == 0
    assert len(parts.pops.in_flight) == 0
    assert bodies_of(parts.store, RETRY_TOPIC) == [b"0", b"1", b"2"]


def test_a_reset_that_was_saved_stands_against_older_check_points(parts: PopParts) -> None:
    parts.pop(5, invisible_ms=MINUTE_MS)
    parts.offsets.commit(TOPIC, GROUP, 0, 1)
    parts.save()
    parts = parts.killed()
    assert parts.offsets.query(TOPIC, GROUP, 0) == 1
    assert len(parts.pops.in_flight) == 1


def test_a_reset_that_was_saved_stands_against_new_invisible_times(parts: PopParts) -> None:
    helds = parts.pop(5, invisible_ms=MINUTE_MS)
    parts.offsets.commit(TOPIC, GROUP, 0, 1)
    parts.save()
    kept = parts.renew(helds[4], invisible_ms=2 * MINUTE_MS)
    parts = parts.killed()
    assert kept is not None
    assert parts.pending(kept) is not None
    assert parts.offsets.query(TOPIC, GROUP, 0) == 1


def test_without_a_log_offset_in_the_file_nothing_is_raised(parts: PopParts) -> None:
    """As after Apache RocketMQ has written the file: its offsets stand."""
    parts.offsets.commit(TOPIC, GROUP, 0, 0)
    parts.replace(parts.offsets_path, parts.offsets.encode())
    parts.pop(5, invisible_ms=MINUTE_MS)
    parts = parts.killed()
    assert parts.offsets.query(TOPIC, GROUP, 0) == 0
    assert len(parts.pops.in_flight) == 1


def test_an_offset_is_not_written_before_its_check_point_is_durable(parts: PopParts) -> None:
    parts.save()
    parts.pop(3, invisible_ms=MINUTE_MS)
    parts.save()
    disk = parts.disk.after_power_cut(Random(1), kept_share=0)
    parts = parts.cut(disk)
    assert parts.offsets.query(TOPIC, GROUP, 0) == 3
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 3


def test_progress_of_the_revive_topic_is_rocketmqs(parts: PopParts) -> None:
    queues = parts.store.queues
    first = parts.pop(1, invisible_ms=MINUTE_MS)
    parts.pop(1, invisible_ms=MINUTE_MS)
    third = parts.pop(1, invisible_ms=MINUTE_MS)
    parts.pops.note_progress()
    ids = sorted(queues.of_topic(REVIVE_TOPIC))
    assert [parts.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, number) for number in ids] == [None] * REVIVE_QUEUES
    parts.ack(*first, *third)
    parts.pops.note_progress()
    # One queue is through with all of its records, in the other the second check point is open.
    ends = {number: queues.of_topic(REVIVE_TOPIC)[number].next_offset for number in ids}
    committed = {number: parts.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, number) for number in ids}
    assert sorted(committed[number] or -1 for number in ids) == [-1, ends[1] - 1]


def test_progress_behind_the_revive_topics_end_hides_no_later_check_point(parts: PopParts) -> None:
    """As of a slave that began empty: it has its master's progress, and no record."""
    for revive_queue_id in range(REVIVE_QUEUES):
        parts.offsets.commit(REVIVE_TOPIC, REVIVE_GROUP, revive_queue_id, 64)
    parts.save()
    parts = parts.killed()
    parts.send(b"x")
    assert len(parts.pop(1, invisible_ms=1_000)) == 1
    parts = parts.killed()
    assert len(parts.pops.in_flight) == 1


def test_the_log_is_held_from_the_first_open_check_point_on(parts: PopParts) -> None:
    assert parts.pops.held_offset is None
    first_place = parts.store.commit_log.append_offset
    first = parts.pop(1, invisible_ms=MINUTE_MS)
    second_place = parts.store.commit_log.append_offset
    parts.pop(1, invisible_ms=MINUTE_MS)
    assert parts.pops.held_offset == first_place
    parts.ack(*first)
    assert parts.pops.held_offset == second_place


def test_an_old_check_point_is_put_anew_before_many_later_records(
    parts: PopParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_store, "WINDOW_RECORDS_MIN", 20)
    stuck = parts.pop(2, invisible_ms=100 * MINUTE_MS)
    parts.ack(stuck[1])
    for number in range(60):
        parts.send(b"x%d" % number)
        parts.ack(*parts.pop(1, invisible_ms=MINUTE_MS))
        assert not parts.pops.maintain()
    held_offset = parts.pops.held_offset
    assert held_offset is not None
    assert held_offset > parts.store.commit_log.append_offset - 60 * 700
    parts.save()
    parts = parts.killed()
    pending = parts.pending(stuck[0])
    assert pending is not None
    assert pending.open_offsets() == [0]
    assert parts.ack(*stuck) > 0
    assert len(parts.pops.in_flight) == 0


def test_one_that_gets_old_is_put_anew_too(parts: PopParts) -> None:
    parts.pop(1, invisible_ms=10_000 * MINUTE_MS)
    place = parts.pops.held_offset
    assert not parts.pops.maintain()
    assert parts.pops.held_offset == place
    parts.clock.now_ms += 61 * MINUTE_MS
    assert not parts.pops.maintain()
    assert (parts.pops.held_offset or 0) > (place or 0)
    parts = parts.killed()
    assert len(parts.pops.in_flight) == 1


def fill_file(parts: PopParts) -> None:
    """Let the log go on in another file."""
    first = parts.store.commit_log.files.last
    while parts.store.commit_log.files.last is first:
        parts.send(bytes(4_096))


def test_a_full_disk_lets_acknowledgements_pass(parts: PopParts) -> None:
    first, second = parts.pop(2, invisible_ms=MINUTE_MS)
    pop_in_order(parts, 2, 3)
    log = parts.store.commit_log
    log.pause(DISK_NEARLY_FULL)
    assert parts.ack(first) == log.append_offset
    info = parts.orders.find(TOPIC, GROUP, 0)
    parts.pops.order_changed(TOPIC, GROUP, 0, info, next_offset=QueueOffset(3), is_ack=True)
    with pytest.raises(ServiceUnavailableError):
        parts.pop(1, invisible_ms=MINUTE_MS)
    with pytest.raises(ServiceUnavailableError):
        parts.renew(second, invisible_ms=MINUTE_MS)
    parts.clock.now_ms += MINUTE_MS
    with pytest.raises(ServiceUnavailableError):
        parts.revive_due()
    assert log.refusal == DISK_NEARLY_FULL
    parts = parts.killed()
    assert [pending.open_offsets() for pending in parts.pops.in_flight] == [[1]]


def test_a_full_disk_lets_check_points_pass_that_keep_files(parts: PopParts) -> None:
    """Otherwise the files would wait for the log, and the log for the files."""
    stuck = [parts.pop(1, invisible_ms=MINUTE_MS) for _ in range(2 * REVIVE_QUEUES)]
    parts.renew(*stuck[0], invisible_ms=100 * MINUTE_MS)
    fill_file(parts)
    newest = parts.pop(1, invisible_ms=MINUTE_MS)
    log = parts.store.commit_log
    log.pause(DISK_NEARLY_FULL)
    assert not parts.pops.maintain(), "no file is wanted back"
    assert (parts.pops.held_offset or 0) < LOG_FILE_BYTES
    parts.pops.release_below(LOG_FILE_BYTES)
    assert parts.renew(*stuck[1], invisible_ms=MINUTE_MS) is not None
    with pytest.raises(ServiceUnavailableError):
        parts.renew(*newest, invisible_ms=MINUTE_MS)
    assert not parts.pops.maintain()
    assert (parts.pops.held_offset or 0) >= LOG_FILE_BYTES
    end_offset = log.append_offset
    assert not parts.pops.maintain()
    assert log.append_offset == end_offset, "nothing more is to be put"
    parts = parts.killed()
    assert len(parts.pops.in_flight) == len(stuck) + 1


def test_a_full_disk_lets_messages_come_back_that_keep_files(parts: PopParts) -> None:
    parts.pop(2, invisible_ms=MINUTE_MS)
    fill_file(parts)
    parts.store.commit_log.pause(DISK_NEARLY_FULL)
    parts.pops.release_below(LOG_FILE_BYTES)
    parts.clock.now_ms += MINUTE_MS
    assert parts.revive_due() == 2
    assert bodies_of(parts.store, RETRY_TOPIC) == [b"0", b"1"]
    assert parts.pops.held_offset is None


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_popped_while_the_clock_was_ahead_comes_back_in_time(parts: PopParts, *, is_killed: bool) -> None:
    (before,) = parts.pop(1, invisible_ms=20 * MINUTE_MS)
    now_ms = parts.clock.now_ms
    parts.clock.now_ms += YEAR_MS
    parts.pops.maintain()
    (ahead,) = parts.pop(1, invisible_ms=MINUTE_MS)
    pop_in_order(parts, 2, 3)
    if is_killed:
        parts = parts.killed()
    woken: list[None] = []
    parts.pops.on_due = lambda: woken.append(None)
    parts.clock.now_ms = now_ms + 1_000
    parts.pops.maintain()
    assert woken
    due_ms = [pending.due_ms for held in (before, ahead) if (pending := parts.pending(held)) is not None]
    assert due_ms == [now_ms + 20 * MINUTE_MS, now_ms + 1_000 + MINUTE_MS]
    assert parts.pops.in_flight.next_due_ms == now_ms + 1_000 + MINUTE_MS
    info = parts.orders.find(TOPIC, GROUP, 0)
    assert info is not None
    assert info.free_ms == now_ms + 1_000 + MINUTE_MS
    pending = parts.pending(ahead)
    assert pending is not None
    parts.pops.renew(pending, ahead.offset, invisible_ms=5_000, is_suspended=False)
    assert parts.pops.in_flight.next_due_ms == now_ms + 6_000


def test_a_clock_that_is_right_changes_no_due_time(parts: PopParts) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    pending = parts.pending(held)
    assert pending is not None
    parts.pops.in_flight.put_off(pending, parts.clock.now_ms + 5 * MINUTE_MS)
    for change_ms in (0, -pop_store.SET_BACK_MS, 0, 1_000):
        parts.clock.now_ms += change_ms
        parts.pops.maintain()
    assert pending.due_ms == 1_000_000 + 5 * MINUTE_MS


def test_too_much_in_flight_is_refused(parts: PopParts) -> None:
    parts.pops.pending_max = 1
    parts.pop(2, invisible_ms=MINUTE_MS)
    with pytest.raises(BrokerBusyError):
        parts.pop(1, invisible_ms=MINUTE_MS)
    assert parts.offsets.query(TOPIC, GROUP, 0) == 2


def test_a_store_that_refuses_changes_nothing(parts: PopParts) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    parts.store.commit_log.fail("broken")
    with pytest.raises(StoreClosedError):
        parts.pop(1, invisible_ms=MINUTE_MS)
    with pytest.raises(StoreClosedError):
        parts.ack(held)
    assert parts.offsets.query(TOPIC, GROUP, 0) == 1
    pending = parts.pending(held)
    assert pending is not None
    assert pending.open_offsets() == [0]


def test_a_deleted_topic_takes_its_messages_along(parts: PopParts) -> None:
    parts.pop(2, invisible_ms=MINUTE_MS)
    delete_topic(parts.store, TOPIC)
    parts.pops.forget_topic(TOPIC)
    assert parts.pops.in_flight.next_due_ms is None
    add_topic(parts.store, TOPIC)
    parts.send(b"new")
    parts = parts.killed()
    assert len(parts.pops.in_flight) == 0


def test_a_deleted_group_takes_its_messages_along(parts: PopParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_store, "MAINTAIN_MAX", 2)
    for _ in range(3):
        parts.pop(1, invisible_ms=MINUTE_MS)
    wanted = Take(topic=TOPIC, queue_id=0, offsets=[QueueOffset(0)], next_offset=QueueOffset(1))
    parts.pops.claim("other", [wanted], invisible_ms=MINUTE_MS)
    pop_in_order(parts, 3)
    for _ in parts.pops.forget_group(GROUP):
        pass
    assert parts.orders.find(TOPIC, GROUP, 0) is None
    parts.offsets.remove_group(GROUP)
    parts.save()
    for _ in range(2):
        assert [pending.check_point.group for pending in parts.pops.in_flight] == ["other"]
        assert len(parts.orders) == 0
        assert parts.offsets.query(TOPIC, GROUP, 0) is None
        parts = parts.killed()


def test_records_of_another_writer_are_read(parts: PopParts) -> None:
    """What Apache RocketMQ has left to its timer arrives in the revive topic later."""
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    pending = parts.pending(held)
    assert pending is not None
    log = parts.pops.log
    parts.store.put(parts.pops._ack_draft(pending, [0]))
    assert parts.pending(held) is not None
    parts.pops.catch_up()
    assert parts.pending(held) is None
    check_point = pending.check_point
    parts.store.put(log.check_point_draft(check_point, 1))
    parts.pops.catch_up()
    assert parts.pending(held) is not None


def test_messages_put_by_a_timer_are_noticed_without_any_request(parts: PopParts) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    pending = parts.pending(held)
    assert pending is not None
    parts.pops.ack([(pending, [0])])
    in_flight_counts: list[int] = []
    parts.pops.on_due = lambda: in_flight_counts.append(len(parts.pops.in_flight))
    parts.store.put(parts.pops.log.check_point_draft(pending.check_point, 1))
    assert not in_flight_counts
    parts.pops.maintain()
    assert in_flight_counts == [1]


def test_unreadable_records_of_the_revive_topic_are_skipped(parts: PopParts, caplog: pytest.LogCaptureFixture) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    draft = parts.pops.log.check_point_draft
    pending = parts.pending(held)
    assert pending is not None
    parts.store.put(msgspec.structs.replace(draft(pending.check_point, 1), body=b"damaged"))
    parts = parts.killed()
    assert "revive record passed over" in caplog.text
    assert len(parts.pops.in_flight) == 1


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (CHECK_POINT_CODE, b'{"t":"orders","c":"group","pt":1,"it":60000}'),
        (CHECK_POINT_CODE, b'{"t":"orders","c":"group","pt":1,"it":60000,"n":2000000000}'),
        (CHECK_POINT_CODE, b'{"t":"orders","c":"group","pt":1,"it":60000,"n":1,"rp":"%s"}' % (b"9" * 5_000)),
        (ACK_CODE, b'{"t":"orders","c":"group","pt":1,"ao":99999999999999999999999999}'),
        (ORDER_CODE, b'{"t":"orders","c":"group","q":0,"o":-1,"i":null}'),
        (ORDER_CODE, b'{"t":"orders","c":"group","q":0,"o":99999999999999999999999999,"i":null}'),
        (ORDER_CODE, b'{"t":"orders","c":"group","q":0,"o":2,"i":{"o":[2],"ot":{"2":99999999999999999999999999}}}'),
        (ORDER_CODE, b'{"t":"orders","c":"group","q":0,"o":2,"i":{"o":[2,5,5],"popTime":1}}'),
        (CHECK_POINT_CODE, b'{"t":"orders","c":"group\xff","pt":1,"it":60000,"n":1}'),
        (ACK_CODE, b'{"t":"orders","c":"group\xff","pt":1,"ao":0}'),
        (ORDER_CODE, b'{"t":"orders","c":"group\xff","q":0,"o":2,"i":null}'),
    ],
    ids=["empty", "count", "tries", "ack", "order", "order of 87 bits", "time", "twice", "bytes", "ack's", "order's"],
)
def test_forged_records_keep_no_broker_from_its_start(parts: PopParts, code: int, body: bytes) -> None:
    """Any client may send to the revive topic."""
    parts.pop(2, invisible_ms=MINUTE_MS)
    check_points = [pending.check_point for pending in parts.pops.in_flight]
    record = parts.pops.log.check_point_draft(check_points[0], 1)
    parts.store.put(msgspec.structs.replace(record, body=body, tags_code=code))
    parts.pops.maintain()
    topic_of_record(body)
    parts = parts.killed()
    parts.save()
    parts = parts.killed()
    in_flight = [pending.check_point for pending in parts.pops.in_flight]
    assert [each for each in in_flight if each.pop_time_ms > 1] == check_points
    assert parts.offsets.query(TOPIC, GROUP, 0) == 2
    assert parts.orders.find(TOPIC, GROUP, 0) is None


# -- ordered -----------------------------------------------------------------------------------------------------------


def pop_in_order(parts: PopParts, *offsets: int) -> None:
    info = make_order_info(
        offsets,
        pop_time_ms=parts.clock(),
        invisible_ms=MINUTE_MS,
        attempt_id=None,
        previous=parts.orders.find(TOPIC, GROUP, 0),
    )
    parts.pops.order_changed(TOPIC, GROUP, 0, info, next_offset=offsets[0])


def test_order_infos_survive_a_kill_with_files_and_without(parts: PopParts) -> None:
    pop_in_order(parts, 0, 1)
    parts.save()
    parts = parts.killed()
    info = parts.orders.find(TOPIC, GROUP, 0)
    assert info is not None
    assert info.offsets == (0, 1)
    info.acked_bits = 1
    parts.pops.order_changed(TOPIC, GROUP, 0, info, next_offset=1)
    parts = parts.killed()
    info = parts.orders.find(TOPIC, GROUP, 0)
    assert info is not None
    assert info.open_offsets() == [1]
    assert parts.offsets.query(TOPIC, GROUP, 0) == 1
    parts.pops.order_changed(TOPIC, GROUP, 0, None, next_offset=2)
    parts = parts.killed()
    assert parts.orders.find(TOPIC, GROUP, 0) is None
    assert parts.offsets.query(TOPIC, GROUP, 0) == 2


def test_order_records_are_read_in_the_order_of_the_log(parts: PopParts) -> None:
    """Also when another number of revive queues has spread them otherwise."""
    pop_in_order(parts, 0, 1)
    info = parts.orders.find(TOPIC, GROUP, 0)
    assert info is not None
    newer = OrderRecord(topic=TOPIC, group=GROUP, queue_id=0, next_offset=1, info=replace(info, acked_bits=1))
    older = OrderRecord(topic=TOPIC, group=GROUP, queue_id=0, next_offset=0, info=info)
    log = parts.pops.log
    parts.store.put(msgspec.structs.replace(log.order_draft(older), queue_id=1))
    parts.store.put(msgspec.structs.replace(log.order_draft(newer), queue_id=0))
    parts = parts.killed()
    info = parts.orders.find(TOPIC, GROUP, 0)
    assert info is not None
    assert info.open_offsets() == [1]
    assert parts.offsets.query(TOPIC, GROUP, 0) == 1


def test_order_records_are_held_until_the_file_has_them(parts: PopParts) -> None:
    place = parts.store.commit_log.append_offset
    pop_in_order(parts, 0)
    assert parts.pops.held_offset == place
    parts.pops.order_saves.begin_save()
    parts.pops.encode_orders()
    assert parts.pops.held_offset == place
    pop_in_order(parts, 1)
    parts.pops.order_saves.end_save()
    assert (parts.pops.held_offset or 0) > place
    parts.save()
    assert parts.pops.held_offset is None
    parts.pops.note_progress()
    parts = parts.killed()
    assert parts.orders.find(TOPIC, GROUP, 0) is not None


# -- replica sets ------------------------------------------------------------------------------------------------------


def foreign(parts: PopParts, held: Held) -> CheckPoint:
    """The check point of another broker's queue, equal to that of this message in all but the broker name."""
    pending = parts.pending(held)
    assert pending is not None
    return replace(pending.check_point, broker_name="broker-b")


def test_a_check_point_of_another_brokers_queue_is_kept_apart(parts: PopParts) -> None:
    """A slave that stands in for its master has put it here; the key is the same but for the broker name."""
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    other = replace(foreign(parts, held), offsets=(0, 90))
    parts.store.put(parts.pops.log.check_point_draft(other, 1))
    parts = parts.killed()
    assert parts.offsets.query(TOPIC, GROUP, 0) == 1, "it says nothing about this broker's queue"
    assert (len(parts.pops.in_flight), parts.pops.in_flight.message_count(TOPIC, GROUP, 0)) == (2, 1)
    parts.ack(held)
    assert [each.check_point for each in parts.pops.in_flight] == [other]
    parts.store.put(parts.pops.log.ack_draft(AckRecord.of(other, [0]), 1, revive_time_ms=other.revive_time_ms))
    parts.pops.catch_up()
    (pending,) = parts.pops.in_flight
    assert pending.open_offsets() == [90]


def test_a_deleted_topic_leaves_other_brokers_messages(parts: PopParts) -> None:
    (held,) = parts.pop(1, invisible_ms=MINUTE_MS)
    other = foreign(parts, held)
    parts.store.put(parts.pops.log.check_point_draft(other, 1))
    parts.pops.catch_up()
    parts.pops.forget_topic(TOPIC)
    assert [each.check_point for each in parts.pops.in_flight] == [other]


def test_a_copy_of_a_log_is_read_and_left_as_it_is(parts: PopParts) -> None:
    first, second, third = parts.pop(3, invisible_ms=MINUTE_MS)
    parts.ack(first)
    pop_in_order(parts, 3, 4)
    end = parts.store.commit_log.append_offset
    copy = parts.follow()
    list(copy.pops.open_copy(offsets_log_offset=None))
    assert copy.offsets.query(TOPIC, GROUP, 0) is None, "nothing says up to where its offsets are complete"
    copy.pops.close_copy()
    list(copy.pops.open_copy(offsets_log_offset=LOG_START))
    assert copy.offsets.query(TOPIC, GROUP, 0) == 3
    (pending,) = copy.pops.in_flight
    assert pending.open_offsets() == [1, 2]
    assert copy.ack(second) == LOG_START
    assert pending.open_offsets() == [2]
    info = copy.pops.orders.find(TOPIC, GROUP, 0)
    assert info is not None
    assert info.offsets == (3, 4)
    copy.pops.order_changed(TOPIC, GROUP, 0, None, next_offset=5)
    assert copy.pops.orders.find(TOPIC, GROUP, 0) is None
    copy.pops.note_progress()
    progress = [copy.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, number) for number in range(REVIVE_QUEUES)]
    assert pending.revive_offset - 1 in [-1 if done is None else done for done in progress]
    copy.ack(third)
    copy.pops.note_progress()
    for number in range(REVIVE_QUEUES):
        queue = copy.store.queues.find(REVIVE_TOPIC, number)
        done = copy.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, number)
        assert done == (None if queue is None else queue.next_offset - 1), "order records hold nothing up"
    assert copy.store.commit_log.append_offset == end
    copy.pops.close_copy()
    assert (len(copy.pops.in_flight), copy.pops.held_offset) == (0, None)
    assert len(copy.orders) == 0, "what the file of order infos has"
