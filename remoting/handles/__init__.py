"""Handles: the texts by which clients name a popped, retried or recalled message."""

from thermocline.remoting.handles.pop_offsets import (
    QUEUE_SEPARATOR,
    PoppedOffsets,
    message_offset_info,
    order_count_info,
    parse_order_counts,
    parse_popped_offsets,
    start_offset_info,
)
from thermocline.remoting.handles.pop_topics import (
    ORDER_REVIVE_QUEUE_ID,
    REVIVE_GROUP,
    RetryFlag,
    flagged_topic,
    normal_topic,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
    retry_flag,
    revive_topic,
)
from thermocline.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from thermocline.remoting.handles.receipt_handle import ReceiptHandle

__all__ = [
    "ORDER_REVIVE_QUEUE_ID",
    "QUEUE_SEPARATOR",
    "REVIVE_GROUP",
    "PoppedOffsets",
    "RecallHandle",
    "ReceiptHandle",
    "RetryFlag",
    "decode_recall_handle",
    "flagged_topic",
    "message_offset_info",
    "normal_topic",
    "order_count_info",
    "parse_order_counts",
    "parse_popped_offsets",
    "pop_retry_topic_v1",
    "pop_retry_topic_v2",
    "retry_flag",
    "revive_topic",
    "start_offset_info",
]
