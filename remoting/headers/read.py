"""Headers of the requests that read messages and offsets: pull, query by key or id, offsets of queues and groups.

Source: PullMessageRequestHeader.java and its neighbours, Apache RocketMQ 5.3; QUERY_MESSAGE's index type, 5.5.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from thermocline.remoting.header_codec import (
    Header,
    Int,
    Long,
    PhysicalOffsetLong,
    QueueOffsetLong,
    TopicHeader,
    TopicQueueHeader,
)
from thermocline.remoting.offsets import QUEUE_START


class PullMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """PULL_MESSAGE 11, LITE_PULL_MESSAGE 361."""

    decodes_itself: ClassVar[bool] = True

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: QueueOffsetLong
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: QueueOffsetLong = QUEUE_START
    suspend_timeout_millis: Long = 0
    subscription: str | None = None
    sub_version: Long = 0
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_forward_client_id: str | None = msgspec.field(default=None, name="proxyFrowardClientId")


class PullMessageResponseHeader(Header, kw_only=True):
    """The answer to a pull."""

    decodes_itself: ClassVar[bool] = True

    suggest_which_broker_id: Long
    next_begin_offset: QueueOffsetLong
    min_offset: QueueOffsetLong
    max_offset: QueueOffsetLong
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class QueryMessageRequestHeader(TopicHeader, kw_only=True):
    """QUERY_MESSAGE 12; `index_type`: K key, U unique id, T tag (clients since 5.5)."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    unique_key_query: str | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header, kw_only=True):
    """The answer to QUERY_MESSAGE."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: PhysicalOffsetLong


class ViewMessageRequestHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID 33; `offset` is the physical offset."""

    topic: str | None = None
    offset: PhysicalOffsetLong


class SearchOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP 29; `boundary_type`: `lower` or `upper`, also in capitals."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


class GetMaxOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """GET_MAX_OFFSET 30."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMinOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """GET_MIN_OFFSET 31."""

    topic: str
    queue_id: Int


class OffsetResponseHeader(Header, kw_only=True):
    """The answer to codes 14, 29, 30 and 31."""

    offset: QueueOffsetLong


class GetEarliestMsgStoretimeRequestHeader(TopicQueueHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME 32."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """The answer to GET_EARLIEST_MSG_STORETIME; -1 when there is no message."""

    timestamp: Long


class QueryConsumerOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET 14; an absent `set_zero_if_not_found` counts as true."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET 15."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: QueueOffsetLong


class QueryConsumeQueueRequestHeader(TopicQueueHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE 321."""

    topic: str
    queue_id: Int = 0
    index: QueueOffsetLong = QUEUE_START
    count: Int = 0
    consumer_group: str | None = None


class PopMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """POP_MESSAGE 200050."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: Int
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, kw_only=True):
    """The answer to a POP."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """ACK_MESSAGE 200051."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: QueueOffsetLong


class ChangeInvisibleTimeRequestHeader(TopicQueueHeader, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME 200053."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: QueueOffsetLong
    invisible_time: Long
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """The answer to CHANGE_MESSAGE_INVISIBLETIME."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


class PeekMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """PEEK_MESSAGE 200052."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int


class NotificationRequestHeader(TopicQueueHeader, kw_only=True):
    """NOTIFICATION 200054."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(Header, kw_only=True):
    """The answer to NOTIFICATION."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(TopicQueueHeader, kw_only=True):
    """POLLING_INFO 200055."""

    consumer_group: str
    topic: str
    queue_id: Int


class PollingInfoResponseHeader(Header, kw_only=True):
    """The answer to POLLING_INFO."""

    polling_num: Int
