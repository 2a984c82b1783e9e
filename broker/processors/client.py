"""Client requests: heartbeats, unregistration, and lists of connected clients.

    34 HEART_BEAT             38 GET_CONSUMER_LIST_BY_GROUP        203 GET_CONSUMER_CONNECTION_LIST
    35 UNREGISTER_CLIENT      46 CHECK_CLIENT_CONFIG               204 GET_PRODUCER_CONNECTION_LIST
                                                                   328 GET_ALL_PRODUCER_INFO
A heartbeat names every group of a client. For each consumer group its configuration and its retry topic are made when
they are missing; only a heartbeat that has a topic made waits for the disk. A group that may not be made is passed
over. One that is held (tables/group_holds.py) is not joined: all else in the heartbeat is noted, and it is answered
SYSTEM_BUSY, upon which clients send it again. The same holds for groups and subscriptions beyond a client's limits
(tables/client_usage.py).

Clients behind proxies (tables/proxied_clients.py) are shown by 203, 204 and 328. 38 leaves them out: they share no
queues.
Source: broker/processor/ClientManageProcessor.java, ConsumerManageProcessor.java, Apache RocketMQ 5.3.
"""

from collections.abc import Callable, Mapping

from thermocline.broker.processors.client_lists import consumer_connection, producer_connections, producer_infos
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import (
    ClientRegistry,
    CompileNeeded,
    GroupHolds,
    GroupTable,
    MessageFilters,
    ProxiedClients,
    TopicTable,
    check_names,
    is_tag_type,
)
from thermocline.remoting.bodies import (
    CONSUME_ACTIVELY,
    TOPIC_SYS_FLAG_UNIT_SUB,
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    ProducerConnection,
    ProducerTableInfo,
    SubscriptionGroupConfig,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Answer, Connection, Handler
from thermocline.remoting.errors import (
    BrokerBusyError,
    ConsumerOfflineError,
    GroupHeldError,
    InvalidRequestError,
    UnavailableError,
)
from thermocline.remoting.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import retry_topic


class ClientProcessor:
    """Serves clients' heartbeats and leaves, and queries about connected clients."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        groups: GroupTable,
        holds: GroupHolds,
        clients: ClientRegistry,
        proxied: ProxiedClients,
        filters: MessageFilters,
        consumer_left: Callable[[Connection, str], None],
        clock: Callable[[], int],
    ) -> None:
        """`consumer_left`: called when a connection's client has left a group; its POPs wait no more."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._holds = holds
        self._clients = clients
        self._proxied = proxied
        self._filters = filters
        self._consumer_left = consumer_left
        self._clock = clock

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
        }

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def heartbeat(self, connection: Connection, command: RemotingCommand) -> Answer:
        """34: note a client's producers and consumers."""
        data = HeartbeatData.decode(command.body)
        for producer in data.producer_data_set:
            check_names(producer.group_name, data.client_id)
        self._date_subscriptions(data)
        consumers, refused = self._accepted(connection, data)
        if all(self._has_retry_topic(consumer, config) for consumer, config in consumers):
            return self._register(connection, command, data, consumers, refused)
        return self._make_topics_then_register(connection, command, data, consumers, refused)

    def _date_subscriptions(self, data: HeartbeatData) -> None:
        """Give subscriptions that came without a version the time as theirs, as RocketMQ does: the latest counts."""
        now_ms = self._clock()
        for consumer in data.consumer_data_set:
            for subscription in consumer.subscription_data_set:
                subscription.sub_version = subscription.sub_version or now_ms

    async def _make_topics_then_register(
        self,
        connection: Connection,
        command: RemotingCommand,
        data: HeartbeatData,
        consumers: list[tuple[ConsumerData, SubscriptionGroupConfig]],
        refused: UnavailableError | None,
    ) -> RemotingCommand | None:
        for consumer, config in consumers:
            await self._topics.ensure(
                retry_topic(consumer.group_name),
                queue_count=config.retry_queue_nums,
                sys_flag=TOPIC_SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
                order=self._is_ordered(consumer),
            )
        if connection.is_closed:
            return None
        return self._register(connection, command, data, consumers, refused)

    def _accepted(
        self, connection: Connection, data: HeartbeatData
    ) -> tuple[list[tuple[ConsumerData, SubscriptionGroupConfig]], UnavailableError | None]:
        """The consumer groups that are served, with their configuration; and why others are not, if by a limit."""
        config = self._settings.broker
        accepted: list[tuple[ConsumerData, SubscriptionGroupConfig]] = []
        refused: UnavailableError | None = None
        for consumer in data.consumer_data_set[: config.connection_groups_max + 1]:
            if config.reject_pull_consumers and consumer.consume_type == CONSUME_ACTIVELY:
                continue
            check_names(consumer.group_name, data.client_id)
            try:
                group_config = self._groups.find_or_create(consumer.group_name, connection.remote_address)
            except BrokerBusyError as error:
                refused = error
                continue
            if group_config is not None:
                accepted.append((consumer, group_config))
        return accepted, refused

    def _has_retry_topic(self, consumer: ConsumerData, config: SubscriptionGroupConfig) -> bool:
        topic = self._topics.get(retry_topic(consumer.group_name))
        return topic is not None and topic.order == self._is_ordered(consumer)

    def _is_ordered(self, consumer: ConsumerData) -> bool:
        return any(self._topics.is_order_topic(subscription.topic) for subscription in consumer.subscription_data_set)

    def _register(
        self,
        connection: Connection,
        command: RemotingCommand,
        data: HeartbeatData,
        consumers: list[tuple[ConsumerData, SubscriptionGroupConfig]],
        refused: UnavailableError | None,
    ) -> RemotingCommand:
        clients = self._clients
        is_second_version = data.heartbeat_fingerprint != 0
        # A client of the first version always sends everything, and gets an answer that reports a change.
        is_changed = not is_second_version
        for consumer, config in consumers:
            try:
                self._holds.check(consumer.group_name)
            except GroupHeldError as error:
                refused = error
                continue
            group = clients.consumer_group(consumer.group_name)
            is_unknown = data.without_sub and (group is None or not group.subscriptions)
            try:
                clients.register_consumer(
                    consumer,
                    connection,
                    client_id=data.client_id,
                    language=command.language,
                    version=command.version,
                    is_notified=config.notify_consumer_ids_changed_enable,
                    with_subscriptions=not (is_second_version and data.without_sub),
                )
            except BrokerBusyError as error:
                refused = error
                continue
            if clients.is_fingerprint_changed(consumer.group_name, data.heartbeat_fingerprint) or is_unknown:
                is_changed = True
        for producer in data.producer_data_set:
            try:
                clients.register_producer(
                    producer.group_name,
                    connection,
                    client_id=data.client_id,
                    language=command.language,
                    version=command.version,
                    user=command.user,
                )
            except BrokerBusyError as error:
                refused = error
        if refused is not None:
            raise refused
        return RemotingCommand.response(command, header=HeartbeatResponseHeader(is_sub_change=is_changed))

    def unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """35: a client leaves its groups."""
        header = command.header(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, connection)
        if header.consumer_group is not None:
            config = self._groups.get(header.consumer_group)
            self._clients.unregister_consumer(
                header.consumer_group,
                connection,
                is_notified=config is None or config.notify_consumer_ids_changed_enable,
            )
            self._consumer_left(connection, header.consumer_group)
        return RemotingCommand.response(command, ext_fields={})

    async def check_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """46: whether a subscription can be served; what is wrong with its expression, if it is not one of tags."""
        subscription = CheckClientRequestBody.decode(command.body).subscription_data if command.body else None
        if subscription is not None and not is_tag_type(subscription.expression_type):
            filters = self._filters
            try:
                filters.find(subscription.expression_type, subscription.sub_string)
            except CompileNeeded as needed:
                await filters.compile_in_turn(needed.text)
                filters.find(subscription.expression_type, subscription.sub_string)
        return RemotingCommand.response(command)

    # -- connected clients ---------------------------------------------------------------------------------------------

    def get_consumer_ids(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """38: the ids of a group's members, among which its queues are shared out."""
        name = command.header(GetConsumerListByGroupRequestHeader).consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise InvalidRequestError(f"no consumer for this group, {name}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return RemotingCommand.response(command, ext_fields={}, body=body.encode())

    def get_consumer_connections(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """203: a group's members, subscriptions and manner of consuming."""
        name = command.header(GetConsumerConnectionListRequestHeader).consumer_group
        group, proxied = self._clients.consumer_group(name), self._proxied.consumers(name)
        if group is None and not proxied:
            raise ConsumerOfflineError(f"the consumer group[{name}] not online")
        return RemotingCommand.response(command, body=consumer_connection(group, proxied).encode())

    def get_producer_connections(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """204: the producers of a group."""
        name = command.header(GetProducerConnectionListRequestHeader).producer_group
        found = producer_connections(self._clients.producers(name), self._proxied.producers(name))
        if not found:
            raise InvalidRequestError(f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=found)
        return RemotingCommand.response(command, body=body.encode())

    def get_all_producers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """328: all producers by group."""
        here, proxied, now_ms = self._clients.producer_groups(), self._proxied.producer_groups(), self._clock()
        body = ProducerTableInfo(
            data={
                group: producer_infos(here.get(group, ()), proxied.get(group, ()), now_ms=now_ms)
                for group in (*here, *(group for group in proxied if group not in here))
            }
        )
        return RemotingCommand.response(command, body=body.encode())
