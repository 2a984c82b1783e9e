"""Conversion: a message of the protocol to what is stored, and back.

    to store      properties: the user's, then KEYS, TAGS, UNIQ_KEY ... as the official proxy writes them
    delivered     all properties but the reserved ones; the body as stored, its MD5 in capitals, always an encoding

Types of messages, the first that fits: TRAN_MSG=true TRANSACTION; a delay DELAY; a message group FIFO; else NORMAL.
Source: SendMessageActivity.java, GrpcConverter.java, TopicMessageType.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import hashlib
from typing import Any

from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.grpc.messages import enums, messages
from thermocline.proxy.grpc.service.validation import (
    RESERVED_PROPERTIES,
    check_body,
    check_delivery_time,
    check_message_group,
    check_message_id,
    check_properties,
    check_recovery_s,
    check_stored_texts,
)
from thermocline.proxy.messaging import OutgoingMessage, TopicType
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.records.message_record import RECONSUME_TIMES_MAX
from thermocline.remoting.records.properties import KEY_SEPARATOR, PropertyName
from thermocline.remoting.records.sys_flag import COMPRESSED, TRANSACTION_PREPARED, is_compressed
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = [
    "duration",
    "duration_ms",
    "stored_message",
    "timestamp",
    "timestamp_ms",
    "to_message",
]

DELIVERY_MS_MAX = 1 << 62
TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""What a Timestamp may say, the years 1 to 9999: clients cannot read a message with another one."""
_TRANSACTION, _GZIP = enums.MessageType.TRANSACTION, enums.Encoding.GZIP
_TIMER_NAMES = (
    PropertyName.DELAY_LEVEL,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_S,
    PropertyName.TIMER_DELAY_MS,
)


def timestamp_ms(value: Any) -> int:
    """Milliseconds since 1970 of a Timestamp."""
    return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000


def timestamp(time_ms: int) -> Any:
    """The Timestamp of milliseconds since 1970."""
    return messages.Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)


def duration_ms(value: Any) -> int:
    """Milliseconds of a Duration."""
    return int(value.seconds) * 1000 + int(value.nanos / 1_000_000)


def duration(time_ms: int) -> Any:
    """The Duration of milliseconds, at least 0."""
    return messages.Duration(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)


def _message_type_of(system: Any) -> TopicType:
    """The type of a message that a client sends, by its system properties."""
    if system.message_type == _TRANSACTION:
        return TopicType.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return TopicType.DELAY
    if system.message_group:
        return TopicType.FIFO
    if system.HasField("priority"):
        return TopicType.PRIORITY
    return TopicType.LITE if system.lite_topic else TopicType.NORMAL


