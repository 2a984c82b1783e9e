"""Headers of the requests about clients, consumer groups and their progress.

Source: the header classes of the same names, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.header_codec import (
    Header,
    Int,
    Long,
    QueueOffsetLong,
    RpcHeader,
    TopicHeader,
    TopicQueueHeader,
)


class HeartbeatRequestHeader(RpcHeader, kw_only=True):
    """HEART_BEAT 34."""


class HeartbeatResponseHeader(Header, kw_only=True):
    """The answer to HEART_BEAT: bare ext fields in RocketMQ."""

    is_support_heart_beat_v2: bool = msgspec.field(default=True, name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: bool = msgspec.field(default=True, name="IS_SUB_CHANGE")


class UnregisterClientRequestHeader(RpcHeader, kw_only=True):
    """UNREGISTER_CLIENT 35."""

    client_id: str | None = msgspec.field(default=None, name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(RpcHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP 38."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcHeader, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED 40, broker to client."""

    consumer_group: str


class LockBatchMqRequestHeader(RpcHeader, kw_only=True):
    """LOCK_BATCH_MQ 41."""


class UnlockBatchMqRequestHeader(RpcHeader, kw_only=True):
    """UNLOCK_BATCH_MQ 42."""


class GetConsumeStatsRequestHeader(TopicHeader, kw_only=True):
    """GET_CONSUME_STATS 208; `topic_list` is joined by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST 203."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST 204."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(RpcHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO 307, to the broker and on to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(TopicHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY 309, to the broker and on to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    target_broker_name: str | None = msgspec.field(default=None, name="brokerName")
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class ResetOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET 222, RESET_CONSUMER_CLIENT_OFFSET 220."""

    group: str
    topic: str
    queue_id: Int = -1
    offset: QueueOffsetLong | None = None
    timestamp: Long = -1
    is_force: bool = False


class GetConsumerStatusRequestHeader(TopicHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223, GET_CONSUMER_STATUS_FROM_CLIENT 221."""

    topic: str
    group: str
    client_addr: str | None = None


class CloneGroupOffsetRequestHeader(RpcHeader, kw_only=True):
    """CLONE_GROUP_OFFSET 314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryTopicConsumeByWhoRequestHeader(TopicHeader, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO 300."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER 343."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER 345."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(TopicHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN 303."""

    topic: str
    group: str


class QueryCorrectionOffsetRequestHeader(TopicHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET 308."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class UpdateGroupForbiddenRequestHeader(TopicHeader, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN 353; without `readable` only read."""

    group: str
    topic: str
    readable: bool | None = None


class GetSubscriptionGroupConfigRequestHeader(RpcHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG 352."""

    group: str


class DeleteSubscriptionGroupRequestHeader(RpcHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP 207."""

    group_name: str
    clean_offset: bool = False


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201; all three absent from old clients, which want everything at once."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG; absent from old brokers, which send everything at once."""

    total_group_num: Int | None = None
