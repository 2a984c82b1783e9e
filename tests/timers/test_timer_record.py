"""Records of the timer topic: fields that enqueueing reads, and the records that delivery puts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from tests.timers.timer_parts import log_config
from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.records.properties import decode_properties, encode_properties
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.message_store import MessageStore
from thermocline.timers.timer_record import (
    TimerRecord,
    due_draft,
    marker_key,
    read_record,
    read_timer_record,
    rolled_draft,
)

STORED_MS = 1_000_200
PLACE = {"TIMER_OUT_MS": "1005000", "REAL_TOPIC": "orders", "REAL_QID": "3"}


def new_store() -> MessageStore:
    return open_store(SimulatedDisk(), log_config(log_file_bytes=1 << 20), clock=Clock(STORED_MS))


def put(store: MessageStore, properties: dict[str, str], **changes: Any) -> tuple[int, int]:
    text = encode_properties(properties)
    result = store.put(draft(changes.pop("topic", TIMER_TOPIC), properties=text, **changes))
    return result.physical_offset, result.size_bytes


@pytest.mark.parametrize(
    ("properties", "deliver_ms"),
    [
        ({"TIMER_DELIVER_MS": "1005001"}, 1_005_001),
        ({"TIMER_DELIVER_MS": "1006000"}, 1_006_000),
        ({"TIMER_DELIVER_MS": "1005000"}, 0),
        ({"TIMER_DELIVER_MS": "1006001"}, 0),
        ({"TIMER_DELIVER_MS": "soon"}, 0),
        ({"TIMER_DELAY_MS": "5300"}, 1_005_500),
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "9"}, 1_005_200),
        ({"TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "1005001"}, 0),
        ({"TIMER_DELAY_MS": "5300", "TIMER_ROLL_TIMES": "1"}, 0),
        ({"TIMER_DELIVER_MS": "1005001", "TIMER_ROLL_TIMES": "1"}, 1_005_001),
        ({}, 0),
    ],
)
def test_the_exact_time_counts_if_it_is_in_the_tick(properties: dict[str, str], deliver_ms: int) -> None:
    store = new_store()
    place = put(store, properties | PLACE)
    record = read_timer_record(store.commit_log, *place, precision_ms=1_000)
    assert record == TimerRecord(1_005_000, deliver_ms, "orders", False)


@pytest.mark.parametrize("body_bytes", [0, 10, 60_000, 70_000, 300_000])
@pytest.mark.parametrize("born_host", [("10.0.0.2", 1), ("2001:db8::1", 1)])
@pytest.mark.parametrize("store_host", [("10.0.0.1", 1), ("2001:db8::2", 1)])
def test_records_of_every_form_are_read(
    body_bytes: int, born_host: tuple[str, int], store_host: tuple[str, int]
) -> None:
    store = new_store()
    store.store_host = store_host
    properties = PLACE | {"TIMER_DELAY_MS": "5300", "TIMER_DEL_UNIQKEY": "orders+id"}
    place = put(store, properties, body=b"b" * body_bytes, born_host=born_host)
    assert read_timer_record(store.commit_log, *place, precision_ms=1_000) == TimerRecord(
        1_005_000, 1_005_500, "orders", True
    )


def test_an_invalid_record_is_an_error() -> None:
    store = new_store()
    offset, size_bytes = put(store, PLACE)
    log = store.commit_log
    for wrong in ((offset + 1, size_bytes), (offset, size_bytes - 1), (offset, 5), (offset + size_bytes, 200)):
        with pytest.raises(CorruptDataError):
            read_timer_record(log, *wrong, precision_ms=1_000)
        with pytest.raises(CorruptDataError):
            read_record(log, *wrong)
    with pytest.raises(OffsetOutOfRangeError):
        read_record(log, 1 << 40, size_bytes)
    place = put(store, PLACE, topic="orders")
    with pytest.raises(CorruptDataError):
        read_record(log, *place)


def test_a_due_message() -> None:
    store = new_store()
    place = put(store, {"KEYS": "k"} | PLACE, body=b"body", flag=3, sys_flag=0x8, reconsume_times=2)
    due = due_draft(read_record(store.commit_log, *place), enqueued_ms=7, now_ms=9)
    assert (due.topic, due.queue_id, due.body, due.flag, due.sys_flag, due.reconsume_times) == (
        "orders",
        3,
        b"body",
        3,
        0x8,
        2,
    )
    assert (due.born_timestamp_ms, due.born_host, due.tags_code) == (999_999, ("10.0.0.2", 4000), None)
    assert decode_properties(due.properties_text) == {"KEYS": "k"} | PLACE | {
        "TIMER_ENQUEUE_MS": "7",
        "TIMER_DEQUEUE_MS": "9",
    }


def test_a_rolled_message_counts_its_rolls_and_names_nothing_twice() -> None:
    store = new_store()
    place = put(store, PLACE)
    for times in ("1", "2", "3"):
        rolled = rolled_draft(read_record(store.commit_log, *place), enqueued_ms=7, now_ms=9)
        assert (rolled.topic, rolled.queue_id) == (TIMER_TOPIC, 0)
        assert rolled.properties_text.count(b"TIMER_") == 4
        assert decode_properties(rolled.properties_text) == PLACE | {
            "TIMER_ENQUEUE_MS": "7",
            "TIMER_DEQUEUE_MS": "9",
            "TIMER_ROLL_TIMES": times,
        }
        result = store.put(rolled)
        place = result.physical_offset, result.size_bytes


@pytest.mark.parametrize(
    ("key", "expected"),
    [("id", ("orders", "id")), ("orders+id", ("orders", "id")), ("payments+id", ("orders", "payments+id"))],
)
def test_a_markers_key_in_both_forms(key: str, expected: tuple[str, str]) -> None:
    store = new_store()
    place = put(store, PLACE | {"TIMER_DEL_UNIQKEY": key})
    assert marker_key(read_record(store.commit_log, *place)) == expected
