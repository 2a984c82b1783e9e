"""Official Go clients of one test: producers and consumers on topics of its own, which end with the test.

A message is known by its number, its property `index`; body, tag and key follow from it, so that what arrives can be
held against what was sent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.interop.go_agent import GoAgent
from tests.interop.java_agent import ReceivedMessage, SendAnswer, message_body
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.remoting.errors import TopicNotFoundError, UnavailableError

TAGS = ["red", "green", "blue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoCluster:
    """A NameServer with its brokers, and an agent to drive Go clients against them."""

    namesrv: str
    agent: GoAgent
    admin: AdminClient


class GoDriver:
    """The clients of one test."""

    def __init__(self, cluster: GoCluster, name: str) -> None:
        """`name`: of topics, groups and clients; no other test uses it."""
        self.agent = cluster.agent
        self.admin = cluster.admin
        self.namesrv = cluster.namesrv
        self.topic = name
        self.group = f"{name}-group"
        self._producers: set[str] = set()
        self._transactors: set[str] = set()
        self._consumers: set[str] = set()

    def close(self) -> None:
        """All clients end."""
        for consumer in list(self._consumers):
            self.stop(consumer)
        for producer in self._producers:
            self.agent.call("stop_producer", name=producer)
        for producer in list(self._transactors):
            self.stop_transactor(producer)

    # -- producers -----------------------------------------------------------------------------------------------------

    def make_topic(self, *, queue_nums: int = 4) -> str:
        """The test's topic."""
        self.admin.create_topic(self.topic, queue_nums=queue_nums)
        return self.topic

    def broker_count(self) -> int:
        """How many brokers have the test's topic, by the NameServer's route."""
        try:
            return len(self.admin.topic_route(self.topic).brokers)
        except (TopicNotFoundError, UnavailableError):
            return 0

    def produce(self, *, count: int, start: int = 0, kind: str = "sync", **more: Any) -> list[SendAnswer]:
        """Send messages `start` to `start + count`; see `producers.go`."""
        producer = more.pop("name", f"{self.topic}-{kind}")
        self._producers.add(producer)
        return self.agent.produce(
            kind=kind,
            name=producer,
            group=f"{self.topic}-producers",
            count=count,
            start=start,
            **{"tags": TAGS, **self._target(), **more},
        )

    def request(self, *, count: int, timeout_ms: int) -> list[str]:
        """Send requests, one after another; the bodies of their replies."""
        producer = f"{self.topic}-asker"
        self._producers.add(producer)
        replies: list[str] = self.agent.call(
            "request",
            name=producer,
            group=f"{self.topic}-askers",
            count=count,
            timeout_ms=timeout_ms,
            **self._target(),
        )
        return replies

    def transact(self, producer: str = "one", **arguments: Any) -> list[dict[str, Any]]:
        """Send messages in transactions; see `transactions.go`."""
        self._transactors.add(producer)
        answers: list[dict[str, Any]] = self.agent.call(
            "transact",
            name=f"{self.topic}-{producer}",
            group=f"{self.topic}-producers",
            **self._target(),
            **arguments,
        )
        return answers

    def checks(self, producer: str = "one") -> dict[int, int]:
        """How often each message was asked about at this producer."""
        counts: dict[str, int] = self.agent.call("checks", name=f"{self.topic}-{producer}")
        return {int(index): count for index, count in counts.items()}

    def stop_transactor(self, producer: str) -> None:
        """This producer of transactions leaves."""
        self.agent.call("stop_transaction_producer", name=f"{self.topic}-{producer}")
        self._transactors.discard(producer)

    def _target(self) -> dict[str, Any]:
        return {"namesrv": self.namesrv, "topic": self.topic, "prefix": self.topic}

    # -- consumers -----------------------------------------------------------------------------------------------------

    def push(self, name: str = "push", *, operation: str = "start_push_consumer", **arguments: Any) -> str:
        """Start a push consumer, of the test's topic and group unless others are named; its name."""
        consumer = f"{self.topic}-{name}"
        defaults: dict[str, Any] = {"group": self.group, "topics": {self.topic: "*"}, "namesrv": self.namesrv}
        self.agent.call(operation, name=consumer, **{**defaults, **arguments})
        self._consumers.add(consumer)
        return consumer

    def push_with_retry_topic(self, **arguments: Any) -> str:
        """A push consumer that starts after its retry topic exists; one that starts earlier finds it only later."""
        self.stop(self.push("first"))
        wait_until(
            lambda: f"%RETRY%{self.group}" in self.admin.list_topics(include_system=True), what="the retry topic"
        )
        return self.push(**arguments)

    def received(self, consumer: str, *, count: int, timeout_s: float = 60.0) -> list[ReceivedMessage]:
        """Wait until a consumer holds so many messages that were not taken yet, and take all it holds."""
        return self.agent.received(consumer, count=count, timeout_s=timeout_s)

    def received_to_the_end(self, consumer: str, before: list[ReceivedMessage], *, count: int) -> list[ReceivedMessage]:
        """`before` and what the consumer receives until it is `count` different messages, some perhaps twice."""
        received = list(before)
        deadline = time.monotonic() + 60
        while len(set(indexes(received))) < count and time.monotonic() < deadline:
            received += self.agent.received(consumer, count=1, timeout_s=5)
        return received

    def wait_until_committed(self) -> None:
        """Wait until the broker has the final offsets of the group: a stopping consumer does not wait for that."""
        wait_until(lambda: {row.lag for row in self.admin.group_progress(self.group)} == {0}, what="the group's commit")

    def stop(self, consumer: str) -> list[ReceivedMessage]:
        """Stop a consumer and take what it holds."""
        self._consumers.discard(consumer)
        return self.agent.stop_consumer(consumer)

    def queues_of(self, consumer: str, *, group: str | None = None) -> set[int]:
        """The queues of the test's topic that a consumer works on, as it tells the broker once it can."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._queues_reported(consumer, group or self.group)
            except UnavailableError:
                # Between a topic's first two samples, ten seconds apart, this client cannot write its rates.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _queues_reported(self, consumer: str, group: str) -> set[int]:
        for member in self.admin.consumer_connections(group).connection_set:
            if member.client_id.endswith(f"@{consumer}"):
                info = self.admin.consumer_running_info(group, member.client_id)
                return {queue.queue_id for queue in info.mq_table if queue.topic == self.topic}
        return set()


def indexes(messages: Sequence[ReceivedMessage]) -> list[int]:
    """The messages' numbers, in order of receipt."""
    return [int(message.properties["index"]) for message in messages]


def check_exact(messages: Sequence[ReceivedMessage], topic: str, expected: range, *, body_bytes: int = 0) -> None:
    """Each message number once, with its own body, tag and key."""
    assert Counter(indexes(messages)) == Counter(expected)
    for message in messages:
        index = int(message.properties["index"])
        assert message.topic == topic
        assert message.body == message_body(topic, index, body_bytes)
        assert (message.tags, message.keys) == (TAGS[index % len(TAGS)], f"{topic}-key-{index}")


def check_order(messages: Sequence[ReceivedMessage], *, shards: int, count: int) -> None:
    """Nothing is missing; in each shard a message comes first time behind all that were sent before it."""
    assert set(indexes(messages)) == set(range(count))
    for shard in range(shards):
        firsts = list(dict.fromkeys(index for index in indexes(messages) if index % shards == shard))
        assert firsts == sorted(firsts)
