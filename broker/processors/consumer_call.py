"""Questions that a tool asks the broker about one client, which the broker passes on to it.

    307 GET_CONSUMER_RUNNING_INFO    309 CONSUME_MESSAGE_DIRECTLY    223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS

307 and 309 go to one client and come back unread. 223 asks each member of a group (code 221) and puts the answers
together. A client that does not answer in time is reported as such (CONSUME_MSG_TIMEOUT). 307 and 309 reach a client
behind a proxy through that proxy; 223 asks none of these, which hold no offsets.

A client gets nothing by which the tool has signed: it could send that again as the tool, to do something else. A
message is named by its place in the log, so access control asks for the right to the topic that it has.
Source: broker/processor/AdminBrokerProcessor.java (callConsumer), client/net/Broker2Client.java, Apache RocketMQ 5.3.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from thermocline.broker.cold import ColdReads
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import Client, ClientRegistry, GroupTable, ProxiedClients, TopicTable
from thermocline.remoting.bodies import GetConsumerStatusBody, MessageQueue
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    MQError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    UnavailableError,
)
from thermocline.remoting.headers.group import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import without_proof
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

CALL_VERSION = 62
"""Release 3.1.8-SNAPSHOT: the first whose clients answer 307 and 309."""
STATUS_VERSION = 28
"""Release 3.0.7-SNAPSHOT: the first whose clients answer 221."""
STATUS_TIMEOUT_MS = 5_000


class ConsumerCallProcessor:
    """Passes questions on to clients."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientRegistry,
        proxied: ProxiedClients,
        cold: ColdReads,
        check_topic: Callable[[Connection, RemotingCommand, str], None] | None = None,
    ) -> None:
        """`check_topic`: access control, if it is on; raises PermissionDeniedError."""
        self._check_topic = check_topic
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._proxied = proxied
        self._cold = cold

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_status,
        }

    async def get_running_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """307: what a consumer is doing."""
        header = command.header(GetConsumerRunningInfoRequestHeader)
        return await self._call(command, header.consumer_group, header.client_id, command.ext_fields or {}, b"")

    async def consume_directly(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """309: have a client consume one message now, outside of its queues."""
        header = command.header(ConsumeMessageDirectlyRequestHeader)
        fields = {**(command.ext_fields or {}), "brokerName": self._settings.broker.broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        record = await self._record(header.msg_id or "")
        if self._check_topic is not None:
            self._check_topic(connection, command, decode_record(record).topic)
        return await self._call(command, header.consumer_group, header.client_id or "", fields, record)

    async def get_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """223: the offsets of a topic as each member of a group holds them; of one member with `clientAddr`."""
        header = command.header(GetConsumerStatusRequestHeader)
        group = self._clients.consumer_group(header.group)
        if group is None:
            raise InvalidRequestError(f"No Any Consumer online in the consumer group: [{header.group}]")
        wanted = (header.client_addr or "").strip()
        clients = [client for client in group.members.values() if not wanted or client.client_id == wanted]
        for client in clients:
            if client.version < STATUS_VERSION:
                raise InvalidRequestError(f"the client does not support this feature. version={client.version}")
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        answers = await asyncio.gather(*(self._ask_status(client, question) for client in clients))
        table = {
            client.client_id: answer for client, answer in zip(clients, answers, strict=True) if answer is not None
        }
        return RemotingCommand.response(command, body=GetConsumerStatusBody(consumer_table=table).encode())

    async def _ask_status(
        self, client: Client, header: GetConsumerStatusRequestHeader
    ) -> dict[MessageQueue, int] | None:
        request = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        try:
            answer = await client.connection.call(request, timeout_ms=STATUS_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                return GetConsumerStatusBody.decode(answer.body).message_queue_table
        except MQError as error:
            logger.warning("client did not tell its offsets client_id=%s error=%s", client.client_id, error)
        return None

    async def _call(
        self, command: RemotingCommand, group: str, client_id: str, fields: Mapping[str, str], body: bytes
    ) -> RemotingCommand:
        """Pass a request on; the answer is the client's, with its code and remark."""
        client = self._clients.find_consumer(group, client_id)
        if client is None:
            return await self._call_proxied(command, group, client_id, fields, body)
        if client.version < CALL_VERSION:
            raise InvalidRequestError(
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
        return await self._pass_on(client.connection, command, group, client_id, fields, body)

    async def _call_proxied(
        self, command: RemotingCommand, group: str, client_id: str, fields: Mapping[str, str], body: bytes
    ) -> RemotingCommand:
        """The same for a client behind a proxy, which asks it; one that went to another proxy is asked there."""
        for connection in self._proxied.connections_to(group, client_id):
            answer = await self._pass_on(connection, command, group, client_id, fields, body)
            if answer.code != ResponseCode.CONSUMER_NOT_ONLINE:
                return answer
        raise InvalidRequestError(f"The Consumer <{group}> <{client_id}> not online")

    async def _pass_on(
        self,
        connection: Connection,
        command: RemotingCommand,
        group: str,
        client_id: str,
        fields: Mapping[str, str],
        body: bytes,
    ) -> RemotingCommand:
        request = RemotingCommand.request(command.code, ext_fields=without_proof(fields), body=body)
        try:
            answer = await connection.call(request, timeout_ms=self._settings.broker.client_call_timeout_ms)
        except RequestTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            return RemotingCommand.response(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        except UnavailableError as error:
            raise InvalidRequestError(f"invoke consumer <{group}> <{client_id}> Exception: {error}") from error
        return RemotingCommand.response(
            command, answer.code, remark=answer.remark, ext_fields=answer.ext_fields, body=answer.body
        )

    async def _record(self, message_id: str) -> bytes:
        """The record of an offset message id; UnavailableError when the cold tier has it and cannot be asked now."""
        store = self._store
        physical_offset = decode_message_id(message_id).physical_offset
        try:
            if physical_offset >= store.commit_log.min_offset:
                return bytes(store.commit_log.record_at(physical_offset))
            cold = await self._cold.view(physical_offset) if physical_offset >= 0 else None
        except (OffsetOutOfRangeError, CorruptDataError) as error:
            raise InvalidRequestError(f"can not find message by the offset, {physical_offset}") from error
        if cold is None:
            raise InvalidRequestError(f"can not find message by the offset, {physical_offset}")
        return bytes(cold.record)
