"""The official Java client 5.x with a proxy as its NameServer and broker: a part of its tests.

The others: test_java_proxy_full.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests.interop import test_java_client, test_java_consumption, test_java_transactions
from tests.interop.cluster import Cluster
from tests.interop.java_agent import ReceivedMessage
from tests.interop.proxy_daemons import proxied_cluster
from tests.interop.test_java_4_clients import SETTINGS as SETTINGS_OF_4
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-proxy")]

SETTINGS = SETTINGS_OF_4
INVISIBLE_MS = 5_000
HELD_S = 3.0
"""A message that has not come by then is held by a consumer."""
PROXY_SETTINGS = {"remotingPopInvisibleTimeMillis": str(INVISIBLE_MS)}
_numbers = itertools.count(1)


cluster = proxied_cluster(SETTINGS, PROXY_SETTINGS)


@pytest.fixture
def asking_cluster(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"JavaP{next(_numbers)}x{request.node.originalname[5:35]}"


test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_order = test_java_client.test_an_orderly_consumer_sees_each_queue_in_order
test_retry = test_java_client.test_a_refused_message_comes_again_by_the_retry_topic
test_broadcast = test_java_consumption.test_each_broadcasting_consumer_gets_everything
test_request_and_reply = test_java_consumption.test_a_request_gets_its_reply

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_checks = test_java_transactions.test_an_undecided_transaction_is_checked_until_it_is_decided


def test_a_stuck_consumer_delays_only_its_own_messages(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    """Three of a group, one of which is never done with its first message: the others get all, also what it holds."""
    topic, group = cluster.make_topic(name), f"{name}-group"
    received: list[ReceivedMessage] = []

    def indexes(*consumers: str) -> set[int]:
        for consumer in consumers:
            received.extend(cluster.agent.received(consumer, count=0))
        return {int(message.properties["index"]) for message in received}

    healthy = [start_push(f"{name}-{number}", group=group, topics={topic: "*"}) for number in (1, 2)]
    start_push(f"{name}-stuck", group=group, topics={topic: "*"}, threads=1, hold_ms=600_000)
    sent = 0
    while len(indexes(*healthy)) == sent:  # until the stuck one holds something
        test_java_client.produce(cluster, topic, kind="sync", count=20, start=sent)
        sent += 20
        deadline_s = time.monotonic() + HELD_S
        while len(indexes(*healthy)) < sent and time.monotonic() < deadline_s:
            received.extend(cluster.agent.received(healthy[0], count=1, timeout_s=0.2))
    test_java_client.produce(cluster, topic, kind="sync", count=200, start=sent)
    sent += 200
    wait_until(lambda: len(indexes(*healthy)) == sent, what="the others have all", timeout_s=8 * INVISIBLE_MS / 1000)
    late = {message.properties["index"] for message in received if message.reconsume_times}
    assert 1 <= len(late) <= sent // 2, "all that the stuck consumer held came again, the rest came at once"
    assert {message.topic for message in received} == {topic}


@pytest.mark.full
def test_a_group_leaves_the_proxy_and_comes_back(cluster: Cluster, name: str) -> None:
    """Finished messages are finished in both ways, and all others come, whichever way it is connected."""
    topic, group = cluster.make_topic(name), f"{name}-group"
    for turn, namesrv in enumerate((cluster.namesrv, cluster.tools_namesrv, cluster.namesrv)):
        test_java_client.produce(cluster, topic, kind="sync", count=20, start=20 * turn)
        consumer = f"{name}-{turn}"
        cluster.agent.call("start_push_consumer", name=consumer, namesrv=namesrv, group=group, topics={topic: "*"})
        received = cluster.agent.received(consumer, count=20)
        test_java_client.check_exact(received, topic, range(20 * turn, 20 * turn + 20))
        cluster.agent.call("stop_consumer", name=consumer)
