"""The official Java client sends messages for later: they come at their time, once, and not when they were recalled."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.clock import now_ms
from tests.interop.cluster import Cluster
from tests.interop.java_agent import JavaAgentError, SendAnswer, message_body
from thermocline.remoting.handles.recall_handle import decode_recall_handle

pytestmark = pytest.mark.java

DELAY_MS = 4_000
LATE_MS_MAX = 10_000
"""This machine may be busy, and the official broker delivers up to a second after the tick."""
EARLY_MS_MAX = 1_000
"""The official broker rounds down to a tick; see `is_exact` for ours."""
_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Timed{next(_numbers)}x{request.node.originalname[5:35]}"


@pytest.fixture
def consumer(cluster: Cluster, name: str) -> Iterator[Callable[[str], str]]:
    """`consumer(topic)` starts a push consumer, which is stopped after the test."""

    def start(topic: str) -> str:
        cluster.agent.call(
            "start_push_consumer", name=name, namesrv=cluster.namesrv, group=f"{name}-group", topics={topic: "*"}
        )
        return name

    yield start
    cluster.agent.call("stop_consumer", name=name)


@pytest.fixture
def recalls(cluster: Cluster) -> Iterator[None]:
    """The broker allows recalls, which it does not by default."""
    _set_recall(cluster, "true")
    yield
    _set_recall(cluster, "false")


def _set_recall(cluster: Cluster, value: str) -> None:
    printed = cluster.admin(
        "updateBrokerConfig", "-b", cluster.broker_address, "-k", "recallMessageEnable", "-v", value
    )
    assert "success" in printed, printed


def produce(cluster: Cluster, topic: str, *, count: int, start: int = 0, **more: object) -> list[SendAnswer]:
    return cluster.agent.produce(
        kind="sync",
        count=count,
        start=start,
        name=f"producer-{topic}",
        group=f"producers-of-{topic}",
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        **more,
    )


def test_every_way_to_say_when(cluster: Cluster, name: str, consumer: Callable[[str], str]) -> None:
    topic = cluster.make_topic(name)
    group = consumer(topic)
    start_ms = now_ms()
    answers = produce(cluster, topic, count=5, delay_sec=DELAY_MS // 1_000)
    answers += produce(cluster, topic, count=5, start=5, delay_ms=DELAY_MS)
    answers += produce(cluster, topic, count=5, start=10, deliver_at_ms=start_ms + DELAY_MS)
    answers += produce(cluster, topic, count=5, start=15, deliver_at_ms=start_ms - DELAY_MS)
    received = cluster.agent.received(group, count=20)
    assert sorted(int(message.properties["index"]) for message in received) == list(range(20))
    is_exact = cluster.kind != "official"
    for message in received:
        index = int(message.properties["index"])
        assert message.body == message_body(topic, index)
        assert message.topic == topic
        waited_ms = message.store_timestamp_ms - message.born_timestamp_ms
        if index >= 15:
            assert waited_ms < DELAY_MS
            assert answers[index].recall_handle is None
            continue
        asked_ms = DELAY_MS if index < 10 else start_ms + DELAY_MS - message.born_timestamp_ms
        assert asked_ms - (0 if is_exact else EARLY_MS_MAX) <= waited_ms <= asked_ms + LATE_MS_MAX
        assert message.properties["REAL_TOPIC"] == topic
        handle = answers[index].recall_handle
        assert handle is not None
        assert decode_recall_handle(handle).unique_key == message.message_id == answers[index].message_id


def test_a_recalled_message_does_not_come(
    cluster: Cluster, name: str, consumer: Callable[[str], str], recalls: None
) -> None:
    topic = cluster.make_topic(name)
    group = consumer(topic)
    answers = produce(cluster, topic, count=6, delay_ms=15_000)
    for answer in answers[::2]:
        producer = {"name": f"producer-{topic}", "group": f"producers-of-{topic}", "namesrv": cluster.namesrv}
        recalled = cluster.agent.call("recall", topic=topic, handle=answer.recall_handle, **producer)
        assert recalled == answer.message_id
    produce(cluster, topic, count=1, start=6, delay_ms=18_000)
    received = cluster.agent.received(group, count=4)
    assert sorted(int(message.properties["index"]) for message in received) == [1, 3, 5, 6]


def test_recall_is_forbidden_by_default(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name)
    (answer,) = produce(cluster, topic, count=1, delay_ms=3_600_000)
    with pytest.raises(JavaAgentError, match=r"CODE: 16.*recall failed, operation is forbidden"):
        cluster.agent.call(
            "recall",
            topic=topic,
            handle=answer.recall_handle,
            name=f"producer-{topic}",
            group=f"producers-of-{topic}",
            namesrv=cluster.namesrv,
        )


def test_a_time_too_far_away_is_refused(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name)
    with pytest.raises(JavaAgentError, match=r"CODE: 13.*timer message illegal, the delay time should not be bigger"):
        produce(cluster, topic, count=1, delay_sec=4 * 86_400)


def test_the_brokers_status_shows_waiting_messages(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name)
    before = _timer_count(cluster)
    produce(cluster, topic, count=7, delay_sec=3_600)
    deadline = time.monotonic() + 30
    while _timer_count(cluster) < before + 7:
        assert time.monotonic() < deadline


def _timer_count(cluster: Cluster) -> int:
    printed = cluster.admin("brokerStatus", "-b", cluster.broker_address)
    (line,) = [line for line in printed.splitlines() if line.startswith("timerCongestNum")]
    return int(line.rpartition(":")[2])
