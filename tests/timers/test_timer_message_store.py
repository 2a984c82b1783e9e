"""Messages with a time of delivery, from being sent to being delivered: on time, once, and to the right place.

Covers `timers/due_message.py`, `timers/timer_dequeue.py`, `timers/timer_enqueue.py`, `timers/timer_round.py`.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.store.store_parts import add_topic, delete_topic
from tests.timers.timer_parts import NOW_MS, TICK_MS, WINDOW_MS, World, properties_of, timer_config
from thermocline.remoting.errors import MessageIllegalError
from thermocline.remoting.handles.recall_handle import decode_recall_handle
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX, PropertyName, encode_properties
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.log.message_draft import MessageDraft
from thermocline.timers.due_message import DueKind
from thermocline.timers.errors import TimerCongestedError
from thermocline.timers.recall import recall_handle_of, recall_marker
from thermocline.timers.set_back import SET_BACK_MS


def draft_of(properties: dict[str, str]) -> MessageDraft:
    """A message with these properties."""
    return MessageDraft(
        topic="orders",
        queue_id=3,
        body=b"body",
        properties_text=encode_properties(properties),
        born_timestamp_ms=NOW_MS,
        born_host=("10.0.0.2", 4000),
    )


def recall(world: World, stored: MessageDraft, *, config_changes: dict[str, bool] | None = None) -> None:
    """Recall a message as the broker would for its producer."""
    handle = recall_handle_of(stored, broker_name="broker-a")
    assert handle is not None
    marker = recall_marker(
        decode_recall_handle(handle),
        dataclasses.replace(world.config, **(config_changes or {})),
        topic="orders",
        broker_name="broker-a",
        producer_group="producers",
        born_host=("10.0.0.3", 1),
        now_ms=world.clock.now_ms,
    )
    world.store.put(marker)


def test_messages_go_out_in_the_order_of_their_times_and_within_20_ms() -> None:
    world = World()
    times = [NOW_MS + delay_ms for delay_ms in (750, 751, 1, 5_000, 1_749, 1_750, 10_000, 333, 60_000)]
    for time_ms in times:
        world.send_at(time_ms)
    went = world.run_until(NOW_MS + 61_000, step_ms=1)
    assert [int(body) for _, body in went] == [
        number + 1 for number in sorted(range(len(times)), key=times.__getitem__)
    ]
    for went_ms, body in went:
        assert 0 <= went_ms - times[int(body) - 1] <= 20


def test_relative_delays_are_kept_to_the_millisecond_too() -> None:
    world = World()
    world.send(TIMER_DELAY_MS="1234")
    world.send(TIMER_DELAY_SEC="2")
    world.send(TIMER_DELAY_SEC="1", TIMER_DELAY_MS="7", TIMER_DELIVER_MS="7")
    went = world.run_until(NOW_MS + 3_000, step_ms=1)
    assert [body for _, body in went] == [b"3", b"1", b"2"]
    for (went_ms, _), delay_ms in zip(went, (1_000, 1_234, 2_000), strict=True):
        assert delay_ms <= went_ms - NOW_MS <= delay_ms + 20


def test_a_delivered_message_is_the_one_that_was_sent() -> None:
    world = World()
    world.send("payments", body=b"body", TIMER_DELAY_MS="2000", KEYS="k", TAGS="t", colour="grün")
    world.jump(NOW_MS + 2_020)
    [record] = world.delivered("payments")
    assert (record.body, record.keys, record.tags, record.born_host) == (b"body", "k", "t", ("10.0.0.2", 4000))
    assert record.born_timestamp_ms == NOW_MS
    assert record.store_timestamp_ms == NOW_MS + 2_020
    assert record.properties == {
        "UNIQ_KEY": "id-1",
        "TIMER_DELAY_MS": "2000",
        "KEYS": "k",
        "TAGS": "t",
        "colour": "grün",
        "TIMER_OUT_MS": str((NOW_MS + 2_000) // TICK_MS * TICK_MS),
        "REAL_TOPIC": "payments",
        "REAL_QID": "3",
        "TIMER_ENQUEUE_MS": str((NOW_MS + 2_000) // TICK_MS * TICK_MS),
        "TIMER_DEQUEUE_MS": str(NOW_MS + 2_020),
    }


def test_enqueue_time_is_the_tick_in_which_it_was_enqueued() -> None:
    world = World()
    world.send(TIMER_DELAY_MS="5000")
    world.run()
    world.jump(NOW_MS + 6_000)
    assert world.delivered()[0].property_text(PropertyName.TIMER_ENQUEUE_MS) == str(NOW_MS // TICK_MS * TICK_MS)


def test_a_time_in_the_past_is_no_time() -> None:
    world = World()
    assert world.send_at(NOW_MS).topic == "orders"
    assert world.send(TIMER_DELAY_SEC="-5").topic == "orders"
    assert world.timed() == []


@pytest.mark.parametrize("delay", ["x", "", "1.5", "99999999999999999999", str(40 * 86_400_000 + 1)])
def test_an_impossible_or_too_distant_time_is_refused_with_the_official_words(delay: str) -> None:
    world = World()
    with pytest.raises(MessageIllegalError) as error:
        world.send(TIMER_DELAY_MS=delay or "\x00")
    assert str(error.value) == (
        "timer message illegal, the delay time should not be bigger than the max delay 3456000000ms; "
        "or if set del msg, the delay time should be bigger than the current time"
    )


def test_messages_due_within_the_open_tick_are_delivered_in_it() -> None:
    world = World()
    world.run()
    world.send_at(NOW_MS + 100)
    went = world.run_until(NOW_MS + 700, step_ms=1)
    assert [body for _, body in went] == [b"1"]
    assert 100 <= went[0][0] - NOW_MS <= 120


def test_messages_due_at_one_time_keep_their_order() -> None:
    world = World()
    for _ in range(500):
        world.send_at(NOW_MS + 5_000)
    assert [int(body) for body in world.jump(NOW_MS + 7_000)] == list(range(1, 501))


def test_nothing_is_given_out_before_it_is_confirmed_and_all_of_it_again() -> None:
    world = World()
    for _ in range(3):
        world.send_at(NOW_MS + 1_000)
    world.run()
    world.clock.now_ms = NOW_MS + 2_000
    while not (due := world.timers.step()):
        continue
    assert [message.draft.body for message in due] == [b"1", b"2", b"3"]
    world.timers.confirm(1)
    assert [message.draft.body for message in world.timers.step()] == [b"2", b"3"]
    world.timers.confirm(0)
    world.clock.now_ms += 60_000
    assert [message.draft.body for message in world.timers.step()] == [b"2", b"3"]
    world.timers.confirm(2)
    assert world.run() == []
    assert world.timers.status().pending_count == 0


def test_a_late_start_delivers_overdue_messages_in_order() -> None:
    world = World()
    times = [NOW_MS + delay_ms for delay_ms in (90_000, 2_000, 30_000, 2_001, 139_000, 500_000)]
    for time_ms in times:
        world.send_at(time_ms)
    world.run()
    world.close()
    world.clock.now_ms = NOW_MS + 300_000
    assert world.reopen().run() == [b"2", b"4", b"3", b"1", b"5"]


def test_a_broker_that_was_away_for_longer_than_the_wheel_turns_loses_nothing() -> None:
    world = World()
    for second in range(1, 140):
        world.send_at(NOW_MS + second * 1_000)
    world.run()
    world.close()
    world.clock.now_ms = NOW_MS + 20 * 400_000
    later = world.reopen()
    for second in range(1, 140):
        later.send_at(later.clock.now_ms + second * 1_000)
    assert [int(body) for body in later.run()] == list(range(1, 140))
    assert len(later.run_until(later.clock.now_ms + 140_000, step_ms=500)) == 139


def test_a_clock_that_is_set_back_by_little_delivers_late_and_never_early() -> None:
    world = World()
    world.send_at(NOW_MS + 10_000)
    world.run()
    world.clock.now_ms -= SET_BACK_MS
    assert world.run() == []
    world.send(TIMER_DELAY_MS="1000")  # due in a tick that is closed: when the clock has come to the open one
    assert world.run() == []
    assert world.jump(NOW_MS + 750) == [b"2"]
    assert world.jump(NOW_MS + 9_999) == []
    assert world.jump(NOW_MS + 10_020) == [b"1"]


def test_messages_due_beyond_the_window_are_rolled_until_their_time() -> None:
    world = World()
    due_ms = NOW_MS + 10 * WINDOW_MS + 7_777
    world.send_at(due_ms)
    went = world.run_until(due_ms + 100, step_ms=500)
    assert [body for _, body in went] == [b"1"]
    assert 0 <= went[0][0] - due_ms <= 500
    [record] = world.delivered()
    assert world.rolls >= 10
    assert record.property_text(PropertyName.TIMER_ROLL_TIMES) == str(world.rolls)
    assert len(world.timed()) == 1 + world.rolls
    assert {timed.property_text(PropertyName.TIMER_OUT_MS) for timed in world.timed()} == {
        str(due_ms // TICK_MS * TICK_MS)
    }


def test_the_longest_property_text_is_rolled_and_delivered_though_nothing_can_be_added() -> None:
    world = World()
    asked = {PropertyName.UNIQUE_KEY: "id-1", PropertyName.TIMER_DELIVER_MS: str(NOW_MS + 2 * WINDOW_MS)}
    short = world.timers.schedule(draft_of(asked), asked)
    assert short is not None
    room = PROPERTIES_BYTES_MAX - len(short.properties_text) - len(b"x\x01\x02")
    longest = world.timers.schedule(draft_of({**asked, "x": "y" * room}), asked)
    assert longest is not None
    world.store.put(longest)
    went = world.run_until(NOW_MS + 2 * WINDOW_MS + 1_000, step_ms=1_000)
    assert [body for _, body in went] == [b"body"]
    assert world.rolls > 0
    [record] = world.delivered()
    assert record.properties_text == longest.properties_text


def test_limits_can_be_changed_while_messages_wait() -> None:
    world = World(config=timer_config(delay_ms_max=10_000))
    with pytest.raises(MessageIllegalError):
        world.send(TIMER_DELAY_MS="10001")
    world.timers.follow(timer_config(delay_ms_max=20_000, slot_count_max=1))
    for _ in range(2):
        world.send(TIMER_DELAY_MS="10001")
        world.run()
    with pytest.raises(TimerCongestedError):
        world.send(TIMER_DELAY_MS="10001")
    world.timers.follow(timer_config(delay_ms_max=20_000))
    world.send(TIMER_DELAY_MS="10001")
    assert len(world.run_until(NOW_MS + 11_000)) == 3


def test_rolls_of_a_burst_are_spread_and_leave_time_for_the_last_one() -> None:
    world = World()
    for number in range(60):
        world.send_at(NOW_MS + WINDOW_MS + 20_000 + number)
    world.run()
    rolled_at = []
    while world.rolls < 60:
        before = world.rolls
        world.jump(world.clock.now_ms + 1_000)
        rolled_at += [world.clock.now_ms] * (world.rolls - before)
    assert len(set(rolled_at)) >= 15
    assert max(rolled_at) <= NOW_MS + WINDOW_MS // 2 + 1_000
    assert len(world.run_until(NOW_MS + WINDOW_MS + 21_000, step_ms=100)) == 60


@pytest.mark.parametrize("topic_in_key", [False, True])
def test_a_recalled_message_is_not_delivered(*, topic_in_key: bool) -> None:
    world = World()
    first, _ = world.send_at(NOW_MS + 5_300), world.send_at(NOW_MS + 5_300)
    world.run()
    recall(world, first, config_changes={"topic_in_delete_key": topic_in_key})
    assert world.jump(NOW_MS + 9_000) == [b"2"]
    assert world.timers.metrics.counts() == {"orders": 0}


def test_a_message_is_recalled_however_often_both_were_rolled() -> None:
    world = World()
    stored = world.send_at(NOW_MS + 7 * WINDOW_MS + 1_234)
    world.run_until(NOW_MS + 2 * WINDOW_MS, step_ms=1_000)
    recall(world, stored)
    assert world.run_until(NOW_MS + 8 * WINDOW_MS, step_ms=1_000) == []
    assert world.rolls > 8
    assert world.timers.metrics.counts() == {"orders": 0}


def test_a_recall_in_the_open_tick_counts_for_undelivered_messages() -> None:
    world = World(clock=None)
    tick_ms = NOW_MS // TICK_MS * TICK_MS
    stored = world.send_at(tick_ms + 900)
    world.run()
    # A handle's time is the tick's first millisecond: official brokers refuse it from there on, so must the test's.
    handle = recall_handle_of(stored, broker_name="broker-a")
    assert handle is not None
    marker = recall_marker(
        decode_recall_handle(handle),
        world.config,
        topic="orders",
        broker_name="broker-a",
        producer_group=None,
        born_host=("10.0.0.3", 1),
        now_ms=tick_ms - 10,
    )
    world.store.put(marker)
    assert world.jump(tick_ms + 2_000) == []


def test_a_marker_of_another_topic_recalls_nothing() -> None:
    world = World()
    stored = world.send_at(NOW_MS + 5_000)
    properties = properties_of(stored) | {"TIMER_DEL_UNIQKEY": "id-1", "REAL_TOPIC": "payments", "UNIQ_KEY": "m"}
    world.store.put(
        MessageDraft(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=b"0",
            properties_text=encode_properties(properties),
            born_timestamp_ms=NOW_MS,
            born_host=("10.0.0.3", 1),
        )
    )
    assert world.jump(NOW_MS + 9_000) == [b"1"]
    assert world.timers.metrics.counts() == {"orders": 0, "payments": 0}


def test_messages_of_a_deleted_topic_are_dropped_also_when_the_name_is_used_again() -> None:
    world = World()
    add_topic(world.store, "orders")
    world.send_at(NOW_MS + 5_000)
    world.send_at(NOW_MS + 2 * WINDOW_MS)
    world.send_at(NOW_MS + 5_000, "payments")
    world.run()
    delete_topic(world.store, "orders")
    add_topic(world.store, "orders")
    world.send_at(NOW_MS + 5_000)
    assert world.jump(NOW_MS + 9_000) == [b"3", b"4"]
    assert world.run_until(NOW_MS + 3 * WINDOW_MS, step_ms=1_000) == []
    assert world.rolls == 0


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_OUT_MS": "soon", "REAL_TOPIC": "orders", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "-5", "REAL_TOPIC": "orders", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "5", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "5", "REAL_TOPIC": "orders"},
        {"TIMER_OUT_MS": "5", "REAL_TOPIC": "orders", "REAL_QID": "99999999999"},
        {"TIMER_OUT_MS": "5", "REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0"},
        {"TIMER_OUT_MS": "5", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_foreign_records_in_the_timer_topic_do_not_stop_it(
    properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.store.put(
        MessageDraft(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=b"strange",
            properties_text=encode_properties(properties),
            born_timestamp_ms=NOW_MS,
            born_host=("10.0.0.3", 1),
        )
    )
    world.send_at(NOW_MS + 2_000)
    assert world.jump(NOW_MS + 3_000) == [b"1"]
    assert "timed message dropped" in caplog.text
    assert world.timers.metrics.total == 0


def test_a_full_tick_refuses_more_the_fuller_the_more() -> None:
    world = World(config=timer_config(slot_count_max=10))
    for _ in range(15):
        world.send_at(NOW_MS + 5_000)
        world.run()
    # The random number of these tests is a half: a slot at one and a half of the limit is the last that lets one in.
    world.send_at(NOW_MS + 5_000)
    world.run()
    with pytest.raises(TimerCongestedError) as error:
        world.send_at(NOW_MS + 5_000)
    assert str(error.value) == (
        "timer message is under flow control, max num limit is 20 or the current value is greater than 10 "
        "and less than 20, trigger random flow control"
    )
    world.send_at(NOW_MS + 8_000)


def test_counts_are_kept_by_topic() -> None:
    world = World()
    for topic, delay_ms in (("orders", 5_000), ("orders", 9_000), ("payments", 5_000), ("payments", 5 * WINDOW_MS)):
        world.send_at(NOW_MS + delay_ms, topic)
    world.run()
    assert world.timers.metrics.counts() == {"orders": 2, "payments": 2}
    world.jump(NOW_MS + 7_000)
    assert world.timers.metrics.counts() == {"orders": 1, "payments": 1}
    status = world.timers.status()
    assert (status.pending_count, status.enqueued_count, status.delivered_count) == (2, 4, 2)
    world.close()
    again = world.reopen()
    again.run()
    assert again.timers.metrics.counts() == {"orders": 1, "payments": 1}


def test_status_tells_how_far_behind_it_is() -> None:
    world = World()
    world.send_at(NOW_MS + 5_000)
    assert world.timers.status().queue_behind_count == 1
    world.run()
    assert world.timers.status().queue_behind_count == 0
    world.clock.now_ms += 30_000
    assert world.timers.status().read_behind_ms == 30_250
    world.run()
    assert world.timers.status().read_behind_ms < 1_000


def test_a_step_does_a_slice_whatever_waits() -> None:
    world = World()
    for _ in range(1_500):
        world.send_at(NOW_MS + 2_000)
    world.run()
    world.clock.now_ms = NOW_MS + 4_000
    sizes = []
    while sum(sizes) < 1_500:
        due = world.timers.step()
        assert all(message.kind is DueKind.DELIVER for message in due)
        sizes.append(len(due))
        world.timers.confirm(len(due))
    assert max(sizes) == 64


def test_large_messages_come_fewer_at_a_time() -> None:
    world = World(store_config=None)
    for _ in range(4):
        world.send(body=bytes(60_000), TIMER_DELAY_MS="2000")
    assert len(world.jump(NOW_MS + 4_000)) == 4
