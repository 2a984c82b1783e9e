"""What a sender's properties ask for."""

from __future__ import annotations

import pytest

from tests.timers.timer_parts import NOW_MS, timer_config
from thermocline.remoting.errors import MessageIllegalError
from thermocline.remoting.records.properties import decode_properties, encode_properties
from thermocline.store.log.message_draft import MessageDraft
from thermocline.timers.timer_request import due_tick_ms, is_timer_request, timed_draft

CONFIG = timer_config(delay_ms_max=259_200_000)


def draft_of(properties: dict[str, str]) -> MessageDraft:
    return MessageDraft(
        topic="orders",
        queue_id=5,
        body=b"body",
        properties_text=encode_properties(properties),
        born_timestamp_ms=NOW_MS,
        born_host=("10.0.0.2", 4000),
        flag=9,
        sys_flag=1,
        reconsume_times=2,
    )


def timed(properties: dict[str, str]) -> MessageDraft | None:
    return timed_draft(draft_of(properties), properties, CONFIG, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("deliver_ms", "precision_ms", "expected"),
    [
        # Times and TIMER_OUT_MS as an official 5.5.0 broker gave them (recall handles of a recorded dialogue, less 1).
        (1_795_247_912_010, 1_000, 1_795_247_912_000),
        (1_795_247_915_749, 1_000, 1_795_247_915_000),
        # A whole multiple counts for the tick before.
        (5_000, 1_000, 4_000),
        (5_001, 1_000, 5_000),
        (5_999, 1_000, 5_000),
        (5_200, 200, 5_000),
        (5_199, 200, 5_000),
    ],
)
def test_times_are_rounded_as_rocketmq_rounds_them(deliver_ms: int, precision_ms: int, expected: int) -> None:
    assert due_tick_ms(deliver_ms, precision_ms) == expected


@pytest.mark.parametrize(
    ("properties", "deliver_ms"),
    [
        ({"TIMER_DELIVER_MS": str(NOW_MS + 7_000)}, NOW_MS + 7_000),
        ({"TIMER_DELAY_MS": "7000"}, NOW_MS + 7_000),
        ({"TIMER_DELAY_SEC": "7"}, NOW_MS + 7_000),
        ({"TIMER_DELAY_SEC": "+7"}, NOW_MS + 7_000),
        ({"TIMER_DELAY_SEC": "7", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "x"}, NOW_MS + 7_000),
        ({"TIMER_DELAY_MS": "7000", "TIMER_DELIVER_MS": "1"}, NOW_MS + 7_000),
        ({"TIMER_DELAY_MS": "259200000"}, NOW_MS + 259_200_000),
    ],
)
def test_the_message_to_store(properties: dict[str, str], deliver_ms: int) -> None:
    stored = timed(properties | {"KEYS": "k"})
    assert stored is not None
    assert (stored.topic, stored.queue_id, stored.body) == ("rmq_sys_wheel_timer", 0, b"body")
    assert (stored.flag, stored.sys_flag, stored.reconsume_times) == (9, 1, 2)
    assert decode_properties(stored.properties_text) == properties | {
        "KEYS": "k",
        "TIMER_OUT_MS": str(due_tick_ms(deliver_ms, 1_000)),
        "REAL_TOPIC": "orders",
        "REAL_QID": "5",
    }


def test_a_senders_own_real_topic_does_not_stay() -> None:
    stored = timed({"REAL_TOPIC": "elsewhere", "REAL_QID": "77", "TIMER_DELAY_MS": "5000"})
    assert stored is not None
    assert stored.properties_text.count(b"REAL_TOPIC") == 1
    assert decode_properties(stored.properties_text)["REAL_TOPIC"] == "orders"


def test_a_text_without_its_last_separator_is_completed() -> None:
    draft = draft_of({"TIMER_DELAY_MS": "5000"})
    assert draft.properties_text.endswith(b"\x02")
    cut = MessageDraft(
        topic="orders",
        queue_id=5,
        body=b"body",
        properties_text=draft.properties_text[:-1],
        born_timestamp_ms=NOW_MS,
        born_host=("10.0.0.2", 4000),
    )
    stored = timed_draft(cut, {"TIMER_DELAY_MS": "5000"}, CONFIG, now_ms=NOW_MS)
    assert stored is not None
    assert decode_properties(stored.properties_text)["TIMER_DELAY_MS"] == "5000"


@pytest.mark.parametrize("delay", ["259200001", "1e3", " 5", "1_000", "٣", "9223372036854775808", "9" * 30])
def test_too_far_or_no_number(delay: str) -> None:
    with pytest.raises(MessageIllegalError):
        timed({"TIMER_DELAY_MS": delay})


def test_a_time_that_has_come_is_none_but_for_a_marker() -> None:
    assert timed({"TIMER_DELIVER_MS": str(NOW_MS)}) is None
    assert timed({"TIMER_DELAY_MS": "-9223372036854775808"}) is None
    with pytest.raises(MessageIllegalError):
        timed({"TIMER_DELIVER_MS": str(NOW_MS), "TIMER_DEL_UNIQKEY": "orders+id"})


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TIMER_DELAY_SEC": "1"}, True),
        ({"TIMER_DELAY_MS": "1"}, True),
        ({"TIMER_DELIVER_MS": "1"}, True),
        ({"TIMER_DELIVER_MS": "1", "TIMER_OUT_MS": "1"}, False),
        ({"KEYS": "TIMER_DELAY_MS"}, False),
    ],
)
def test_who_asks_for_a_time(properties: dict[str, str], *, expected: bool) -> None:
    assert is_timer_request(properties) is expected
