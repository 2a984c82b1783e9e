"""The official Java client, unmodified: what it sends arrives once, whole, in order, however it is consumed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from tests.interop.cluster import Cluster
from tests.interop.java_agent import ReceivedMessage, SendAnswer, message_body
from tests.waiting import wait_until

pytestmark = pytest.mark.java

TAGS = ["red", "green", "blue"]
MESSAGE_COUNT = 120
_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Client{next(_numbers)}x{request.node.originalname[5:35]}"


def produce(cluster: Cluster, topic: str, *, kind: str, count: int, start: int = 0, **more: object) -> list[SendAnswer]:
    arguments: dict[str, object] = {
        "name": f"producer-{topic}",
        "group": f"producers-of-{topic}",
        "namesrv": cluster.namesrv,
        "topic": topic,
        "prefix": topic,
        "tags": TAGS,
        **more,
    }
    return cluster.agent.produce(kind=kind, count=count, start=start, **arguments)


def check_exact(messages: list[ReceivedMessage], topic: str, indexes: range, *, body_bytes: int = 0) -> None:
    """Each message number once, with its own body, tag, key and property."""
    by_index = {int(message.properties["index"]): message for message in messages}
    assert Counter(int(message.properties["index"]) for message in messages) == Counter(indexes)
    for index, message in by_index.items():
        assert message.body == message_body(topic, index, body_bytes)
        assert message.tags == TAGS[index % len(TAGS)]
        assert message.keys == f"{topic}-key-{index}"
        assert message.topic == topic
        assert message.broker_name in ("broker-a", "broker-a@east")  # of a named cluster, behind a proxy


def check_offsets(messages: list[ReceivedMessage]) -> None:
    """Each queue's offsets are gapless and start at zero."""
    for _, group in itertools.groupby(
        sorted(messages, key=lambda message: (message.queue_id, message.queue_offset)),
        key=lambda message: message.queue_id,
    ):
        offsets = [message.queue_offset for message in group]
        assert offsets == list(range(len(offsets)))


def test_every_kind_of_send_arrives_exactly_once(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    topic = cluster.make_topic(name)
    sync = produce(cluster, topic, kind="sync", count=30)
    batch = produce(cluster, topic, kind="batch", count=30, start=30, batch_size=8)
    asynchronous = produce(cluster, topic, kind="async", count=30, start=60)
    assert produce(cluster, topic, kind="oneway", count=30, start=90) == []
    assert {answer.status for answer in (*sync, *batch, *asynchronous)} == {"SEND_OK"}
    assert len({answer.offset_message_id for answer in (*sync, *asynchronous)}) == 60
    assert [len(answer.message_id.split(",")) for answer in batch] == [8, 8, 8, 6]

    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: "*"})
    received = cluster.agent.received(consumer, count=MESSAGE_COUNT)
    check_exact(received, topic, range(MESSAGE_COUNT))
    check_offsets(received)

    placed = {message.properties["index"]: (message.queue_id, message.queue_offset) for message in received}
    for index, answer in (*enumerate(sync), *enumerate(asynchronous, start=60)):
        assert placed[str(index)] == (answer.queue_id, answer.queue_offset)
    unique_keys = {message.properties["index"]: message.message_id for message in received}
    batch_ids = [message_id for answer in batch for message_id in answer.message_id.split(",")]
    assert [unique_keys[str(index)] for index in range(30, 60)] == batch_ids


def test_a_batch_takes_consecutive_offsets_of_one_queue(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    answers = produce(cluster, topic, kind="batch", count=40, batch_size=10)
    assert [answer.queue_offset for answer in answers] == [0, 10, 20, 30]
    messages = cluster.agent.read_topic(cluster.namesrv, topic)
    assert [int(message.properties["index"]) for message in messages] == list(range(40))
    check_exact(messages, topic, range(40))


def test_the_first_send_creates_the_topic(cluster: Cluster, name: str) -> None:
    produce(cluster, name, kind="sync", count=8)
    messages = cluster.agent.read_topic(cluster.namesrv, name)
    check_exact(messages, name, range(8))


def test_large_bodies_are_compressed_by_the_client_and_come_back_whole(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name)
    produce(cluster, topic, kind="sync", count=6, body_bytes=200_000, compress_over_bytes=1024)
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: "*"})
    received = cluster.agent.received(consumer, count=6)
    check_exact(received, topic, range(6), body_bytes=200_000)
    assert all(message.store_size < 100_000 for message in received)


