"""The official Go client (rocketmq-client-go/v2), unmodified: sends arrive, and filters select the right messages.

More of it: test_go_consumption.py, test_go_order.py, test_go_transactions.py, test_go_beginnings.py and
test_go_outages.py. The client's release 2.1.2 has no POP, no recall, no assignment of queues by hand and no compression
but zlib, and after a reset of a running group it waits ten seconds and for its next rebalance: the Java client tests
these alone.
"""

from __future__ import annotations

import pytest

from tests.interop.go_driver import TAGS, GoDriver, check_exact, indexes
from tests.interop.java_agent import JavaAgentError
from tests.waiting import wait_until
from thermocline.client.trace.trace_records import (
    ConsumeOutcome,
    MessageKind,
    PublishTrace,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
    TraceRecord,
    decode_trace,
)

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
BODY_BYTES_MAX = 4 << 20


# -- sending -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_send_arrives_exactly_once(go: GoDriver) -> None:
    topic = go.make_topic()
    sync = go.produce(kind="sync", count=20)
    asynchronous = go.produce(kind="async", count=20, start=20)
    batch = go.produce(kind="batch", count=20, start=40, batch_size=8)
    assert go.produce(kind="oneway", count=20, start=60) == []
    chosen = go.produce(kind="chosen", count=20, start=80, broker_name="broker-a", queue_id=3)
    assert {answer.status for answer in (*sync, *asynchronous, *batch, *chosen)} == {"SEND_OK"}
    assert {answer.queue_id for answer in chosen} == {3}
    received = go.received(go.push(), count=100)
    check_exact(received, topic, range(100))
    placed = {int(message.properties["index"]): (message.queue_id, message.queue_offset) for message in received}
    ids = {int(message.properties["index"]): message.message_id for message in received}
    answers = {**dict(enumerate((*sync, *asynchronous))), **dict(enumerate(chosen, start=80))}
    for index, answer in answers.items():
        assert placed[index] == (answer.queue_id, answer.queue_offset)
        assert ids[index] == answer.message_id


def test_properties_and_flags_come_as_they_were_sent(go: GoDriver) -> None:
    go.make_topic(queue_nums=1)
    properties = {"a": "1", "größe": "drei Äpfel", "empty-ish": " "}
    go.produce(count=1, properties=properties, flag=-7)
    go.produce(kind="batch", count=2, start=1, batch_size=2, properties=properties, flag=9)
    received = sorted(go.received(go.push(), count=3), key=lambda message: message.queue_offset)
    assert indexes(received) == [0, 1, 2]
    assert [message.flag for message in received] == [-7, 9, 9]
    for message in received:
        assert properties.items() <= message.properties.items()


def test_a_topic_is_made_by_its_first_message(go: GoDriver) -> None:
    go.produce(count=10)
    check_exact(go.received(go.push(), count=10), go.topic, range(10))
    assert {config.write_queue_nums for config in go.admin.topic_config(go.topic).values()} == {4}


def test_large_bodies_are_compressed_and_come_back_whole(go: GoDriver) -> None:
    topic = go.make_topic()
    go.produce(count=4, body_bytes=200_000)
    received = go.received(go.push(), count=4)
    check_exact(received, topic, range(4), body_bytes=200_000)
    assert all(message.store_size < 100_000 for message in received)


def test_the_largest_body_is_taken_and_one_byte_more_is_not(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=1)
    go.produce(count=1, body_bytes=BODY_BYTES_MAX, compress_over_bytes=64 << 20)
    with pytest.raises(JavaAgentError, match="CODE: 13"):
        go.produce(count=1, start=1, body_bytes=BODY_BYTES_MAX + 1, compress_over_bytes=64 << 20)
    received = go.agent.pull_queue(go.namesrv, topic)
    check_exact(received, topic, range(1), body_bytes=BODY_BYTES_MAX)


# -- choosing ----------------------------------------------------------------------------------------------------------


