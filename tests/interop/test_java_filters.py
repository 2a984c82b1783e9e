"""The official Java client with MessageSelector.bySql, unmodified: it receives exactly the messages that match."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster import Cluster, broker_config, cluster_of
from tests.interop.java_agent import JavaAgent, JavaAgentError, ReceivedMessage
from tests.waiting import wait_until
from thermocline.broker.tables.filter_bloom import bloom_of
from tooling.official_rocketmq import OfficialSoftware

pytestmark = pytest.mark.java

TAGS = ["TagA", "TagB", "TagC"]
SETTING = {"enablePropertyFilter": "true"}
# What `example/filter/SqlFilterConsumer` of RocketMQ subscribes to, with `index` for its `a`.
EXAMPLE = "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (index is not null and index between 0 and 3)"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[Cluster]:
    """A broker that chooses messages by their properties."""
    directory = module_folder / cluster_kind
    with cluster_of(cluster_kind, official_software, java_agent_process, directory, settings=SETTING) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Filter{next(_numbers)}x{request.node.originalname[5:35]}"


def produce(cluster: Cluster, topic: str, *, count: int, start: int = 0, **more: object) -> None:
    answers = cluster.agent.produce(
        kind="sync",
        name=f"producer-{topic}",
        group=f"producers-of-{topic}",
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        tags=TAGS,
        count=count,
        start=start,
        **more,
    )
    assert {answer.status for answer in answers} == {"SEND_OK"}


def indexes(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.properties["index"]) for message in messages)


def test_the_official_example(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    """Messages that are there already, and those that come while the consumer waits."""
    topic = cluster.make_topic(name)
    produce(cluster, topic, count=10)
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: {"sql": EXAMPLE}})
    assert indexes(cluster.agent.received(consumer, count=3)) == [0, 1, 3]
    produce(cluster, topic, count=10)
    assert indexes(cluster.agent.received(consumer, count=3)) == [0, 1, 3]
    produce(cluster, topic, count=30, start=100)
    produce(cluster, topic, count=1)
    assert indexes(cluster.agent.received(consumer, count=1)) == [0]


@pytest.mark.parametrize(
    ("properties", "is_gotten"),
    [({"a": "10", "b": "abc", "c": "true"}, True), ({"a": "1", "b": "abc", "c": "true"}, False), ({"b": "abc"}, False)],
)
def test_the_examples_of_the_official_documentation(
    cluster: Cluster, name: str, properties: dict[str, str], is_gotten: bool
) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    produce(cluster, topic, count=1, properties=properties)
    read = cluster.agent.read_topic(cluster.namesrv, topic, sql="a > 5 AND b = 'abc'")
    assert indexes(read) == ([0] if is_gotten else [])
    read = cluster.agent.read_topic(cluster.namesrv, topic, sql="(a > 10 AND a < 100) OR (b IS NOT NULL AND c=TRUE)")
    assert indexes(read) == ([0] if "c" in properties else [])


def test_pull_consumers(cluster: Cluster, name: str) -> None:
    """The lite one, and the one that names each offset itself; among many that do not match."""
    topic = cluster.make_topic(name, queue_count=2)
    produce(cluster, topic, count=300)
    expression = "index = 7 OR index >= 290 AND TAGS <> 'TagA'"
    expected = [7, *(index for index in range(290, 300) if index % 3)]
    assert indexes(cluster.agent.read_topic(cluster.namesrv, topic, sql=expression)) == expected
    cluster.agent.call(
        "start_lite_pull_consumer",
        name=name,
        namesrv=cluster.namesrv,
        group=f"{name}-group",
        topic=topic,
        sql=expression,
    )
    try:
        assert indexes(cluster.agent.received(name, count=len(expected))) == expected
        produce(cluster, topic, count=4, start=300)
        assert indexes(cluster.agent.received(name, count=2)) == [301, 302]
    finally:
        cluster.agent.call("stop_consumer", name=name)


def test_messages_that_come_back_do_so_whatever_the_expression(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    topic = cluster.make_topic(name)
    produce(cluster, topic, count=9)
    consumer = start_push(
        f"{name}-push", group=f"{name}-group", topics={topic: {"sql": "TAGS = 'TagB'"}}, refuse_first=2
    )
    received = cluster.agent.received(consumer, count=3)
    assert indexes(received) == [1, 4, 7]
    assert sorted(message.reconsume_times for message in received) == [0, 1, 1]


def test_a_group_may_change_its_expression(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    """A member that comes later brings a newer subscription, which counts for all."""
    topic = cluster.make_topic(name, queue_count=1)
    group = f"{name}-group"
    consumer = start_push(f"{name}-first", group=group, topics={topic: {"sql": "index < 2"}})
    produce(cluster, topic, count=4)
    assert indexes(cluster.agent.received(consumer, count=2)) == [0, 1]
    cluster.agent.call("stop_consumer", name=consumer)
    consumer = start_push(f"{name}-second", group=group, topics={topic: {"sql": "index >= 12"}})
    produce(cluster, topic, count=4, start=10)
    assert indexes(cluster.agent.received(consumer, count=2)) == [12, 13]
    assert re.search(rf"^{topic}\s+index >= 12$", cluster.admin("consumerConnection", "-g", group), re.MULTILINE)


def test_the_file_of_filters_is_the_same(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    """So that a store which moves takes its groups' filters along; and the tool that shows one finds it."""
    topic, group, expression = cluster.make_topic(name, queue_count=1), f"{name}-group", "index < 2"
    produce(cluster, topic, count=1)
    consumer = start_push(f"{name}-push", group=group, topics={topic: {"sql": expression}})
    path = Path(broker_config(cluster)["storePathRootDir"]) / "config" / "consumerFilter.json"

    def entry(*, is_dead: bool) -> dict[str, Any] | None:
        topics = json.loads(path.read_text())["filterDataByTopic"] if path.exists() else {}
        found: dict[str, Any] | None = topics.get(topic, {"groupFilterData": {}})["groupFilterData"].get(group)
        return found if found is not None and found["dead"] is is_dead else None

    wait_until(lambda: entry(is_dead=False) is not None, what="the group's filter is in the file")
    written = entry(is_dead=False)
    assert written is not None
    bloom = bloom_of(group, topic)
    assert written == {
        "bloomFilterData": {"bitNum": bloom.bit_num, "bitPos": list(bloom.bit_pos)},
        "bornTime": written["bornTime"],
        "clientVersion": written["clientVersion"],
        "consumerGroup": group,
        "dead": False,
        "deadTime": 0,
        "expression": expression,
        "expressionType": "SQL92",
        "topic": topic,
    }
    place = ("-b", cluster.broker_address, "-t", topic, "-q", "0", "-i", "0", "-c", "1", "-g", group)
    assert f'"expression":"{expression}"' in cluster.admin("queryCq", *place)
    cluster.agent.call("stop_consumer", name=consumer)
    wait_until(lambda: entry(is_dead=True) is not None, what="the group's filter is dead")


