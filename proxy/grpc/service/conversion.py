"""Conversion: a message of the protocol to what is stored; times of the protocol, both ways.

    to store      properties: the user's, then KEYS, TAGS, UNIQ_KEY ... as the official proxy writes them

Types of messages, the first that fits: TRAN_MSG=true TRANSACTION; a delay DELAY; a message group FIFO; else NORMAL.
Source: SendMessageActivity.java, GrpcConverter.java, TopicMessageType.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from typing import Any

from thermocline.proxy.grpc.messages import enums, messages
from thermocline.proxy.grpc.service.validation import (
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
from thermocline.remoting.records.properties import KEY_SEPARATOR, PropertyName
from thermocline.remoting.records.sys_flag import COMPRESSED, TRANSACTION_PREPARED
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = [
    "duration",
    "duration_ms",
    "stored_message",
    "timestamp",
    "timestamp_ms",
]

DELIVERY_MS_MAX = 1 << 62
_TRANSACTION, _GZIP = enums.MessageType.TRANSACTION, enums.Encoding.GZIP


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
