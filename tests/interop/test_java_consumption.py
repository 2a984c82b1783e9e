"""How the official Java client consumes: retries, dead letters, order, broadcasting, replies, where groups begin."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import Cluster, thermocline_daemons, wait_until_registered
from tests.interop.java_agent import JavaAgent, ReceivedMessage, SendAnswer
from tests.waiting import wait_until
from thermocline.localstack.loopback_port import free_port

pytestmark = pytest.mark.java

_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Consume{next(_numbers)}x{request.node.originalname[5:30]}"


def produce(cluster: Cluster, topic: str, *, count: int, start: int = 0, **more: object) -> list[SendAnswer]:
    arguments: dict[str, object] = {"kind": "sync", "group": f"producers-of-{topic}", "tags": ["tag"], **more}
    return cluster.agent.produce(
        name=f"producer-{topic}",
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        count=count,
        start=start,
        **arguments,  # type: ignore[arg-type]
    )


def indexes(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.properties["index"]) for message in messages]


def with_retry_topic(cluster: Cluster, start_push: Callable[..., str], name: str, topic: str) -> str:
    """A group whose retry topic is known: a consumer that starts before it is looks for it again only after 20 s."""
    group = f"{name}-group"
    cluster.agent.call("stop_consumer", name=start_push(f"{name}-first", group=group, topics={topic: "*"}))
    wait_until(
        lambda: cluster.broker_name in cluster.admin("topicRoute", "-t", f"%RETRY%{group}"), what="the retry topic"
    )
    return group


# -- retries, dead letters ---------------------------------------------------------------------------------------------


def test_a_message_that_always_fails_ends_as_a_dead_letter(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    group = with_retry_topic(cluster, start_push, name, topic)
    other = start_push(f"{name}-other", group=f"{name}-other-group", topics={topic: "*"})
    failing = start_push(f"{name}-failing", group=group, topics={topic: "*"}, refuse_all=True, max_reconsume_times=2)
    sent = produce(cluster, topic, count=6)
    received = cluster.agent.received(failing, count=18)
    wait_until(
        lambda: cluster.broker_name in cluster.admin("topicRoute", "-t", f"%DLQ%{group}"), what="the dead-letter topic"
    )
    dead: list[ReceivedMessage] = []

    def all_are_buried() -> bool:
        dead[:] = cluster.agent.read_topic(cluster.namesrv, f"%DLQ%{group}")
        return len(dead) == 6

    wait_until(all_are_buried, what="six dead letters")
    # Three times each, with the original topic, id and keys all the way.
    received += cluster.agent.received(failing, count=0)
    assert Counter(indexes(received)) == dict.fromkeys(range(6), 3)
    assert Counter(message.reconsume_times for message in received) == {0: 6, 1: 6, 2: 6}
    assert {message.topic for message in received} == {topic}
    unique_keys = {str(index): answer.message_id for index, answer in enumerate(sent)}
    offset_ids = {str(index): answer.offset_message_id for index, answer in enumerate(sent)}
    for message in (*received, *dead):
        assert message.message_id == unique_keys[message.properties["index"]]
        assert message.keys == f"{topic}-key-{message.properties['index']}"
    for message in dead:
        assert message.properties["RETRY_TOPIC"] == topic
        assert message.properties["ORIGIN_MESSAGE_ID"] == offset_ids[message.properties["index"]]
        assert message.reconsume_times == 3
    # Another group is not affected.
    assert sorted(indexes(cluster.agent.received(other, count=6))) == list(range(6))
    assert cluster.agent.received(other, count=1, timeout_s=1) == []


def test_an_orderly_queue_waits_for_its_failed_message(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, count=10)
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: "*"}, orderly=True, refuse_first=1)
    received = cluster.agent.received(consumer, count=10)
    assert indexes(received) == list(range(10))
    assert [message.reconsume_times for message in received] == [1] + [0] * 9


# -- order through restarts --------------------------------------------------------------------------------------------


def test_order_is_kept_when_another_consumer_takes_over(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name, queue_count=4)
    group = f"{name}-group"
    first = start_push(f"{name}-first", group=group, topics={topic: "*"}, orderly=True)
    produce(cluster, topic, kind="ordered", shards=4, count=80)
    received = cluster.agent.received(first, count=20)
    second = start_push(f"{name}-second", group=group, topics={topic: "*"}, orderly=True)
    wait_until(lambda: len(cluster.agent.assigned(second, topic)) == 2, what="the second has its share", timeout_s=60)
    produce(cluster, topic, kind="ordered", shards=4, count=80, start=80)
    received += cluster.agent.stop_consumer(first)
    produce(cluster, topic, kind="ordered", shards=4, count=80, start=160)
    deadline = time.monotonic() + 60
    while len(set(indexes(received))) < 240 and time.monotonic() < deadline:
        received += cluster.agent.received(second, count=1, timeout_s=5)
    check_order_by_shard(received, shards=4, count=240)


def check_order_by_shard(received: list[ReceivedMessage], *, shards: int, count: int) -> None:
    """Nothing is missing; in each shard a message comes first time behind all that were sent before it."""
    assert set(indexes(received)) == set(range(count))
    for shard in range(shards):
        firsts = list(dict.fromkeys(index for index in indexes(received) if index % shards == shard))
        assert firsts == sorted(firsts)


@pytest.mark.xdist_group("interop-thermocline")  # where the Java agent runs
def test_order_is_kept_when_the_broker_is_killed(java_agent_process: JavaAgent, tmp_path: Path, name: str) -> None:
    agent = java_agent_process
    namesrv, listen = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    group, consumer, producer = f"{name}-group", f"{name}-push", f"{name}-producer"

    @contextlib.contextmanager
    def running() -> Iterator[Cluster]:
        with thermocline_daemons(tmp_path, namesrv=namesrv, listen=listen) as daemons:
            wait_until_registered(agent, namesrv, listen)
            yield Cluster(
                kind="thermocline", namesrv=namesrv, broker_address=listen, agent=agent, process=daemons.process
            )

    def send(start: int) -> None:
        agent.produce(
            kind="ordered",
            name=producer,
            group=producer,
            namesrv=namesrv,
            topic=name,
            prefix=name,
            shards=4,
            start=start,
            count=60,
        )

    received: list[ReceivedMessage] = []
    try:
        with running() as cluster:
            cluster.make_topic(name, queue_count=4)
            agent.call(
                "start_push_consumer",
                name=consumer,
                namesrv=namesrv,
                group=group,
                topics={name: "*"},
                orderly=True,
                # The restarted broker learns of the client by its heartbeat; clients 4.9 have no other occasion.
                heartbeat_ms=2_000,
            )
            send(0)
            received += agent.received(consumer, count=30)
            cluster.process.kill()
        with running():
            wait_until(lambda: can_send(agent, namesrv, name), what="the producer finds the broker again")
            send(60)
            deadline = time.monotonic() + 90
            while len(set(indexes(received))) < 120 and time.monotonic() < deadline:
                received += agent.received(consumer, count=1, timeout_s=5)
        check_order_by_shard(received, shards=4, count=120)
    finally:
        agent.call("stop_consumer", name=consumer)
        agent.call("stop_producer", name=producer)


def can_send(agent: JavaAgent, namesrv: str, topic: str) -> bool:
    return '"brokerName"' in agent.admin(namesrv, "topicRoute", "-t", topic)


# -- broadcasting, replies ---------------------------------------------------------------------------------------------


def test_each_broadcasting_consumer_gets_everything(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name)
    consumers = [
        start_push(f"{name}-{number}", group=f"{name}-group", topics={topic: "*"}, broadcast=True)
        for number in range(2)
    ]
    for consumer in consumers:
        wait_until(lambda consumer=consumer: len(cluster.agent.assigned(consumer, topic)) == 4, what="its queues")
    produce(cluster, topic, count=40)
    for consumer in consumers:
        assert sorted(indexes(cluster.agent.received(consumer, count=40))) == list(range(40))
    assert "MessageModel: BROADCASTING" in cluster.admin("consumerConnection", "-g", f"{name}-group")


def test_a_request_gets_its_reply(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    replier = f"{name}-replier"
    cluster.agent.call(
        "start_replier", name=replier, namesrv=cluster.namesrv, group=f"{name}-group", topics={topic: "*"}
    )
    try:
        arguments = {
            "name": f"{name}-asker",
            "group": f"{name}-askers",
            "namesrv": cluster.namesrv,
            "topic": topic,
            "prefix": topic,
        }
        replies = cluster.agent.call("request", start=0, count=8, timeout_ms=30_000, **arguments)
        assert replies == [f"reply to {topic}-{index}" for index in range(8)]
        stored = cluster.agent.read_topic(cluster.namesrv, f"{cluster.cluster_name}_REPLY_TOPIC")
        assert {message.body for message in stored} >= {reply.encode() for reply in replies}
    finally:
        cluster.agent.call("stop_consumer", name=replier)
        cluster.agent.call("stop_producer", name=f"{name}-asker")


def test_a_request_without_an_answer_ends_in_time(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    with pytest.raises(Exception, match="RequestTimeoutException"):
        cluster.agent.call(
            "request",
            start=0,
            count=1,
            timeout_ms=500,
            name=f"{name}-asker",
            group=f"{name}-askers",
            namesrv=cluster.namesrv,
            topic=topic,
            prefix=topic,
        )
    cluster.agent.call("stop_producer", name=f"{name}-asker")


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_bodies_come_back_whole_however_they_are_compressed(
    cluster: Cluster, name: str, start_push: Callable[..., str], compression: str
) -> None:
    topic = cluster.make_topic(f"{name}{compression}")
    produce(cluster, topic, count=4, body_bytes=300_000, compress_over_bytes=1024, compression=compression)
    consumer = start_push(f"{topic}-push", group=f"{topic}-group", topics={topic: "*"})
    received = cluster.agent.received(consumer, count=4)
    assert sorted(indexes(received)) == list(range(4))
    assert {len(message.body) for message in received} == {300_000}
    assert all(message.store_size < 150_000 for message in received)


def test_the_largest_body_is_taken_and_one_byte_more_is_not(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, count=1, body_bytes=4 << 20, compress_over_bytes=64 << 20)
    with pytest.raises(Exception, match=r"MESSAGE_ILLEGAL|size over max value"):
        produce(cluster, topic, count=1, start=1, body_bytes=(4 << 20) + 1, compress_over_bytes=64 << 20)
    (message,) = cluster.agent.read_topic(cluster.namesrv, topic)
    assert len(message.body) == 4 << 20


# -- where a group begins ----------------------------------------------------------------------------------------------


def test_a_new_group_begins_where_it_asks_to(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, count=10)
    time.sleep(1.1)  # RocketMQ's CONSUME_FROM_TIMESTAMP counts in seconds
    between = time.strftime("%Y%m%d%H%M%S", time.localtime())
    time.sleep(1.1)
    produce(cluster, topic, count=10, start=10)
    # A group that wants what comes from now on is given the whole of a topic that is young and in memory.
    expected = {"first": 0, "last": 0, "timestamp": 0}
    for where, start in expected.items():
        consumer = start_push(
            f"{name}-{where}", group=f"{name}-{where}-group", topics={topic: "*"}, **{"from": where}, timestamp=between
        )
        assert sorted(indexes(cluster.agent.received(consumer, count=20 - start))) == list(range(start, 20))


@pytest.mark.full
def test_a_group_without_offsets_begins_by_the_clients_choice_behind_deleted_messages(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    """An offset that the client did not commit and a topic that does not begin at 0: the client decides."""
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, count=6)
    group = f"{name}-group"
    consumer = start_push(f"{name}-push", group=group, topics={topic: "*"})
    cluster.agent.received(consumer, count=6)
    wait_until(
        lambda: "Consume Diff Total: 0" in cluster.admin("consumerProgress", "-g", group),
        what="the group's commits",
    )
    cluster.agent.call("stop_consumer", name=consumer)
    produce(cluster, topic, count=6, start=6)

    # A clone of the group goes on where the group stopped.
    cluster.admin("updateSubGroup", "-b", cluster.broker_address, "-g", f"{name}-clone")
    printed = cluster.admin("cloneGroupOffset", "-s", group, "-d", f"{name}-clone", "-t", topic, "-o", "true")
    assert "clone group offset success" in printed
    clone = start_push(f"{name}-clone-push", group=f"{name}-clone", topics={topic: "*"})
    assert sorted(indexes(cluster.agent.received(clone, count=6))) == list(range(6, 12))

    # The group itself is made to skip what it has not consumed.
    printed = cluster.admin("skipAccumulatedMessage", "-g", group, "-t", topic)
    assert re.search(r"broker-a +0 +12", printed), printed
    again = start_push(f"{name}-again", group=group, topics={topic: "*"})
    produce(cluster, topic, count=2, start=12)
    assert sorted(indexes(cluster.agent.received(again, count=2))) == [12, 13]


def test_a_live_group_goes_back_to_a_time(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, count=5)
    stored = cluster.agent.read_topic(cluster.namesrv, topic)
    wait_until(lambda: time.time_ns() // 1_000_000 > stored[-1].store_timestamp_ms + 5, what="a moment has passed")
    produce(cluster, topic, count=5, start=5)
    second_half = cluster.agent.read_topic(cluster.namesrv, topic)[5].store_timestamp_ms
    group = f"{name}-group"
    consumer = start_push(f"{name}-push", group=group, topics={topic: "*"})
    assert sorted(indexes(cluster.agent.received(consumer, count=10))) == list(range(10))
    printed = cluster.admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(second_half))
    assert re.search(r"broker-a +0 +5", printed), printed
    # The answer to its next pull tells the consumer: a message ends the one that waits.
    produce(cluster, topic, count=1, start=10)
    again: list[ReceivedMessage] = []

    def comes_again() -> bool:
        # A consumer lets go of the queue, a client 4.9 after ten seconds, and looks for it only some time later.
        cluster.agent.call("rebalance", name=consumer)
        again.extend(cluster.agent.received(consumer, count=0))
        return len(again) >= 6

    wait_until(comes_again, what="the second half comes again")
    assert sorted(indexes(again)) == list(range(5, 11))