@pytest.mark.parametrize("expression", ["index >", "index > 1 AND", "index = 'open", "index > 'a'", "(" * 3_000])
def test_an_invalid_expression_is_an_error_when_the_consumer_starts(
    cluster: Cluster, name: str, expression: str
) -> None:
    topic = cluster.make_topic(name)
    with pytest.raises(JavaAgentError, match="CODE: 23"):
        cluster.agent.call(
            "start_push_consumer",
            name=name,
            namesrv=cluster.namesrv,
            group=f"{name}-group",
            topics={topic: {"sql": expression}},
        )


def test_the_setting_counts_while_the_broker_runs(cluster: Cluster, name: str, start_push: Callable[..., str]) -> None:
    topic = cluster.make_topic(name)

    def switch(value: str) -> None:
        cluster.admin("updateBrokerConfig", "-b", cluster.broker_address, "-k", "enablePropertyFilter", "-v", value)
        wait_until(
            lambda: broker_config(cluster)["enablePropertyFilter"] == value,
            what=f"the broker has enablePropertyFilter={value}",
        )

    switch("false")
    try:
        with pytest.raises(JavaAgentError, match="does not support consumer to filter message by SQL92"):
            start_push(f"{name}-refused", group=f"{name}-group", topics={topic: {"sql": "index = 1"}})
    finally:
        switch("true")
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={topic: {"sql": "index = 1"}})
    produce(cluster, topic, count=3)
    assert indexes(cluster.agent.received(consumer, count=1)) == [1]
