"""POP as official clients do it: the push consumer in POP mode, and single requests of the official request layer.

Queues have no owner in POP mode: any consumer may take any message, and what is not acknowledged within its
invisible time comes back by a retry topic. With `--official-peer` the same tests run on the official broker.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.cluster import Cluster
from tests.interop.java_agent import ReceivedMessage, message_body
from tests.interop.popping import LATE_S, OK, Popping, indexes, produce, receipt_of
from tests.waiting import wait_until
from thermocline.remoting.handles.receipt_handle import ReceiptHandle
from thermocline.remoting.records.properties import PropertyName

pytestmark = pytest.mark.java

# What the official client allows as the shortest invisible time of a push consumer.
INVISIBLE_MS_MIN = 5_000
# With this many queues shared, every consumer of a small topic is given every queue.
SHARED_QUEUES = "8"
_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Pop{next(_numbers)}x{request.node.originalname[5:35]}"


@pytest.fixture
def start_pop(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """`start_pop(name, topic, ...)` starts a push consumer that lets the broker assign, stopped after the test."""
    started: list[str] = []

    def start(name: str, topic: str, *, group: str, **arguments: object) -> str:
        cluster.agent.call(
            "start_push_consumer",
            name=name,
            namesrv=cluster.namesrv,
            group=group,
            topics={topic: "*"},
            client_rebalance=False,
            **{"pop_invisible_ms": INVISIBLE_MS_MIN, **arguments},
        )
        started.append(name)
        # In POP mode a consumer holds all queues of a broker as one, whose id is -1. Behind a proxy a broker's name may
        # have its cluster's behind it.
        wait_until(
            lambda: (
                {(broker.partition("@")[0], queue_id) for broker, queue_id in cluster.agent.assigned(name, topic)}
                == {(cluster.broker_name, -1)}
            ),
            what=f"{name} takes by POP",
        )
        return name

    yield start
    for consumer in started:
        cluster.agent.call("stop_consumer", name=consumer)


def consume_by_pop(cluster: Cluster, topic: str, group: str) -> None:
    """What an operator does to turn a group to POP."""
    where = ("-c", cluster.cluster_name, "-t", topic, "-g", group)
    printed = cluster.admin("setConsumeMode", *where, "-m", "POP", "-q", SHARED_QUEUES)
    assert "success" in printed, printed


def test_a_push_consumer_in_pop_mode_acknowledges_and_retries(
    cluster: Cluster, name: str, start_pop: Callable[..., str]
) -> None:
    topic, group = cluster.make_topic(name), f"{name}-group"
    consume_by_pop(cluster, topic, group)
    # The official client's own table of delays starts at ten seconds.
    consumer = start_pop(f"{name}-push", topic, group=group, refuse_first=2, retry_delay_level=0)
    produce(cluster, topic, 40)
    received = cluster.agent.received(consumer, count=40)
    assert indexes(received) == list(range(40))
    for message in received:
        assert message.body == message_body(topic, int(message.properties["index"]))
        assert message.topic == topic
    again = [message for message in received if message.reconsume_times]
    assert [message.reconsume_times for message in again] == [1] * len(again)
    assert len(again) >= 2
    assert all(message.store_timestamp_ms - message.born_timestamp_ms >= 10_000 for message in again)
    # All of it is acknowledged: no consumer gets another message, now or after the invisible time.
    popping = Popping(cluster, topic, group)
    assert popping.pop(poll_ms=INVISIBLE_MS_MIN + 3_000) == []


def test_four_consumers_share_three_queues(cluster: Cluster, name: str, start_pop: Callable[..., str]) -> None:
    topic, group = cluster.make_topic(name, queue_count=3), f"{name}-group"
    consume_by_pop(cluster, topic, group)
    consumers = [
        start_pop(
            f"{name}-{number}",
            topic,
            group=group,
            pop_invisible_ms=60_000,
            pop_batch_size=4,
            pop_threshold_for_queue=8,
            threads=4,
            hold_ms=20,
        )
        for number in range(4)
    ]
    produce(cluster, topic, 800, kind="async")
    received: dict[str, list[ReceivedMessage]] = {consumer: [] for consumer in consumers}

    def all_received() -> bool:
        for consumer, messages in received.items():
            messages += cluster.agent.received(consumer, count=0)
        return sum(map(len, received.values())) >= 800

    wait_until(all_received, what="all messages have been received")
    assert indexes(list(itertools.chain(*received.values()))) == list(range(800))
    counts = sorted(map(len, received.values()))
    assert counts[-1] <= 2 * counts[0], counts


def test_a_stuck_consumer_delays_only_its_own_messages(
    cluster: Cluster, name: str, start_pop: Callable[..., str]
) -> None:
    topic, group = cluster.make_topic(name), f"{name}-group"
    consume_by_pop(cluster, topic, group)
    # It takes one message at a time, no third before the first is done with, and is never done.
    start_pop(
        f"{name}-stuck",
        topic,
        group=group,
        pop_batch_size=1,
        pop_threshold_for_queue=1,
        threads=1,
        hold_ms=600_000,
    )
    healthy = start_pop(f"{name}-healthy", topic, group=group)
    produce(cluster, topic, 60)
    started = time.monotonic()
    received = cluster.agent.received(healthy, count=50, timeout_s=INVISIBLE_MS_MIN / 2_000)
    assert len(received) >= 50
    while len(received) < 60:
        received += cluster.agent.received(healthy, count=1, timeout_s=LATE_S)
        assert time.monotonic() < started + 2 * LATE_S
    assert indexes(received) == list(range(60))
    late = [message for message in received if message.reconsume_times]
    assert 1 <= len(late) <= 10
    assert all(message.store_timestamp_ms - message.born_timestamp_ms >= INVISIBLE_MS_MIN for message in late)


def test_an_unacknowledged_message_is_redelivered_after_its_invisible_time(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 12)
    invisible_ms = 4_000
    popped = popping.pop_all(12, invisible_ms=invisible_ms)
    assert indexes(popped) == list(range(12))
    kept = [message for message in popped if int(message.properties["index"]) % 3]
    assert {popping.ack(message) for message in kept} == {OK}
    again = popping.pop_all(4)
    assert indexes(again) == [0, 3, 6, 9]
    for message in again:
        first = next(one for one in popped if one.properties["index"] == message.properties["index"])
        assert message.reconsume_times == 1
        assert message.body == first.body
        assert message.topic == topic
        pop_time_ms = ReceiptHandle.parse(receipt_of(first)).pop_time_ms
        assert message.store_timestamp_ms >= pop_time_ms + invisible_ms
        assert message.properties[PropertyName.FIRST_POP_TIME] == first.properties[PropertyName.FIRST_POP_TIME]
        assert popping.ack(message) == OK
    assert popping.pop(poll_ms=1_000) == []


def test_many_are_acknowledged_at_once(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 20)
    popped = popping.pop_all(20, invisible_ms=4_000)
    kept = [message for message in popped if int(message.properties["index"]) not in (4, 11, 17)]
    assert popping.batch_ack(kept) == OK
    again = popping.pop_all(3)
    assert indexes(again) == [4, 11, 17]
    assert popping.batch_ack(again) == OK
    assert popping.pop(poll_ms=1_000) == []


def test_the_invisible_time_can_be_changed(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 2)
    soon, later = popping.pop_all(2, invisible_ms=4_000)
    # One comes sooner than it would have, the other not at all: its new receipt is acknowledged in time.
    popping.change_invisible(soon, 1_000)
    renewed = popping.change_invisible(later, 120_000)
    (again,) = popping.pop_all(1)
    assert again.properties["index"] == soon.properties["index"]
    assert popping.ack(again) == OK
    assert popping.pop(poll_ms=6_000) == []
    assert (
        cluster.agent.call(
            "ack",
            namesrv=cluster.namesrv,
            broker_address=cluster.broker_address,
            group=f"{name}-group",
            topic=topic,
            receipt=renewed,
        )
        == OK
    )


def test_a_wait_ends_when_a_message_arrives(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    popping = Popping(cluster, topic, f"{name}-group")
    # A delayed message arrives while the request waits; the agent does one thing at a time.
    produce(cluster, topic, 1, delay_level=2)
    started = time.monotonic()
    (message,) = popping.pop(poll_ms=20_000)
    assert time.monotonic() - started < 15
    assert popping.ack(message) == OK


def test_tags_are_filtered(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 30)
    taken = popping.pop_all(15, expression="red")
    assert indexes(taken) == list(range(0, 30, 2))
    assert popping.batch_ack(taken) == OK


def test_ordered_pop_gives_nothing_of_a_queue_until_all_before_is_acknowledged(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 6)
    invisible_ms = 6_000
    first = popping.pop(count=3, invisible_ms=invisible_ms, order=True)
    assert [message.queue_offset for message in first] == [0, 1, 2]
    assert popping.pop(count=3, order=True) == []
    assert popping.ack(first[0]) == OK
    assert popping.ack(first[2]) == OK
    assert popping.pop(count=3, order=True) == []
    # The one that is left comes again by itself, from the topic, and is counted.
    (again,) = popping.pop_all(1, order=True)
    assert again.queue_offset == 1
    assert again.reconsume_times == 1
    assert again.topic == topic


def test_ordered_pop_goes_on_when_all_is_acknowledged(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 6)
    first = popping.pop(count=3, order=True)
    assert {popping.ack(message) for message in first} == {OK}
    second = popping.pop(count=32, order=True)
    assert [message.queue_offset for message in first + second] == list(range(6))
    assert [message.reconsume_times for message in second] == [0, 0, 0]
    assert {popping.ack(message) for message in second} == {OK}


def test_receipts_are_read_alike(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    popping = Popping(cluster, topic, f"{name}-group")
    produce(cluster, topic, 3)
    popped = popping.pop_all(3, invisible_ms=1_000)
    again = popping.pop_all(3)
    for message in popped + again:
        ours = ReceiptHandle.parse(receipt_of(message))
        theirs = cluster.agent.call("read_receipt", receipt=receipt_of(message))
        assert theirs == {
            "start_offset": ours.start_offset,
            "retrieve_time_ms": ours.pop_time_ms,
            "invisible_ms": ours.invisible_ms,
            "next_visible_time_ms": ours.pop_time_ms + ours.invisible_ms,
            "revive_queue_id": ours.revive_queue_id,
            "topic_type": str(int(ours.retry_flag)),
            "broker_name": cluster.broker_name,
            "queue_id": ours.queue_id,
            "offset": ours.queue_offset,
        }
    assert popping.batch_ack(again) == OK
