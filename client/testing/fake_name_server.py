"""FakeNameServer: routes of the fake brokers, computed for each request, and KV configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from thermocline.client.testing.fault_plan import FaultPlan
from thermocline.remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    KVTable,
    QueueData,
    TopicList,
    TopicRouteData,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, RemotingServer
from thermocline.remoting.errors import QueryNotFoundError, TopicNotFoundError, UnsupportedRequestError
from thermocline.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import format_config_text, parse_config_text

if TYPE_CHECKING:
    from thermocline.client.testing.fake_node import FakeNode

__all__ = ["FakeNameServer"]


class FakeNameServer:
    """The NameServer of a fake cluster. Belongs to the fake cluster's loop."""

    def __init__(self, nodes: list[FakeNode], *, zones: Mapping[str, str]) -> None:
        self._nodes = nodes
        self._zones = zones
        self.address = ""
        self.faults = FaultPlan()
        self.server = RemotingServer(self)
        self.hidden_brokers: set[str] = set()
        self.moved_brokers: dict[str, str] = {}
        """Broker name -> the address that is named instead of its own; "": it has no master."""
        self._kv: dict[str, dict[str, str]] = {}
        self._config = {"orderMessageEnable": "false", "scanNotActiveBrokerInterval": "5000"}
        self._served: dict[int, Callable[[RemotingCommand], RemotingCommand]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topic_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topic_list,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._accept,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
        }

    async def start(self, host: str) -> None:
        """Listen on a free port."""
        self.address = f"{host}:{await self.server.start(host, 0)}"

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        await self.server.close(timeout_ms=1_000)

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Serve one request; see `RequestHandler`."""
        self.faults.record(command, connection.remote_address)
        goes_wrong, answer = self.faults.next_fault(command)
        if goes_wrong:
            return answer
        serve = self._served.get(command.code)
        if serve is None:
            raise UnsupportedRequestError(f" request type {command.code} not supported")
        return serve(command)

    def connection_opened(self, connection: Connection) -> None:
        """Do nothing: the fake keeps no state for connections."""

    def connection_closed(self, connection: Connection) -> None:
        """Do nothing: the fake keeps no state for connections."""

    def _live_nodes(self) -> list[FakeNode]:
        return [node for node in self._nodes if node.name not in self.hidden_brokers]

    def _broker_data(self, node: FakeNode) -> BrokerData:
        address = self.moved_brokers.get(node.name, node.address)
        addresses = {0: address} if address else {1: node.address}
        return BrokerData(broker_name=node.name, cluster=node.cluster, broker_addrs=addresses)

    def _route(self, command: RemotingCommand) -> RemotingCommand:
        topic = command.header(GetRouteInfoRequestHeader).topic
        nodes = [node for node in self._live_nodes() if topic in node.store.topics]
        if not nodes:
            raise TopicNotFoundError(f"No topic route info in name server for the topic: {topic}\nSee the manual.")
        fields = command.ext_fields or {}
        if fields.get("__ZONE_MODE") == "true":
            nodes = [node for node in nodes if self._zones.get(node.name) == fields.get("__ZONE_NAME")]
        route = TopicRouteData(
            broker_datas=[self._broker_data(node) for node in nodes],
            queue_datas=[
                QueueData(
                    broker_name=node.name,
                    perm=node.store.topic(topic).config.perm,
                    read_queue_nums=node.store.topic(topic).config.read_queue_nums,
                    write_queue_nums=node.store.topic(topic).config.write_queue_nums,
                )
                for node in nodes
            ],
        )
        return RemotingCommand.response(command, body=route.encode_standard())

    def _cluster_info(self, command: RemotingCommand) -> RemotingCommand:
        clusters: dict[str, list[str]] = {}
        for node in self._live_nodes():
            clusters.setdefault(node.cluster, []).append(node.name)
        info = ClusterInfo(
            broker_addr_table={node.name: self._broker_data(node) for node in self._live_nodes()},
            cluster_addr_table=clusters,
        )
        return RemotingCommand.response(command, body=info.encode())

    def _topic_list(self, command: RemotingCommand) -> RemotingCommand:
        names = sorted({name for node in self._live_nodes() for name in node.store.topics})
        return RemotingCommand.response(command, body=TopicList(topic_list=names).encode())

    def _accept(self, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command)

    def _put_kv(self, command: RemotingCommand) -> RemotingCommand:
        header = command.header(PutKVConfigRequestHeader)
        self._kv.setdefault(header.namespace, {})[header.key] = header.value
        return RemotingCommand.response(command)

    def _get_kv(self, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, {}).get(header.key)
        if value is None:
            raise QueryNotFoundError(f"No config item, Namespace: {header.namespace} Key: {header.key}")
        return RemotingCommand.response(command, header=GetKVConfigResponseHeader(value=value))

    def _delete_kv(self, command: RemotingCommand) -> RemotingCommand:
        header = command.header(DeleteKVConfigRequestHeader)
        self._kv.get(header.namespace, {}).pop(header.key, None)
        return RemotingCommand.response(command)

    def _list_kv(self, command: RemotingCommand) -> RemotingCommand:
        namespace = command.header(GetKVListByNamespaceRequestHeader).namespace
        if namespace not in self._kv:
            raise QueryNotFoundError(f"No config item, Namespace: {namespace}")
        return RemotingCommand.response(command, body=KVTable(table=self._kv[namespace]).encode())

    def _wipe_write_perm(self, command: RemotingCommand) -> RemotingCommand:
        name = command.header(WipeWritePermOfBrokerRequestHeader).broker_name
        count = self._change_perms(name, lambda perm: perm & ~PERM_WRITE)
        return RemotingCommand.response(command, header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def _add_write_perm(self, command: RemotingCommand) -> RemotingCommand:
        name = command.header(AddWritePermOfBrokerRequestHeader).broker_name
        count = self._change_perms(name, lambda _: PERM_READ | PERM_WRITE)
        return RemotingCommand.response(command, header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    def _get_config(self, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, body=format_config_text(self._config).encode())

    def _update_config(self, command: RemotingCommand) -> RemotingCommand:
        self._config.update(parse_config_text(bytes(command.body).decode()))
        return RemotingCommand.response(command)

    def _change_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = [topic for node in self._nodes if node.name == broker_name for topic in node.store.topics.values()]
        for topic in topics:
            topic.config.perm = change(topic.config.perm)
        return len(topics)
