"""NameServer processor: one method a request, from a decoded command to its answer.

    100 PUT_KV_CONFIG                 104 UNREGISTER_BROKER             224 GET_TOPICS_BY_CLUSTER
    101 GET_KV_CONFIG                 105 GET_ROUTEINFO_BY_TOPIC        304 GET_SYSTEM_TOPIC_LIST_FROM_NS
    102 DELETE_KV_CONFIG              106 GET_BROKER_CLUSTER_INFO       311-313 unit topic lists
    219 GET_KVLIST_BY_NAMESPACE       205 WIPE_WRITE_PERM_OF_BROKER     318 UPDATE_NAMESRV_CONFIG
    103 REGISTER_BROKER               206 GET_ALL_TOPIC_LIST            319 GET_NAMESRV_CONFIG
    217 REGISTER_TOPIC_IN_NAMESRV     216 DELETE_TOPIC_IN_NAMESRV       322 QUERY_DATA_VERSION
    901 GET_BROKER_MEMBER_GROUP       327 ADD_WRITE_PERM_OF_BROKER      904 BROKER_HEARTBEAT

Errors leave as exceptions, which the server turns into responses; any other code is "not supported".
Source: namesrv/processor/DefaultRequestProcessor.java, ClientRequestProcessor.java, Apache RocketMQ 5.3.
"""

import logging
import zlib
from collections.abc import Callable, Mapping

