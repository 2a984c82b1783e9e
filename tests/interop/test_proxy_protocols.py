"""Both protocols of a proxy at once: what a remoting client sends reaches a gRPC consumer, and the reverse.

The clients are the official ones: Java 5.5 for remoting, Python for gRPC.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop import test_grpc_python
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver, bodies
from tests.interop.java_agent import JavaAgent, ReceivedMessage
from tests.interop.proxy_daemons import ProxyDaemons
from thermocline.client import AdminClient

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-grpc")]

_numbers = itertools.count(1)

daemons = test_grpc_python.daemons
admin = test_grpc_python.admin
agent = test_grpc_python.agent


class Both(GrpcDriver):
    """The gRPC clients of one test, and its remoting clients, before one proxy."""

    def __init__(self, agent: ForeignAgent, admin: AdminClient, daemons: ProxyDaemons, java: JavaAgent) -> None:
        super().__init__(agent, admin, daemons.endpoint)
        self.java = java
        self._namesrv = daemons.remoting
        self._consumers: list[str] = []

    def remoting_place(self, name: str) -> dict[str, object]:
        return {
            "name": f"{self.topic}-{name}",
            "group": f"{self.topic}-producers",
            "namesrv": self._namesrv,
            "topic": self.topic,
            "prefix": self.topic,
        }

    def remoting_send(self, count: int, *, kind: str = "sync", **more: object) -> list[str]:
        """Send; the bodies."""
        self.java.produce(kind=kind, count=count, **{**self.remoting_place("sender"), **more})
        return [f"{self.topic}-{index}" for index in range(count)]

    def remoting_consumer(self, **more: object) -> str:
        name = f"{self.topic}-remoting"
        topics = {self.topic: "*"}
        self.java.call("start_push_consumer", name=name, namesrv=self._namesrv, group=self.group, topics=topics, **more)
        self._consumers.append(name)
        return name

    def remoting_received(self, consumer: str, count: int) -> list[ReceivedMessage]:
        received = self.java.received(consumer, count=count)
        assert len(received) == count
        return received

    def stop_all(self) -> None:
        super().stop_all()
        for name in self._consumers:
            self.java.call("stop_consumer", name=name)
        self.java.call("stop_producers", namesrv=self._namesrv)


@pytest.fixture
def both(
    agent: ForeignAgent, admin: AdminClient, daemons: ProxyDaemons, java_agent_process: JavaAgent
) -> Iterator[Both]:
    running = Both(agent, admin, daemons, java_agent_process)
    yield running
    running.stop_all()


def texts(messages: list[ReceivedMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)


# -- remoting to gRPC --------------------------------------------------------------------------------------------------


def test_normal_messages_of_a_remoting_producer(both: Both) -> None:
    both.make_topic("NORMAL")
    sent = both.remoting_send(20, tags=["red"])
    received = both.receive(both.start("simple"), count=20)
    assert sorted(bodies(received)) == sorted(sent)
    assert {message["tag"] for message in received} == {"red"}


def test_ordered_messages_of_a_remoting_producer(both: Both) -> None:
    """A message group of gRPC is a sharding key of remoting."""
    both.make_topic("FIFO")
    both.make_group(is_ordered=True)
    sent = both.remoting_send(12, kind="ordered", shards=1, properties={"__SHARDINGKEY": "one"})
    received = both.pushed(both.start("push"), count=12)
    assert bodies(received) == sent
    assert {message["group"] for message in received} == {"one"}


def test_delayed_messages_of_a_remoting_producer(both: Both) -> None:
    both.make_topic("DELAY")
    consumer = both.start("push")
    begun = time.time()
    sent = both.remoting_send(1, delay_level=2)
    (received,) = both.pushed(consumer, count=1)
    assert [received["body"]] == sent
    assert received["time"] >= int(begun) + 5


def test_transactions_of_a_remoting_producer(both: Both) -> None:
    both.make_topic("TRANSACTION")
    both.java.call(
        "transact",
        **both.remoting_place("transactor"),
        count=4,
        local=["commit", "rollback", "unknown", "unknown"],
        check=["rollback", "rollback", "commit", "rollback"],
    )
    consumer = both.start("simple")
    assert sorted(bodies(both.receive(consumer, count=2))) == [f"{both.topic}-0", f"{both.topic}-2"]
    assert both.call("receive", name=consumer) == []
    both.java.call("stop_transaction_producer", name=f"{both.topic}-transactor")


# -- gRPC to remoting --------------------------------------------------------------------------------------------------


def test_normal_messages_of_a_grpc_producer(both: Both) -> None:
    both.make_topic("NORMAL")
    consumer = both.remoting_consumer()
    both.send(*({"body": f"{number}"} for number in range(20)))
    assert texts(both.remoting_received(consumer, 20)) == sorted(map(str, range(20)))


def test_ordered_messages_of_a_grpc_producer(both: Both) -> None:
    both.make_topic("FIFO")
    consumer = both.remoting_consumer(orderly=True)
    both.send(*({"body": f"{group}-{number}", "group": group} for number in range(10) for group in ("a", "b")))
    received = both.remoting_received(consumer, 20)
    for group in ("a", "b"):
        of_group = [message.body.decode() for message in received if message.body.decode().startswith(group)]
        assert of_group == [f"{group}-{number}" for number in range(10)]


def test_delayed_messages_of_a_grpc_producer(both: Both) -> None:
    both.make_topic("DELAY")
    consumer = both.remoting_consumer()
    both.send({"body": "later", "delay_s": 4})
    (received,) = both.remoting_received(consumer, 1)
    assert received.body == b"later"
    assert received.store_timestamp_ms - received.born_timestamp_ms >= 3_000


def test_transactions_of_a_grpc_producer(both: Both) -> None:
    both.make_topic("TRANSACTION")
    consumer = both.remoting_consumer()
    producer = both.start("producer", checks=True)
    for name, commits in (("first", True), ("second", False)):
        both.call("send_half", name=producer, topic=both.topic, transaction=f"{both.topic}-{name}", body=name)
        both.call("end", transaction=f"{both.topic}-{name}", commits=commits)
    checked = f"commit {both.topic}"
    both.call("send_half", name=producer, topic=both.topic, transaction=checked, body=checked)
    assert texts(both.remoting_received(consumer, 2)) == [checked, "first"]


def test_members_of_both_protocols_share_a_group(both: Both, daemons: ProxyDaemons) -> None:
    """Both pop: each message goes to one of them."""
    both.make_topic("NORMAL")
    both.make_group()
    remoting, grpc = both.remoting_consumer(), both.start("push")
    received: list[str] = []

    def add(take_some: Callable[[], list[str]]) -> None:
        received.extend(take_some())

    both.send(*({"body": f"{number}"} for number in range(60)))
    deadline = time.monotonic() + 60
    while len(set(received)) < 60 and time.monotonic() < deadline:
        add(lambda: [message.body.decode() for message in both.java.received(remoting, count=0)])
        add(lambda: bodies(both.pushed(grpc, count=0, timeout_s=0.1)))
    assert sorted(received, key=int) == [str(number) for number in range(60)]
