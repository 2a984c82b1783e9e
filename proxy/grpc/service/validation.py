"""Validation: what a proxy refuses before a broker sees it, with the official codes and sentences.

Control characters are those of Java: U+0000 to U+001F and U+007F to U+009F.
Source: GrpcValidator.java, SendMessageActivity.java, Apache RocketMQ 5.3; MessageConst.java, 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from thermocline.proxy.grpc.messages import Code, enums
from thermocline.proxy.grpc.service.statuses import CodeError
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.bodies import EXPRESSION_SQL92, EXPRESSION_TAG, SubscriptionData
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.errors import InvalidParameterError, SubscriptionParseError
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.topic_validation import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    check_group,
    check_topic,
)

__all__ = [
    "RESERVED_PROPERTIES",
    "check_body",
    "check_delivery_time",
    "check_group_name",
    "check_invisible_ms",
    "check_lite_topic",
    "check_message_group",
    "check_message_id",
    "check_message_key",
    "check_properties",
    "check_recovery_s",
    "check_stored_texts",
    "check_tag",
    "check_topic_name",
    "read_subscription",
]

LITE_TOPIC_BYTES_MAX = 64
NAMES_REMEMBERED = 1_024
"""Names that passed last."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LITE_TOPIC = re.compile(r"[A-Za-z0-9_-]+")
_NOT_RESERVED = frozenset(
    {
        PropertyName.SHARDING_KEY,
        PropertyName.TRACE_CONTEXT,
        PropertyName.CHECK_IMMUNITY_TIME_S,
        PropertyName.TRANSACTION_CHECK_TIMES,
        PropertyName.TRANSACTION_ID,
        PropertyName.INNER_MULTI_DISPATCH,
    }
)
_RESERVED_TEXT = """
TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES
CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO
INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET
TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS
TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32#
ORIGIN_GROUP _SYS_MSG_PRIORITY_ __LITE_TOPIC
"""
RESERVED_PROPERTIES = frozenset(_RESERVED_TEXT.split())
"""Names that no user property has: refused on the way in, left out on the way out."""
assert len(RESERVED_PROPERTIES) == 54
assert not RESERVED_PROPERTIES & _NOT_RESERVED, "these are delivered among the user's properties"


@lru_cache(NAMES_REMEMBERED)
def check_topic_name(topic: str) -> None:
    """Pass a topic that clients may use."""
    try:
        check_topic(topic)
    except InvalidParameterError as error:
        raise CodeError(Code.ILLEGAL_TOPIC, error.message) from error
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
        raise CodeError(Code.ILLEGAL_TOPIC, "cannot access system topic")


