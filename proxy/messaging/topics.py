"""Topics as a proxy sees them: their queues by broker, their types, and which queue a message goes to.

    write queues   of brokers whose permission allows it and whose master is there; sorted by broker name and queue id
    FIFO           messages of one message group go to one write queue, by a consistent hash of the group: the Java
                   hash of the text, then Guava's jump hash, so that every proxy of RocketMQ chooses the same
Source: MessageQueueSelector.java, Apache RocketMQ 5.3; Hashing.consistentHash, Guava.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.bodies import PERM_READ, PERM_WRITE, TopicRouteData
from thermocline.remoting.string_hash import java_string_hash

__all__ = ["BrokerQueues", "TopicQueues", "TopicType", "choose_by_group", "read_topic_queues"]

MASTER_ID = 0
_MULTIPLIER = 2862933555777941757
_MASK = (1 << 64) - 1


class TopicType(StrEnum):
    """The attribute `message.type` of a topic."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    LITE = "LITE"
    PRIORITY = "PRIORITY"
    UNSPECIFIED = "UNSPECIFIED"

    @property
    def label(self) -> str:
        """Its name in metrics."""
        return _TYPE_LABELS[self]


_TYPE_LABELS = {each: each.value.lower() for each in TopicType}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerQueues:
    """One topic's queues on one broker."""

    broker_name: str
    permission: int
    read_count: int
    write_count: int
    addresses: Mapping[int, str]
    """Broker id -> address; 0 is the master."""

    @property
    def master_address(self) -> str | None:
        """Where its master serves; None: it has none now."""
        return self.addresses.get(MASTER_ID)

    @property
    def is_readable(self) -> bool:
        """Whether its master can be read from."""
        return bool(self.permission & PERM_READ) and self.read_count > 0 and MASTER_ID in self.addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueues:
    """One topic's queues."""

    topic: str
    brokers: tuple[BrokerQueues, ...]
    """By broker name."""
    write_queues: tuple[MessageQueue, ...]

    @property
    def readable_brokers(self) -> list[BrokerQueues]:
        """The brokers to consume from."""
        return [broker for broker in self.brokers if broker.is_readable]


def read_topic_queues(topic: str, data: TopicRouteData) -> TopicQueues:
    """Return the queues in a NameServer's answer."""
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    brokers = tuple(
        BrokerQueues(
            broker_name=queues.broker_name,
            permission=queues.perm,
            read_count=queues.read_queue_nums,
            write_count=queues.write_queue_nums,
            addresses=addresses.get(queues.broker_name, {}),
        )
        for queues in sorted(data.queue_datas, key=lambda each: each.broker_name)
    )
    write_queues = tuple(
        MessageQueue(topic=topic, broker_name=broker.broker_name, queue_id=queue_id)
        for broker in brokers
        if broker.permission & PERM_WRITE and MASTER_ID in broker.addresses
        for queue_id in range(broker.write_count)
    )
    return TopicQueues(topic=topic, brokers=brokers, write_queues=write_queues)


def choose_by_group(queues: Sequence[MessageQueue], message_group: str) -> MessageQueue:
    """Return the queue that every message of this message group goes to."""
    return queues[jump_hash(java_string_hash(message_group), len(queues))]


def jump_hash(key: int, buckets: int) -> int:
    """Guava's consistentHash of a signed number."""
    assert buckets > 0
    state, candidate = key & _MASK, 0
    while True:
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
