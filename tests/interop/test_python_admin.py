"""The admin client on a real broker, beside mqadmin and among official clients.

On the official broker too (`--official-peer`): what passes there is RocketMQ's behaviour, not our own idea of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest

from tests.interop.cluster import Cluster
from tests.waiting import wait_until
from thermocline import (
    EARLIEST,
    LATEST,
    AdminClient,
    Message,
    MQError,
    Producer,
    SendResult,
)
from thermocline.remoting.bodies import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from thermocline.remoting.errors import GroupNotFoundError

pytestmark = pytest.mark.java

TIMEOUT_MS = 15_000
_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test uses."""
    return f"Admin{next(_numbers)}x{request.node.originalname[5:35]}"


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[AdminClient]:
    with AdminClient(namesrv=cluster.namesrv, request_timeout_ms=TIMEOUT_MS) as admin:
        yield admin


def send(cluster: Cluster, topic: str, count: int, group: str = "admins") -> list[SendResult]:
    with Producer(group=group, namesrv=cluster.namesrv, send_timeout_ms=TIMEOUT_MS) as producer:
        return producer.send_many(Message(topic, b"%d" % number, keys=f"k{number}") for number in range(count))


def printed_config(cluster: Cluster, group: str) -> str:
    return cluster.admin("getConsumerConfig", "-g", group)


def test_groups_are_set_up_as_mqadmin_reads_them(cluster: Cluster, admin: AdminClient, name: str) -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[10_000, 60_000]))
    admin.create_group(SubscriptionGroupConfig(group_name=name, retry_max_times=5, group_retry_policy=policy))
    assert re.search(r"retryMaxTimes += +5\b", printed_config(cluster, name))
    assert "10000, 60000" in printed_config(cluster, name)
    growing = GroupRetryPolicy(
        type="EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(initial=1_000, max=9_000, multiplier=3)
    )
    admin.update_group(name, consume_broadcast_enable=False, retry_policy=growing)
    printed = printed_config(cluster, name)
    assert re.search(r"retryMaxTimes += +5\b", printed)
    assert re.search(r"consumeBroadcastEnable += +false", printed)
    assert "EXPONENTIAL" in printed
    (config,) = admin.group_config(name).values()
    assert config.group_retry_policy.exponential_retry_policy == growing.exponential_retry_policy
    assert admin.delete_group(name, clean_offsets=True) == [cluster.broker_name]
    for clean_offsets in (False, True):
        with pytest.raises(GroupNotFoundError):
            admin.delete_group(name, clean_offsets=clean_offsets)


