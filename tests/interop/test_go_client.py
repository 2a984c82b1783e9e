"""The official Go client (rocketmq-client-go/v2), unmodified: what it sends arrives, what it consumes is whole."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import Daemons, thermocline_daemons, wait_until
from tests.interop.go_agent import GoAgent, built_agent, go_agent
from tests.interop.java_agent import ReceivedMessage, SendAnswer, message_body
from thermocline.client import AdminClient

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]

TAGS = ["red", "green", "blue"]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoAgent]:
    have(built_agent)
    with go_agent(tmp_path_factory.mktemp("go-agent")) as agent:
        yield agent


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with thermocline_daemons(tmp_path_factory.mktemp("go-cluster")) as daemons:
        yield daemons


@pytest.fixture(scope="module")
def admin(daemons: Daemons) -> Iterator[AdminClient]:
    with AdminClient(namesrv=daemons.namesrv) as admin:
        yield admin


@pytest.fixture
def topic(request: pytest.FixtureRequest, admin: AdminClient) -> str:
    """A topic of four queues that no other test uses."""
    name = f"Go{next(_numbers)}x{request.node.originalname[5:35]}"
    admin.create_topic(name, queue_nums=4)
    return name


@pytest.fixture
def start_push(agent: GoAgent, daemons: Daemons) -> Iterator[Callable[..., str]]:
    """`start_push(name, group=..., topics=...)` starts a push consumer that is stopped after the test."""
    started: list[str] = []

    def start(name: str, **arguments: object) -> str:
        agent.call("start_push_consumer", name=name, namesrv=daemons.namesrv, **arguments)
        started.append(name)
        return name

    yield start
    for consumer in started:
        agent.call("stop_consumer", name=consumer)


@pytest.fixture
def produce(agent: GoAgent, daemons: Daemons, topic: str) -> Iterator[Callable[..., list[SendAnswer]]]:
    """`produce(kind=..., count=...)` sends numbered messages to the test's topic."""
    producer = f"producer-{topic}"

    def send(*, kind: str, count: int, start: int = 0, **more: object) -> list[SendAnswer]:
        return agent.produce(
            kind=kind,
            name=f"{producer}-{kind}",
            group=producer,
            namesrv=daemons.namesrv,
            topic=topic,
            prefix=topic,
            tags=TAGS,
            count=count,
            start=start,
            **more,
        )

    yield send
    for kind in ("sync", "async", "oneway", "batch", "ordered"):
        agent.call("stop_producer", name=f"{producer}-{kind}")


def indexes(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.properties["index"]) for message in messages]


def check_exact(messages: list[ReceivedMessage], topic: str, expected: range, *, body_bytes: int = 0) -> None:
    """Each message number once, with its own body, tag and key."""
    assert Counter(indexes(messages)) == Counter(expected)
    for message in messages:
        index = int(message.properties["index"])
        assert message.body == message_body(topic, index, body_bytes)
        assert (message.tags, message.keys) == (TAGS[index % len(TAGS)], f"{topic}-key-{index}")


def test_every_kind_of_send_arrives_exactly_once(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, start_push: Callable[..., str]
) -> None:
    sync = produce(kind="sync", count=20)
    asynchronous = produce(kind="async", count=20, start=20)
    batch = produce(kind="batch", count=20, start=40, batch_size=8)
    assert produce(kind="oneway", count=20, start=60) == []
    assert {answer.status for answer in (*sync, *asynchronous, *batch)} == {"SEND_OK"}
    consumer = start_push(f"{topic}-push", group=f"{topic}-group", topics={topic: "*"})
    received = agent.received(consumer, count=80)
    check_exact(received, topic, range(80))
    placed = {int(message.properties["index"]): (message.queue_id, message.queue_offset) for message in received}
    for index, answer in enumerate((*sync, *asynchronous)):
        assert placed[index] == (answer.queue_id, answer.queue_offset)


def test_large_bodies_are_compressed_and_come_back_whole(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, start_push: Callable[..., str]
) -> None:
    produce(kind="sync", count=4, body_bytes=200_000)
    consumer = start_push(f"{topic}-push", group=f"{topic}-group", topics={topic: "*"})
    received = agent.received(consumer, count=4)
    check_exact(received, topic, range(4), body_bytes=200_000)
    assert all(message.store_size < 100_000 for message in received)


def test_tags_are_filtered(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, start_push: Callable[..., str]
) -> None:
    produce(kind="sync", count=30)
    consumer = start_push(f"{topic}-push", group=f"{topic}-group", topics={topic: "red || blue"})
    wanted = [index for index in range(30) if TAGS[index % len(TAGS)] != "green"]
    assert sorted(indexes(agent.received(consumer, count=len(wanted)))) == wanted


def test_a_delayed_message_is_not_early(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, start_push: Callable[..., str]
) -> None:
    consumer = start_push(f"{topic}-push", group=f"{topic}-group", topics={topic: "*"})
    produce(kind="sync", count=3, delay_level=1)
    received = agent.received(consumer, count=3)
    check_exact(received, topic, range(3))
    for message in received:
        assert message.store_timestamp_ms - message.born_timestamp_ms >= 1_000 - 50


def test_an_orderly_consumer_sees_each_shard_in_order(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, start_push: Callable[..., str]
) -> None:
    consumer = start_push(f"{topic}-push", group=f"{topic}-group", topics={topic: "*"}, orderly=True)
    produce(kind="ordered", count=40, shards=4)
    received = agent.received(consumer, count=40)
    assert Counter(indexes(received)) == Counter(range(40))
    for shard in range(4):
        of_shard = [message for message in received if int(message.properties["index"]) % 4 == shard]
        assert indexes(of_shard) == sorted(indexes(of_shard))
        assert len({message.queue_id for message in of_shard}) == 1


def test_a_refused_message_comes_again_and_ends_as_a_dead_letter(
    produce: Callable[..., list[SendAnswer]],
    topic: str,
    agent: GoAgent,
    admin: AdminClient,
    start_push: Callable[..., str],
) -> None:
    group = f"{topic}-group"
    # A consumer that starts before its retry topic is known looks for it again later only.
    agent.call("stop_consumer", name=start_push(f"{topic}-first", group=group, topics={topic: "*"}))
    wait_until(lambda: f"%RETRY%{group}" in admin.list_topics(include_system=True), what="the retry topic")
    consumer = start_push(f"{topic}-push", group=group, topics={topic: "*"}, refuse_all=True, max_reconsume_times=1)
    produce(kind="sync", count=3)
    received = agent.received(consumer, count=6)
    assert Counter(indexes(received)) == dict.fromkeys(range(3), 2)
    assert sorted(message.reconsume_times for message in received) == [0, 0, 0, 1, 1, 1]
    wait_until(lambda: f"%DLQ%{group}" in admin.list_topics(include_system=True), what="the dead-letter topic")


def test_each_broadcasting_consumer_gets_everything(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, start_push: Callable[..., str]
) -> None:
    produce(kind="sync", count=20)
    for number in range(2):
        consumer = start_push(f"{topic}-{number}", group=f"{topic}-{number}", topics={topic: "*"}, broadcast=True)
        check_exact(agent.received(consumer, count=20), topic, range(20))


def test_the_pull_consumer_reads_everything(
    produce: Callable[..., list[SendAnswer]], topic: str, agent: GoAgent, daemons: Daemons
) -> None:
    produce(kind="sync", count=30)
    check_exact(agent.pull_topic(daemons.namesrv, topic, name=f"{topic}-pull", count=30), topic, range(30))
