"""Model of time to live, message by message, as the reference of the schedules. It works without cut times.

A message has an age. At the moment at which it is older than its topic's time to live it has expired, and stays so; it
makes no difference what the time to live was before or becomes later. So the test reports to the model each moment
at which time has passed, and each change.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Message:
    """One acknowledged message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_ms: int
    key: str
    body: bytes
    has_expired: bool = False

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queue and offset."""
        return self.topic, self.queue_id, self.queue_offset


@dataclass(slots=True)
class Topic:
    """One life of a topic's name."""

    ttl_ms: int | None
    messages: list[Message] = field(default_factory=list)


class TtlModel:
    """All topics of a broker."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.topics: dict[str, Topic] = {}
        self.gone: list[Message] = []
        """Messages of topics that were deleted."""

    def pass_until(self, now_ms: int) -> None:
        """Time has passed."""
        self.now_ms = now_ms
        for topic in self.topics.values():
            self._age(topic)

    def make_topic(self, name: str, ttl_ms: int | None) -> None:
        """A new life of a name."""
        self.topics[name] = Topic(ttl_ms)

    def delete_topic(self, name: str) -> None:
        """It ends."""
        self.gone += self.topics.pop(name).messages

    def set_ttl(self, name: str, ttl_ms: int | None) -> None:
        """Another time to live, in effect at once."""
        topic = self.topics[name]
        topic.ttl_ms = ttl_ms
        self._age(topic)

    def put(self, message: Message) -> None:
        """An acknowledged message: the next of its queue."""
        assert message.queue_offset == len(self.queue(message.topic, message.queue_id)), message
        assert message.store_ms == self.now_ms, message
        self.topics[message.topic].messages.append(message)

    def queue(self, name: str, queue_id: int) -> list[Message]:
        """Every message of a queue, expired or not."""
        return [each for each in self.topics[name].messages if each.queue_id == queue_id]

    def visible(self, name: str, queue_id: int) -> list[Message]:
        """Return the visible messages of a queue."""
        return [each for each in self.queue(name, queue_id) if not each.has_expired]

    def end(self, name: str, queue_id: int) -> int:
        """The offset behind the last message."""
        return len(self.queue(name, queue_id))

    def minimum(self, name: str, queue_id: int) -> int:
        """The first offset that is there; the end without one."""
        visible = self.visible(name, queue_id)
        return visible[0].queue_offset if visible else self.end(name, queue_id)

    def first_at_or_after(self, name: str, queue_id: int, time_ms: int) -> int:
        """The first offset stored at or after a time; the end without one."""
        found = [each.queue_offset for each in self.visible(name, queue_id) if each.store_ms >= time_ms]
        return found[0] if found else self.end(name, queue_id)

    def last_at_or_before(self, name: str, queue_id: int, time_ms: int) -> int:
        """The last offset stored at or before a time; the minimum without one."""
        found = [each.queue_offset for each in self.visible(name, queue_id) if each.store_ms <= time_ms]
        return found[-1] if found else self.minimum(name, queue_id)

    def with_key(self, name: str, key: str) -> list[Message]:
        """Messages of a topic that have a key, newest first."""
        found = [each for each in self.topics[name].messages if each.key == key and not each.has_expired]
        return sorted(found, key=lambda each: each.physical_offset, reverse=True)

    def hidden(self) -> list[Message]:
        """Return all messages that no read may return."""
        return [each for topic in self.topics.values() for each in topic.messages if each.has_expired] + self.gone

    def _age(self, topic: Topic) -> None:
        if topic.ttl_ms is not None:
            for message in topic.messages:
                message.has_expired = message.has_expired or self.now_ms - message.store_ms > topic.ttl_ms
