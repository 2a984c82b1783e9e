"""Half messages: the record that a send stores, and the record after a commit."""

from __future__ import annotations

import pytest

from tests.store.store_parts import draft
from thermocline.remoting.errors import PropertiesTooLargeError
from thermocline.remoting.records.message_record import MessageRecord, decode_record, encode_record
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX, decode_properties, encode_properties
from thermocline.remoting.records.sys_flag import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_PREPARED
from thermocline.store.log.message_draft import MessageDraft
from thermocline.transactions.half_message import COPY_BYTES, HalfMessage, half_draft, is_half_request

SENT = {
    "UNIQ_KEY": "0A07000100004E0E2F2A68B56BE00007",
    "TRAN_MSG": "true",
    "PGROUP": "shop",
    "TAGS": "paid",
    "WAIT": "true",
    "colour": "grün",
}


def stored(draft: MessageDraft, *, queue_offset: int = 7, physical_offset: int = 4_000) -> MessageRecord:
    return decode_record(
        encode_record(
            topic=draft.topic,
            queue_id=draft.queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            body=draft.body,
            properties_text=draft.properties_text,
            born_timestamp_ms=draft.born_timestamp_ms,
            born_host=draft.born_host,
            store_timestamp_ms=1_000_500,
            store_host=("10.0.0.1", 10911),
            flag=draft.flag,
            sys_flag=draft.sys_flag,
            reconsume_times=draft.reconsume_times,
        )
    )


def half_of(properties: dict[str, str] | None = None, **changes: object) -> HalfMessage:
    sent = draft(
        queue_id=3,
        properties=encode_properties(SENT | (properties or {})),
        sys_flag=TRANSACTION_PREPARED | COMPRESSED,
        flag=5,
        born_timestamp_ms=1_000_000,
    )
    half = HalfMessage.read(stored(half_draft(sent), **changes))  # type: ignore[arg-type]
    assert half is not None
    return half


@pytest.mark.parametrize(
    ("properties", "reconsume_times", "delay_level", "expected"),
    [
        ({"TRAN_MSG": "true"}, 0, 0, True),
        ({"TRAN_MSG": "TRUE"}, 0, 0, True),
        ({"TRAN_MSG": "false"}, 0, 0, False),
        ({}, 0, 0, False),
        ({"TRAN_MSG": "true"}, 1, 3, False),  # a retry of a client before 4.6.1
        ({"TRAN_MSG": "true"}, 1, 0, True),
    ],
)
def test_half_messages_are_recognized(
    properties: dict[str, str], reconsume_times: int, delay_level: int, expected: bool
) -> None:
    assert is_half_request(properties, reconsume_times=reconsume_times, delay_level=delay_level) is expected