def test_offsets_that_are_left_are_deleted_too(cluster: Cluster, admin: AdminClient, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    send(cluster, topic, 4)
    admin.create_group(f"{name}-group")
    admin.reset_offsets(f"{name}-group", topic, timestamp_ms=LATEST)
    assert admin.delete_group(f"{name}-group") == [cluster.broker_name]
    assert [row.consumer_offset for row in admin.group_progress(f"{name}-group", topic=topic)] == [2, 2]
    assert admin.delete_group(f"{name}-group", clean_offsets=True) == [cluster.broker_name]
    assert admin.group_progress(f"{name}-group") == []


def test_offsets_are_cloned_and_skipped(cluster: Cluster, admin: AdminClient, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    send(cluster, topic, 10)
    source, target = f"{name}-source", f"{name}-target"
    for group in (source, target):
        admin.create_group(group)
    assert list(admin.reset_offsets(source, topic, timestamp_ms=EARLIEST).values()) == [0, 0]
    admin.clone_group_offsets(source, target, topic=topic)
    assert [row.lag for row in admin.group_progress(target, topic=topic)] == [5, 5]
    assert list(admin.reset_offsets(source, topic, timestamp_ms=LATEST).values()) == [5, 5]
    assert [row.lag for row in admin.group_progress(source, topic=topic)] == [0, 0]
    assert [row.lag for row in admin.group_progress(target, topic=topic)] == [5, 5]


def test_official_members_say_how_they_are_and_consume_directly(
    cluster: Cluster, admin: AdminClient, name: str, start_push: Callable[..., str]
) -> None:
    topic, group = cluster.make_topic(name, queue_count=2), f"{name}-group"
    java = start_push(f"{name}-java", group=group, topics={topic: "*"})
    wait_until(lambda: len(cluster.agent.assigned(java, topic)) == 2, what="it has the queues")
    sent = send(cluster, topic, 3)
    assert len(cluster.agent.received(java, count=3)) == 3
    (member,) = admin.consumer_connections(group).connection_set
    info = admin.consumer_running_info(group, member.client_id, with_stacks=True)
    assert {queue.topic for queue in info.mq_table} >= {topic}
    assert topic in info.status_table
    assert info.jstack is not None
    assert "java.lang" in info.jstack
    (found,) = admin.query_by_id(topic, sent[0].message_id)
    assert admin.query_by_id(topic, sent[0].offset_message_id)[0].message_id == sent[0].message_id
    result = admin.consume_message_directly(group, member.client_id, found.offset_message_id, topic=topic)
    assert result.consume_result == "CR_SUCCESS"
    (again,) = cluster.agent.received(java, count=1)
    assert again.message_id == sent[0].message_id
    with pytest.raises(MQError):
        admin.consume_message_directly(group, "missing", found.offset_message_id, topic=topic)


def test_traffic_and_producers(cluster: Cluster, admin: AdminClient, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    send(cluster, topic, 10)
    admin.create_group(f"{name}-group")
    admin.reset_offsets(f"{name}-group", topic, timestamp_ms=EARLIEST)
    (row,) = admin.broker_traffic(cluster.broker_name, topics=[topic])
    assert (row.topic, row.group, row.lag, row.out_count_day) == (topic, f"{name}-group", 10, 0)
    assert topic in {row.topic for row in admin.broker_traffic(cluster.broker_address)}
    with Producer(group=f"{name}-producers", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
        wait_until(
            lambda: (
                producer.client_id in {one.client_id for one in admin.list_producers().get(f"{name}-producers", [])}
            ),
            what="the producer is announced",
        )


def test_reads_of_history_are_limited(admin: AdminClient, cluster: Cluster, name: str) -> None:
    admin.set_cold_read_limit(cluster.broker_name, name, 1_000_000)
    (mine,) = [one for one in admin.cold_reads(cluster.broker_name) if one.group == name]
    assert (mine.limit_bytes, mine.read_bytes) == (1_000_000, 0)
    assert name in cluster.admin("getColdDataFlowCtrInfo", "-b", cluster.broker_address)
    admin.set_cold_read_limit(cluster.broker_name, name, None)
    assert name not in {one.group for one in admin.cold_reads(cluster.broker_name)}


@pytest.mark.parametrize("what", ["expired-queues", "unused-topics", "expired-log"])
def test_a_broker_cleans_up_on_request(cluster: Cluster, admin: AdminClient, what: str) -> None:
    admin.clean_broker(cluster.broker_name, what)


def test_name_servers_are_changed(cluster: Cluster, admin: AdminClient, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=1)
    (before,) = admin.namesrv_config().values()
    admin.update_namesrv_config({"returnOrderTopicConfigToBroker": before["returnOrderTopicConfigToBroker"]})
    assert admin.wipe_write_permission(cluster.broker_name) > 0
    try:
        assert admin.topic_route(topic).publish_queues == ()
    finally:
        assert admin.add_write_permission(cluster.broker_name) > 0
    assert len(admin.topic_route(topic).publish_queues) == 1


def test_a_static_topic_is_made_and_grown(cluster: Cluster, admin: AdminClient, name: str) -> None:
    """By either kind of broker, for either kind of client."""
    for count in (2, 3):
        plan = admin.plan_static_topic(name, queue_nums=count)
        assert admin.apply_static_plan(plan) == {}
    wait_until(
        lambda: {queue.queue_id for queue in admin.topic_route(name).publish_queues} == {0, 1, 2},
        what="the NameServer lists three logic queues",
    )
    results = send(cluster, name, 9)
    assert {result.queue.broker_name for result in results} == {"__syslo__global__"}
    for queue_id in range(3):
        offsets = [result.queue_offset for result in results if result.queue.queue_id == queue_id]
        assert sorted(offsets) == list(range(len(offsets)))
        assert offsets
    assert len(cluster.agent.read_topic(cluster.namesrv, name)) == 9
    mapping = admin.static_topic(name)[cluster.broker_name].mapping_detail
    assert mapping is not None
    assert {queue_id: items[-1].queue_id for queue_id, items in mapping.hosted_queues.items()} == {0: 0, 1: 1, 2: 2}
    admin.delete_topic(name)  # the official tool cannot export topics while there is a static one
