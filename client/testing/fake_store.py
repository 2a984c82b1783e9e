"""FakeStore: one fake broker's messages and offsets, in memory.

Messages are kept as the encoded records that a pull answers with, so clients decode what they would get from a real
log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import TopicNotFoundError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord, decode_record, encode_record
from thermocline.remoting.records.properties import PropertyName, find_property
from thermocline.remoting.socket_address import Host
from thermocline.remoting.string_hash import tags_code

__all__ = ["FakeStore", "FakeTopic", "StoredMessage"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One record and what a pull needs to know of it."""

    record: bytes
    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    store_timestamp_ms: int
    tags_code: int

    def decode(self) -> MessageRecord:
        """Return the record's fields."""
        return decode_record(self.record)


@dataclass(slots=True)
class FakeTopic:
    """One topic on one fake broker. `min_offsets` lets tests pretend that old messages are gone."""

    config: TopicConfig
    queues: list[list[StoredMessage]] = field(default_factory=list)
    min_offsets: dict[int, int] = field(default_factory=dict)

    def grow(self) -> None:
        """Have as many queues as the configuration says."""
        count = max(self.config.read_queue_nums, self.config.write_queue_nums)
        self.queues.extend([] for _ in range(count - len(self.queues)))

    def min_offset(self, queue_id: int) -> QueueOffset:
        """Return the first offset that is still there."""
        return QueueOffset(self.min_offsets.get(queue_id, 0))


class FakeStore:
    """Topics, messages and consumer offsets of one fake broker."""

    def __init__(self, *, store_host: Callable[[], Host], clock_ms: Callable[[], int]) -> None:
        self._store_host = store_host
        self._clock_ms = clock_ms
        self.topics: dict[str, FakeTopic] = {}
        self.by_physical_offset: dict[PhysicalOffset, StoredMessage] = {}
        self.consumer_offsets: dict[tuple[str, str, int], QueueOffset] = {}
        self.pending_resets: dict[tuple[str, str, int], QueueOffset] = {}
        self._append_offset = LOG_START

    def topic(self, name: str) -> FakeTopic:
        """Return a topic; TopicNotFoundError when there is none."""
        topic = self.topics.get(name)
        if topic is None:
            raise TopicNotFoundError(f"topic[{name}] not exist, apply first please!")
        return topic

    def create_topic(self, config: TopicConfig) -> FakeTopic:
        """Create a topic, or change one."""
        topic = self.topics.get(config.topic_name)
        if topic is None:
            topic = self.topics[config.topic_name] = FakeTopic(config)
        topic.config = config
        topic.grow()
        return topic

    def delete_topic(self, name: str) -> None:
        """Forget a topic with its messages and offsets."""
        self.topics.pop(name, None)
        for key in [key for key in self.consumer_offsets if key[1] == name]:
            del self.consumer_offsets[key]

    def append(
        self,
        topic_name: str,
        queue_id: int,
        *,
        body: bytes,
        properties_text: bytes,
        born_timestamp_ms: int,
        born_host: Host,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> StoredMessage:
        """Store one message at the end of a queue."""
        queue = self.topic(topic_name).queues[queue_id]
        now_ms = self._clock_ms()
        record = encode_record(
            topic=topic_name,
            queue_id=queue_id,
            queue_offset=QueueOffset(len(queue)),
            physical_offset=self._append_offset,
            body=body,
            properties_text=properties_text,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            store_timestamp_ms=now_ms,
            store_host=self._store_host(),
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )
        tag = find_property(properties_text, PropertyName.TAGS.encode())
        stored = StoredMessage(
            record, self._append_offset, QueueOffset(len(queue)), now_ms, tags_code(tag.decode() if tag else None)
        )
        queue.append(stored)
        self.by_physical_offset[self._append_offset] = stored
        self._append_offset += len(record)
        return stored

    def offset_by_time(self, topic_name: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        """Return the first offset stored at that time or later, the queue's end when there is none."""
        queue = self.topic(topic_name).queues[queue_id]
        for stored in queue:
            if stored.store_timestamp_ms >= timestamp_ms:
                return stored.queue_offset
        return QueueOffset(len(queue))
