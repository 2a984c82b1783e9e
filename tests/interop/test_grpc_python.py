"""RocketMQ's official Python gRPC client, unmodified, through a proxy to a broker.

Covers `proxy/main.py`, `proxy/proxy_server.py`, `proxy/cluster/`, `proxy/flow/` and `proxy/grpc/` as a whole.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver, bodies
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.proxy_daemons import DEPLOYMENTS, ProxyDaemons, proxy_daemons
from tests.waiting import wait_until
from thermocline.client import AdminClient, ReceivedMessage
from thermocline.remoting.errors import ObjectNotFoundError
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc")

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def daemons(request: pytest.FixtureRequest, new_module_folder: Callable[[str], Path]) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy."""
    with proxy_daemons(new_module_folder("proxy-cluster"), request.param) as running:
        yield running


@pytest.fixture(scope="module")
def admin(daemons: ProxyDaemons) -> Iterator[AdminClient]:
    with AdminClient(namesrv=daemons.namesrv) as running:
        yield running


@pytest.fixture(scope="module")
def agent(new_module_folder: Callable[[str], Path]) -> Iterator[ForeignAgent]:
    wheels = have(ROCKETMQ_GRPC_PYTHON.find)
    with grpc_python_agent(wheels, new_module_folder("grpc-python")) as running:
        yield running


@pytest.fixture
def driver(agent: ForeignAgent, admin: AdminClient, daemons: ProxyDaemons) -> Iterator[GrpcDriver]:
    running = GrpcDriver(agent, admin, daemons.endpoint)
    yield running
    running.stop_all()


def wait_for(find: Callable[[], list[ReceivedMessage]]) -> list[ReceivedMessage]:
    """What is found once there is something."""
    found: list[ReceivedMessage] = []
    wait_until(lambda: found.extend(find()) or found, what="the message is there")
    return found


# -- normal messages, simple consumer ----------------------------------------------------------------------------------


