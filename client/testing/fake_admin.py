"""FakeAdmin: the requests of tools that one fake broker serves: topics, groups, statistics, lookups, configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from thermocline.remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    KVTable,
    MessageQueue,
    OffsetWrapper,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
    TopicConfig,
    TopicConfigTableBody,
    TopicOffset,
    TopicStatsTable,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    ConsumerOfflineError,
    GroupNotFoundError,
    InvalidParameterError,
    MQError,
    QueryNotFoundError,
)
from thermocline.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    ViewMessageRequestHeader,
)
from thermocline.remoting.offsets import LOG_START, QueueOffset
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import format_config_text, parse_config_text
from thermocline.remoting.topic_validation import check_group, check_topic

if TYPE_CHECKING:
    from thermocline.client.testing.fake_groups import Member
    from thermocline.client.testing.fake_node import FakeNode

__all__ = ["FakeAdmin"]

Serve: TypeAlias = "Callable[[Connection, RemotingCommand], RemotingCommand | Awaitable[RemotingCommand] | None]"

MEMBER_TIMEOUT_MS = 10_000


class FakeAdmin:
    """Serves tools from its node's memory."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self.config = {"brokerName": node.name, "brokerClusterName": node.cluster, "flushDiskType": "ASYNC_FLUSH"}
        self.served: dict[int, Serve] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group_config,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_group_config,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._topic_consumers,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset_offset,
            RequestCode.CLONE_GROUP_OFFSET: self._clone_offsets,
            RequestCode.GET_ALL_PRODUCER_INFO: self._producers,
            RequestCode.VIEW_BROKER_STATS_DATA: self._view_stats,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._clean,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._ask_member,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._ask_member,
            RequestCode.QUERY_MESSAGE: self._query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view_message,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_time,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._get_config,
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
        }

    # -- topics ------------------------------------------------------------------------------------------------------

    def _create_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(CreateTopicRequestHeader)
        check_topic(header.topic)
        present = self._node.store.topics.get(header.topic)
        attributes = {} if present is None else dict(present.config.attributes)
        for change in filter(None, (header.attributes or "").split(",")):
            name, _, value = change[1:].partition("=")
            if change[0] not in "+-":
                raise InvalidParameterError("an attribute starts with + or -", attribute=change)
            if change[0] == "+":
                attributes[name] = value
            else:
                attributes.pop(name, None)
        self._node.store.create_topic(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                order=header.order,
                attributes=attributes,
            )
        )
        return RemotingCommand.response(command)

    def _delete_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self._node.store.delete_topic(command.header(DeleteTopicRequestHeader).topic)
        return RemotingCommand.response(command)

    def _topic_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = self._node.store.topic(command.header(GetTopicConfigRequestHeader).topic)
        return RemotingCommand.response(command, body=topic.config.encode())

    def _all_topic_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        table = {name: topic.config for name, topic in self._node.store.topics.items()}
        body = TopicConfigTableBody(topic_config_table=table).encode()
        return RemotingCommand.response(command, ext_fields={"totalTopicNum": str(len(table))}, body=body)

    def _topic_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        name = command.header(GetTopicStatsInfoRequestHeader).topic
        topic = self._node.store.topic(name)
        table = TopicStatsTable(
            offset_table={
                self._queue(name, queue_id): TopicOffset(
                    min_offset=topic.min_offset(queue_id),
                    max_offset=QueueOffset(len(queue)),
                    last_update_timestamp=queue[-1].store_timestamp_ms if queue else 0,
                )
                for queue_id, queue in enumerate(topic.queues)
            }
        )
        return RemotingCommand.response(command, body=table.encode())

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._node.name, queue_id=queue_id)

    # -- groups ------------------------------------------------------------------------------------------------------

    def _create_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        config = SubscriptionGroupConfig.decode(command.body)
        check_group(config.group_name)
        self._node.group_configs[config.group_name] = config
        return RemotingCommand.response(command)

    def _delete_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        self._node.group_configs.pop(header.group_name, None)
        offsets = self._node.store.consumer_offsets
        if header.clean_offset:
            for key in [key for key in offsets if key[0] == header.group_name]:
                del offsets[key]
        return RemotingCommand.response(command)

    def _group_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        name = command.header(GetSubscriptionGroupConfigRequestHeader).group
        config = self._node.group_configs.get(name)
        if config is None:
            raise GroupNotFoundError(f"No group in this broker. group: {name}")
        return RemotingCommand.response(command, body=config.encode())

    def _all_group_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        table = dict(self._node.group_configs)
        body = SubscriptionGroupTableBody(subscription_group_table=table).encode()
        return RemotingCommand.response(command, ext_fields={"totalGroupNum": str(len(table))}, body=body)

    def _consume_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetConsumeStatsRequestHeader)
        store = self._node.store
        table: dict[MessageQueue, OffsetWrapper] = {}
        for (group, name, queue_id), offset in store.consumer_offsets.items():
            if group != header.consumer_group or (header.topic and header.topic != name) or name not in store.topics:
                continue
            queue = store.topic(name).queues[queue_id]
            table[self._queue(name, queue_id)] = OffsetWrapper(
                broker_offset=QueueOffset(len(queue)),
                consumer_offset=offset,
                pull_offset=offset,
                last_timestamp=queue[offset - 1].store_timestamp_ms if 0 < offset <= len(queue) else 0,
            )
        return RemotingCommand.response(command, body=ConsumeStats(offset_table=table).encode())

    def _consumer_connections(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        name = command.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._node.groups.consumers.get(name)
        if group is None:
            raise ConsumerOfflineError(f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=[_connection_of(member) for member in group.members.values()],
            subscription_table=group.subscriptions,
            consume_type=group.data.consume_type,
            message_model=group.data.message_model,
            consume_from_where=group.data.consume_from_where,
        )
        return RemotingCommand.response(command, body=body.encode())

    def _producer_connections(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        name = command.header(GetProducerConnectionListRequestHeader).producer_group
        members = self._node.groups.producers.get(name)
        if not members:
            raise MQError(f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=[_connection_of(member) for member in members.values()])
        return RemotingCommand.response(command, body=body.encode())

    def _topic_consumers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = command.header(QueryTopicConsumeByWhoRequestHeader).topic
        names = {group for group, name, _ in self._node.store.consumer_offsets if name == topic}
        names |= {name for name, group in self._node.groups.consumers.items() if topic in group.subscriptions}
        return RemotingCommand.response(command, body=GroupList(group_list=sorted(names)).encode())

    def _reset_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(ResetOffsetRequestHeader)
        store = self._node.store
        topic = store.topic(header.topic)
        offsets: dict[MessageQueue, QueueOffset] = {}
        for queue_id, queue in enumerate(topic.queues):
            if header.queue_id >= 0 and queue_id != header.queue_id:
                continue
            if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
                offset = header.offset
            elif header.timestamp < 0:
                offset = QueueOffset(len(queue))
            else:
                offset = store.offset_by_time(header.topic, queue_id, header.timestamp)
            key = (header.group, header.topic, queue_id)
            store.consumer_offsets[key] = offset
            store.pending_resets[key] = offset
            offsets[self._queue(header.topic, queue_id)] = offset
        self._node.end_waiting_pulls(header.topic)
        return RemotingCommand.response(command, body=ResetOffsetBody(offset_table=offsets).encode())

    def _clone_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(CloneGroupOffsetRequestHeader)
        offsets = self._node.store.consumer_offsets
        for (group, topic, queue_id), offset in list(offsets.items()):
            if group == header.src_group and header.topic in (None, topic):
                offsets[header.dest_group, topic, queue_id] = offset
        return RemotingCommand.response(command)

    def _producers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        table = {
            group: [
                ProducerInfo(
                    client_id=member.client_id,
                    language=member.language.name,
                    remote_ip=member.connection.remote_host[0],
                    version=member.version,
                )
                for member in members.values()
            ]
            for group, members in self._node.groups.producers.items()
        }
        return RemotingCommand.response(command, body=ProducerTableInfo(data=table).encode())

    def _view_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """What came into a topic, all of it within this minute; nothing else is counted."""
        header = command.header(ViewBrokerStatsDataRequestHeader)
        topic = self._node.store.topics.get(header.stats_key)
        if header.stats_name != "TOPIC_PUT_NUMS" or topic is None:
            raise MQError(f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        count = sum(map(len, topic.queues))
        body = BrokerStatsData(stats_minute=BrokerStatsItem(sum=count, tps=count / 60))
        return RemotingCommand.response(command, body=body.encode())

    def _clean(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """There are no files."""
        return RemotingCommand.response(command)

    async def _ask_member(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Pass a question on to the member that it names, and its answer back."""
        fields = dict(command.ext_fields or {})
        group = self._node.groups.consumers.get(fields.get("consumerGroup", ""))
        member = None if group is None else group.members.get(fields.get("clientId", ""))
        if member is None:
            raise ConsumerOfflineError("the consumer is not online")
        body = command.body
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            fields["brokerName"] = self._node.name
            place = decode_message_id(fields["msgId"]).physical_offset
            body = self._node.store.by_physical_offset[place].record
        question = RemotingCommand.request(command.code, ext_fields=fields, body=body)
        answer = await member.connection.call(question, timeout_ms=MEMBER_TIMEOUT_MS)
        return RemotingCommand.response(command, answer.code, remark=answer.remark, body=answer.body)

    # -- lookups -----------------------------------------------------------------------------------------------------

    def _query_message(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(QueryMessageRequestHeader)
        by_unique_key = header.unique_key_query == "true"
        found: list[bytes] = []
        for stored in reversed(self._node.store.by_physical_offset.values()):
            record = stored.decode()
            names = {record.unique_key} if by_unique_key else set((record.keys or "").split())
            if record.topic == header.topic and header.key in names and len(found) < header.max_num:
                found.append(stored.record)
        if not found:
            raise QueryNotFoundError("can not find message, maybe time range not correct")
        answer = QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=LOG_START)
        return RemotingCommand.response(command, header=answer, body=b"".join(found))

    def _view_message(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        offset = command.header(ViewMessageRequestHeader).offset
        stored = self._node.store.by_physical_offset.get(offset)
        if stored is None:
            raise MQError(f"can not find message by the offset, {offset}")
        return RemotingCommand.response(command, body=stored.record)

    def _earliest_time(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetEarliestMsgStoretimeRequestHeader)
        topic = self._node.store.topic(header.topic)
        queue = topic.queues[header.queue_id][topic.min_offset(header.queue_id) :]
        answer = GetEarliestMsgStoretimeResponseHeader(timestamp=queue[0].store_timestamp_ms if queue else -1)
        return RemotingCommand.response(command, header=answer)

    # -- configuration -----------------------------------------------------------------------------------------------

    def _runtime_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        count = len(self._node.store.by_physical_offset)
        table = {"brokerVersionDesc": "V5_5_0", "brokerActive": "true", "msgPutTotalTodayNow": str(count)}
        table |= {"putTps": "0.0 0.0 0.0", "getTransferredTps": "0.0 0.0 0.0"}
        return RemotingCommand.response(command, body=KVTable(table=table).encode())

    def _get_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = format_config_text(self.config).encode()
        return RemotingCommand.response(command, ext_fields={"version": "{}"}, body=body)

    def _update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.config.update(parse_config_text(bytes(command.body).decode()))
        return RemotingCommand.response(command)


def _connection_of(member: Member) -> ClientConnection:
    return ClientConnection(
        client_id=member.client_id,
        client_addr=member.connection.remote_address,
        language=member.language.name,
        version=member.version,
    )