from thermocline.namesrv.changed_settings import change_settings
from thermocline.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KVConfig
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.official_settings import FIXED
from thermocline.namesrv.route_limits import RouteLimits
from thermocline.namesrv.route_registry import BrokerRegistration, RouteRegistry
from thermocline.namesrv.route_zones import route_in_zone
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.bodies import (
    TOPIC_SYS_FLAG_UNIT,
    TOPIC_SYS_FLAG_UNIT_SUB,
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler, LimitCounts
from thermocline.remoting.errors import InvalidRequestError, QueryNotFoundError, TopicNotFoundError
from thermocline.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import format_config_text

logger = logging.getLogger(__name__)

ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"
HELP_TEXT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
DISABLED = "disable"

ZLIB_FIRST_BYTE = 0x78
WRAPPED_BODY_VERSION = 37
"""Release 3.0.11: before it, brokers sent their topics without filter servers."""


class NameServerProcessor:
    """Answers requests out of a registry and a KV configuration. Owner: the NameServer's event loop."""

    def __init__(
        self,
        registry: RouteRegistry,
        kv: KVConfig,
        config: NameServerConfig,
        *,
        clock: Callable[[], int],
        changes: StateFile | None = None,
        limits: LimitCounts | None = None,
    ) -> None:
        """`clock`: milliseconds, never set. `changes`: where settings that change while it runs are kept. `limits`:
        where refusals are counted."""
        self._limits = RouteLimits(config=lambda: self.config, limits=limits or LimitCounts())
        self.config = config
        self._changes = changes or StateFile("")
        self._registry = registry
        self._kv = kv
        self._clock = clock
        self._started_ms = clock()

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_subscribed_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_subscribed_plain_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    # -- brokers -------------------------------------------------------------------------------------------------------

    def register_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """103: take over a broker's topics."""
        header = command.header(RegisterBrokerRequestHeader)
        if header.body_crc32 != 0 and zlib.crc32(command.body) & 0x7FFFFFFF != header.body_crc32:
            logger.warning("registration refused, checksum differs from=%s", connection.remote_address)
            raise InvalidRequestError("crc32 not match")
        body = decode_registration(command, topics_max=self.config.broker_topics_max)
        wrapper = body.topic_config_serialize_wrapper
        result = self._registry.register(
            BrokerRegistration(
                cluster=header.cluster_name,
                broker_name=header.broker_name,
                broker_id=header.broker_id,
                address=header.broker_addr,
                ha_address=header.ha_server_addr,
                zone_name=(command.ext_fields or {}).get(ZONE_NAME),
                enable_acting_master=header.enable_acting_master,
                expiry_ms=header.heartbeat_timeout_millis,
                data_version=wrapper.data_version,
                topics=wrapper.topic_config_table,
                mappings=wrapper.topic_queue_mapping_info_map,
                filter_servers=tuple(body.filter_server_list),
            ),
            connection,
        )
        order_topics = self._kv.namespace(ORDER_TOPIC_NAMESPACE) if self.config.return_order_topics else None
        return RemotingCommand.response(
            command,
            header=RegisterBrokerResponseHeader(ha_server_addr=result.ha_address, master_addr=result.master_address),
            body=b"" if order_topics is None else KVTable(table=dict(order_topics)).encode(),
        )

    def unregister_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """104: a broker takes its leave."""
        header = command.header(UnregisterBrokerRequestHeader)
        self._registry.unregister(
            cluster=header.cluster_name, broker_name=header.broker_name, address=header.broker_addr
        )
        return RemotingCommand.response(command)

    def broker_heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """904: a sign of life."""
        header = command.header(BrokerHeartbeatRequestHeader)
        self._registry.heartbeat(
            cluster=header.cluster_name, broker_name=header.broker_name, address=header.broker_addr
        )
        return RemotingCommand.response(command)

    def query_data_version(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """322: whether a broker's topics are newer than what is known; a sign of life too."""
        header = command.header(QueryDataVersionRequestHeader)
        asked = DataVersion.decode(command.body) if command.body else None
        version = self._registry.data_version(
            cluster=header.cluster_name, broker_name=header.broker_name, address=header.broker_addr
        )
        self._registry.heartbeat(
            cluster=header.cluster_name, broker_name=header.broker_name, address=header.broker_addr
        )
        return RemotingCommand.response(
            command,
            header=QueryDataVersionResponseHeader(changed=version is None or version != asked),
            body=b"" if version is None else version.encode(),
        )

    def register_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """217: add one topic's queues at known brokers."""
        header = command.header(RegisterTopicRequestHeader)
        if command.body:
            self._registry.add_queue_data(header.topic, TopicRouteData.decode(command.body).queue_datas)
        return RemotingCommand.response(command)

    def get_broker_member_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """901: the addresses of one broker name."""
        header = command.header(GetBrokerMemberGroupRequestHeader)
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._registry.broker_addresses(header.broker_name),
        )
        return RemotingCommand.response(
            command, body=GetBrokerMemberGroupResponseBody(broker_member_group=group).encode()
        )

    # -- routes --------------------------------------------------------------------------------------------------------

    def get_route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """105: where a topic's queues are."""
        header = command.header(GetRouteInfoRequestHeader)
        config = self.config
        waited_ms = self._clock() - self._started_ms
        if config.wait_for_service and waited_ms < config.wait_for_service_seconds * 1000:
            raise InvalidRequestError("name server not ready")
        route = self._registry.route(header.topic)
        if route is None:
            raise TopicNotFoundError(f"No topic route info in name server for the topic: {header.topic}{HELP_TEXT}")
        if config.order_message:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
        fields = command.ext_fields or {}
        zone_name = fields.get(ZONE_NAME, "").strip()
        if zone_name and fields.get(ZONE_MODE, "").lower() == "true":
            body = route_in_zone(route, zone_name).encode()
        else:
            body = route.encode_for(command.version, accepts_standard_json=bool(header.accept_standard_json_only))
        return RemotingCommand.response(command, body=body)

    def get_cluster_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """106: all brokers and clusters."""
        return RemotingCommand.response(command, body=self._registry.cluster_info().encode())

    def wipe_write_perm(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """205: let a broker's topics be read only."""
        header = command.header(WipeWritePermOfBrokerRequestHeader)
        count = self._registry.wipe_write_perm(header.broker_name)
        return RemotingCommand.response(command, header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """327: let a broker's topics be written again."""
        header = command.header(AddWritePermOfBrokerRequestHeader)
        count = self._registry.add_write_perm(header.broker_name)
        return RemotingCommand.response(command, header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    # -- topic lists ---------------------------------------------------------------------------------------------------

    def get_all_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """206: the names of all topics."""
        if not self.config.all_topic_list:
            raise InvalidRequestError(DISABLED)
        return _topic_list(command, self._registry.topics())

    def delete_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """216: forget a topic."""
        header = command.header(DeleteTopicFromNamesrvRequestHeader)
        self._registry.delete_topic(header.topic, cluster=header.cluster_name or None)
        return RemotingCommand.response(command)

    def get_topics_by_cluster(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """224: the topics of one cluster."""
        self._check_topic_list()
        header = command.header(GetTopicsByClusterRequestHeader)
        return _topic_list(command, self._registry.topics_of_cluster(header.cluster))

    def get_system_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """304: cluster and broker names."""
        names, address = self._registry.system_topics()
        return _topic_list(command, names, broker_address=address)

    def get_unit_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """311: topics with the unit flag."""
        self._check_topic_list()
        return _topic_list(command, self._registry.topics_by_flag(with_flag=TOPIC_SYS_FLAG_UNIT))

    def get_unit_subscribed_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """312: topics that have unit subscriptions."""
        self._check_topic_list()
        return _topic_list(command, self._registry.topics_by_flag(with_flag=TOPIC_SYS_FLAG_UNIT_SUB))

    def get_unit_subscribed_plain_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """313: topics that have unit subscriptions and are no unit topics themselves."""
        self._check_topic_list()
        topics = self._registry.topics_by_flag(with_flag=TOPIC_SYS_FLAG_UNIT_SUB, without_flag=TOPIC_SYS_FLAG_UNIT)
        return _topic_list(command, topics)

    # -- configuration -------------------------------------------------------------------------------------------------

    def put_kv_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """100: set a key."""
        header = command.header(PutKVConfigRequestHeader)
        size = self._kv.size_with(header.namespace, header.key, header.value)
        self._limits.check_kv_bytes(address=connection.remote_address, size_bytes=size)
        self._kv.put(header.namespace, header.key, header.value)
        return RemotingCommand.response(command)

    def get_kv_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """101: a key's value. A missing one is answered with the (empty) header all the same."""
        header = command.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            return RemotingCommand.response(
                command,
                ResponseCode.QUERY_NOT_FOUND,
                header=GetKVConfigResponseHeader(),
                remark=f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return RemotingCommand.response(command, header=GetKVConfigResponseHeader(value=value))

    def delete_kv_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """102: remove a key."""
        header = command.header(DeleteKVConfigRequestHeader)
        self._kv.delete(header.namespace, header.key)
        return RemotingCommand.response(command)

    def get_kv_list(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """219: all keys of a namespace."""
        header = command.header(GetKVListByNamespaceRequestHeader)
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise QueryNotFoundError(f"No config item, Namespace: {header.namespace}")
        return RemotingCommand.response(command, body=KVTable(table=dict(table)).encode())

    def update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """318: change settings; durable before the answer. Unknown names are passed over."""
        self.config = change_settings(
            self.config, bytes(command.body), kept_in=self._changes, by=connection.remote_address
        )
        return RemotingCommand.response(command)

    def get_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """319: all settings, and what cannot be otherwise."""
        return RemotingCommand.response(command, body=format_config_text({**FIXED, **self.config.shown()}).encode())

    def _check_topic_list(self) -> None:
        if not self.config.topic_list:
            raise InvalidRequestError(DISABLED)


def decode_registration(command: RemotingCommand, *, topics_max: int) -> RegisterBrokerBody:
    """The body of a registration. Without one, a broker has no topics.

    Some brokers (5.5.0 among them) compress the body and say that they did not: its first byte tells.

    Raises:
        InvalidRequestError: The body is of no known form, or it is compressed and has more than `topics_max` topics.
    """
    body = bytes(command.body)
    if not body:
        return RegisterBrokerBody()
    if body[0] == ZLIB_FIRST_BYTE:
        return RegisterBrokerBody.decode_compressed(body, topics_max=topics_max)
    if command.version < WRAPPED_BODY_VERSION:
        return RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigSerializeWrapper.decode(body))
    return RegisterBrokerBody.decode(body)


def _topic_list(command: RemotingCommand, topics: list[str], *, broker_address: str | None = None) -> RemotingCommand:
    body = TopicList(topic_list=topics, broker_addr=broker_address).encode()
    return RemotingCommand.response(command, body=body)