def test_normal_messages_reach_a_simple_consumer_once_with_all_their_parts(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    sent = [
        {"body": f"тело 消息 {i}", "tag": "标签", "keys": [f"k{i}", "ключ"], "properties": {"имя": "значение"}}
        for i in range(20)
    ]
    receipts = driver.send(*sent)
    assert all(len(receipt["message_id"]) == 34 for receipt in receipts)
    consumer = driver.start("simple")
    received = driver.receive(consumer, count=20)
    assert sorted(bodies(received)) == sorted(message["body"] for message in sent)
    assert {message["message_id"] for message in received} == {receipt["message_id"] for receipt in receipts}
    for message in received:
        assert message["tag"] == "标签"
        assert "ключ" in message["keys"]
        assert message["properties"] == {"имя": "значение"}
        assert message["attempt"] == 1
    assert driver.call("receive", name=consumer) == []


def test_two_members_of_a_group_share_the_messages(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.send(*({"body": str(i)} for i in range(40)))
    members = [driver.start("simple"), driver.start("simple")]
    received: list[str] = []

    def receive_more() -> bool:
        for name in members:
            received.extend(bodies(driver.receive(name, count=0)))
        return len(received) >= 40

    wait_until(receive_more, what="all messages are received")
    assert sorted(received, key=int) == [str(i) for i in range(40)]


def test_a_tag_is_compared_as_text_where_hashes_are_equal(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    # "AaAa" and "BBBB" have one Java hash, so the broker takes both; the proxy acknowledges the other silently.
    driver.send({"body": "wanted", "tag": "AaAa"}, {"body": "other", "tag": "BBBB"}, {"body": "last", "tag": "AaAa"})
    consumer = driver.start("simple", tag="AaAa")
    assert sorted(bodies(driver.receive(consumer, count=2))) == ["last", "wanted"]
    assert driver.call("receive", name=consumer) == []


def test_sql_filters_choose_messages(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.send(*({"body": str(price), "properties": {"price": str(price)}} for price in (5, 15, 25)))
    consumer = driver.start("simple", sql="price BETWEEN 10 AND 20")
    assert bodies(driver.receive(consumer, count=1)) == ["15"]
    assert driver.call("receive", name=consumer) == []


def test_a_message_that_is_not_acknowledged_comes_again(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.send({"body": "again"})
    consumer = driver.start("simple")
    (first,) = driver.receive(consumer, count=1, acks=False)
    driver.call("change", name=consumer, message_id=first["message_id"], invisible_s=1)
    (second,) = driver.receive(consumer, count=1)
    assert (second["body"], second["attempt"]) == ("again", 2)
    assert second["message_id"] == first["message_id"]


# -- push consumer -----------------------------------------------------------------------------------------------------


def test_a_push_consumer_gets_each_message_once(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    consumer = driver.start("push")
    driver.send(*({"body": str(i)} for i in range(50)))
    received = driver.pushed(consumer, count=50)
    assert sorted(bodies(received), key=int) == [str(i) for i in range(50)]


def test_a_push_consumer_that_fails_gets_the_message_again_after_the_groups_delay(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.make_group()
    consumer = driver.start("push", fails_below=2)
    driver.send({"body": "thrice"})
    received = driver.pushed(consumer, count=3)
    assert [(message["body"], message["attempt"]) for message in received] == [("thrice", i) for i in (1, 2, 3)]


def test_a_message_that_always_fails_goes_to_the_dead_letters(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.make_group(retry_max_times=1)
    consumer = driver.start("push", fails_below=99)
    (receipt,) = driver.send({"body": "bad"})
    assert [message["attempt"] for message in driver.pushed(consumer, count=2)] == [1, 2]
    dead_letters = f"%DLQ%{driver.group}"
    found = wait_for(lambda: _stored(driver.admin, dead_letters, receipt["message_id"]))
    assert [message.properties["DLQ_ORIGIN_TOPIC"] for message in found] == [driver.topic]


def _stored(admin: AdminClient, topic: str, message_id: str) -> list[ReceivedMessage]:
    try:
        return admin.query_by_unique_key(topic, message_id)
    except ObjectNotFoundError:  # the topic does not exist yet
        return []


# -- order -------------------------------------------------------------------------------------------------------------


def test_messages_of_a_message_group_reach_a_push_consumer_in_order(driver: GrpcDriver) -> None:
    driver.make_topic("FIFO")
    driver.make_group(is_ordered=True)
    driver.send(*({"body": f"{group}-{i}", "group": group} for i in range(10) for group in ("a", "b", "c")))
    consumer = driver.start("push")
    by_group: dict[str, list[int]] = defaultdict(list)
    for message in driver.pushed(consumer, count=30):
        group, _, number = message["body"].partition("-")
        assert message["group"] == group
        by_group[group].append(int(number))
    assert by_group == {group: list(range(10)) for group in ("a", "b", "c")}


def test_an_ordered_group_gets_nothing_behind_what_it_has_not_acknowledged(driver: GrpcDriver) -> None:
    driver.make_topic("FIFO", queues=1)
    driver.make_group(is_ordered=True)
    driver.send(*({"body": str(i), "group": "one"} for i in range(3)))
    consumer = driver.start("simple")
    first = driver.call("receive", name=consumer, count=1, invisible_s=30)
    assert bodies(first) == ["0"]
    assert driver.call("receive", name=consumer) == []
    driver.call("ack", name=consumer, message_id=first[0]["message_id"])
    assert bodies(driver.receive(consumer, count=2)) == ["1", "2"]


# -- delay -------------------------------------------------------------------------------------------------------------


def test_a_delayed_message_does_not_come_early(driver: GrpcDriver) -> None:
    driver.make_topic("DELAY")
    consumer = driver.start("push")
    begun = time.time()
    (receipt,) = driver.send({"body": "later", "delay_s": 4})
    assert receipt["recall_handle"]
    (received,) = driver.pushed(consumer, count=1)
    assert received["body"] == "later"
    assert received["time"] >= int(begun) + 4


def test_a_delayed_message_is_recalled(driver: GrpcDriver) -> None:
    driver.make_topic("DELAY")
    consumer = driver.start("push")
    producer = driver.start("producer")
    sent = [{"body": "recalled", "delay_s": 6}, {"body": "kept", "delay_s": 6}]
    recalled, _kept = driver.call("send", name=producer, topic=driver.topic, messages=sent)
    handle = recalled["recall_handle"]
    assert driver.call("recall", name=producer, topic=driver.topic, handle=handle) == recalled["message_id"]
    assert bodies(driver.pushed(consumer, count=1)) == ["kept"]


# -- transactions ------------------------------------------------------------------------------------------------------


def test_transactions_are_committed_and_rolled_back(driver: GrpcDriver) -> None:
    driver.make_topic("TRANSACTION")
    producer = driver.start("producer", checks=True)
    for name in ("first", "second"):
        half = {"topic": driver.topic, "transaction": f"{driver.topic}-{name}", "body": f"{name} of two"}
        driver.call("send_half", name=producer, **half)
    driver.call("end", transaction=f"{driver.topic}-first", commits=True)
    driver.call("end", transaction=f"{driver.topic}-second", commits=False)
    consumer = driver.start("simple")
    assert bodies(driver.receive(consumer, count=1)) == ["first of two"]
    assert driver.call("receive", name=consumer) == []


def test_the_broker_asks_about_transactions_that_were_left_open(driver: GrpcDriver) -> None:
    driver.make_topic("TRANSACTION")
    producer = driver.start("producer", checks=True)
    wanted = [f"commit {driver.topic}", f"rollback {driver.topic}"]
    for body in wanted:
        driver.call("send_half", name=producer, topic=driver.topic, transaction=body, body=body)
    consumer = driver.start("simple")
    assert bodies(driver.receive(consumer, count=1)) == [wanted[0]]
    wait_until(
        lambda: set(driver.call("checked", count=1, timeout_ms=1_000)) >= set(wanted), what="both are asked about"
    )
    assert driver.call("receive", name=consumer) == []
