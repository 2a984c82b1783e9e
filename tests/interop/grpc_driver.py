"""Drives RocketMQ's official Python client for gRPC: the clients of one test, on a topic and a group of their own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from tests.interop.foreign_agent import ForeignAgent
from thermocline.client import AdminClient
from thermocline.remoting.bodies import CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig

_numbers = itertools.count(1)


class GrpcDriver:
    """The clients of one test."""

    def __init__(self, agent: ForeignAgent, admin: AdminClient, endpoint: str) -> None:
        """`endpoint`: of the proxy."""
        self.topic = f"Grpc{next(_numbers)}"
        self.group = f"{self.topic}-group"
        self.admin = admin
        self.endpoint = endpoint
        self._agent = agent
        self._started: list[str] = []

    def make_topic(self, message_type: str, *, queues: int = 4) -> None:
        """Make the topic, for messages of a type."""
        self.admin.create_topic(self.topic, queue_nums=queues, attributes={"message.type": message_type})

    def make_group(
        self, *, is_ordered: bool = False, retry_max_times: int = 16, delays_ms: Sequence[int] = (1000, 1000, 1000)
    ) -> None:
        """Make the group; without it a group has the broker's defaults."""
        policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=list(delays_ms)))
        self.admin.create_group(
            SubscriptionGroupConfig(
                group_name=self.group,
                consume_message_orderly=is_ordered,
                retry_max_times=retry_max_times,
                group_retry_policy=policy,
            )
        )

    def call(self, operation: str, **arguments: Any) -> Any:
        """Have the agent do something (`grpc_python/agent.py`)."""
        return self._agent.call(operation, **arguments)

    def start(self, kind: str, **arguments: Any) -> str:
        """Start a client of a kind that is stopped after the test; its name."""
        name = f"{self.topic}-{kind}-{next(_numbers)}"
        place = {"topics": [self.topic]} if kind == "producer" else {"topic": self.topic, "group": self.group}
        self.call(f"start_{kind}", **{"name": name, "endpoint": self.endpoint, **place, **arguments})
        self._started.append(name)
        return name

    def send(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        """Send with a producer of its own; the receipts."""
        receipts: list[dict[str, Any]] = self.call(
            "send", name=self.start("producer"), topic=self.topic, messages=list(messages)
        )
        return receipts

    def receive(self, name: str, *, count: int, timeout_s: float = 60.0, acks: bool = True) -> list[dict[str, Any]]:
        """Receive, once at least, until there are so many messages."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_s
        is_first = True
        while is_first or len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} messages: {found}"
            is_first = False
            for message in self.call("receive", name=name):
                found.append(message)
                if acks:
                    self.call("ack", name=name, message_id=message["message_id"])
        return found

    def pushed(self, name: str, *, count: int, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """What a push consumer was handed, once there are so many."""
        return self._agent.taken(name, count=count, timeout_s=timeout_s)

    def stop_all(self) -> None:
        """Stop what was started."""
        for name in self._started:
            self.call("stop", name=name)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    """Their bodies, in order."""
    return [message["body"] for message in messages]
