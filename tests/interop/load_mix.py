"""The mix: who sends what, who wants which of it, and what follows from a message's number.

A message is called after its producer and its number in there: `java-sync-17`. Its number says its tag, its weight, its
sharding key, and how its transaction ends, so that a test needs only the name of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NORMAL, ORDERED, LATER, TRANSACTIONS = "MixNormal", "MixOrdered", "MixLater", "MixTransactions"
TOPICS = (NORMAL, ORDERED, LATER, TRANSACTIONS)
QUEUES = 4
TAGS = ("red", "green", "blue")
SHARDS = 8
BODY_BYTES = 300
REFUSE_EVERY = 40
SEND_TIMEOUT_MS = 3_000
"""The clients' own; after it they try again by themselves."""
TRIES_MAX = 3
HEARTBEAT_MS = 2_000
"""Of Java clients: with their usual 30 s each of them would be away for that long after the broker is back."""

# How a transaction ends by its number: the producer's decision after the send, and its answer to a check.
LOCAL = ("commit", "commit", "rollback", "unknown", "unknown", "commit")
CHECK = ("commit", "commit", "rollback", "commit", "rollback", "commit")

JAVA_COMMIT_MS = 500
"""How often the Java consumers here tell the broker how far they are."""
JAVA_FIRST_COMMIT_MS = 10_000
"""How long after its start a Java consumer does so for the first time."""
GO_COMMIT_MS = 5_000
POP_INVISIBLE_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """A producer that sends by itself."""

    language: str
    kind: str
    topic: str
    rate: float
    """Requests a second; see `batch_size`."""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.language}-{self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A consumer group: one member in a process that is killed, unless it broadcasts, and one in another."""

    language: str
    name: str
    topics: tuple[str, ...]
    expression: str | dict[str, str] = "*"
    is_orderly: bool = False
    is_broadcast: bool = False
    is_pop: bool = False
    refuse_every: int = 0
    wants: Callable[[int], bool] = lambda number: True
    """Whether it shall get the message with a number, if it is in its topics."""

    @property
    def commit_ms(self) -> int:
        """How old news of its progress may be when it is killed."""
        if self.is_pop:
            return POP_INVISIBLE_MS
        return JAVA_COMMIT_MS if self.language == "java" else GO_COMMIT_MS


def tag(number: int) -> str:
    return TAGS[number % len(TAGS)]


def weight(number: int) -> int:
    return number % 10


PRODUCERS = (
    ProducerPlan(language="java", kind="sync", topic=NORMAL, rate=40),
    ProducerPlan(language="java", kind="async", topic=NORMAL, rate=40),
    ProducerPlan(language="java", kind="batch", topic=NORMAL, rate=8, more={"batch_size": 5}),
    ProducerPlan(language="java", kind="ordered", topic=ORDERED, rate=30, more={"shards": SHARDS}),
    ProducerPlan(language="java", kind="delayed", topic=LATER, rate=4),
    ProducerPlan(language="java", kind="timed", topic=LATER, rate=4, more={"delays_ms": [1_500, 2_750, 4_000, 7_001]}),
    ProducerPlan(
        language="java", kind="transaction", topic=TRANSACTIONS, rate=10, more={"local": LOCAL, "check": CHECK}
    ),
    ProducerPlan(language="go", kind="sync", topic=NORMAL, rate=30),
    ProducerPlan(language="go", kind="async", topic=NORMAL, rate=20),
    ProducerPlan(language="go", kind="batch", topic=NORMAL, rate=4, more={"batch_size": 5}),
    ProducerPlan(language="go", kind="ordered", topic=ORDERED, rate=30, more={"shards": SHARDS}),
)
PRODUCERS_BY_NAME = {plan.name: plan for plan in PRODUCERS}

ALL_BUT_ORDERED = (NORMAL, LATER, TRANSACTIONS)
GROUPS = (
    GroupPlan(language="java", name="java-push", topics=ALL_BUT_ORDERED, refuse_every=REFUSE_EVERY),
    GroupPlan(language="java", name="java-orderly", topics=(ORDERED,), is_orderly=True),
    GroupPlan(language="java", name="java-pop", topics=(NORMAL,), is_pop=True),
    GroupPlan(
        language="java",
        name="java-tags",
        topics=(NORMAL,),
        expression="red || blue",
        wants=lambda number: tag(number) in ("red", "blue"),
    ),
    GroupPlan(
        language="java",
        name="java-sql",
        topics=(NORMAL,),
        expression={"sql": "weight BETWEEN 3 AND 6 AND TAGS <> 'green'"},
        wants=lambda number: 3 <= weight(number) <= 6 and tag(number) != "green",
    ),
    GroupPlan(language="java", name="java-broadcast", topics=ALL_BUT_ORDERED, is_broadcast=True),
    GroupPlan(language="go", name="go-push", topics=ALL_BUT_ORDERED),
    GroupPlan(language="go", name="go-orderly", topics=(ORDERED,), is_orderly=True),
)


@dataclass(frozen=True, slots=True)
class MessageName:
    """Which message."""

    producer: ProducerPlan
    number: int

    @classmethod
    def read(cls, text: str) -> MessageName:
        """From its name; KeyError when there is no such producer."""
        producer, _, number = text.rpartition("-")
        return cls(PRODUCERS_BY_NAME[producer], int(number))

    @property
    def is_rolled_back(self) -> bool:
        """Whether no consumer may ever receive it."""
        return self.producer.kind == "transaction" and CHECK[self.number % len(CHECK)] == "rollback"

    @property
    def shard(self) -> str | None:
        """Its sharding key; None when it has none."""
        return f"{self.producer.name}/{self.number % SHARDS}" if self.producer.kind == "ordered" else None

    def is_for(self, group: GroupPlan) -> bool:
        """Whether the group shall get it, if it is sent and not rolled back."""
        return self.producer.topic in group.topics and group.wants(self.number)
