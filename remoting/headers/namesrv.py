"""Headers of the requests that a NameServer serves.

Source: the header classes of the same names under header/namesrv, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.header_codec import Header, Int, Long, PhysicalOffsetLong, TopicHeader


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER 103; the checksum is the CRC-32 of the body as sent, & 0x7fffffff, or 0 for none."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str | None = None
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """The answer to REGISTER_BROKER; filled for slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(Header, kw_only=True):
    """UNREGISTER_BROKER 104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """BROKER_HEARTBEAT 904."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: PhysicalOffsetLong | None = None
    confirm_offset: PhysicalOffsetLong | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """The answer to QUERY_DATA_VERSION."""

    changed: bool


class GetRouteInfoRequestHeader(TopicHeader, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC 105."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterTopicRequestHeader(TopicHeader, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV 217."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicHeader, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV 216; with `cluster_name` only that cluster's brokers."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER 224."""

    cluster: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """PUT_KV_CONFIG 100."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """GET_KV_CONFIG 101."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The answer to GET_KV_CONFIG."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """DELETE_KV_CONFIG 102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE 219."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER 205."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER 327."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """GET_BROKER_MEMBER_GROUP 901."""

    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE 905, NameServer to broker."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
