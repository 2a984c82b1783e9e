"""Delivered message: a stored message as a client gets it, encoded field by field.

    delivered     all properties but the reserved ones; the body as stored, its MD5 in capitals, always an encoding

Messages are what a proxy sends most of. Protobuf's own encoder needs an object for the message and for each part of it;
here each field is written once, in the order of the numbers, as protobuf does. A test compares both.

    field     tag: number << 3 | type, then a varint (type 0), or a varint size and so many bytes (type 2)
    absent    an empty text, empty bytes, and a zero without presence

Types of messages, the first that fits: TRAN_MSG=true TRANSACTION; a delay DELAY; a message group FIFO; else NORMAL.
Source: GrpcConverter.java, TopicMessageType.java, Apache RocketMQ 5.3; the schema: proxy/grpc/messages/schema.py.
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

__all__ = ["encode_message", "encode_received", "to_message"]

TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""What a Timestamp may say, the years 1 to 9999: clients cannot read a message with another one."""
DELIVERY_DIGITS_MAX = 15
_VARINTS_MAX = 4_096
_UNSIGNED = (1 << 64) - 1
_TIMER_NAMES = frozenset(
    {
        PropertyName.DELAY_LEVEL,
        PropertyName.TIMER_DELIVER_MS,
        PropertyName.TIMER_DELAY_S,
        PropertyName.TIMER_DELAY_MS,
    }
)

# ReceiveMessageResponse
_ANSWER_MESSAGE = b"\x12"  # 2
# Message
_TOPIC = b"\x0a"  # 1
_USER_PROPERTIES = b"\x12"  # 2
_SYSTEM_PROPERTIES = b"\x1a"  # 3
_BODY = b"\x22"  # 4
# Resource
_NAME = b"\x12"  # 2
# an entry of a map
_KEY = b"\x0a"  # 1
_VALUE = b"\x12"  # 2
# Timestamp
_SECONDS = b"\x08"  # 1
_NANOS = b"\x10"  # 2
# SystemProperties
_TAG = b"\x0a"  # 1
_KEYS = b"\x12"  # 2
_MESSAGE_ID = b"\x1a"  # 3
_BODY_DIGEST = b"\x22\x24\x08\x02\x12\x20"  # 4: 36 bytes; 1: MD5, 2: 32 characters
_IDENTITY, _GZIP = b"\x28\x01", b"\x28\x02"  # 5: body_encoding
_TYPES = {kind: bytes((0x30, kind)) for kind in enums.MessageType}  # 6: message_type
_BORN_TIMESTAMP = b"\x3a"  # 7
_BORN_HOST = b"\x42"  # 8
_STORE_TIMESTAMP = b"\x4a"  # 9
_STORE_HOST = b"\x52"  # 10
_DELIVERY_TIMESTAMP = b"\x5a"  # 11
_RECEIPT_HANDLE = b"\x62"  # 12
_QUEUE_ID = b"\x68"  # 13
_QUEUE_OFFSET = b"\x70"  # 14
_DELIVERY_ATTEMPT = b"\x80\x01"  # 16
_MESSAGE_GROUP = b"\x8a\x01"  # 17
_TRACE_CONTEXT = b"\x92\x01"  # 18
_DEAD_LETTER_QUEUE = b"\xa2\x01"  # 20
# DeadLetterQueue
_ORIGIN_TOPIC = b"\x0a"  # 1
_ORIGIN_MESSAGE_ID = b"\x12"  # 2


def to_message(message: ReceivedMessage, *, topic: str) -> Any:
    """Return a stored message as a part of another one of the protocol."""
    return messages.Message.FromString(encode_message(message, topic=topic))


def encode_received(message: ReceivedMessage, *, topic: str, receipt_handle: str) -> bytes:
    """Encode the ReceiveMessageResponse of one message."""
    return _ANSWER_MESSAGE + _sized(encode_message(message, topic=topic, receipt_handle=receipt_handle))


