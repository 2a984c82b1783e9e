"""The promises of a broker, as plain lists: every queue is one endless log without its expired messages.

cut = max(cuts that changes of the TTL have fixed, now - TTL)        a message is there while stored at or after it
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """One acknowledged message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_ms: int
    key: str
    tag: str
    body: bytes


@dataclass(slots=True)
class Topic:
    """One life of a topic's name."""

    ttl_ms: int | None = None
    fixed_cut_ms: int = 0
    queues: dict[int, list[Message]] = field(default_factory=dict)

    def cut_ms(self, now_ms: int) -> int:
        """The store time before which nothing is there."""
        return self.fixed_cut_ms if self.ttl_ms is None else max(self.fixed_cut_ms, now_ms - self.ttl_ms)


class EndlessLog:
    """All topics of a broker. A queue's offsets are the places in its list, so none is ever given twice or left out."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.gone: list[Message] = []
        """Messages of deleted topics: no read may return them."""

    def make_topic(self, name: str, ttl_ms: int | None) -> None:
        """A new life of a name begins."""
        self.topics[name] = Topic(ttl_ms)

    def delete_topic(self, name: str) -> None:
        """It ends."""
        topic = self.topics.pop(name)
        self.gone += [message for messages in topic.queues.values() for message in messages]

    def set_ttl(self, name: str, ttl_ms: int | None, *, now_ms: int) -> None:
        """Messages that have expired by now stay expired."""
        topic = self.topics[name]
        topic.fixed_cut_ms, topic.ttl_ms = topic.cut_ms(now_ms), ttl_ms

    def append(self, message: Message) -> None:
        """An acknowledged message; its offset is the next one."""
        messages = self.topics[message.topic].queues.setdefault(message.queue_id, [])
        assert message.queue_offset == len(messages), f"offset {message.queue_offset}, not {len(messages)}: {message}"
        messages.append(message)

    def visible(self, name: str, queue_id: int, *, now_ms: int) -> list[Message]:
        """Return the visible messages of a queue."""
        topic = self.topics[name]
        cut_ms = topic.cut_ms(now_ms)
        return [message for message in topic.queues.get(queue_id, []) if message.store_ms >= cut_ms]

    def end(self, name: str, queue_id: int) -> int:
        """The offset behind the last message."""
        return len(self.topics[name].queues.get(queue_id, []))

    def minimum(self, name: str, queue_id: int, *, now_ms: int) -> int:
        """The first offset that is there; the end without one."""
        found = self.visible(name, queue_id, now_ms=now_ms)
        return found[0].queue_offset if found else self.end(name, queue_id)

    def first_at_or_after(self, name: str, queue_id: int, timestamp_ms: int, *, now_ms: int) -> int:
        """The first offset stored at or after a time; the end without one."""
        found = (message for message in self.visible(name, queue_id, now_ms=now_ms) if message.store_ms >= timestamp_ms)
        first = next(found, None)
        return first.queue_offset if first is not None else self.end(name, queue_id)

    def last_at_or_before(self, name: str, queue_id: int, timestamp_ms: int, *, now_ms: int) -> int:
        """The last offset stored at or before a time; the minimum without one."""
        found = [message for message in self.visible(name, queue_id, now_ms=now_ms) if message.store_ms <= timestamp_ms]
        return found[-1].queue_offset if found else self.minimum(name, queue_id, now_ms=now_ms)

    def with_key(self, name: str, key: str, *, now_ms: int) -> list[Message]:
        """Messages of a topic that have a key, newest first."""
        found = [
            message
            for queue_id in self.topics[name].queues
            for message in self.visible(name, queue_id, now_ms=now_ms)
            if message.key == key
        ]
        return sorted(found, key=lambda message: message.physical_offset, reverse=True)

    def all_visible(self, *, now_ms: int) -> list[Message]:
        """Every message that is there."""
        return [
            message
            for name, topic in self.topics.items()
            for queue_id in topic.queues
            for message in self.visible(name, queue_id, now_ms=now_ms)
        ]
