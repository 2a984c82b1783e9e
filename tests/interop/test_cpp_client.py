"""RocketMQ's C++ client (librocketmq), unmodified: the one below the Python, PHP and Node bindings of it.

Its heartbeats write enum constants as ordinals and numbers as text; what else such clients may write is held against
RocketMQ's decoder in test_official_decoder.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import Daemons
from tests.interop.cpp_agent import QUEUE_OFFSET, STATUS, cpp_agent
from tests.interop.foreign_agent import ForeignAgent
from thermocline.client import AdminClient
from tooling.pinned_wheels import ROCKETMQ_CPP

pytestmark = pytest.mark.xdist_group("interop-foreign")

SEND_OK = 0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The directory of the client."""
    return have(ROCKETMQ_CPP.find)


@pytest.fixture
def agent(wheel: Path, tmp_path: Path) -> Iterator[ForeignAgent]:
    # One for each test: a consumer that joins others in its process gets queues only after ten seconds.
    with cpp_agent(wheel, tmp_path / "cpp-agent") as running:
        yield running


class CppDriver:
    """The C++ clients of one test, on a topic and groups of its own."""

    def __init__(self, agent: ForeignAgent, admin: AdminClient, namesrv: str) -> None:
        self.topic = f"Cpp{next(_numbers)}"
        self.group = f"{self.topic}-group"
        self.agent = agent
        self.admin = admin
        self._namesrv = namesrv
        self._consumers: list[str] = []

    def produce(self, kind: str, *, count: int, start: int = 0, **more: int) -> list[list[Any]]:
        """Send messages `start` to `start + count`."""
        answers: list[list[Any]] = self.agent.call(
            "produce", namesrv=self._namesrv, topic=self.topic, kind=kind, start=start, count=count, **more
        )
        return answers

    def push(self, *, expression: str = "*", ordered: bool = False, failures: int = 0, name: str = "push") -> str:
        """Start a push consumer; its name."""
        consumer = f"{self.topic}-{name}"
        self.agent.call(
            "push",
            name=consumer,
            namesrv=self._namesrv,
            group=self.group,
            topic=self.topic,
            expression=expression,
            ordered=ordered,
            failures=failures,
        )
        self._consumers.append(consumer)
        return consumer

    def pull(self, *, expression: str = "*") -> list[dict[str, Any]]:
        """Every message of the topic, by the pull consumer."""
        messages: list[dict[str, Any]] = self.agent.call(
            "pull", namesrv=self._namesrv, group=f"{self.topic}-puller", topic=self.topic, expression=expression
        )
        return messages

    def close(self) -> None:
        """Stop the consumers."""
        while self._consumers:
            self.agent.call("stop", name=self._consumers.pop())


@pytest.fixture
def cpp(agent: ForeignAgent, foreign_admin: AdminClient, foreign_daemons: Daemons) -> Iterator[CppDriver]:
    driver = CppDriver(agent, foreign_admin, foreign_daemons.namesrv)
    yield driver
    driver.close()


def check_exact(messages: Sequence[dict[str, Any]], topic: str, expected: range, *, body_bytes: int = 0) -> None:
    """Each message once, with its own body, tag and key."""
    assert Counter(message["index"] for message in messages) == Counter(expected)
    for message in messages:
        index = message["index"]
        assert message["body"] == f"{topic}-{index}".ljust(body_bytes, ".")
        assert (message["tags"], message["keys"]) == ("even" if index % 2 == 0 else "odd", f"key-{index}")


def test_every_kind_of_send_is_pushed_and_pulled(cpp: CppDriver) -> None:
    sync = cpp.produce("sync", count=5)
    asynchronous = cpp.produce("async", count=5, start=5)
    batch = cpp.produce("batch", count=5, start=10)
    ordered = cpp.produce("ordered", count=8, start=15)
    delayed = cpp.produce("sync", count=2, start=23, delay_level=1)
    assert cpp.produce("oneway", count=5, start=25) == []
    assert cpp.produce("oneway-ordered", count=5, start=30) == []
    large = cpp.produce("sync", count=1, start=35, body_bytes=100_000)
    answers = [*sync, *asynchronous, *batch, *ordered, *delayed, *large]
    assert {answer[STATUS] for answer in answers} == {SEND_OK}
    received = cpp.agent.taken(cpp.push(), count=36)
    check_exact([message for message in received if message["index"] < 35], cpp.topic, range(35))
    check_exact(
        [message for message in received if message["index"] == 35], cpp.topic, range(35, 36), body_bytes=100_000
    )
    offsets = {message["index"]: message["queue_offset"] for message in received}
    assert [offsets[15 + number] for number in range(8)] == [answer[QUEUE_OFFSET] for answer in ordered]
    pulled = cpp.pull()
    assert {message["message_id"] for message in pulled} == {message["message_id"] for message in received}
    assert {message["index"] for message in cpp.pull(expression="even")} <= set(range(0, 36, 2))


def test_a_message_that_fails_comes_again(cpp: CppDriver) -> None:
    # The client looks for a new retry topic only every ten seconds: it is there before the consumer.
    cpp.admin.create_topic(f"%RETRY%{cpp.group}", queue_nums=1)
    cpp.produce("sync", count=1)
    received = cpp.agent.taken(cpp.push(failures=2), count=3)
    # Of one message: the C interface gives back all that it has of a queue when the first of them fails.
    assert [(message["index"], message["reconsume_times"]) for message in received] == [(0, 0), (0, 1), (0, 2)]


def test_ordered_consumption_keeps_the_order_of_a_queue(cpp: CppDriver) -> None:
    cpp.produce("sync", count=1)  # the topic
    cpp.produce("ordered", count=40, start=1)
    received = cpp.agent.taken(cpp.push(ordered=True), count=41)
    check_exact(received, cpp.topic, range(41))
    queues: dict[int, list[int]] = {}
    for message in received:
        queues.setdefault(message["queue_id"], []).append(message["queue_offset"])
    assert all(offsets == sorted(offsets) for offsets in queues.values())
    assert len(queues) == 4


def test_tags_choose_and_tools_see_the_consumer(cpp: CppDriver) -> None:
    cpp.produce("sync", count=10)
    received = cpp.agent.taken(cpp.push(expression="odd"), count=5)
    check_exact(received, cpp.topic, range(1, 10, 2))
    connection = cpp.admin.consumer_connections(cpp.group)
    assert [client.language for client in connection.connection_set] == ["CPP"]
    assert (connection.consume_type, connection.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert connection.subscription_table[cpp.topic].sub_string == "odd"
    assert connection.subscription_table[cpp.topic].tags_set == {"odd"}
