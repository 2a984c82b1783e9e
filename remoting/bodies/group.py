"""Bodies about consumer groups: configuration, progress, and what their members are doing.

Source: SubscriptionGroupConfig.java, ConsumeStats.java, ConsumerRunningInfo.java and others, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from thermocline.remoting.bodies.body import Body, DialectBody, FrozenBody
from thermocline.remoting.bodies.client import SubscriptionData
from thermocline.remoting.bodies.topic import DataVersion, MessageQueue
from thermocline.remoting.header_codec import Int, Long, PhysicalOffsetLong, QueueOffsetLong
from thermocline.remoting.json_conversion import EXTENSION, enum_names
from thermocline.remoting.offsets import LOG_START, QUEUE_START

_RETRY_DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class ExponentialRetryPolicy(Body, kw_only=True):
    """Wait `initial * multiplier^n` ms before the n-th repetition, at most `max`."""

    initial: Long = 5_000
    max: Long = 7_200_000
    multiplier: Long = 2


class CustomizedRetryPolicy(Body, kw_only=True):
    """Wait these ms, one after another."""

    next: list[Long] = field(default_factory=lambda: [seconds * 1000 for seconds in _RETRY_DELAYS_S])


class GroupRetryPolicy(Body, kw_only=True):
    """How long a group waits before a message is consumed again."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: Annotated[str, enum_names("EXPONENTIAL", "CUSTOMIZED")] = "CUSTOMIZED"


class SimpleSubscriptionData(FrozenBody, frozen=True, kw_only=True):
    """A subscription that belongs to the group's configuration."""

    expression: str = "*"
    expression_type: str = "TAG"
    topic: str = ""
    version: Long = 0


class SubscriptionGroupConfig(Body, kw_only=True):
    """How a consumer group is set up on one broker."""

    attributes: dict[str, str] = field(default_factory=dict)
    broker_id: Long = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int = 15
    group_name: str = ""
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: Int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int = 16
    retry_queue_nums: Int = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: Long = 1


class SubscriptionGroupListBody(Body, kw_only=True):
    """The request body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class SubscriptionGroupTableBody(Body, kw_only=True):
    """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG, and `config/subscriptionGroup.json`."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int]] = field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)


class GroupForbidden(Body, kw_only=True):
    """The answer to UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str = ""
    readable: bool | None = None
    topic: str = ""


class GroupList(Body, kw_only=True):
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = field(default_factory=list)


class OffsetWrapper(Body, kw_only=True):
    """How far a group is in one queue. Tools work out a lag as `broker_offset - consumer_offset`; `end_offset`, a
    member of ours: the queue's end, where that is not the broker offset (broker/processors/stats.py)."""

    broker_offset: QueueOffsetLong = QUEUE_START
    consumer_offset: QueueOffsetLong = QUEUE_START
    last_timestamp: Long = 0
    pull_offset: QueueOffsetLong = QUEUE_START
    end_offset: Annotated[QueueOffsetLong | None, EXTENSION] = None


class ConsumeStats(DialectBody, kw_only=True):
    """The answer to GET_CONSUME_STATS."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)


class ConsumeStatsList(DialectBody, kw_only=True):
    """The answer to GET_BROKER_CONSUME_STATS."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: Long = 0
    total_inflight_diff: Long = 0


class ResetOffsetBody(DialectBody, kw_only=True):
    """The answer to INVOKE_BROKER_TO_RESET_OFFSET, the request body of RESET_CONSUMER_CLIENT_OFFSET."""

    offset_table: dict[MessageQueue, QueueOffsetLong] = field(default_factory=dict)


class MessageQueueForC(Body, kw_only=True):
    """One queue and its offset, for clients that cannot read objects as keys."""

    broker_name: str = ""
    offset: QueueOffsetLong = QUEUE_START
    queue_id: Int = 0
    topic: str = ""


class ResetOffsetBodyForC(Body, kw_only=True):
    """`ResetOffsetBody` for C++ clients."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


class GetConsumerStatusBody(DialectBody, kw_only=True):
    """The answers to GET_CONSUMER_STATUS_FROM_CLIENT and INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    consumer_table: dict[str, dict[MessageQueue, Long]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)


ConsumeResultName = Annotated[
    str, enum_names("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL")
]


class ConsumeMessageDirectlyResult(Body, kw_only=True):
    """A client's answer to CONSUME_MESSAGE_DIRECTLY."""

    auto_commit: bool = True
    consume_result: ConsumeResultName | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Long = 0


class ProcessQueueInfo(Body, kw_only=True):
    """The state of one queue in a push consumer."""

    cached_msg_count: Int = 0
    cached_msg_max_offset: QueueOffsetLong = QUEUE_START
    cached_msg_min_offset: QueueOffsetLong = QUEUE_START
    cached_msg_size_in_mib: Int = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: QueueOffsetLong = QUEUE_START
    droped: bool = False
    last_consume_timestamp: Long = 0
    last_lock_timestamp: Long = 0
    last_pull_timestamp: Long = 0
    locked: bool = False
    transaction_msg_count: Int = 0
    transaction_msg_max_offset: QueueOffsetLong = QUEUE_START
    transaction_msg_min_offset: QueueOffsetLong = QUEUE_START
    try_unlock_times: Long = 0


class PopProcessQueueInfo(Body, kw_only=True):
    """The state of one queue in a POP consumer."""

    droped: bool = False
    last_pop_timestamp: Long = 0
    wait_ack_count: Int = 0


class ConsumeStatus(Body, kw_only=True):
    """How a consumer is doing with one topic."""

    consume_failed_msgs: Long = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(DialectBody, kw_only=True):
    """A client's answer to GET_CONSUMER_RUNNING_INFO; a broker passes it on unread."""

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    user_consumer_info: dict[str, str] = field(default_factory=dict)


class QuerySubscriptionResponseBody(Body, kw_only=True):
    """The answer to QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str = ""
    subscription_data: SubscriptionData | None = None
    topic: str = ""


class QueueTimeSpan(Body, kw_only=True):
    """The times of what one queue holds, and where a group is in it."""

    consume_time_stamp: Long = 0
    delay_time: Long = 0
    max_time_stamp: Long = 0
    message_queue: MessageQueue | None = None
    min_time_stamp: Long = 0


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class QueryCorrectionOffsetBody(DialectBody, kw_only=True):
    """The answer to QUERY_CORRECTION_OFFSET."""

    correction_offsets: dict[Int, QueueOffsetLong] = field(default_factory=dict)


class ConsumeQueueData(Body, kw_only=True):
    """One unit of a consume queue."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: PhysicalOffsetLong = LOG_START
    physic_size: Int = 0
    tags_code: Long = 0


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_QUEUE."""

    filter_data: str | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None
