"""ReceivedMessage: the messages that consumers and lookups return.

A pull answers with records as the commit log holds them (remoting/records/message_record.py). Decoding them is the
consumer's largest cost, so properties are parsed, and a compressed body inflated, at first use.

Three things differ from the record
  - A retried message is stored in `%RETRY%group`; `topic` is the original topic, `queue` is where it is stored now.
  - An inner batch (one record that holds several messages) is taken apart: message i gets queue offset + i.
  - `message_id` is the producer's unique id, the broker's offset id only where there is none.
Source: client/impl/consumer/PullAPIWrapper.java, common/message/MessageDecoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from thermocline.client.message import RESERVED_NAMES, Message
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.records.batch import decode_batch
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.records.properties import PropertyName, decode_properties
from thermocline.remoting.records.sys_flag import INNER_BATCH, NEED_UNWRAP, compression_type, is_compressed

__all__ = ["ReceivedMessage", "decode_messages"]

_NEEDS_SPLIT = INNER_BATCH | NEED_UNWRAP


class ReceivedMessage:
    """One stored message; read only. Belongs to its receiver."""

    __slots__ = ("_body", "_properties", "queue", "reconsume_times", "record", "topic")

    def __init__(self, record: MessageRecord, *, queue: MessageQueue) -> None:
        self.record = record
        self.queue = queue
        """The queue that it was read from."""
        self.topic = record.topic
        """The topic that it was sent to."""
        self.reconsume_times = record.reconsume_times
        """How often consumption failed before."""
        self._body: bytes | None = None
        self._properties: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """The body as it was sent, inflated if the producer compressed it.

        Raises:
            CorruptDataError: It cannot be inflated.
        """
        if self._body is None:
            record = self.record
            if is_compressed(record.sys_flag):
                self._body = decompress(record.body, compression_type(record.sys_flag))
            else:
                self._body = record.body
        return self._body

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, the reserved ones included."""
        if self._properties is None:
            self._properties = MappingProxyType(decode_properties(self.record.properties_text))
        return self._properties

    @property
    def tags(self) -> str:
        """The tag, "" without one."""
        return self.properties.get(PropertyName.TAGS, "")

    @property
    def keys(self) -> str:
        """The business keys, separated by spaces, "" without any."""
        return self.properties.get(PropertyName.KEYS, "")

    @property
    def sharding_key(self) -> str:
        """The key that chose the queue, "" without one."""
        return self.properties.get(PropertyName.SHARDING_KEY, "")

    @property
    def message_id(self) -> str:
        """The producer's unique id; the same through all retries."""
        return self.properties.get(PropertyName.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id: where this copy is stored."""
        return encode_message_id(self.record.store_host, self.record.physical_offset)

    @property
    def queue_offset(self) -> int:
        """The place in its queue."""
        return self.record.queue_offset

    @property
    def physical_offset(self) -> int:
        """The place in the broker's commit log, bytes."""
        return self.record.physical_offset

    @property
    def flag(self) -> int:
        """The application's flag."""
        return self.record.flag

    @property
    def born_timestamp_ms(self) -> int:
        """When the producer sent it, by the producer's clock."""
        return self.record.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        """When the broker stored it, by the broker's clock."""
        return self.record.store_timestamp_ms

    @property
    def born_host(self) -> tuple[str, int]:
        """The producer's address and port."""
        return self.record.born_host

    @property
    def store_host(self) -> tuple[str, int]:
        """The broker's address and port."""
        return self.record.store_host

    def to_message(self) -> Message:
        """Return a message to send that says the same: for the topic that this one was sent to first.

        It gets an id of its own, and has nothing of the way of this one: no retries, no delay.
        """
        return Message(
            self.properties.get(PropertyName.RETRY_TOPIC, self.topic),
            self.body,
            tags=self.tags,
            keys=self.keys,
            properties={name: value for name, value in self.properties.items() if name not in RESERVED_NAMES},
            flag=self.flag,
            sharding_key=self.sharding_key,
        )

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """Return what pickles and copies hold: all but the parsed properties, a view that cannot be pickled."""
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        return None, {name: getattr(self, name) for name in names} | {"_properties": None}

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue='{self.queue}', queue_offset={self.queue_offset}, "
            f"message_id={self.message_id!r}, body_bytes={len(self.record.body)})"
        )


def decode_messages(
    records: bytes | memoryview, *, queue: MessageQueue, tags: Collection[str] = (), offset_delta: int = 0
) -> list[ReceivedMessage]:
    """Take a pull's body apart; with `tags`, only messages that carry one of them (the broker compared only hashes).

    `offset_delta`: what the queue's offsets are above those in the records, for a logic queue.

    Raises:
        CorruptDataError: A record contradicts itself. Nothing is returned, so that nothing is skipped.
        MessageIllegalError: So does an inner batch.
    """
    messages = [ReceivedMessage(record, queue=queue) for record in iterate_records(records)]
    if offset_delta:
        for message in messages:
            message.record = msgspec.structs.replace(
                message.record, queue_offset=message.record.queue_offset + offset_delta
            )
    if any(message.record.sys_flag & _NEEDS_SPLIT == _NEEDS_SPLIT for message in messages):
        messages = [inner for message in messages for inner in _split(message)]
    if tags:
        messages = [message for message in messages if message.record.tags in tags]
    return messages


def restore_topic(message: ReceivedMessage, *, retry_topic: str) -> None:
    """Give a message read from the group's retry topic the name of the topic that it was sent to."""
    if message.record.topic == retry_topic:
        origin = message.properties.get(PropertyName.RETRY_TOPIC)
        if origin:
            message.topic = origin


def _split(message: ReceivedMessage) -> list[ReceivedMessage]:
    record = message.record
    if record.sys_flag & _NEEDS_SPLIT != _NEEDS_SPLIT:
        return [message]
    plain_flag = record.sys_flag & ~_NEEDS_SPLIT
    return [
        ReceivedMessage(
            msgspec.structs.replace(
                record,
                queue_offset=record.queue_offset + i,
                body=inner.body,
                properties_text=inner.properties_text,
                flag=inner.flag,
                sys_flag=plain_flag,
            ),
            queue=message.queue,
        )
        for i, inner in enumerate(decode_batch(message.body))
    ]
