"""The official client's transaction producers, for tests of what brokers make of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.interop.cluster import Cluster
from tests.interop.java_agent import JavaAgent, ReceivedMessage

ASK_SOON = {"transactionTimeOut": "3000", "transactionCheckInterval": "2000"}
"""Settings of a broker that checks open transactions soon, as in the recorded dialogue."""
OFFICIAL_NOTES = {"transactionOpBatchInterval": "500"}
"""The official broker notes what has ended before its next round: with its usual 3 s it asks, and commits, again."""


def indexes(messages: Sequence[ReceivedMessage]) -> list[int]:
    """The messages' numbers."""
    return sorted(int(message.properties["index"]) for message in messages)


class Producers:
    """Transaction producers of one test: their group and the topic are named after it. `close` stops them all."""

    def __init__(self, agent: JavaAgent, name: str) -> None:
        self._agent = agent
        self._name = name
        self._started: set[str] = set()

    def start(self, cluster: Cluster, producer: str, **arguments: Any) -> None:
        """Start a producer that sends nothing yet but can be asked."""
        self._call("start_transaction_producer", cluster, producer, **arguments)

    def transact(self, cluster: Cluster, producer: str = "one", **arguments: Any) -> list[dict[str, Any]]:
        """Send messages in transactions."""
        answers: list[dict[str, Any]] = self._call("transact", cluster, producer, **arguments)
        return answers

    def checks(self, producer: str = "one") -> dict[int, int]:
        """How often each message was asked about at this producer."""
        counts: dict[str, int] = self._agent.call("checks", name=f"{self._name}-{producer}")
        return {int(index): count for index, count in counts.items()}

    def stop(self, producer: str) -> None:
        """Stop this producer."""
        self._agent.call("stop_transaction_producer", name=f"{self._name}-{producer}")
        self._started.discard(producer)

    def close(self) -> None:
        """Stop all producers."""
        for producer in list(self._started):
            self.stop(producer)

    def _call(self, operation: str, cluster: Cluster, producer: str, **arguments: Any) -> Any:
        self._started.add(producer)
        return self._agent.call(
            operation,
            name=f"{self._name}-{producer}",
            group=f"{self._name}-group",
            namesrv=cluster.namesrv,
            topic=self._name,
            prefix=self._name,
            **arguments,
        )
