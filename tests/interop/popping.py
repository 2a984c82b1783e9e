"""Single POP requests by the official request layer, for tests of what brokers make of them."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.cluster import Cluster
from tests.interop.java_agent import ReceivedMessage
from thermocline.remoting.records.properties import PropertyName

FOUND = "FOUND"
OK = "OK"
LATE_S = 30.0
"""The official broker reads its revive log in rounds and may be some seconds late."""


def produce(cluster: Cluster, topic: str, count: int, *, kind: str = "sync", **more: object) -> None:
    arguments: dict[str, object] = {
        "name": f"producer-{topic}-{cluster.namesrv}",
        "group": f"producers-of-{topic}",
        "namesrv": cluster.namesrv,
        "topic": topic,
        "prefix": topic,
        "tags": ["red", "green"],
        "start": 0,
        **more,
    }
    cluster.agent.produce(kind=kind, count=count, **arguments)


def indexes(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.properties["index"]) for message in messages)


class Popping:
    """One group's POP requests, by the official request layer."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._agent = cluster.agent
        self._topic = topic
        self._where = {
            "namesrv": cluster.namesrv,
            "broker_name": cluster.broker_name,
            "broker_address": cluster.broker_address,
            "group": group,
        }

    def pop(
        self, *, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0, **more: object
    ) -> list[ReceivedMessage]:
        """What one request takes; nothing is an empty list."""
        answer = self._agent.call(
            "pop",
            **self._where,
            topic=self._topic,
            count=count,
            invisible_ms=invisible_ms,
            poll_ms=poll_ms,
            **more,
        )
        messages = [ReceivedMessage.read(fields) for fields in answer["messages"]]
        assert (answer["status"] == FOUND) == bool(messages), answer
        return messages

    def pop_all(self, count: int, *, timeout_s: float = LATE_S, **arguments: Any) -> list[ReceivedMessage]:
        """Take until `count` messages have been taken."""
        taken: list[ReceivedMessage] = []
        deadline = time.monotonic() + timeout_s
        while len(taken) < count:
            assert time.monotonic() < deadline, f"only {indexes(taken)} within {timeout_s} s"
            taken += self.pop(count=min(32, count - len(taken)), poll_ms=1_000, **arguments)
        return taken

    def ack(self, message: ReceivedMessage) -> str:
        return str(self._agent.call("ack", **self._where, topic=message.topic, receipt=receipt_of(message)))

    def batch_ack(self, messages: list[ReceivedMessage]) -> str:
        receipts = [receipt_of(message) for message in messages]
        return str(self._agent.call("batch_ack", **self._where, topic=self._topic, receipts=receipts))

    def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> str:
        """Change it and return the new receipt."""
        answer = self._agent.call(
            "change_invisible",
            **self._where,
            topic=message.topic,
            receipt=receipt_of(message),
            invisible_ms=invisible_ms,
        )
        assert answer["status"] == OK
        return str(answer["receipt"])


def receipt_of(message: ReceivedMessage) -> str:
    return message.properties[PropertyName.POP_CHECKPOINT]
