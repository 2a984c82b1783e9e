"""Delivered message: a stored message as a client gets it.

    delivered     all properties but the reserved ones; the body as stored, its MD5 in capitals, always an encoding

Types of messages, the first that fits: TRAN_MSG=true TRANSACTION; a delay DELAY; a message group FIFO; else NORMAL.
Source: GrpcConverter.java, TopicMessageType.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.grpc.messages import enums, messages
from thermocline.proxy.grpc.service.validation import RESERVED_PROPERTIES
from thermocline.remoting.records.message_record import RECONSUME_TIMES_MAX
from thermocline.remoting.records.properties import KEY_SEPARATOR, PropertyName
from thermocline.remoting.records.sys_flag import is_compressed
from thermocline.remoting.socket_address import format_address

__all__ = ["encode_received", "to_message"]

TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""What a Timestamp may say, the years 1 to 9999: clients cannot read a message with another one."""
DELIVERY_CHARS_MAX = 15
_IDENTITY, _GZIP, _MD5 = enums.Encoding.IDENTITY, enums.Encoding.GZIP, enums.DigestType.MD5
_NORMAL, _FIFO = enums.MessageType.NORMAL, enums.MessageType.FIFO
_DELAY, _TRANSACTION = enums.MessageType.DELAY, enums.MessageType.TRANSACTION
_TIMER_NAMES = frozenset(
    {
        PropertyName.DELAY_LEVEL,
        PropertyName.TIMER_DELIVER_MS,
        PropertyName.TIMER_DELAY_S,
        PropertyName.TIMER_DELAY_MS,
    }
)
_OPTIONAL_NAMES = frozenset({PropertyName.TIMER_DELIVER_MS, PropertyName.TRACE_CONTEXT, PropertyName.DLQ_ORIGIN_TOPIC})
_received = messages.ReceiveMessageResponse()
"""Filled in and encoded for each message: a new object each time costs twice as much."""


def to_message(message: ReceivedMessage, *, topic: str) -> Any:
    """Return a stored message as a client gets it."""
    answer = messages.Message()
    _fill(answer, message, topic=topic)
    return answer


def encode_received(message: ReceivedMessage, *, topic: str, receipt_handle: str) -> bytes:
    """Encode the ReceiveMessageResponse of one message. Belongs to one thread."""
    _received.Clear()
    answer = _received.message
    _fill(answer, message, topic=topic)
    answer.system_properties.receipt_handle = receipt_handle
    encoded: bytes = _received.SerializeToString()
    return encoded


def _fill(answer: Any, message: ReceivedMessage, *, topic: str) -> None:
    """Fill in an empty Message."""
    record, properties, system = message.record, message.properties, answer.system_properties
    find, body = properties.get, record.body
    answer.topic.name = topic
    answer.body = body
    system.message_id = message.message_id
    system.body_encoding = _GZIP if is_compressed(record.sys_flag) else _IDENTITY
    system.message_type = _delivered_type(properties)
    system.born_host = find(PropertyName.BORN_HOST) or record.born_host[0]
    system.store_host = _shown(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = min(message.reconsume_times + 1, RECONSUME_TIMES_MAX)
    digest = system.body_digest
    digest.type = _MD5
    digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    _set_time(system.born_timestamp, record.born_timestamp_ms)
    _set_time(system.store_timestamp, record.store_timestamp_ms)
    tags, keys, message_group = find(PropertyName.TAGS), find(PropertyName.KEYS), find(PropertyName.SHARDING_KEY)
    if tags:
        system.tag = tags
    if keys:
        system.keys.extend(keys.split(KEY_SEPARATOR))
    if message_group:
        system.message_group = message_group
    if not _OPTIONAL_NAMES.isdisjoint(properties):
        _set_optional(system, properties)
    for name, value in properties.items():
        if name not in RESERVED_PROPERTIES:
            answer.user_properties[name] = value


_shown = lru_cache(64)(lambda host: format_address(*host))
"""The address of a broker."""


def _set_optional(system: Any, properties: Mapping[str, str]) -> None:
    delivery_text = properties.get(PropertyName.TIMER_DELIVER_MS, "")
    if delivery_text.removeprefix("-").isdecimal() and len(delivery_text) <= DELIVERY_CHARS_MAX:
        _set_time(system.delivery_timestamp, int(delivery_text))
    trace_context = properties.get(PropertyName.TRACE_CONTEXT)
    if trace_context:
        system.trace_context = trace_context
    origin_topic = properties.get(PropertyName.DLQ_ORIGIN_TOPIC)
    origin_id = properties.get(PropertyName.DLQ_ORIGIN_MESSAGE_ID)
    if origin_topic and origin_id:
        system.dead_letter_queue.topic = origin_topic
        system.dead_letter_queue.message_id = origin_id


def _delivered_type(properties: Mapping[str, str]) -> Any:
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return _TRANSACTION
    if not _TIMER_NAMES.isdisjoint(properties):
        return _DELAY
    return _FIFO if PropertyName.SHARDING_KEY in properties else _NORMAL


def _set_time(field: Any, time_ms: int) -> None:
    seconds, milliseconds = divmod(max(TIME_MS_MIN, min(time_ms, TIME_MS_MAX)), 1000)
    field.seconds, field.nanos = seconds, milliseconds * 1_000_000