def test_tags_are_filtered(go: GoDriver) -> None:
    go.make_topic()
    go.produce(count=30)
    wanted = [index for index in range(30) if TAGS[index % len(TAGS)] != "green"]
    consumer = go.push(topics={go.topic: "red || blue"})
    assert sorted(indexes(go.received(consumer, count=len(wanted)))) == wanted


def test_properties_are_filtered(go: GoDriver) -> None:
    """Messages that are there already, and those that come while the consumer waits."""
    go.make_topic()
    go.produce(count=30)
    consumer = go.push(topics={go.topic: {"sql": "index BETWEEN 5 AND 14 AND TAGS <> 'green'"}})
    wanted = [index for index in range(5, 15) if TAGS[index % len(TAGS)] != "green"]
    assert sorted(indexes(go.received(consumer, count=len(wanted)))) == wanted
    go.produce(count=30, start=100)
    go.produce(count=1, start=5)
    assert indexes(go.received(consumer, count=1)) == [5]


def test_a_pull_is_filtered_by_properties(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=1)
    go.produce(count=100)
    read = go.agent.pull_queue(go.namesrv, topic, offset=20, expression={"sql": "index > 90 OR index IN ('3', '22')"})
    assert indexes(read) == [22, *range(91, 100)]


@pytest.mark.parametrize(
    "expression", ["index >", "index = 'open", "(" * 3_000], ids=["half", "open string", "3000 parentheses"]
)
def test_a_broken_expression_is_refused(go: GoDriver, expression: str) -> None:
    topic = go.make_topic(queue_nums=1)
    go.produce(count=1)
    with pytest.raises(JavaAgentError, match="Response Code: 23"):
        go.agent.pull_queue(go.namesrv, topic, expression={"sql": expression})


# -- pulling -----------------------------------------------------------------------------------------------------------


def test_the_pull_consumer_reads_everything(go: GoDriver) -> None:
    topic = go.make_topic()
    go.produce(count=30)
    check_exact(go.agent.pull_topic(go.namesrv, topic, name=f"{topic}-pull", count=30), topic, range(30))


def test_a_queue_is_pulled_from_an_offset(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=1)
    go.produce(count=80)
    read = go.agent.pull_queue(go.namesrv, topic, offset=15)
    assert [(message.queue_offset, int(message.properties["index"])) for message in read] == [
        (offset, offset) for offset in range(15, 80)
    ]


# -- traces ------------------------------------------------------------------------------------------------------------


def test_traces_are_found_by_message(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=1)
    consumer = go.push(trace=True)
    (sent,) = go.produce(count=1, trace=True)
    go.received(consumer, count=1)
    found: list[TraceRecord] = []

    def is_whole() -> bool:
        messages = go.admin.query_by_key(TRACE_TOPIC, sent.message_id)
        found[:] = [record for message in messages for record in decode_trace(message.body.decode())]
        return len(found) == 3

    wait_until(is_whole, what="sends and consumption are traced")
    kinds = {type(record): record for record in found}
    published, before = kinds[PublishTrace], kinds[SubscribeBeforeTrace]
    after = kinds[SubscribeAfterTrace]
    assert isinstance(published, PublishTrace)
    assert isinstance(before, SubscribeBeforeTrace)
    assert isinstance(after, SubscribeAfterTrace)
    assert {record.message_id for record in (published, before, after)} == {sent.message_id}
    assert (published.group, published.topic) == (f"{topic}-producers", topic)
    assert (published.tags, published.keys) == (TAGS[0], f"{topic}-key-0")
    assert (published.kind, published.succeeded) == (MessageKind.NORMAL, True)
    assert published.offset_message_id == sent.offset_message_id
    assert (before.group, before.retry_times) == (go.group, 0)
    assert (after.request_id, after.succeeded, after.outcome) == (before.request_id, True, ConsumeOutcome.SUCCESS)
