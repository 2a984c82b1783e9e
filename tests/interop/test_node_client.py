"""A client of the remoting protocol for Node, unmodified: ali-ons, which is a whole implementation of its own."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import Daemons
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.node_agent import node_agent
from thermocline.client import AdminClient
from tooling.node_packages import ROCKETMQ_NODE

pytestmark = pytest.mark.xdist_group("interop-foreign")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def agent(new_module_folder: Callable[[str], Path]) -> Iterator[ForeignAgent]:
    with node_agent(have(ROCKETMQ_NODE.find), new_module_folder("node-agent")) as running:
        yield running


class NodeDriver:
    """The Node clients of one test, on a topic and a group of its own."""

    def __init__(self, agent: ForeignAgent, admin: AdminClient, namesrv: str) -> None:
        self.topic = f"Node{next(_numbers)}"
        self.group = f"{self.topic}-group"
        self._agent = agent
        self._namesrv = namesrv
        # The client makes no topics, and looks for those that are new only now and then.
        admin.create_topic(self.topic, queue_nums=4)
        admin.create_topic(f"%RETRY%{self.group}", queue_nums=1)

    def produce(self, *, count: int, start: int = 0, **more: Any) -> list[list[Any]]:
        """Send messages `start` to `start + count`: status, queue and queue offset of each."""
        answers: list[list[Any]] = self._agent.call(
            "produce", namesrv=self._namesrv, topic=self.topic, start=start, count=count, **more
        )
        return answers

    def consume(self, *, count: int, expression: str = "*", failures: int = 0) -> list[dict[str, Any]]:
        """What a push consumer gets, which fails each message so many times."""
        self._agent.call(
            "push",
            name=self.topic,
            namesrv=self._namesrv,
            group=self.group,
            topic=self.topic,
            expression=expression,
            failures=failures,
        )
        return self._agent.taken(self.topic, count=count)


@pytest.fixture
def node(agent: ForeignAgent, foreign_admin: AdminClient, foreign_daemons: Daemons) -> NodeDriver:
    return NodeDriver(agent, foreign_admin, foreign_daemons.namesrv)


def test_sent_messages_are_pushed(node: NodeDriver) -> None:
    answers = node.produce(count=6)
    sharded = node.produce(count=3, start=6, sharding_key="one")
    node.produce(count=1, start=9, delay_level=1)
    assert {status for status, _, _ in [*answers, *sharded]} == {"SEND_OK"}
    assert len({queue for _, queue, _ in sharded}) == 1
    received = node.consume(count=10)
    assert Counter(message["index"] for message in received) == Counter(range(10))
    for message in received:
        index = message["index"]
        assert message["body"] == f"{node.topic}-{index}"
        assert (message["tags"], message["keys"]) == ("even" if index % 2 == 0 else "odd", f"key-{index}")


def test_large_bodies_tags_and_retries(node: NodeDriver) -> None:
    node.produce(count=2, body_bytes=100_000)
    received = node.consume(count=3, expression="odd", failures=2)
    assert [(message["index"], message["reconsume_times"]) for message in received] == [(1, 0), (1, 1), (1, 2)]
    assert {message["body"] for message in received} == {f"{node.topic}-1".ljust(100_000, ".")}