def stored_message(
    message: Any, *, topic: str, config: ProxyConfig, remote_address: str, now_ms: int
) -> OutgoingMessage:
    """Check a client's message to a topic, and return what is to be stored.

    Raises:
        CodeError: It breaks a rule.
    """
    system, body = message.system_properties, message.body
    properties: dict[str, str] = dict(message.user_properties)
    tag, keys, message_id = system.tag, system.keys, system.message_id
    message_group, trace_context, born_host = system.message_group, system.trace_context, system.born_host
    check_body(body, config)
    check_properties(properties, tag=tag, keys=keys, config=config)
    check_message_id(message_id)
    check_stored_texts(message_id, trace_context, born_host)
    if tag:
        properties[PropertyName.TAGS] = tag
    if keys:
        properties[PropertyName.KEYS] = KEY_SEPARATOR.join(keys)
    properties[PropertyName.UNIQUE_KEY] = message_id
    sys_flag = COMPRESSED if system.body_encoding == _GZIP else 0
    message_type = _message_type_of(system)
    if message_type is TopicType.TRANSACTION:
        sys_flag |= TRANSACTION_PREPARED
        properties[PropertyName.TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            recovery_s = int(system.orphaned_transaction_recovery_duration.seconds)
            check_recovery_s(recovery_s, config)
            properties[PropertyName.CHECK_IMMUNITY_TIME_S] = str(recovery_s)
    if system.HasField("delivery_timestamp"):  # a transaction may have one, too
        delivery_ms = timestamp_ms(system.delivery_timestamp)
        check_delivery_time(delivery_ms, now_ms, config)
        properties[PropertyName.TIMER_DELIVER_MS] = str(max(-DELIVERY_MS_MAX, min(delivery_ms, DELIVERY_MS_MAX)))
    properties[PropertyName.RECONSUME_TIME] = str(system.delivery_attempt)
    properties[PropertyName.PRODUCER_GROUP] = topic
    if message_group:
        check_message_group(message_group, config)
        properties[PropertyName.SHARDING_KEY] = message_group
    if trace_context:
        properties[PropertyName.TRACE_CONTEXT] = trace_context
    properties[PropertyName.BORN_HOST] = born_host.strip() or remote_address
    born_ms = timestamp_ms(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    properties[PropertyName.BORN_TIMESTAMP] = str(born_ms)
    reconsume_times: int | None = None
    if topic.startswith(RETRY_TOPIC_PREFIX):
        del properties[PropertyName.RECONSUME_TIME]
        reconsume_times = system.delivery_attempt
    return OutgoingMessage(
        topic=topic,
        body=body,
        properties_text="".join([f"{name}\x01{value}\x02" for name, value in properties.items()]),
        unique_key=message_id,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        reconsume_times=reconsume_times,
        message_type=message_type,
        message_group=message_group,
    )


def to_message(message: ReceivedMessage, *, topic: str, receipt_handle: str = "") -> Any:
    """Return a stored message as a client gets it."""
    record, properties = message.record, message.properties
    body = record.body
    system = messages.SystemProperties(
        message_id=message.message_id,
        body_encoding=enums.Encoding.GZIP if is_compressed(record.sys_flag) else enums.Encoding.IDENTITY,
        message_type=_delivered_type(properties),
        born_host=properties.get(PropertyName.BORN_HOST) or record.born_host[0],
        store_host=format_address(*record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(message.reconsume_times + 1, RECONSUME_TIMES_MAX),
    )
    system.body_digest.type = enums.DigestType.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    _set_time(system.born_timestamp, record.born_timestamp_ms)
    _set_time(system.store_timestamp, record.store_timestamp_ms)
    if message.tags:
        system.tag = message.tags
    if message.keys:
        system.keys.extend(message.keys.split(KEY_SEPARATOR))
    if message.sharding_key:
        system.message_group = message.sharding_key
    if receipt_handle:
        system.receipt_handle = receipt_handle
    _set_optional(system, properties)
    answer = messages.Message(system_properties=system, body=body)
    answer.topic.name = topic
    for name, value in properties.items():
        if name not in RESERVED_PROPERTIES:
            answer.user_properties[name] = value
    return answer


def _set_optional(system: Any, properties: Any) -> None:
    delivery_text = properties.get(PropertyName.TIMER_DELIVER_MS, "")
    if delivery_text.removeprefix("-").isdecimal() and len(delivery_text) <= 15:
        _set_time(system.delivery_timestamp, int(delivery_text))
    trace_context = properties.get(PropertyName.TRACE_CONTEXT)
    if trace_context:
        system.trace_context = trace_context
    origin_topic = properties.get(PropertyName.DLQ_ORIGIN_TOPIC)
    origin_id = properties.get(PropertyName.DLQ_ORIGIN_MESSAGE_ID)
    if origin_topic and origin_id:
        system.dead_letter_queue.topic = origin_topic
        system.dead_letter_queue.message_id = origin_id


def _delivered_type(properties: Any) -> Any:
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return enums.MessageType.TRANSACTION
    if any(name in properties for name in _TIMER_NAMES):
        return enums.MessageType.DELAY
    return enums.MessageType.FIFO if PropertyName.SHARDING_KEY in properties else enums.MessageType.NORMAL


def _set_time(field: Any, time_ms: int) -> None:
    time_ms = max(TIME_MS_MIN, min(time_ms, TIME_MS_MAX))
    field.seconds = time_ms // 1000
    field.nanos = time_ms % 1000 * 1_000_000
