"""MessageQueue: one queue of one topic on one broker.

The natural order (topic, broker name, queue id) is part of the protocol: every member of a consumer group sorts the
same queues the same way and then picks its own share, so two members that sorted differently would take a queue twice.
Source: common/message/MessageQueue.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.remoting import bodies

__all__ = ["MessageQueue"]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class MessageQueue:
    """Where a message is stored: its topic, the broker's name (not its address) and the queue id on that broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


def to_wire(queue: MessageQueue) -> bodies.MessageQueue:
    """Return the queue as bodies of requests carry it."""
    return bodies.MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def from_wire(queue: bodies.MessageQueue) -> MessageQueue:
    """Return the queue that a body carried."""
    return MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)
