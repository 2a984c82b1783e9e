"""Queues of a topic, and the queue of a message group.

Covers `proxy/messaging/handles.py`.
"""

from __future__ import annotations

import pytest

from tests.proxy.fake_messaging import handle_at
from thermocline.proxy.messaging import HandleExpiredError, ProxyHandle, TransactionHandle, read_topic_queues
from thermocline.proxy.messaging.topics import jump_hash
from thermocline.remoting.bodies import BrokerData, QueueData, TopicRouteData
from thermocline.remoting.errors import InvalidParameterError, InvalidRequestError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.string_hash import java_string_hash

GUAVA = {"g1": [0, 6, 9, 41], "order-42": [3, 3, 10, 25], "消息组": [2, 7, 7, 95], "zzzzzzzz": [2, 7, 13, 64]}
"""Computed by Guava's Hashing.consistentHash for 4, 8, 16 and 100 queues."""


@pytest.mark.parametrize("group", GUAVA)
def test_a_message_group_has_the_queue_that_the_official_proxy_chooses(group: str) -> None:
    assert [jump_hash(java_string_hash(group), count) for count in (4, 8, 16, 100)] == GUAVA[group]


def test_write_queues_are_those_of_masters_that_may_be_written() -> None:
    route = TopicRouteData(
        broker_datas=[
            BrokerData(broker_name="b", broker_addrs={0: "b:1", 1: "b:2"}),
            BrokerData(broker_name="a", broker_addrs={0: "a:1"}),
            BrokerData(broker_name="slave", broker_addrs={1: "s:1"}),
        ],
        queue_datas=[
            QueueData(broker_name="b", perm=6, read_queue_nums=3, write_queue_nums=2),
            QueueData(broker_name="a", perm=4, read_queue_nums=1, write_queue_nums=9),
            QueueData(broker_name="slave", perm=6, read_queue_nums=1, write_queue_nums=1),
        ],
    )
    queues = read_topic_queues("T", route)
    assert [(queue.broker_name, queue.queue_id) for queue in queues.write_queues] == [("b", 0), ("b", 1)]
    assert [broker.broker_name for broker in queues.brokers] == ["a", "b", "slave"]
    assert [broker.broker_name for broker in queues.readable_brokers] == ["a", "b"]


def test_a_receipt_handle_is_written_as_the_official_proxy_writes_it() -> None:
    text = "7 1000 60000 0 0 broker-a 1 7 99"
    assert handle_at(1_000).text() == text
    assert ProxyHandle.parse(text) == handle_at(1_000)
    assert ProxyHandle.parse("7 1000 60000 0 0 broker-a 1 7").physical_offset == -1
    handle_at(1_000).check_fresh(60_999)
    with pytest.raises(HandleExpiredError):
        handle_at(1_000).check_fresh(61_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "1 2 3 4 5 6 7",
        "a 1 1 1 0 b 1 1 1",
        "1 1 1 1 0 b 1 1 x",
        "1 1 1 1 0 b 1 1 " + "9" * 40,
        "1 " * 600,
    ],
)
def test_what_is_no_receipt_handle(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        ProxyHandle.parse(text)


def test_a_transaction_id_says_where_its_half_message_is() -> None:
    handle = TransactionHandle(
        unique_key="01" * 17,
        broker_name="broker a",
        queue_offset=QueueOffset(5),
        physical_offset=PhysicalOffset(1 << 40),
    )
    assert TransactionHandle.parse(handle.text()) == handle


@pytest.mark.parametrize("text", ["", "x", "é", "djEBYQFiATE=", "djIBYQFiATEBMg==", "A" * 4_000])
def test_what_is_no_transaction_id(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="cannot found transaction data"):
        TransactionHandle.parse(text)
