"""Message properties: one text on the wire and in the log.

    name \\x01 value \\x02   repeated; UTF-8; at most 32767 bytes

The last \\x02 may be missing in what others wrote. A piece shorter than three characters, without \\x01, or with an
empty name or value counts as absent; of two pieces with one name the later one counts.
Source: MessageDecoder.java (string2messageProperties), MessageConst.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.remoting.errors import PropertiesTooLargeError

NAME_END = "\x01"
VALUE_END = "\x02"
PROPERTIES_BYTES_MAX = 32_767


class PropertyName:
    """Names of the properties that mean something to brokers or clients; the values are what is on the wire."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT_STORE = "WAIT"
    DELAY_LEVEL = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QUEUE_ID = "REAL_QID"
    TRANSACTION_PREPARED = "TRAN_MSG"
    PRODUCER_GROUP = "PGROUP"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    UNIQUE_KEY = "UNIQ_KEY"
    EXTEND_UNIQUE_INFO = "EXTEND_UNIQ_INFO"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
    MESSAGE_REGION = "MSG_REGION"
    TRACE_SWITCH = "TRACE_ON"
    CLUSTER = "CLUSTER"
    BUYER_ID = "BUYER_ID"
    TRANSFER_FLAG = "TRANSFER_FLAG"
    CORRECTION_FLAG = "CORRECTION_FLAG"
    MQ2_FLAG = "MQ2_FLAG"
    INNER_NUM = "INNER_NUM"
    INNER_BASE = "INNER_BASE"
    DUPLICATE_INFO = "DUP_INFO"
    CHECK_IMMUNITY_TIME_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID = "__transactionId__"
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
    INSTANCE_ID = "INSTANCE_ID"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    MESSAGE_TTL = "TTL"
    REPLY_ARRIVE_TIME = "ARRIVE_TIME"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    MESSAGE_TYPE = "MSG_TYPE"
    POP_CHECKPOINT = "POP_CK"
    POP_CHECKPOINT_OFFSET = "POP_CK_OFFSET"
    FIRST_POP_TIME = "1ST_POP_TIME"
    ORIGIN_GROUP = "ORIGIN_GROUP"
    SHARDING_KEY = "__SHARDINGKEY"
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
    TRACE_CONTEXT = "TRACE_CONTEXT"
    TIMER_DELAY_S = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_OUT_MS = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
    TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
    BORN_HOST = "__BORNHOST"
    BORN_TIMESTAMP = "BORN_TIMESTAMP"
    TRANSIENT_TOPIC_SYS_FLAG = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
    TRANSIENT_GROUP_SYS_FLAG = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"
    RECORD_CHECKSUM = "__CRC32#"
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
    REDIRECT = "REDIRECT"
    FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"


KEY_SEPARATOR = " "
"""Between the keys in the property KEYS."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The text of `properties`, in the mapping's order.

    Raises:
        PropertiesTooLargeError: It would not fit its 16-bit length.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode("utf-8", "replace")
    if len(text) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLargeError(size_bytes=len(text), size_bytes_max=PROPERTIES_BYTES_MAX)
    return text


def decode_properties(text: bytes | str) -> dict[str, str]:
    """Every property in `text`; what is not one is left out, bytes that are not UTF-8 are replaced."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    properties: dict[str, str] = {}
    for piece in text.split(VALUE_END):
        name, _, value = piece.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def find_property(text: bytes, name: bytes) -> bytes | None:
    """The value of one property, without decoding the others; None when absent."""
    assert name
    assert b"\x01" not in name
    end = len(text)
    while True:
        start = text.rfind(b"\x02" + name + b"\x01", 0, end)
        if start >= 0:
            value_start = start + len(name) + 2
        elif text.startswith(name + b"\x01") and len(name) < end:
            value_start = len(name) + 1
        else:
            return None
        value_end = text.find(b"\x02", value_start)
        value = text[value_start:] if value_end < 0 else text[value_start:value_end]
        if value:
            return value
        if start < 0:
            return None
        end = start + 1  # an empty value counts as absent: an earlier piece of this name may hold one


def without_property(text: bytes, name: bytes) -> bytes:
    """The same text without the pieces of one name."""
    if name not in text:
        return text
    head = name + b"\x01"
    return b"\x02".join([piece for piece in text.split(b"\x02") if not piece.startswith(head)])