@lru_cache(NAMES_REMEMBERED)
def check_group_name(group: str) -> None:
    """Pass a consumer group that clients may use."""
    try:
        check_group(group)
    except InvalidParameterError as error:
        raise CodeError(Code.ILLEGAL_CONSUMER_GROUP, error.message) from error
    if group.startswith(SYSTEM_GROUP_PREFIX):
        raise CodeError(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")


def check_tag(tag: str) -> None:
    """Pass a tag; none is one."""
    if not tag:
        return
    if tag.isspace():
        raise CodeError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace")
    if "|" in tag:
        raise CodeError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if _CONTROL.search(tag):
        raise CodeError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character")


def check_message_key(key: str) -> None:
    """Pass one key."""
    if not key:
        return
    if key.isspace():
        raise CodeError(Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace")
    if _CONTROL.search(key):
        raise CodeError(Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")


def check_message_group(message_group: str, config: ProxyConfig) -> None:
    """Pass a message group; none is one."""
    if not message_group:
        return
    if message_group.isspace():
        raise CodeError(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace")
    bytes_max = config.message_group_bytes_max
    if bytes_max > 0 and len(message_group.encode()) >= bytes_max:
        raise CodeError(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {bytes_max}")
    if _CONTROL.search(message_group):
        raise CodeError(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot contain control character")


def check_body(body: bytes, config: ProxyConfig) -> None:
    """Pass a message's body."""
    if not body and config.checks_empty_body:
        raise CodeError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if 0 < config.message_bytes_max < len(body):
        raise CodeError(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {config.message_bytes_max}")


def check_properties(properties: Mapping[str, str], *, tag: str, keys: Sequence[str], config: ProxyConfig) -> None:
    """Pass a message's user properties, tag and keys, and their size."""
    if len(properties) > config.properties_max:
        text = f"too many user properties, max is {config.properties_max}"
        raise CodeError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size_bytes = 0
    for name, value in properties.items():
        if name in RESERVED_PROPERTIES:
            raise CodeError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if _CONTROL.search(name):
            text = "the key of property cannot contain control character"
            raise CodeError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        if _CONTROL.search(value):
            text = "the value of property cannot contain control character"
            raise CodeError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        size_bytes += len(name.encode()) + len(value.encode())
    if tag:
        check_tag(tag)
        size_bytes += len(tag.encode())
    for key in keys:
        check_message_key(key)
        size_bytes += len(key.encode())
    if 0 < config.properties_bytes_max < size_bytes:
        text = f"the total size of user property is too large, max is {config.properties_bytes_max}"
        raise CodeError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)


def check_message_id(message_id: str) -> None:
    """Pass the id that a client gives a message."""
    if not message_id.strip():
        raise CodeError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")


def check_stored_texts(*texts: str) -> None:
    """Pass what is stored among the properties and is no property of the user's."""
    for text in texts:
        if "\x01" in text or "\x02" in text:  # they end names and values in the stored text
            raise CodeError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "a property cannot contain control character")


def check_recovery_s(recovery_s: int, config: ProxyConfig) -> None:
    """Pass the time before a transaction is checked first."""
    most = config.transaction_recovery_s_max
    if 0 < most < recovery_s:
        raise CodeError(Code.BAD_REQUEST, f"the max transaction recovery time of message is too large, max is {most}")


def check_delivery_time(delivery_ms: int, now_ms: int, config: ProxyConfig) -> None:
    """Pass a time to deliver at; one that has passed too."""
    most = config.delay_ms_max
    if 0 < most < delivery_ms - now_ms:
        text = f"the max delay time of message is too large, max is {most}"
        raise CodeError(Code.ILLEGAL_DELIVERY_TIME, text)


def check_invisible_ms(invisible_ms: int, config: ProxyConfig, *, least_ms: int = 0) -> None:
    """Pass a time for which a message is invisible."""
    if invisible_ms < least_ms:
        raise CodeError(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least_ms}")
    if 0 < config.invisible_ms_max < invisible_ms:
        text = f"the invisibleTime is too large. max is {config.invisible_ms_max}"
        raise CodeError(Code.ILLEGAL_INVISIBLE_TIME, text)


def check_lite_topic(lite_topic: str) -> None:
    """Pass the name of a light topic."""
    if not lite_topic.strip():
        raise CodeError(Code.ILLEGAL_LITE_TOPIC, "lite topic cannot be blank")
    if len(lite_topic.encode()) > LITE_TOPIC_BYTES_MAX:
        raise CodeError(Code.ILLEGAL_LITE_TOPIC, f"lite topic exceed the max size {LITE_TOPIC_BYTES_MAX}")
    if not _LITE_TOPIC.fullmatch(lite_topic):
        raise CodeError(Code.ILLEGAL_LITE_TOPIC, "lite topic contains illegal characters")


def read_subscription(topic: str, expression: Any) -> SubscriptionData:
    """Return the subscription that a FilterExpression stands for."""
    kind = EXPRESSION_SQL92 if expression.type == enums.FilterType.SQL else EXPRESSION_TAG
    try:
        return parse_subscription(topic, expression.expression, expression_type=kind)
    except SubscriptionParseError as error:
        raise CodeError(Code.ILLEGAL_FILTER_EXPRESSION, error.message) from error