def test_a_half_message_names_its_real_place_and_hides_the_prepared_bits() -> None:
    half = half_of()
    record = half.record
    assert (record.topic, record.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert record.sys_flag == COMPRESSED
    assert record.properties == SENT | {
        "__transactionId__": SENT["UNIQ_KEY"],
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }
    assert (half.real_topic, half.real_queue_id, half.origin) == ("orders", 3, 7)
    assert (half.producer_group, half.transaction_id, half.check_times) == ("shop", SENT["UNIQ_KEY"], 0)


def test_a_committed_message_equals_the_sent_one() -> None:
    committed = half_of({"TRAN_PREPARED_QUEUE_OFFSET": "3"}).committed()
    assert (committed.topic, committed.queue_id, committed.body) == ("orders", 3, b"hello")
    assert committed.sys_flag == TRANSACTION_COMMIT | COMPRESSED
    assert committed.prepared_transaction_offset == 4_000
    assert (committed.flag, committed.born_timestamp_ms, committed.born_host) == (5, 1_000_000, ("10.0.0.2", 4000))
    assert decode_properties(committed.properties_text) == SENT | {"__transactionId__": SENT["UNIQ_KEY"]}


def test_copies_name_the_first_one_and_count_checks() -> None:
    half = half_of()
    first = HalfMessage.read(stored(half.copy(check_times=1), queue_offset=20, physical_offset=9_000))
    assert first is not None
    assert (first.origin, first.check_times, first.record.sys_flag) == (7, 1, COMPRESSED)
    second = HalfMessage.read(stored(first.copy(check_times=2), queue_offset=31, physical_offset=9_900))
    assert second is not None
    assert (second.origin, second.check_times) == (7, 2)
    committed = second.committed()
    assert decode_properties(committed.properties_text) == SENT | {
        "__transactionId__": SENT["UNIQ_KEY"],
        "TRANSACTION_CHECK_TIMES": "2",  # as RocketMQ leaves it
    }
    anew = HalfMessage.read(stored(second.copy(check_times=0), queue_offset=40))
    assert anew is not None
    assert (anew.origin, anew.check_times) == (7, 0)
    assert "TRANSACTION_CHECK_TIMES" not in anew.properties


def test_a_parked_message_keeps_where_it_came_from() -> None:
    parked = half_of().parked()
    assert (parked.topic, parked.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    read = HalfMessage.read(stored(parked, queue_offset=0))
    assert read is not None
    assert (read.real_topic, read.real_queue_id, read.origin) == ("orders", 3, 7)
    # One that RocketMQ has parked does not say it.
    by_rocketmq = HalfMessage.read(
        stored(draft("TRANS_CHECK_MAX_TIME_TOPIC", properties=half_of().record.properties_text))
    )
    assert by_rocketmq is not None
    assert by_rocketmq.origin is None
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in decode_properties(by_rocketmq.copy(check_times=0).properties_text)


def test_check_and_copy_properties_of_a_client_are_dropped() -> None:
    half = half_of({"TRAN_PREPARED_QUEUE_OFFSET": "3", "TRANSACTION_CHECK_TIMES": "14", "REAL_TOPIC": "elsewhere"})
    assert (half.origin, half.check_times, half.real_topic) == (7, 0, "orders")


@pytest.mark.parametrize(
    "properties",
    [
        {"REAL_QID": "3"},
        {"REAL_TOPIC": "orders"},
        {"REAL_TOPIC": "orders", "REAL_QID": "-1"},
        {"REAL_TOPIC": "x", "REAL_QID": "³"},
    ],
)
def test_a_record_that_does_not_say_where_to_is_none(properties: dict[str, str]) -> None:
    assert HalfMessage.read(stored(draft(properties=encode_properties(properties)))) is None


def test_an_origin_behind_its_own_place_does_not_count() -> None:
    text = encode_properties({"REAL_TOPIC": "x", "REAL_QID": "0", "TRAN_PREPARED_QUEUE_OFFSET": "99"})
    half = HalfMessage.read(stored(draft("RMQ_SYS_TRANS_HALF_TOPIC", properties=text)))
    assert half is not None
    assert half.origin == 7


def test_room_for_copies_is_reserved_at_once() -> None:
    added = len(half_of().record.properties_text) - len(encode_properties(SENT))
    room = PROPERTIES_BYTES_MAX - COPY_BYTES - added - len(encode_properties(SENT)) - len(b"long\x01\x02")
    half = half_of({"long": "x" * room})
    assert len(half.copy(check_times=15).properties_text) <= PROPERTIES_BYTES_MAX
    with pytest.raises(PropertiesTooLargeError):
        half_of({"long": "x" * (room + 1)})


@pytest.mark.parametrize(
    ("text", "check_after_ms", "late_after_ms"),
    [
        (None, 6_000, None),
        ("60", 60_000, 60_000),
        ("2", 2_000, 6_000),
        ("-1", 6_000, 6_000),
        ("soon", 6_000, 6_000),
        ("+9", 9_000, 9_000),
        ("-", 6_000, 6_000),
        ("9" * 30, 6_000, 6_000),
    ],
)
def test_immunity_times(text: str | None, check_after_ms: int, late_after_ms: int | None) -> None:
    half = half_of({} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text})
    assert half.check_after_ms(6_000) == check_after_ms
    assert half.is_immune_by_itself is (text is not None)
    if late_after_ms is None:
        assert not half.is_too_late(1 << 60, 6_000)
    else:
        assert not half.is_too_late(1_000_000 + late_after_ms, 6_000)
        assert half.is_too_late(1_000_000 + late_after_ms + 1, 6_000)


def test_the_age_does_not_depend_on_a_clock_that_is_ahead() -> None:
    assert half_of().age_ms(1_000_700) == 700
    ahead = draft(properties=encode_properties(SENT), born_timestamp_ms=9_000_000)
    half = HalfMessage.read(stored(half_draft(ahead)))
    assert half is not None
    assert half.age_ms(1_000_700) == 200  # since it was stored
