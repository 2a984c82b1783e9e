"""Headers of the requests that bring messages: send in its three forms, reply, send back, recall, end of a transaction.

A send is one `SendMessageRequestHeader`, whichever names it came with: the long ones (codes 10, 324) or, from clients
since 3.x, one letter a field (310, 320, 325).
Source: SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from thermocline.remoting.header_codec import (
    Header,
    Int,
    Long,
    PhysicalOffsetLong,
    QueueOffsetLong,
    RpcHeader,
    TopicHeader,
    TopicQueueHeader,
    decode_header,
    encode_header,
)
from thermocline.remoting.request_code import RequestCode

SEND_V2_CODES = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
"""The codes whose header has one letter a field."""


class SendMessageRequestHeader(TopicQueueHeader, kw_only=True, gc=False):
    """SEND_MESSAGE 10, SEND_REPLY_MESSAGE 324."""

    producer_group: str
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int = 0
    born_timestamp: Long = 0
    flag: Int = 0
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int | None = None


class SendMessageRequestHeaderV2(Header, kw_only=True, gc=False):
    """SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, SEND_REPLY_MESSAGE_V2 325: the same with one letter a field."""

    decodes_itself: ClassVar[bool] = True

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(default="TBW102", name="c")
    default_topic_queue_nums: Int = msgspec.field(default=4, name="d")
    queue_id: Int = msgspec.field(name="e")
    sys_flag: Int = msgspec.field(default=0, name="f")
    born_timestamp: Long = msgspec.field(default=0, name="g")
    flag: Int = msgspec.field(default=0, name="h")
    properties: str | None = msgspec.field(default=None, name="i")
    reconsume_times: Int | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: Int | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


def decode_send_header(code: int, ext_fields: Mapping[str, str] | None) -> SendMessageRequestHeader:
    """The header of a send request, by its code.

    Raises:
        InvalidRequestError: See `decode_header`.
    """
    if code not in SEND_V2_CODES:
        return decode_header(SendMessageRequestHeader, ext_fields)
    letters = decode_header(SendMessageRequestHeaderV2, ext_fields)
    return SendMessageRequestHeader(
        producer_group=letters.producer_group,
        topic=letters.topic,
        default_topic=letters.default_topic,
        default_topic_queue_nums=letters.default_topic_queue_nums,
        queue_id=letters.queue_id,
        sys_flag=letters.sys_flag,
        born_timestamp=letters.born_timestamp,
        flag=letters.flag,
        properties=letters.properties,
        reconsume_times=letters.reconsume_times,
        unit_mode=letters.unit_mode,
        batch=letters.batch,
        max_reconsume_times=letters.max_reconsume_times,
        broker_name=letters.broker_name,
    )


def encode_send_header(code: int, header: SendMessageRequestHeader) -> dict[str, str]:
    """The `extFields` of a send request, by its code. V2 is written field by field: `encode_header` takes twice as
    long."""
    if code not in SEND_V2_CODES:
        return encode_header(header)
    fields = {
        "a": header.producer_group,
        "b": header.topic,
        "c": header.default_topic,
        "d": str(header.default_topic_queue_nums),
        "e": str(header.queue_id),
        "f": str(header.sys_flag),
        "g": str(header.born_timestamp),
        "h": str(header.flag),
    }
    if header.properties is not None:
        fields["i"] = header.properties
    if header.reconsume_times is not None:
        fields["j"] = str(header.reconsume_times)
    if header.unit_mode is not None:
        fields["k"] = "true" if header.unit_mode else "false"
    if header.max_reconsume_times is not None:
        fields["l"] = str(header.max_reconsume_times)
    if header.batch is not None:
        fields["m"] = "true" if header.batch else "false"
    if header.broker_name is not None:
        fields["n"] = header.broker_name
    return fields


class SendMessageResponseHeader(Header, kw_only=True):
    """The answer to every send; `msg_id` holds several ids, joined by commas, for a batch."""

    decodes_itself: ClassVar[bool] = True

    msg_id: str
    queue_id: Int
    queue_offset: QueueOffsetLong
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ReplyMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT 326, broker to client."""

    producer_group: str
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int = 0
    born_timestamp: Long = 0
    flag: Int = 0
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long


class ConsumerSendMsgBackRequestHeader(RpcHeader, kw_only=True):
    """CONSUMER_SEND_MSG_BACK 36; `offset` is the physical offset of the message."""

    offset: PhysicalOffsetLong
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransactionRequestHeader(RpcHeader, kw_only=True):
    """END_TRANSACTION 37."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: QueueOffsetLong
    commit_log_offset: PhysicalOffsetLong
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcHeader, kw_only=True):
    """CHECK_TRANSACTION_STATE 39, broker to client."""

    topic: str | None = None
    tran_state_table_offset: QueueOffsetLong
    commit_log_offset: PhysicalOffsetLong
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class RecallMessageRequestHeader(TopicHeader, kw_only=True):
    """RECALL_MESSAGE 370."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """The answer to RECALL_MESSAGE."""

    msg_id: str


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE 323."""

    topic: str | None = None
    msg_id: str | None = None
