"""Headers of the requests about a broker's topics, configuration and statistics.

Source: the header classes of the same names, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.header_codec import Header, Int, PhysicalOffsetLong, RpcHeader, TopicHeader


class CreateTopicRequestHeader(TopicHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC 17, UPDATE_AND_CREATE_STATIC_TOPIC 513."""

    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: Int = 8
    write_queue_nums: Int = 8
    perm: Int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class CreateTopicListRequestHeader(RpcHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST 18."""


class DeleteTopicRequestHeader(TopicHeader, kw_only=True):
    """DELETE_TOPIC_IN_BROKER 215."""

    topic: str


class GetTopicConfigRequestHeader(TopicHeader, kw_only=True):
    """GET_TOPIC_CONFIG 351."""

    topic: str


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """GET_ALL_TOPIC_CONFIG 21; all three absent from old clients, which want everything at once."""

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """The answer to GET_ALL_TOPIC_CONFIG; absent from old brokers, which send everything at once."""

    total_topic_num: Int | None = None


class GetTopicStatsInfoRequestHeader(TopicHeader, kw_only=True):
    """GET_TOPIC_STATS_INFO 202."""

    topic: str


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """The answer to GET_BROKER_CONFIG 26; `version` is a DataVersion in JSON."""

    version: str


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS 317."""

    is_order: bool = False


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA 315."""

    stats_name: str
    stats_key: str


class ExchangeHAInfoHeader(Header, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO 906, request and answer."""

    master_ha_address: str | None = None
    master_flush_offset: PhysicalOffsetLong | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(Header, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET 908."""

    master_flush_offset: PhysicalOffsetLong