def test_two_push_consumers_share_the_queues_and_one_takes_over(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name, queue_count=4)
    group = f"{name}-group"
    first = start_push(f"{name}-first", group=group, topics={topic: "*"})
    second = start_push(f"{name}-second", group=group, topics={topic: "*"})
    everything = {(cluster.broker_name, queue_id) for queue_id in range(4)}

    def queues(consumer: str) -> set[tuple[str, int]]:
        return cluster.agent.assigned(consumer, topic)

    wait_until(
        lambda: len(queues(first)) == len(queues(second)) == 2 and queues(first) | queues(second) == everything,
        what="the two consumers have two queues each",
    )
    shares = {consumer: queues(consumer) for consumer in (first, second)}
    produce(cluster, topic, kind="sync", count=MESSAGE_COUNT)
    received = {first: [], second: []}  # type: dict[str, list[ReceivedMessage]]
    wait_until(
        lambda: (
            [received[consumer].extend(cluster.agent.received(consumer, count=0)) for consumer in received] != []
            and sum(map(len, received.values())) >= MESSAGE_COUNT
        ),
        what="all messages have been received",
    )
    check_exact(received[first] + received[second], topic, range(MESSAGE_COUNT))
    for consumer, messages in received.items():
        assert {(message.broker_name, message.queue_id) for message in messages} == shares[consumer]

    cluster.agent.call("stop_consumer", name=first)
    # Sooner than the client's own rebalancing every 20 s: the broker has notified it.
    wait_until(lambda: queues(second) == everything, what="the second consumer takes over", timeout_s=15.0)
    produce(cluster, topic, kind="sync", count=40, start=MESSAGE_COUNT)
    check_exact(cluster.agent.received(second, count=40), topic, range(MESSAGE_COUNT, MESSAGE_COUNT + 40))


def test_a_consumer_continues_where_its_group_stopped(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name)
    produce(cluster, topic, kind="sync", count=20)
    first = start_push(f"{name}-first", group=f"{name}-group", topics={topic: "*"})
    check_exact(cluster.agent.received(first, count=20), topic, range(20))
    cluster.agent.call("stop_consumer", name=first)
    produce(cluster, topic, kind="sync", count=20, start=20)
    second = start_push(f"{name}-second", group=f"{name}-group", topics={topic: "*"})
    check_exact(cluster.agent.received(second, count=20), topic, range(20, 40))


def test_tags_are_filtered(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    topic = cluster.make_topic(name)
    produce(cluster, topic, kind="sync", count=60)
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: "red || blue"})
    wanted = [index for index in range(60) if TAGS[index % len(TAGS)] != "green"]
    received = cluster.agent.received(consumer, count=len(wanted))
    assert sorted(int(message.properties["index"]) for message in received) == wanted


def test_an_orderly_consumer_sees_each_queue_in_order(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name, queue_count=4)
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: "*"}, orderly=True)
    produce(cluster, topic, kind="ordered", count=MESSAGE_COUNT, shards=4)
    received = cluster.agent.received(consumer, count=MESSAGE_COUNT)
    check_exact(received, topic, range(MESSAGE_COUNT))
    for shard in range(4):
        indexes = [int(m.properties["index"]) for m in received if int(m.properties["index"]) % 4 == shard]
        assert indexes == sorted(indexes)
        assert len({m.queue_id for m in received if int(m.properties["index"]) % 4 == shard}) == 1


def test_a_refused_message_comes_again_by_the_retry_topic(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic, group = cluster.make_topic(name), f"{name}-group"
    # A consumer that starts before its retry topic is known looks for it again only after 20 s.
    cluster.agent.call("stop_consumer", name=start_push(f"{name}-first", group=group, topics={topic: "*"}))
    wait_until(
        lambda: cluster.broker_name in cluster.admin("topicRoute", "-t", f"%RETRY%{group}"), what="the retry topic"
    )
    consumer = start_push(f"{name}-push", group=group, topics={topic: "*"}, refuse_first=1)
    produce(cluster, topic, kind="sync", count=10)
    received = cluster.agent.received(consumer, count=10)
    check_exact(received, topic, range(10))
    assert sorted(message.reconsume_times for message in received) == [0] * 9 + [1]


def test_a_delayed_message_is_not_early(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    topic = cluster.make_topic(name)
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: "*"})
    produce(cluster, topic, kind="sync", count=3, delay_level=2)
    received = cluster.agent.received(consumer, count=3)
    check_exact(received, topic, range(3))
    for message in received:
        assert message.store_timestamp_ms - message.born_timestamp_ms >= 5_000 - 50


@pytest.mark.parametrize("mode", ["subscribe", "assign"])
def test_the_lite_pull_consumer_reads_everything(cluster: Cluster, name: str, mode: str) -> None:
    topic = cluster.make_topic(name)
    produce(cluster, topic, kind="sync", count=MESSAGE_COUNT)
    consumer = f"{name}-{mode}"
    cluster.agent.call(
        "start_lite_pull_consumer",
        name=consumer,
        namesrv=cluster.namesrv,
        group=f"{name}-group",
        topic=topic,
        expression="*",
        mode=mode,
    )
    try:
        received = cluster.agent.received(consumer, count=MESSAGE_COUNT)
        check_exact(received, topic, range(MESSAGE_COUNT))
        check_offsets(received)
    finally:
        cluster.agent.call("stop_consumer", name=consumer)


def test_offsets_are_found_by_time(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, kind="sync", count=20)
    messages = cluster.agent.read_topic(cluster.namesrv, topic)
    middle = messages[10]
    first_with_that_time = next(m for m in messages if m.store_timestamp_ms == middle.store_timestamp_ms)
    (queue,) = cluster.agent.queue_offsets(cluster.namesrv, topic, timestamp_ms=middle.store_timestamp_ms)
    assert (queue["min_offset"], queue["max_offset"]) == (0, 20)
    assert queue["earliest_ms"] == messages[0].store_timestamp_ms
    assert queue["found_offset"] == first_with_that_time.queue_offset
