"""Route math: permissions, missing masters, order configuration, topics that do not exist yet."""

from __future__ import annotations

import pytest

from thermocline.client.message_queue import MessageQueue
from thermocline.client.topic_route import borrowed_route, read_route
from thermocline.remoting.bodies import TopicQueueMappingInfo, TopicRouteData
from thermocline.remoting.bodies.logic_queue import NO_BROKER
from thermocline.remoting.errors import InvalidRequestError, UnavailableError

# The answer of an official NameServer (5.5.0), completed by a broker that may only be read and one without a master.
ANSWER = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false},'
    b'{"brokerAddrs":{"0":"127.0.0.2:10911"},"brokerName":"broker-b","cluster":"DefaultCluster"},'
    b'{"brokerAddrs":{"1":"127.0.0.3:10911"},"brokerName":"broker-c","cluster":"DefaultCluster"}],'
    b'"filterServerTable":{},"queueDatas":['
    b'{"brokerName":"broker-c","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},'
    b'{"brokerName":"broker-b","perm":4,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2},'
    b'{"brokerName":"broker-a","perm":6,"readQueueNums":3,"topicSysFlag":0,"writeQueueNums":2}]}'
)


def queue(broker_name: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name=broker_name, queue_id=queue_id)


def test_writable_queues_need_permission_and_a_master() -> None:
    route = read_route("orders", TopicRouteData.decode(ANSWER))
    assert route.publish_queues == (queue("broker-a", 0), queue("broker-a", 1))


def test_readable_queues_need_permission_only_and_come_sorted() -> None:
    route = read_route("orders", TopicRouteData.decode(ANSWER))
    expected = [("broker-a", 0), ("broker-a", 1), ("broker-a", 2), ("broker-b", 0), ("broker-b", 1), ("broker-c", 0)]
    assert route.subscribe_queues == tuple(queue(name, queue_id) for name, queue_id in expected)
    assert list(route.subscribe_queues) == sorted(route.subscribe_queues)


def test_reads_follow_the_suggested_broker_and_fall_back() -> None:
    route = read_route("orders", TopicRouteData.decode(ANSWER))
    assert route.reader("broker-a") == "127.0.0.1:10911"
    assert route.reader("broker-a", 1) == "127.0.0.1:10921"
    assert route.reader("broker-a", 7) == "127.0.0.1:10911"
    assert route.reader("broker-c", 0) == route.reader("broker-c", 7) == "127.0.0.3:10911"
    assert route.reader("broker-c") == "127.0.0.3:10911"
    with pytest.raises(UnavailableError):
        route.reader("broker-x")


def test_writes_need_the_master() -> None:
    route = read_route("orders", TopicRouteData.decode(ANSWER))
    assert route.master("broker-b") == "127.0.0.2:10911"
    with pytest.raises(UnavailableError):
        route.master("broker-c")


def test_order_configuration_fixes_the_queues() -> None:
    data = TopicRouteData.decode(ANSWER)
    data.order_topic_conf = "broker-a:1;broker-z:2"
    route = read_route("orders", data)
    assert route.publish_queues == (queue("broker-a", 0), queue("broker-z", 0), queue("broker-z", 1))
    data.order_topic_conf = "broker-a"
    with pytest.raises(InvalidRequestError):
        read_route("orders", data)


def test_a_new_topic_borrows_at_most_the_requested_queues() -> None:
    template = TopicRouteData.decode(ANSWER)
    template.queue_datas[2].perm = 7
    route = borrowed_route("orders", template, queue_nums_max=1)
    assert route.is_borrowed
    assert route.publish_queues == (queue("broker-a", 0),)
    assert route.subscribe_queues == ()


def static_queue(queue_id: int) -> MessageQueue:
    return queue("__syslo__global__", queue_id)


def test_a_static_topic_has_its_logic_queues_to_send_and_to_read() -> None:
    data = TopicRouteData.decode(ANSWER)
    data.topic_queue_mapping_by_broker = {
        name: TopicQueueMappingInfo(broker_name=name, epoch=epoch, total_queues=3, curr_id_map=ids)
        for name, epoch, ids in (("broker-a", 7, {1: 4}), ("broker-b", 6, {0: 0, 1: 1}))
    }
    route = read_route("orders", data)
    assert route.publish_queues == route.subscribe_queues == tuple(map(static_queue, range(3)))
    assert [route.broker_of(static_queue(number)) for number in range(3)] == ["broker-b", "broker-a", NO_BROKER]
    assert route.broker_of(queue("broker-c", 0)) == "broker-c"
    with pytest.raises(UnavailableError):
        route.reader(route.broker_of(static_queue(2)))
