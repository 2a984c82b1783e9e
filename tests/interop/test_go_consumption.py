"""How the official Go client consumes: delays, retries, dead letters, sharing, broadcasting, replies."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.interop.cluster import CLUSTER_NAME
from tests.interop.go_driver import GoDriver, check_exact, indexes
from tests.interop.java_agent import JavaAgentError, ReceivedMessage
from tests.waiting import wait_until

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]

DELAY_MS = 2_000
LATE_MS_MAX = 10_000
"""This machine may be busy."""


# -- later -------------------------------------------------------------------------------------------------------------


def test_a_delayed_message_is_not_early(go: GoDriver) -> None:
    topic = go.make_topic()
    consumer = go.push()
    go.produce(count=3, delay_level=1)
    received = go.received(consumer, count=3)
    check_exact(received, topic, range(3))
    for message in received:
        assert 1_000 - 50 <= message.store_timestamp_ms - message.born_timestamp_ms <= LATE_MS_MAX


def test_every_way_to_say_when(go: GoDriver) -> None:
    topic = go.make_topic()
    consumer = go.push()
    start_ms = time.time_ns() // 1_000_000
    go.produce(count=3, properties={"TIMER_DELAY_SEC": str(DELAY_MS // 1_000)})
    go.produce(count=3, start=3, properties={"TIMER_DELAY_MS": str(DELAY_MS)})
    go.produce(count=3, start=6, properties={"TIMER_DELIVER_MS": str(start_ms + DELAY_MS)})
    go.produce(count=3, start=9, properties={"TIMER_DELIVER_MS": str(start_ms - DELAY_MS)})
    received = go.received(consumer, count=12)
    check_exact(received, topic, range(12))
    for message in received:
        waited_ms = message.store_timestamp_ms - message.born_timestamp_ms
        index = int(message.properties["index"])
        if index >= 9:
            assert waited_ms < DELAY_MS
            continue
        asked_ms = DELAY_MS if index < 6 else start_ms + DELAY_MS - message.born_timestamp_ms
        assert asked_ms <= waited_ms <= asked_ms + LATE_MS_MAX
        assert message.properties["REAL_TOPIC"] == topic


# -- retries, dead letters ---------------------------------------------------------------------------------------------


def test_a_message_that_always_fails_comes_later_each_time_and_ends_as_a_dead_letter(go: GoDriver) -> None:
    """The broker chooses the delays, by level 3 and up: see the settings of `go_cluster`."""
    topic = go.make_topic()
    failing = go.push_with_retry_topic(refuse_all=True, max_reconsume_times=2, retry_delay_level=0)
    other = go.push("other", group=f"{topic}-other-group")
    sent = go.produce(count=3)
    received = go.received(failing, count=9)
    assert Counter(indexes(received)) == dict.fromkeys(range(3), 3)
    buried = f"%DLQ%{go.group}"
    wait_until(lambda: buried in go.admin.list_topics(include_system=True), what="the dead-letter topic")
    dead = go.agent.pull_topic(go.namesrv, buried, name=f"{topic}-dead", count=3)
    assert sorted(indexes(dead)) == [0, 1, 2]
    for index, answer in enumerate(sent):
        tries = [message for message in received if indexes([message]) == [index]]
        assert [message.reconsume_times for message in tries] == [0, 1, 2]
        (grave,) = (message for message in dead if indexes([message]) == [index])
        assert grave.reconsume_times == 3
        for message in (*tries, grave):
            assert message.message_id == answer.message_id
            assert message.keys == f"{topic}-key-{index}"
            assert message.born_timestamp_ms == tries[0].born_timestamp_ms
        # The client shows retries under their first topic.
        assert {message.topic for message in tries} == {topic}
        for message in (*tries[1:], grave):
            assert message.properties["RETRY_TOPIC"] == topic
            assert message.properties["ORIGIN_MESSAGE_ID"] == answer.offset_message_id
        first, second, third = (message.store_timestamp_ms for message in tries)
        assert second - first >= 1_000 - 50
        assert third - second >= 2_000 - 50
    # Another group is not affected.
    assert sorted(indexes(go.received(other, count=3))) == [0, 1, 2]
    assert go.received(other, count=1, timeout_s=0.5) == []


def test_a_message_comes_again_after_the_delay_that_its_consumer_asks_for(go: GoDriver) -> None:
    topic = go.make_topic()
    consumer = go.push_with_retry_topic(refuse_first=1, retry_delay_level=4)
    go.produce(count=10)
    received = go.received(consumer, count=10)
    check_exact(received, topic, range(10))
    (again,) = (message for message in received if message.reconsume_times)
    assert again.reconsume_times == 1
    assert again.store_timestamp_ms - again.born_timestamp_ms >= 2_000 - 50


# -- who gets what -----------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "shares"), [("averagely", [{0, 1}, {2, 3}]), ("circle", [{0, 2}, {1, 3}])])
def test_two_consumers_share_the_queues_and_one_takes_over(go: GoDriver, strategy: str, shares: list[set[int]]) -> None:
    topic = go.make_topic()
    consumers = [go.push(name, strategy=strategy) for name in ("a", "b")]
    wait_until(lambda: [go.queues_of(consumer) for consumer in consumers] == shares, what="each has its share")
    go.produce(count=40)
    received: list[ReceivedMessage] = []
    for consumer, share in zip(consumers, shares, strict=True):
        part = go.received(consumer, count=20)
        assert {message.queue_id for message in part} == share
        received += part
    check_exact(received, topic, range(40))
    go.wait_until_committed()
    go.stop(consumers[0])
    wait_until(lambda: go.queues_of(consumers[1]) == {0, 1, 2, 3}, what="the second has taken over")
    go.produce(count=40, start=40)
    check_exact(go.received(consumers[1], count=40), topic, range(40, 80))


def test_each_broadcasting_consumer_gets_everything(go: GoDriver) -> None:
    topic = go.make_topic()
    go.produce(count=20)
    consumers = [go.push(name, broadcast=True) for name in ("a", "b")]
    for consumer in consumers:
        check_exact(go.received(consumer, count=20), topic, range(20))
    assert go.admin.consumer_connections(go.group).message_model == "BROADCASTING"


# -- replies -----------------------------------------------------------------------------------------------------------


def test_a_request_gets_its_reply(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=2)
    go.push("replier", operation="start_replier")
    replies = go.request(count=4, timeout_ms=30_000)
    assert replies == [f"reply to {topic}-{index}" for index in range(4)]
    # Tries before the broker knew who asks are stored too.
    stored = go.agent.pull_queue(go.namesrv, f"{CLUSTER_NAME}_REPLY_TOPIC")
    assert {message.body for message in stored} >= {reply.encode() for reply in replies}


def test_a_request_without_an_answer_ends_in_time(go: GoDriver) -> None:
    go.make_topic(queue_nums=1)
    start_s = time.monotonic()
    with pytest.raises(JavaAgentError, match="wait reply message timeout 500 ms"):
        go.request(count=1, timeout_ms=500)
    assert 0.5 <= time.monotonic() - start_s < 10
