"""ClusterMessaging: the seam's implementation over a cluster, by the remoting protocol.

Brokers are found through NameServers, which give the routes of topics in use. A broker that a route does not
name (any more) is looked for in the cluster's list. Connections are one an address, as all clients have them.
A proxy in a broker's process group asks that broker over its unix socket (own_broker.py), and the others as ever.
Source: ClusterMessageService.java, ClusterMetadataService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from thermocline.client.answer import answer_error, check_answer
from thermocline.client.consumer.batch_acks import batch_acks
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.send_answer import STATUS_BY_CODE
from thermocline.client.received_message import decode_messages
from thermocline.proxy.cluster.cluster_brokers import LOOK_UP_TIMEOUT_MS, ClusterBrokers, cache_of
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.cluster.joined_acks import JoinedAcks
from thermocline.proxy.cluster.transaction_watch import TransactionWatch
from thermocline.proxy.messaging import (
    DOUBT_CODES,
    CheckReceiver,
    OutgoingMessage,
    PopOutcome,
    ProxyHandle,
    PulledMessages,
    SendOutcome,
    TopicQueues,
    TopicType,
    TransactionCheck,
    TransactionHandle,
    pop_outcome,
    pop_request,
)
from thermocline.remoting.bodies import (
    BatchAckMessageRequestBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfigAndMapping,
)
from thermocline.remoting.bodies import MessageQueue as BodyMessageQueue
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    CorruptDataError,
    GroupNotFoundError,
    InvalidRequestError,
    MQError,
    PermissionDeniedError,
    QueryNotFoundError,
    UnavailableError,
    UnsupportedRequestError,
)
from thermocline.remoting.handles import ReceiptHandle, decode_recall_handle, flagged_topic
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    CheckTransactionStateRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SearchOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
    encode_send_header,
)
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.records.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.tls import ClientTls

__all__ = ["ClusterMessaging"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEAD_LETTER_LEVEL = -1
TOPIC_TYPE_ATTRIBUTE = "message.type"
_PULL_NOTHING_CODES = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})


class ClusterMessaging:
    """See the module: a `Messaging`. Belongs to one event loop."""

    def __init__(self, options: ClusterOptions, checks: CheckReceiver) -> None:
        self.options = options
        self._checks = checks
        self._connections = RemotingClient(
            handler=self,
            credentials=options.credentials,
            tls=None if options.tls is None else ClientTls(options.tls),
        )
        self.brokers = ClusterBrokers(options, connections=self._connections)
        """Where they are."""
        self._acks = JoinedAcks(self.ack_all)
        self._types = cache_of(self._load_type, options, entries_max=options.topics_max)
        self._groups = cache_of(self._load_group, options, entries_max=options.groups_max)
        self._asked_master = ""
        """The broker that `ask_cluster` begins with."""
        self._silent_master = ""
        """The last broker that did not answer for a topic's configuration."""
        self._watch = TransactionWatch(
            client_id=options.client_id,
            period_s=options.transaction_period_s,
            groups_per_heartbeat=options.transaction_groups_per_heartbeat,
            topic_queues=self.brokers.queues,
            send_heartbeat=self._send_heartbeat,
            unregister=self._unregister,
        )

    async def start(self) -> None:
        """Begin. Brokers may still be away.

        Raises:
            UnavailableError: Where the NameServers are to be looked up, none was found.
        """
        await self.brokers.start()
        self._watch.start()

    async def close(self) -> None:
        """End; idempotent."""
        await self._watch.close()
        await self._acks.close()
        for cache in (self._types, self._groups):
            await cache.close()
        await self.brokers.close()
        await self._connections.close()

    # -- what there is -----------------------------------------------------------------------------------------------

    async def topic_queues(self, topic: str, *, group: str | None = "") -> TopicQueues:
        """See `Messaging`."""
        return await self.brokers.queues(topic)

    async def topic_type(self, topic: str, *, group: str | None = "", broker_name: str = "") -> TopicType:
        """See `Messaging`."""
        return await self._types.get(topic)

    async def group_config(
        self, group: str, *, topic: str = "", broker_name: str = ""
    ) -> SubscriptionGroupConfig | None:
        """See `Messaging`."""
        return await self._groups.get(group)

    async def is_reachable(self) -> bool:
        """Whether a NameServer answers now, with at least one broker."""
        return await self.brokers.is_reachable()

    async def _load_type(self, topic: str) -> TopicType:
        answer = await self._ask_topic(await self.topic_queues(topic))
        text = TopicConfigAndMapping.decode(answer.body).attributes.get(TOPIC_TYPE_ATTRIBUTE)
        if not text:
            return TopicType.NORMAL
        return TopicType(text.upper()) if text.upper() in TopicType.__members__ else TopicType.UNSPECIFIED

    async def _ask_topic(self, queues: TopicQueues) -> RemotingCommand:
        """Ask a broker of a topic for the topic's configuration; the one that did not answer last is asked last."""
        failure = UnavailableError("no broker of the topic has a master now", topic=queues.topic)
        masters = [broker.master_address for broker in queues.brokers if broker.master_address is not None]
        code, header = RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=queues.topic)
        for address in sorted(masters, key=lambda each: each == self._silent_master):
            try:
                return await self._ask(address, code, header, timeout_ms=LOOK_UP_TIMEOUT_MS)
            except UnavailableError as error:
                self._silent_master, failure = address, error
        raise failure

    async def _load_group(self, group: str) -> SubscriptionGroupConfig | None:
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        try:
            answer = await self.ask_cluster(code, header, timeout_ms=LOOK_UP_TIMEOUT_MS)
        except GroupNotFoundError:
            return None
        return SubscriptionGroupConfig.decode(answer.body)

    async def ask_cluster(self, code: int, header: Header | None, *, timeout_ms: int) -> RemotingCommand:
        """Ask one broker of the cluster, always the same one while it answers. `timeout_ms`: of each that is asked.

        Raises:
            MQError: It refused; see `check_answer`.
            UnavailableError: None answered.
        """
        masters = await self.brokers.masters()
        first = masters.index(self._asked_master) if self._asked_master in masters else 0
        failure: UnavailableError | None = None
        for address in masters[first:] + masters[:first]:
            self._asked_master = address
            try:
                return await self._ask(address, code, header, timeout_ms=timeout_ms)
            except UnavailableError as error:
                failure = error
        assert failure is not None
        raise failure

    async def broker_address(self, broker_name: str) -> str:
        """See `Messaging`."""
        return await self.brokers.address_of(broker_name)

    def doubt(self, address: str) -> None:
        """See `Messaging`."""
        self.brokers.doubt(address)

    # -- producing ---------------------------------------------------------------------------------------------------

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, producer_group: str, timeout_ms: int
    ) -> SendOutcome:
        """See `Messaging`."""
        first = messages[0]
        is_batch = len(messages) > 1
        header = SendMessageRequestHeader(
            producer_group=producer_group,
            topic=first.topic,
            queue_id=queue.queue_id,
            sys_flag=first.sys_flag,
            born_timestamp=first.born_timestamp_ms,
            properties=first.properties_text,
            reconsume_times=first.reconsume_times or 0,
            max_reconsume_times=first.max_reconsume_times,
            batch=is_batch,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        body = first.body
        if is_batch:
            body = encode_batch(BatchMessage(each.body, each.properties_text.encode()) for each in messages)
        address = await self.broker_address(queue.broker_name)
        command = RemotingCommand.request(code, body=body, ext_fields=encode_send_header(code, header))
        answer = await self._call(address, command, timeout_ms=timeout_ms)
        status = STATUS_BY_CODE.get(answer.code)
        if status is None:
            raise answer_error(answer.code, answer.remark, address=address)
        stored, fields = answer.header(SendMessageResponseHeader), answer.ext_fields or {}
        if stored.queue_id != queue.queue_id:
            queue = replace(queue, queue_id=stored.queue_id)
        return SendOutcome(
            status=status,
            queue=queue,
            queue_offset=stored.queue_offset,
            transaction_id=stored.transaction_id or "",
            recall_handle=stored.recall_handle or "",
            offset_message_id=stored.msg_id,
            region=fields.get(PropertyName.MESSAGE_REGION, ""),
            is_traced=fields.get(PropertyName.TRACE_SWITCH) != "false",
        )

    async def end_transaction(
        self,
        handle: TransactionHandle,
        *,
        topic: str,
        producer_group: str,
        message_id: str,
        state: int,
        is_check: bool,
        timeout_ms: int,
    ) -> None:
        """See `Messaging`. The broker answers where it decides something, so a commit is known to have come."""
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=producer_group,
            tran_state_table_offset=handle.queue_offset,
            commit_log_offset=handle.physical_offset,
            commit_or_rollback=state,
            from_transaction_check=is_check,
            msg_id=message_id,
            transaction_id=handle.unique_key,
            broker_name=handle.broker_name,
        )
        address = await self.broker_address(handle.broker_name)
        if state:
            await self._ask(address, RequestCode.END_TRANSACTION, header, timeout_ms=timeout_ms)
        else:  # an end that leaves the transaction open is not answered
            command = RemotingCommand.request(RequestCode.END_TRANSACTION, header, oneway=True)
            await self._connections.send_oneway(address, command)

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int) -> str:
        """See `Messaging`."""
        broker_name = decode_recall_handle(recall_handle).broker_name
        header = RecallMessageRequestHeader(
            producer_group=topic, topic=topic, recall_handle=recall_handle, broker_name=broker_name
        )
        address = await self.broker_address(broker_name)
        answer = await self._ask(address, RequestCode.RECALL_MESSAGE, header, timeout_ms=timeout_ms)
        return answer.header(RecallMessageResponseHeader).msg_id

    def watch_transactions(self, producer_group: str, topic: str) -> None:
        """See `Messaging`."""
        self._watch.add(producer_group, topic)

    def unwatch_transactions(self, producer_group: str) -> None:
        """See `Messaging`."""
        self._watch.remove(producer_group)

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def pop(
        self,
        broker_name: str,
        subscription: SubscriptionData,
        *,
        group: str,
        count_max: int,
        invisible_ms: int,
        await_ms: int,
        init_mode: int,
        in_order: bool,
        attempt_id: str | None,
        timeout_ms: int,
    ) -> PopOutcome:
        """See `Messaging`."""
        command = pop_request(
            broker_name,
            subscription,
            group=group,
            count_max=count_max,
            invisible_ms=invisible_ms,
            await_ms=await_ms,
            init_mode=init_mode,
            now_ms=wall_clock_ms(),
            in_order=in_order,
            attempt_id=attempt_id,
        )
        address = await self.broker_address(broker_name)
        answer = await self._call(address, command, timeout_ms=timeout_ms)
        return pop_outcome(answer, topic=subscription.topic, group=group, broker_name=broker_name)

    async def ack(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> None:
        """See `Messaging`."""
        await self._acks.add(handle, topic=topic, group=group, timeout_ms=timeout_ms)

    def start_ack(
        self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int
    ) -> asyncio.Future[MQError | None]:
        """See `Messaging`."""
        return self._acks.start(handle, topic=topic, group=group, timeout_ms=timeout_ms)

    async def ack_all(self, handles: Sequence[ProxyHandle], *, topic: str, group: str, timeout_ms: int) -> None:
        """See `Messaging`."""
        if len(handles) == 1:
            await self._ack_one(handles[0], topic=topic, group=group, timeout_ms=timeout_ms)
            return
        broker_name = handles[0].receipt.broker_name
        acks = batch_acks([(topic, handle.receipt) for handle in handles], group=group)
        body = BatchAckMessageRequestBody(acks=acks, broker_name=broker_name).encode()
        address = await self.broker_address(broker_name)
        request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=body)
        check_answer(await self._call(address, request, timeout_ms=timeout_ms), address=address)

    async def _ack_one(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> None:
        receipt = handle.receipt
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=flagged_topic(topic, group, receipt.retry_flag),
            queue_id=receipt.queue_id,
            extra_info=handle.text(),
            offset=receipt.queue_offset,
            broker_name=receipt.broker_name,
        )
        address = await self.broker_address(receipt.broker_name)
        await self._ask(address, RequestCode.ACK_MESSAGE, header, timeout_ms=timeout_ms)

    async def change_invisible(
        self, handle: ProxyHandle, *, topic: str, group: str, invisible_ms: int, timeout_ms: int
    ) -> ProxyHandle:
        """See `Messaging`."""
        receipt = handle.receipt
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=flagged_topic(topic, group, receipt.retry_flag),
            queue_id=receipt.queue_id,
            extra_info=handle.text(),
            offset=receipt.queue_offset,
            invisible_time=invisible_ms,
            broker_name=receipt.broker_name,
        )
        address = await self.broker_address(receipt.broker_name)
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = await self._ask(address, code, header, timeout_ms=timeout_ms)
        changed = answer.header(ChangeInvisibleTimeResponseHeader)
        new_receipt = ReceiptHandle(
            start_offset=receipt.queue_offset,
            pop_time_ms=changed.pop_time,
            invisible_ms=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
            retry_flag=receipt.retry_flag,
            broker_name=receipt.broker_name,
            queue_id=receipt.queue_id,
            queue_offset=receipt.queue_offset,
        )
        return ProxyHandle(receipt=new_receipt, physical_offset=handle.physical_offset)

    async def stored_record(self, broker_name: str, physical_offset: int, *, timeout_ms: int) -> MessageRecord | None:
        """See `Messaging`."""
        header = ViewMessageRequestHeader(offset=PhysicalOffset(physical_offset))
        address = await self.broker_address(broker_name)
        try:
            answer = await self._ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_ms=timeout_ms)
        except PermissionDeniedError:
            return None
        try:
            return decode_record(answer.body)
        except CorruptDataError as error:
            raise InvalidRequestError("there is no message where the handle says") from error

    async def send_back_dead(
        self, handle: ProxyHandle, *, topic: str, group: str, message_id: str, timeout_ms: int
    ) -> None:
        """See `Messaging`."""
        receipt = handle.receipt
        header = ConsumerSendMsgBackRequestHeader(
            offset=PhysicalOffset(handle.physical_offset),
            group=group,
            delay_level=DEAD_LETTER_LEVEL,
            origin_msg_id=message_id,
            origin_topic=flagged_topic(topic, group, receipt.retry_flag),
            max_reconsume_times=0,
            broker_name=receipt.broker_name,
        )
        address = await self.broker_address(receipt.broker_name)
        await self._ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=timeout_ms)

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        group: str,
        offset: QueueOffset,
        count_max: int,
        await_ms: int,
        timeout_ms: int,
    ) -> PulledMessages:
        """See `Messaging`."""
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if await_ms > 0 else 0),
            suspend_timeout_millis=await_ms,
            subscription=subscription.sub_string,
            sub_version=0,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        address = await self.broker_address(queue.broker_name)
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await self._call(address, command, timeout_ms=timeout_ms)
        if answer.code in _PULL_NOTHING_CODES or answer.code == ResponseCode.PULL_OFFSET_MOVED:
            next_offset = answer.header(PullMessageResponseHeader).next_begin_offset
            return PulledMessages(messages=(), next_offset=next_offset)
        check_answer(answer, address=address)
        messages = decode_messages(answer.body, queue=queue, tags=subscription.tags_set)
        return PulledMessages(messages=messages, next_offset=answer.header(PullMessageResponseHeader).next_begin_offset)

    async def commit_offset(self, queue: MessageQueue, *, group: str, offset: QueueOffset, timeout_ms: int) -> None:
        """See `Messaging`."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        address = await self.broker_address(queue.broker_name)
        await self._ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=timeout_ms)

    async def committed_offset(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> QueueOffset | None:
        """See `Messaging`."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
            broker_name=queue.broker_name,
        )
        address = await self.broker_address(queue.broker_name)
        try:
            answer = await self._ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=timeout_ms)
        except QueryNotFoundError:
            return None
        return answer.header(OffsetResponseHeader).offset

    async def is_queue_locked(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> bool:
        """See `Messaging`: tries to lock it under the proxy's own client id."""
        place = BodyMessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)
        body = LockBatchRequestBody(client_id=self.options.client_id, consumer_group=group, mq_set=[place]).encode()
        address = await self.broker_address(queue.broker_name)
        request = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body)
        answer = await self._call(address, request, timeout_ms=timeout_ms)
        check_answer(answer, address=address)
        if not LockBatchResponseBody.decode(answer.body).lock_ok_mq_set:
            return True
        request = RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body)
        check_answer(await self._call(address, request, timeout_ms=timeout_ms), address=address)
        return False

    async def queue_offset(
        self, queue: MessageQueue, *, timestamp_ms: int | None, is_end: bool, timeout_ms: int
    ) -> QueueOffset:
        """See `Messaging`."""
        topic, queue_id, broker_name = queue.topic, queue.queue_id, queue.broker_name
        header: Header
        if timestamp_ms is not None:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            header = SearchOffsetRequestHeader(
                topic=topic, queue_id=queue_id, broker_name=broker_name, timestamp=timestamp_ms
            )
        elif is_end:
            code = RequestCode.GET_MAX_OFFSET
            header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id, broker_name=broker_name)
        else:
            code = RequestCode.GET_MIN_OFFSET
            header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, broker_name=broker_name)
        answer = await self._ask(await self.broker_address(queue.broker_name), code, header, timeout_ms=timeout_ms)
        return answer.header(OffsetResponseHeader).offset

    # -- requests of brokers -----------------------------------------------------------------------------------------

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Take a broker's question about a transaction; it is answered by an END_TRANSACTION, later."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            raise UnsupportedRequestError(f" request type {command.code} not supported")
        header = command.header(CheckTransactionStateRequestHeader)
        try:
            record = decode_record(command.body)
        except CorruptDataError as error:
            logger.warning("a half message of a check cannot be read error=%s", error)
            return None
        group = record.property_text(PropertyName.PRODUCER_GROUP)
        broker_name = header.broker_name or self.brokers.name_at(connection.remote_address)
        unique_key = record.unique_key or header.transaction_id
        if not group or not broker_name or not unique_key:
            logger.warning("a check names no producer group, broker or message remote=%s", connection.remote_address)
            return None
        handle = TransactionHandle(
            unique_key=unique_key,
            broker_name=broker_name,
            queue_offset=header.tran_state_table_offset,
            physical_offset=header.commit_log_offset,
        )
        self._checks.transaction_checked(TransactionCheck(producer_group=group, record=record, handle=handle))
        return None

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do: the next call opens another one."""

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _call(self, address: str, request: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """Ask a broker; one that fails is doubted."""
        try:
            answer = await self._connections.call(address, request, timeout_ms=timeout_ms)
        except UnavailableError:
            self.brokers.doubt(address)
            raise
        if answer.code in DOUBT_CODES:
            self.brokers.doubt(address)
        return answer

    async def _ask(
        self, address: str, code: int, header: Header | None, *, timeout_ms: int = LOOK_UP_TIMEOUT_MS
    ) -> RemotingCommand:
        answer = await self._call(address, RemotingCommand.request(code, header), timeout_ms=timeout_ms)
        check_answer(answer, address=address)
        return answer

    async def _unregister(self, address: str, producer_group: str) -> None:
        header = UnregisterClientRequestHeader(client_id=self.options.client_id, producer_group=producer_group)
        await self._ask(address, RequestCode.UNREGISTER_CLIENT, header)

    async def _send_heartbeat(self, address: str, body: bytes) -> None:
        command = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
        check_answer(await self._call(address, command, timeout_ms=LOOK_UP_TIMEOUT_MS), address=address)
