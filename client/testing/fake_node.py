"""FakeNode: one fake broker: send, recall, pull with long polling, offsets, groups, locks, send-back.

POP is in fake_pops.py, transactions are in fake_transactions.py, replies in fake_replies.py.

It answers like a broker with default settings, and simplifies: nothing is on disk, there are no replicas, and delayed
and retried messages are delivered at once (`delays_messages=False`) so that tests need not wait for them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from thermocline.client.testing.fake_admin import FakeAdmin
from thermocline.client.testing.fake_filters import FakeFilters
from thermocline.client.testing.fake_groups import FakeGroups, Member
from thermocline.client.testing.fake_pops import FakePops
from thermocline.client.testing.fake_replies import FakeReplies
from thermocline.client.testing.fake_store import FakeStore, FakeTopic, StoredMessage
from thermocline.client.testing.fake_timers import DELAYS_S, FakeTimers, delay_ms
from thermocline.client.testing.fake_transactions import FakeTransactions
from thermocline.client.testing.fault_plan import FaultPlan
from thermocline.remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, RemotingServer
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import (
    GroupNotFoundError,
    InvalidParameterError,
    MQError,
    ResponseError,
    SubscriptionNotFoundError,
    UnsupportedRequestError,
)
from thermocline.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    HeartbeatResponseHeader,
    NotifyConsumerIdsChangedRequestHeader,
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
    decode_send_header,
)
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.batch import decode_batch
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.records.sys_flag import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    TRANSACTION_MASK,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.socket_address import Host
from thermocline.remoting.topic_validation import (
    AUTO_CREATE_TOPIC,
    RETRY_TOPIC_PREFIX,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    check_topic,
    dlq_topic,
    is_retry_topic,
    retry_topic,
)

__all__ = ["FakeNode"]

PULL_BYTES_MAX = 256 * 1024
Answer: TypeAlias = "RemotingCommand | None"


@dataclass(slots=True, eq=False)
class _WaitingPull:
    connection: Connection
    command: RemotingCommand
    header: PullMessageRequestHeader
    timer: asyncio.TimerHandle


class FakeNode:
    """One broker of the fake cluster. Belongs to the fake cluster's loop."""

    def __init__(
        self,
        name: str,
        *,
        cluster: str,
        auto_create_topics: bool,
        default_topic_queue_nums: int,
        delays_messages: bool,
        has_property_filter: bool,
        clock_ms: Callable[[], int],
        random_source: random.Random,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.faults = FaultPlan()
        self.store = FakeStore(store_host=lambda: self.host, clock_ms=clock_ms)
        self.groups = FakeGroups(clock_ms=clock_ms)
        self.group_configs: dict[str, SubscriptionGroupConfig] = {}
        self.host: Host = ("127.0.0.1", 0)
        self.server = RemotingServer(self)
        self.send_status: int = ResponseCode.SUCCESS
        self._auto_create_topics = auto_create_topics
        self._delays_messages = delays_messages
        self._filters = FakeFilters(has_property_filter=has_property_filter)
        self.clock_ms = clock_ms
        self._random = random_source
        self._timers = FakeTimers(broker_name=name, clock_ms=clock_ms)
        self._waiting_pulls: dict[tuple[str, int], list[_WaitingPull]] = {}
        self._admin = FakeAdmin(self)
        self.transactions = FakeTransactions(
            self.store, self.groups, broker_name=name, arrived=lambda topic, queue_id: self._wake_pulls(topic, queue_id)
        )
        self.pops = FakePops(self)
        self._replies = FakeReplies(self)
        self._served: dict[int, Callable[[Connection, RemotingCommand], RemotingCommand | None]] = {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.RECALL_MESSAGE: self._recall,
            RequestCode.END_TRANSACTION: self.transactions.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.transactions.resume,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_consumer_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_consumer_offset,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }
        self.store.create_topic(TopicConfig(topic_name=self._replies.topic, read_queue_nums=1, write_queue_nums=1))
        if auto_create_topics:
            self.store.create_topic(
                TopicConfig(
                    topic_name=AUTO_CREATE_TOPIC,
                    read_queue_nums=default_topic_queue_nums,
                    write_queue_nums=default_topic_queue_nums,
                    perm=7,
                )
            )

    @property
    def address(self) -> str:
        """Where clients find this broker."""
        return f"{self.host[0]}:{self.host[1]}"

    async def start(self, host: str) -> None:
        """Listen on a free port."""
        self.host = (host, await self.server.start(host, 0))

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        for pulls in self._waiting_pulls.values():
            for pull in pulls:
                pull.timer.cancel()
        self._waiting_pulls.clear()
        self._timers.close()
        self.pops.close()
        await self.server.close(timeout_ms=1_000)

    # -- connections -------------------------------------------------------------------------------------------------

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand] | None:
        """Serve one request; see `RequestHandler`."""
        self.faults.record(command, connection.remote_address)
        goes_wrong, answer = self.faults.next_fault(command)
        if goes_wrong:
            return answer
        serve = (
            self._served.get(command.code)
            or self._admin.served.get(command.code)
            or self.pops.served.get(command.code)
            or self._replies.served.get(command.code)
        )
        if serve is None:
            raise UnsupportedRequestError(f" request type {command.code} not supported")
        return serve(connection, command)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing is known of it until its heartbeat."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget the clients on it."""
        for pulls in self._waiting_pulls.values():
            for pull in [pull for pull in pulls if pull.connection is connection]:
                pull.timer.cancel()
                pulls.remove(pull)
        self.pops.connection_closed(connection)
        self._notify(self.groups.remove_connection(connection))

    # -- send --------------------------------------------------------------------------------------------------------

    def _send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_send_header(command.code, command.ext_fields)
        check_topic(header.topic)
        self._bury(header)
        topic = self._topic_to_send(header)
        if not topic.config.perm & PERM_WRITE:
            raise ResponseError(code=ResponseCode.NO_PERMISSION, remark="the topic is not writeable")
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(topic.config.write_queue_nums)
        if queue_id >= len(topic.queues):
            raise InvalidParameterError(f"request queueId[{queue_id}] is illegal")
        properties = header.properties or ""
        if not header.batch:
            properties += f"{PropertyName.CLUSTER}\x01{self.cluster}\x02"
        if header.batch:
            parts = [(part.body, part.properties_text, part.flag) for part in decode_batch(bytes(command.body))]
        else:
            parts = [(bytes(command.body), properties.encode(), header.flag)]
        pairs = decode_properties(properties)
        wait_ms = 0 if header.batch else delay_ms(pairs, now_ms=self.clock_ms())
        half_text = (
            None if header.batch else self.transactions.half_properties(header.topic, queue_id, properties.encode())
        )
        if half_text is not None:
            parts = [(bytes(command.body), half_text, header.flag)]

        def store(topic: str, place: int) -> list[StoredMessage]:
            stored = [
                self.store.append(
                    topic,
                    place,
                    body=body,
                    properties_text=properties_text,
                    born_timestamp_ms=header.born_timestamp,
                    born_host=connection.remote_host,
                    flag=flag,
                    sys_flag=header.sys_flag & ~TRANSACTION_MASK,
                    reconsume_times=header.reconsume_times or 0,
                )
                for body, properties_text, flag in parts
            ]
            self._wake_pulls(topic, place)
            return stored

        if half_text is not None:
            stored = store(TRANSACTION_HALF_TOPIC, 0)
            self.transactions.begin(stored[0])
        elif wait_ms and self._delays_messages:
            self.store.create_topic(TopicConfig(topic_name=TIMER_TOPIC, read_queue_nums=1, write_queue_nums=1))
            stored = store(TIMER_TOPIC, 0)

            def deliver() -> None:
                if header.topic in self.store.topics:  # it may have been deleted meanwhile
                    store(header.topic, queue_id)

            self._timers.keep(header.topic, pairs.get(PropertyName.UNIQUE_KEY, ""), wait_ms, deliver)
        else:
            stored = store(header.topic, queue_id)
        return RemotingCommand.response(
            command,
            self.send_status,
            header=SendMessageResponseHeader(
                msg_id=",".join(encode_message_id(self.host, message.physical_offset) for message in stored),
                queue_id=queue_id,
                queue_offset=stored[0].queue_offset,
                transaction_id=pairs.get(PropertyName.UNIQUE_KEY),
                recall_handle=None if header.batch else self._timers.handle_of(header.topic, pairs, wait_ms),
            ),
            ext_fields={"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"},
        )

    def _recall(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(RecallMessageRequestHeader)
        message_id = self._timers.recall(header.topic, header.recall_handle)
        return RemotingCommand.response(command, header=RecallMessageResponseHeader(msg_id=message_id))

    def _bury(self, header: SendMessageRequestHeader) -> None:
        """Redirect a message that a consumer sent to its retry topic once too often to the dead-letter topic."""
        if not is_retry_topic(header.topic):
            return
        group = header.topic.removeprefix(RETRY_TOPIC_PREFIX)
        limit = self.find_group(group).retry_max_times
        if header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        if (header.reconsume_times or 0) > limit:
            header.topic, header.queue_id = dlq_topic(group), 0
            self.store.create_topic(TopicConfig(topic_name=header.topic, read_queue_nums=1, write_queue_nums=1))

    def _topic_to_send(self, header: SendMessageRequestHeader) -> FakeTopic:
        topic = self.store.topics.get(header.topic)
        if topic is None and self._auto_create_topics and header.default_topic in self.store.topics:
            template = self.store.topic(header.default_topic).config
            count = min(header.default_topic_queue_nums, template.write_queue_nums)
            topic = self.store.create_topic(
                TopicConfig(topic_name=header.topic, read_queue_nums=count, write_queue_nums=count)
            )
        return topic or self.store.topic(header.topic)

    def _send_back(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(ConsumerSendMsgBackRequestHeader)
        config = self.group_configs.get(header.group)
        if config is None:
            raise GroupNotFoundError(f"subscription group not exist, {header.group}")
        stored = self.store.by_physical_offset.get(header.offset)
        if stored is None:
            raise MQError(f"look message by offset failed, {header.offset}")
        record = stored.decode()
        properties = record.properties
        properties.setdefault(PropertyName.RETRY_TOPIC, record.topic)
        properties.setdefault(
            PropertyName.ORIGIN_MESSAGE_ID, encode_message_id(record.store_host, record.physical_offset)
        )
        properties[PropertyName.WAIT_STORE] = "false"
        limit = config.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        is_dead = record.reconsume_times >= limit or header.delay_level < 0
        topic = dlq_topic(header.group) if is_dead else retry_topic(header.group)
        if topic not in self.store.topics:
            self.store.create_topic(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))
        level = 0 if is_dead else header.delay_level or 3 + record.reconsume_times
        properties[PropertyName.DELAY_LEVEL] = str(level)

        def deliver() -> None:
            self.store.append(
                topic,
                0,
                body=record.body,
                properties_text=encode_properties(properties),
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
                reconsume_times=record.next_reconsume_times,
            )
            self._wake_pulls(topic, 0)

        if level and self._delays_messages:
            asyncio.get_running_loop().call_later(DELAYS_S[level - 1], deliver)
        else:
            deliver()
        return RemotingCommand.response(command)

    # -- pull --------------------------------------------------------------------------------------------------------

    def _pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(PullMessageRequestHeader)
        self.find_group(header.consumer_group)
        if header.sys_flag & PULL_COMMIT_OFFSET:
            self._commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        answer = self._try_pull(command, header)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & PULL_SUSPEND:
            return answer
        key = (header.topic, header.queue_id)
        delay_s = header.suspend_timeout_millis / 1000
        timer = asyncio.get_running_loop().call_later(delay_s, self._end_waiting_pull, key, command.opaque, connection)
        self._waiting_pulls.setdefault(key, []).append(_WaitingPull(connection, command, header, timer))
        return None

    def _try_pull(self, command: RemotingCommand, header: PullMessageRequestHeader) -> RemotingCommand:
        topic = self.store.topic(header.topic)
        if not topic.config.perm & PERM_READ:
            raise ResponseError(code=ResponseCode.NO_PERMISSION, remark="the topic is not readable")
        if not 0 <= header.queue_id < topic.config.read_queue_nums:
            raise InvalidParameterError(f"queueId[{header.queue_id}] is illegal")
        is_wanted = self._filters.of(self._subscription(header))
        queue = topic.queues[header.queue_id]
        low, end, start = topic.min_offset(header.queue_id), QueueOffset(len(queue)), header.queue_offset
        reset = self.store.pending_resets.pop((header.consumer_group, header.topic, header.queue_id), None)
        taken: list[StoredMessage] = []
        if reset is not None:
            status, code, following = "OFFSET_RESET", ResponseCode.PULL_OFFSET_MOVED, reset
        elif end == 0:
            following = QUEUE_START
            status = "NO_MESSAGE_IN_QUEUE"
            code = ResponseCode.PULL_OFFSET_MOVED if start else ResponseCode.PULL_NOT_FOUND
        elif start < low:
            status, code, following = "OFFSET_TOO_SMALL", ResponseCode.PULL_OFFSET_MOVED, low
        elif start == end:
            status, code, following = "OFFSET_OVERFLOW_ONE", ResponseCode.PULL_NOT_FOUND, start
        elif start > end:
            status, code, following = "OFFSET_OVERFLOW_BADLY", ResponseCode.PULL_OFFSET_MOVED, end
        else:
            following = start
            size_bytes = 0
            for stored in queue[start:]:
                if taken and (len(taken) >= header.max_msg_nums or size_bytes + len(stored.record) > PULL_BYTES_MAX):
                    break
                following = stored.queue_offset + 1
                if is_wanted(stored):
                    taken.append(stored)
                    size_bytes += len(stored.record)
            status = "FOUND" if taken else "NO_MATCHED_MESSAGE"
            code = ResponseCode.SUCCESS if taken else ResponseCode.PULL_RETRY_IMMEDIATELY
        return RemotingCommand.response(
            command,
            code,
            header=PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=following,
                min_offset=low,
                max_offset=end,
                topic_sys_flag=0,
                group_sys_flag=0,
            ),
            remark=status,
            body=b"".join(stored.record for stored in taken),
        )

    def _subscription(self, header: PullMessageRequestHeader) -> SubscriptionData:
        if header.sys_flag & PULL_SUBSCRIPTION:
            return parse_subscription(header.topic, header.subscription, expression_type=header.expression_type)
        group = self.groups.consumers.get(header.consumer_group)
        subscription = None if group is None else group.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionNotFoundError("the consumer's subscription not exist")
        return subscription

    def _wake_pulls(self, topic: str, queue_id: int) -> None:
        self.pops.wake()
        for pull in self._waiting_pulls.pop((topic, queue_id), []):
            answer = self._look_again(pull)
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                self._waiting_pulls.setdefault((topic, queue_id), []).append(pull)
                continue
            pull.timer.cancel()
            pull.connection.send(answer)

    def _look_again(self, pull: _WaitingPull) -> RemotingCommand:
        """The answer to a pull that waited. Its errors go to its own client, not to the sender that woke it."""
        try:
            return self._try_pull(pull.command, pull.header)
        except MQError as error:
            return error_response(pull.command, error)

    def _end_waiting_pull(self, key: tuple[str, int], opaque: int, connection: Connection) -> None:
        pulls = self._waiting_pulls.get(key, [])
        for pull in [pull for pull in pulls if pull.command.opaque == opaque and pull.connection is connection]:
            pulls.remove(pull)
            pull.connection.send(self._look_again(pull))

    def end_waiting_pulls(self, topic: str) -> None:
        """Answer every waiting pull of a topic now, as after its time."""
        for key in [key for key in self._waiting_pulls if key[0] == topic]:
            for pull in self._waiting_pulls.pop(key):
                pull.timer.cancel()
                pull.connection.send(self._look_again(pull))

    # -- offsets -----------------------------------------------------------------------------------------------------

    def _search_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(SearchOffsetRequestHeader)
        offset = self.store.offset_by_time(header.topic, header.queue_id, header.timestamp)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    def _max_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetMaxOffsetRequestHeader)
        offset = QueueOffset(len(self.store.topic(header.topic).queues[header.queue_id]))
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    def _min_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetMinOffsetRequestHeader)
        offset = self.store.topic(header.topic).min_offset(header.queue_id)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    def _query_consumer_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(QueryConsumerOffsetRequestHeader)
        offset = self.store.consumer_offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            remark = "Not found, maybe this group consumer boot first"
            return RemotingCommand.response(command, ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    def _update_consumer_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(UpdateConsumerOffsetRequestHeader)
        self._commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return RemotingCommand.response(command)

    def _commit(self, group: str, topic: str, queue_id: int, offset: QueueOffset) -> None:
        if (group, topic, queue_id) not in self.store.pending_resets:
            self.store.consumer_offsets[group, topic, queue_id] = offset

    # -- groups ------------------------------------------------------------------------------------------------------

    def find_group(self, name: str) -> SubscriptionGroupConfig:
        """Return a group, made if it is new."""
        config = self.group_configs.get(name)
        if config is None:
            config = self.group_configs[name] = SubscriptionGroupConfig(group_name=name)
        return config

    def _heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        heartbeat = HeartbeatData.decode(command.body)
        for data in heartbeat.consumer_data_set:
            config = self.find_group(data.group_name)
            topic = retry_topic(data.group_name)
            if topic not in self.store.topics and config.retry_queue_nums > 0:
                count = config.retry_queue_nums
                self.store.create_topic(TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count))
        member = Member(heartbeat.client_id, connection, command.language, command.version)
        self._notify(self.groups.heartbeat(heartbeat, member))
        return RemotingCommand.response(command, header=HeartbeatResponseHeader())

    def _check_client(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        subscription = CheckClientRequestBody.decode(command.body).subscription_data
        if subscription is not None:
            self._filters.check(subscription)
        return RemotingCommand.response(command)

    def _unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(UnregisterClientRequestHeader)
        changed = self.groups.remove(
            header.client_id or "", producer_group=header.producer_group, consumer_group=header.consumer_group
        )
        self._notify(changed)
        return RemotingCommand.response(command)

    def _notify(self, group_names: list[str]) -> None:
        for name in group_names:
            group = self.groups.consumers.get(name)
            for member in () if group is None else group.members.values():
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=name)
                member.connection.send(
                    RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
                )

    def _consumer_list(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        name = command.header(GetConsumerListByGroupRequestHeader).consumer_group
        group = self.groups.consumers.get(name)
        if group is None:
            raise MQError(f"no consumer for this group, {name}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=list(group.members)).encode()
        return RemotingCommand.response(command, body=body)

    def _lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request = LockBatchRequestBody.decode(command.body)
        locked = self.groups.lock(request.consumer_group, request.client_id, request.mq_set)
        return RemotingCommand.response(command, body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())

    def _unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request = LockBatchRequestBody.decode(command.body)
        self.groups.unlock(request.consumer_group, request.client_id, request.mq_set)
        return RemotingCommand.response(command)