def encode_message(message: ReceivedMessage, *, topic: str, receipt_handle: str = "") -> bytes:
    """Encode the Message."""
    body, properties = message.record.body, message.properties
    pieces = [_TOPIC + _sized(_text(_NAME, topic))]
    for name, value in properties.items():
        if name not in RESERVED_PROPERTIES:
            pieces.append(_USER_PROPERTIES + _sized(_text(_KEY, name) + _text(_VALUE, value)))
    pieces.append(_SYSTEM_PROPERTIES + _sized(_system_properties(message, properties, receipt_handle)))
    if body:
        pieces += (_BODY, _number(len(body)), body)
    return b"".join(pieces)


def _system_properties(message: ReceivedMessage, properties: Mapping[str, str], receipt_handle: str) -> bytes:
    record, find = message.record, properties.get
    pieces = [_text(_TAG, find(PropertyName.TAGS, ""))]
    keys = find(PropertyName.KEYS)
    if keys:
        pieces += [_KEYS + _sized(key.encode()) for key in keys.split(KEY_SEPARATOR)]
    delivery_text = find(PropertyName.TIMER_DELIVER_MS, "")
    has_delivery = delivery_text.removeprefix("-").isdecimal() and len(delivery_text) <= DELIVERY_DIGITS_MAX
    origin_topic, origin_id = find(PropertyName.DLQ_ORIGIN_TOPIC), find(PropertyName.DLQ_ORIGIN_MESSAGE_ID)
    pieces += (
        _text(_MESSAGE_ID, message.message_id),
        _BODY_DIGEST,
        hashlib.md5(record.body, usedforsecurity=False).hexdigest().upper().encode(),
        _GZIP if is_compressed(record.sys_flag) else _IDENTITY,
        _TYPES[_delivered_type(properties)],
        _time(_BORN_TIMESTAMP, record.born_timestamp_ms),
        _text(_BORN_HOST, find(PropertyName.BORN_HOST) or record.born_host[0]),
        _time(_STORE_TIMESTAMP, record.store_timestamp_ms),
        _text(_STORE_HOST, format_address(*record.store_host)),
        _time(_DELIVERY_TIMESTAMP, int(delivery_text)) if has_delivery else b"",
        _text(_RECEIPT_HANDLE, receipt_handle),
        _QUEUE_ID + _number(record.queue_id) if record.queue_id else b"",
        _QUEUE_OFFSET,
        _varint(record.queue_offset),
        _DELIVERY_ATTEMPT,
        _number(min(message.reconsume_times + 1, RECONSUME_TIMES_MAX)),
        _text(_MESSAGE_GROUP, find(PropertyName.SHARDING_KEY, "")),
        _text(_TRACE_CONTEXT, find(PropertyName.TRACE_CONTEXT, "")),
    )
    if origin_topic and origin_id:
        origin = _text(_ORIGIN_TOPIC, origin_topic) + _text(_ORIGIN_MESSAGE_ID, origin_id)
        pieces.append(_DEAD_LETTER_QUEUE + _sized(origin))
    return b"".join(pieces)


def _delivered_type(properties: Mapping[str, str]) -> Any:
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return enums.MessageType.TRANSACTION
    if not _TIMER_NAMES.isdisjoint(properties):
        return enums.MessageType.DELAY
    return enums.MessageType.FIFO if PropertyName.SHARDING_KEY in properties else enums.MessageType.NORMAL


def _time(tag: bytes, time_ms: int) -> bytes:
    """A Timestamp; its field is always there."""
    seconds, milliseconds = divmod(max(TIME_MS_MIN, min(time_ms, TIME_MS_MAX)), 1000)
    content = _SECONDS + _number(seconds) if seconds else b""
    if milliseconds:
        content += _NANOS + _number(milliseconds * 1_000_000)
    return tag + _sized(content)


def _text(tag: bytes, text: str) -> bytes:
    """A text; nothing where it is empty."""
    return tag + _sized(text.encode()) if text else b""


def _sized(content: bytes) -> bytes:
    """The size of something, then it."""
    return _number(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; of a negative number its 64 bits."""
    value &= _UNSIGNED
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_number = lru_cache(maxsize=_VARINTS_MAX)(_varint)
"""Of numbers that come again: sizes, seconds, counts."""
