"""The handle of what was stored, and the marker that recalls it."""

from __future__ import annotations

import pytest

from tests.timers.timer_parts import NOW_MS, World, timer_config
from thermocline.remoting.errors import IllegalOperationError
from thermocline.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from thermocline.remoting.records.properties import decode_properties
from thermocline.store.log.message_draft import MessageDraft
from thermocline.timers.recall import recall_handle_of, recall_marker


def test_the_handle_of_a_stored_message() -> None:
    world = World()
    handle = recall_handle_of(world.send(TIMER_DELAY_MS="5000"), broker_name="broker-a")
    assert handle is not None
    assert decode_recall_handle(handle) == RecallHandle(
        topic="orders",
        broker_name="broker-a",
        timestamp_text=str((NOW_MS + 5_000) // 1_000 * 1_000 + 1),
        unique_key="id-1",
    )
    assert recall_handle_of(world.send(), broker_name="broker-a") is None
    assert recall_handle_of(world.send("%RETRY%group", TIMER_DELAY_MS="5000"), broker_name="broker-a") is None


def marker_of(
    handle: RecallHandle, *, topic: str = "orders", broker_name: str = "broker-a", **changes: object
) -> MessageDraft:
    return recall_marker(
        handle,
        timer_config(delay_ms_max=100_000, **changes),
        topic=topic,
        broker_name=broker_name,
        producer_group="producers",
        born_host=("10.0.0.3", 1),
        now_ms=NOW_MS,
    )


def handle_at(timestamp_text: str) -> RecallHandle:
    return RecallHandle(topic="orders", broker_name="broker-a", timestamp_text=timestamp_text, unique_key="id-1")


@pytest.mark.parametrize(("topic_in_key", "key"), [(False, "id-1"), (True, "orders+id-1")])
def test_the_marker_is_in_the_same_tick(key: str, *, topic_in_key: bool) -> None:
    marker = marker_of(handle_at("1000000005001"), topic_in_delete_key=topic_in_key)
    assert (marker.topic, marker.queue_id, marker.body) == ("rmq_sys_wheel_timer", 0, b"0")
    assert decode_properties(marker.properties_text) == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": key,
        "UNIQ_KEY": "id-1",
        "TIMER_DELIVER_MS": "1000000005001",
        "BORN_TIMESTAMP": str(NOW_MS),
        "PGROUP": "producers",
        "TIMER_OUT_MS": "1000000005000",
        "REAL_TOPIC": "orders",
        "REAL_QID": "0",
    }


@pytest.mark.parametrize("timestamp", ["", "x", "-1", str(NOW_MS), str(NOW_MS + 100_000), "9" * 25])
def test_a_time_that_has_come_or_is_too_far_away_is_refused(timestamp: str) -> None:
    with pytest.raises(IllegalOperationError, match="recall failed, timestamp invalid"):
        marker_of(handle_at(timestamp))


def test_a_handle_for_another_topic_or_broker_is_refused() -> None:
    handle = handle_at(str(NOW_MS + 5_000))
    with pytest.raises(IllegalOperationError, match="recall failed, topic not match"):
        marker_of(handle, topic="payments")
    with pytest.raises(IllegalOperationError, match="recall failed, broker service not available"):
        marker_of(handle, broker_name="broker-b")
