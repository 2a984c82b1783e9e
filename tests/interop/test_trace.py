"""Message traces: the official client's are found, and the SDK's are read by the official tool."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.interop.cluster import Cluster, thermocline_cluster
from tests.interop.java_agent import JavaAgent
from tests.waiting import wait_until
from thermocline.client import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PublishTrace,
    PushConsumer,
    ReceivedMessage,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
)

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-trace")]


@pytest.fixture(scope="module")
def cluster(java_agent_process: JavaAgent, module_folder: Path) -> Iterator[Cluster]:
    settings = {"traceTopicEnable": "true"}
    with thermocline_cluster(java_agent_process, module_folder, settings=settings) as cluster:
        yield cluster


def traced(cluster: Cluster, message_id: str, is_whole: Callable[[str], bool]) -> str:
    """What mqadmin prints of a message's trace, once it is all there."""
    seen = [""]

    def has_all_records() -> bool:
        seen.append(cluster.admin("queryMsgTraceById", "-i", message_id))
        return is_whole(seen[-1])

    wait_until(has_all_records, what="the trace", timeout_s=40.0)
    return seen[-1]


def test_the_trace_topic_is_there_from_the_start(cluster: Cluster) -> None:
    assert "RMQ_SYS_TRACE_TOPIC" in cluster.admin("topicList").split()


def test_the_official_clients_traces_are_found(cluster: Cluster) -> None:
    topic, agent = cluster.make_topic("TraceJava", queue_count=1), cluster.agent
    agent.call(
        "start_push_consumer",
        name="TraceJava-push",
        namesrv=cluster.namesrv,
        group="TraceJavaGroup",
        topics={topic: "*"},
        trace=True,
    )
    try:
        (sent,) = agent.produce(
            kind="sync",
            name="TraceJava-producer",
            group="TraceJavaProducers",
            namesrv=cluster.namesrv,
            topic=topic,
            prefix=topic,
            count=1,
            trace=True,
        )
        agent.received("TraceJava-push", count=1)
        printed = traced(cluster, sent.message_id, lambda text: "Pub" in text and "TraceJavaGroup" in text)
        with AdminClient(namesrv=cluster.tools_namesrv) as admin:
            records = [step.record for step in admin.message_trace(sent.message_id)]
    finally:
        agent.call("stop_consumer", name="TraceJava-push")
        agent.call("stop_producer", name="TraceJava-producer")
    assert re.search(r"^Pub +TraceJavaProducers +\S+ +\S+ \S+ +\d+ms +success", printed, re.MULTILINE), printed
    assert [(type(record), record.group) for record in records] == [
        (PublishTrace, "TraceJavaProducers"),
        (SubscribeBeforeTrace, "TraceJavaGroup"),
        (SubscribeAfterTrace, "TraceJavaGroup"),
    ]


def test_the_sdks_traces_are_read_by_the_official_tool(cluster: Cluster) -> None:
    topic = cluster.make_topic("TraceSdk", queue_count=1)
    consumed = threading.Event()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        consumed.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        group="TraceSdkGroup",
        namesrv=cluster.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        enable_trace=True,
    )
    consumer.subscribe(topic)
    consumer.register_listener(listener)
    with Producer(group="TraceSdkProducers", namesrv=cluster.namesrv, enable_trace=True) as producer:
        sent = producer.send(Message(topic, b"traced", tags="tag", keys="key1"))
        with consumer:
            assert consumed.wait(30)
    printed = traced(cluster, sent.message_id, lambda text: "Pub" in text and "TraceSdkGroup" in text)
    assert re.search(r"^Pub +TraceSdkProducers +\S+ +\S+ \S+ +\d+ms +success", printed, re.MULTILINE), printed
    assert re.search(r"^Sub +TraceSdkGroup +\S+ +\S+ \S+ +\d+ms +success", printed, re.MULTILINE), printed
