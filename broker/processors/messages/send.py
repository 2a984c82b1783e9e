"""Send: SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, in full.

The common case is `store/sends/fast_path.py`.

    checks -> topic (made if missing) -> properties -> retry or dead-letter topic -> delay level, time of delivery, or
           half message -> put -> answer

Checks, in RocketMQ's order: sends are accepted yet; broker writable, for ordered topics; topic's name; topic that
clients may not send to; topic exists or can be made; queue id.

Rules
  - Where a message is stored may differ from where it was sent to: one with a delay level goes to SCHEDULE_TOPIC_XXXX
    and names its own topic and queue in REAL_TOPIC and REAL_QID; one with a time of delivery (TIMER_*) likewise to the
    timer topic, and its answer carries the handle to recall it by; one for a retry topic that was consumed too often,
    or whose group consumes in order, goes to the dead-letter topic. The answer names the requested queue, and the place
    where the message is stored.
  - A half message of a transaction (TRAN_MSG) goes to the half topic; it takes no delay. What becomes of it: the
    processor for END_TRANSACTION, `transaction.py`.
  - A queue id below 0 leaves the choice to the broker. A priority (_SYS_MSG_PRIORITY_) names the queue, whatever the
    sender chose; of a half message, and of one with a delay, a time of delivery or a sharding key, it is removed.
  - A static topic's queue id is that of a logic queue: it is put into the physical queue that this broker leads it
    with, and answered with the logic queue's id and offset. None of its sends are common ones.
  - A full disk is SERVICE_NOT_AVAILABLE with RocketMQ's own sentence, upon which official producers try another broker.
  - Messages of a batch keep their own properties; the batch's own are only looked at.
Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java, HookUtils.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.due import schedule
from thermocline.broker.sends import Acknowledgements
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import GroupTable, LedQueue, QueueLocks, StaticTopicTable, TopicTable
from thermocline.remoting.bodies import TOPIC_SYS_FLAG_UNIT, TOPIC_SYS_FLAG_UNIT_SUB, TopicConfig
from thermocline.remoting.bodies.logic_queue import static_offset_if_decided
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import (
    DiskFullError,
    GroupNotFoundError,
    InvalidParameterError,
    MessageIllegalError,
    MessageTooLargeError,
    MQError,
    PermissionDeniedError,
    PropertiesTooLargeError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from thermocline.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader, decode_send_header
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.records.batch import decode_batch
from thermocline.remoting.records.message_id import UniqueIdGenerator, encode_message_id
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX, PropertyName, decode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import (
    RETRY_TOPIC_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    check_topic,
    dlq_topic,
    is_retry_topic,
)
from thermocline.store.log import TOO_FEW_IN_SYNC, MessageDraft, PutResult
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import NO_ROOM_FOR_UNITS
from thermocline.store.retention import DISK_NEARLY_FULL
from thermocline.store.sends import PRIORITY, broker_suffix, reply_properties, stored_text, waits_for_store
from thermocline.timers.recall import recall_handle_of
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.timers.timer_request import TIMER_REQUESTS, is_timer_request
from thermocline.transactions.half_message import half_draft, is_half_request
from thermocline.transactions.transaction_coordinator import TransactionCoordinator

MULTI_TAG = "MULTI_TAG"
COMPACTION = "COMPACTION"
BATCH_TOPIC_BYTES_MAX = 127
SENT_PROPERTIES_MAX = 2 * PROPERTIES_BYTES_MAX
"""Characters: twice what is stored, as the broker removes some; more would take the loop long to read."""
DLQ_QUEUE_COUNT = 1
RETRY_QUEUE_COUNT = 1
FULL_DISK_REFUSALS = frozenset({DISK_NEARLY_FULL, NO_ROOM_FOR_UNITS})
INT_MAX = 2**31 - 1
_PRIORITY = re.compile(r"[+-]?[0-9]{1,10}")
KINDS_WITHOUT_PRIORITY = (PropertyName.DELAY_LEVEL, *TIMER_REQUESTS, PropertyName.SHARDING_KEY)
VERSION_WITH_MAX_RECONSUME_TIMES = 121
"""3.4.9: clients since then may say how often a message is to be consumed again."""

KEPT_SYS_FLAG = sys_flags.COMPRESSED | sys_flags.COMPRESSION_MASK | sys_flags.MULTI_TAGS
"""The bits of a sender's system flag that are its own to set; the rest describes the record."""


class SendProcessor:
    """The send family. Common sends are answered without a task; one that has a topic made is a coroutine."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        groups: GroupTable,
        locks: QueueLocks,
        timers: TimerMessageStore | None,
        transactions: TransactionCoordinator,
        stats: BrokerStats,
        clock: Callable[[], int],
        store_host: tuple[str, int],
        acknowledgements: Acknowledgements,
        unique_ids: UniqueIdGenerator,
        choose_queue: Callable[[int], int],
        quotas: QuotaTable,
    ) -> None:
        """`choose_queue(count)` gives the queue of a message that names none."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self._static_topics = static_topics
        self._groups = groups
        self._locks = locks
        self._timers = timers
        self._transactions = transactions
        self._stats = stats
        self._clock = clock
        self._store_host = store_host
        self._acknowledgements = acknowledgements
        self._unique_ids = unique_ids
        self._choose_queue = choose_queue
        self._quotas = quotas

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Store the message, or the batch, and answer where it is."""
        header = decode_send_header(command.code, command.ext_fields)
        try:
            led = self._static_topics.led(header.topic, header.queue_id, is_logical=header.logical, any_queue=True)
            if led is not None:
                header.queue_id = led.leader.queue_id
            self.check(header)
            self.count(connection, command, header)
            config = self._topics.get(header.topic)
            target = self._retry_target(connection, command, header)
            if config is None or (target != header.topic and target not in self._topics):
                return self._make_topics_then_send(connection, command, header)
            return self._send(connection, command, header, config, target, led)
        except MQError as error:
            return self._refused(command, error)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self, header: SendMessageRequestHeader) -> None:
        """Pass what may be sent at all: see the module's header. A topic that is missing passes.

        Raises:
            MQError, PermissionDeniedError, InvalidParameterError, PropertiesTooLargeError, BrokerBusyError: It is
                refused.
        """
        config = self._settings.broker
        if self._clock() < config.accept_sends_from_ms:
            raise MQError("broker unable to service yet", accepts_from_ms=config.accept_sends_from_ms)
        if not config.is_writable and self._topics.is_order_topic(header.topic):
            raise PermissionDeniedError(f"the broker[{self._store_host[0]}] sending message is forbidden")
        check_topic(header.topic)
        if header.topic in SEND_FORBIDDEN_TOPICS:
            raise PermissionDeniedError(f"Sending message to topic[{header.topic}] is forbidden.")
        if header.properties is not None and len(header.properties) > SENT_PROPERTIES_MAX:
            raise PropertiesTooLargeError(size_bytes=len(header.properties), size_bytes_max=PROPERTIES_BYTES_MAX)
        self._acknowledgements.check_room()

    def count(self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader) -> None:
        """Count what a request has stored, by quotas.

        Raises:
            BrokerBusyError: It may not pass now.
        """
        quotas = self._quotas.current()
        if quotas is not None:
            address, size_bytes = connection.remote_host_bytes, len(command.body)
            quotas.check_send(header.topic, header.producer_group, address, size_bytes, command.user)

    def _retry_target(self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader) -> str:
        """The topic of a message that is sent to a retry topic: that one, or the group's dead-letter topic."""
        if not is_retry_topic(header.topic) or header.batch:
            return header.topic
        group = header.topic.removeprefix(RETRY_TOPIC_PREFIX)
        group_config = self._groups.find_or_create(group, connection.remote_address)
        if group_config is None:
            raise GroupNotFoundError("subscription group not exist", group=group)
        times_max = group_config.retry_max_times
        if command.version >= VERSION_WITH_MAX_RECONSUME_TIMES and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if (header.reconsume_times or 0) > times_max or self._locks.is_locked(group):
            return dlq_topic(group)
        return header.topic

    # -- topics that are missing ---------------------------------------------------------------------------------------

    async def _make_topics_then_send(
        self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader
    ) -> RemotingCommand | None:
        topics = self._topics
        try:
            config = topics.get(header.topic) or await self.make_topic(header, connection.remote_address)
            target = self._retry_target(connection, command, header)
            if target not in topics:
                await topics.ensure(target, queue_count=DLQ_QUEUE_COUNT)
            return self._send(connection, command, header, config, target)
        except MQError as error:
            return self._refused(command, error)

    async def make_topic(self, header: SendMessageRequestHeader, address: str) -> TopicConfig:
        """Make the topic of a message that is sent there first; durable on return. `address`: the sender's.

        Raises:
            TopicNotFoundError: Topics are not made by use, not this one, or not so many.
        """
        is_retry = is_retry_topic(header.topic)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = TOPIC_SYS_FLAG_UNIT_SUB if is_retry else TOPIC_SYS_FLAG_UNIT
        config = await self._topics.auto_create(
            header.topic,
            default_topic=header.default_topic,
            queue_count=header.default_topic_queue_nums,
            sys_flag=sys_flag,
            address=address,
        )
        if config is None and is_retry:
            config = await self._topics.ensure(
                header.topic, queue_count=RETRY_QUEUE_COUNT, sys_flag=sys_flag, address=address
            )
        if config is None:
            raise TopicNotFoundError(f"topic[{header.topic}] not exist, apply first please!")
        return config

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        target: str,
        led: LedQueue | None = None,
    ) -> RemotingCommand | None:
        if header.queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            raise InvalidParameterError(
                f"request queueId[{header.queue_id}] is illegal", topic=header.topic, producer=connection.remote_address
            )
        queue_id = header.queue_id
        if queue_id < 0:
            if config.write_queue_nums <= 0:
                raise PermissionDeniedError(f"the topic[{header.topic}] has no queue to write to")
            queue_id = self._choose_queue(config.write_queue_nums)
        if header.batch:
            return self._send_batch(connection, command, header, config, queue_id, led)
        if not command.body:
            raise MessageIllegalError("the message has no body")
        text = header.properties or ""
        properties = decode_properties(text)
        is_half = is_half_request(
            properties, reconsume_times=header.reconsume_times or 0, delay_level=_delay_level(properties)
        )
        if is_half:
            self._check_half(properties)
        _check_supported(header, properties)
        if led is None:
            queue_id = _queue_by_priority(properties, queue_id, config.write_queue_nums)
        unique_key = properties.get(PropertyName.UNIQUE_KEY)
        if unique_key is None:
            unique_key = properties[PropertyName.UNIQUE_KEY] = self._unique_ids.next()
        if config.attributes.get("cleanup.policy") == COMPACTION and PropertyName.KEYS not in properties:
            raise MessageIllegalError("Required message key is missing")
        is_dead_letter = target != header.topic
        if is_dead_letter:
            properties[PropertyName.DELAY_LEVEL] = "-1"
        delay_level = _delay_level(properties)
        if delay_level > 0:  # it has the last word over a time of delivery
            for name in TIMER_REQUESTS:
                properties.pop(name, None)
        draft = MessageDraft(
            topic=target,
            queue_id=0 if is_dead_letter else queue_id,
            body=command.body,
            properties_text=stored_text(text, properties, suffix=self._suffix),
            born_timestamp_ms=header.born_timestamp,
            born_host=connection.remote_host,
            flag=header.flag,
            sys_flag=_record_sys_flag(header.sys_flag, config),
            reconsume_times=header.reconsume_times or 0,
        )
        if delay_level > 0:
            level_count = len(self._store.config.delay_levels_ms)
            draft = schedule(draft, decode_properties(draft.properties_text), delay_level, level_count=level_count)
        elif is_timer_request(properties):
            draft = self._timed(draft, properties)
        elif is_half:
            draft = half_draft(draft)
        result = self._store.put(draft)
        self._stats.add_put(draft.topic, 1, result.size_bytes)
        if is_half:
            self._transactions.prepared(target)
        if is_dead_letter:
            self._stats.add_dead_letter(header.topic, header.topic.removeprefix(RETRY_TOPIC_PREFIX))
        return self._answer(
            connection,
            command,
            [result],
            queue_id,
            unique_key=unique_key,
            recall_handle=recall_handle_of(draft, broker_name=self._settings.broker.broker_name),
            waits=waits_for_store(properties),
            led=led,
        )

    def _timed(self, draft: MessageDraft, properties: Mapping[str, str]) -> MessageDraft:
        """The draft as it is to be stored until its time; as it is, when that has come."""
        timers = self._timers
        if timers is None:
            # An MQError of no finer class: RocketMQ answers SYSTEM_ERROR.
            raise MQError("accurate timer message is not enabled, timerWheelEnable is false")
        return timers.schedule(draft, properties) or draft

    def _check_half(self, properties: dict[str, str]) -> None:
        """Pass a half message that can be taken."""
        if self._settings.broker.reject_transactions:
            raise PermissionDeniedError(f"the broker[{self._store_host[0]}] sending transaction message is forbidden")
        if _delay_level(properties) > 0 or any(name in properties for name in TIMER_REQUESTS):
            raise MessageIllegalError("a half message takes neither a delay nor a time of delivery")

    def _send_batch(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        queue_id: int,
        led: LedQueue | None,
    ) -> RemotingCommand | None:
        if len(header.topic) > BATCH_TOPIC_BYTES_MAX:
            raise MessageIllegalError(f"message topic length too long {len(header.topic)}")
        if is_retry_topic(header.topic):
            raise MessageIllegalError(f"batch request does not support retry group {header.topic}")
        properties = decode_properties(header.properties or "")
        _check_in_batch(properties)
        body_bytes_max = self._store.config.message_bytes_max
        if len(command.body) > body_bytes_max:
            raise MessageTooLargeError(size_bytes=len(command.body), size_bytes_max=body_bytes_max)
        messages = decode_batch(bytes(command.body))
        if not messages:
            raise MessageIllegalError("the batch holds no message")
        drafts = []
        for message in messages:
            _check_in_batch(decode_properties(message.properties_text))
            drafts.append(
                MessageDraft(
                    topic=header.topic,
                    queue_id=queue_id,
                    body=message.body,
                    properties_text=message.properties_text,
                    born_timestamp_ms=header.born_timestamp,
                    born_host=connection.remote_host,
                    flag=message.flag,
                    sys_flag=_record_sys_flag(header.sys_flag, config),
                    reconsume_times=header.reconsume_times or 0,
                )
            )
        results = self._store.put_batch(drafts)
        size_bytes = sum(result.size_bytes for result in results)
        self._stats.add_put(header.topic, len(results), size_bytes)
        return self._answer(
            connection,
            command,
            results,
            queue_id,
            unique_key=properties.get(PropertyName.UNIQUE_KEY),
            recall_handle=None,
            waits=waits_for_store(properties),
            led=led,
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        results: list[PutResult],
        queue_id: int,
        *,
        unique_key: str | None,
        recall_handle: str | None,
        waits: bool,
        led: LedQueue | None,
    ) -> RemotingCommand | None:
        response = None
        if not command.is_oneway:
            store_host = self._store_host
            queue_offset = results[0].queue_offset
            if led is not None:
                queue_id, queue_offset = led.queue_id, static_offset_if_decided(led.leader, queue_offset)
            header = SendMessageResponseHeader(
                msg_id=",".join(encode_message_id(store_host, result.physical_offset) for result in results),
                queue_id=queue_id,
                queue_offset=queue_offset,
                transaction_id=unique_key,
                recall_handle=recall_handle,
            )
            response = RemotingCommand.response(command, header=header, ext_fields=self._reply_properties)
        return self._acknowledgements.answer(
            connection, response, append_end=results[-1].end_offset, waits=waits, count=len(results)
        )

    def _refused(self, command: RemotingCommand, error: MQError) -> RemotingCommand | None:
        """The answer to a send that was not stored: it carries the broker's properties too."""
        self._stats.add_put_failed()
        response = error_response(command, error)
        if isinstance(error, DiskFullError) or (
            isinstance(error, ServiceUnavailableError) and self._store.commit_log.refusal in FULL_DISK_REFUSALS
        ):
            response.remark = disk_full_remark(self._store.retention.used_ratio())
        elif self._store.commit_log.refusal == TOO_FEW_IN_SYNC and isinstance(error, ServiceUnavailableError):
            response.code, response.remark = ResponseCode.SYSTEM_ERROR, TOO_FEW_IN_SYNC  # as RocketMQ answers it
        response.ext_fields = dict(self._reply_properties)
        return response

    @property
    def _reply_properties(self) -> dict[str, str]:
        config = self._settings.broker
        return reply_properties(region_id=config.region_id, trace_on=config.trace_on)

    @property
    def _suffix(self) -> bytes:
        config = self._settings.broker
        return broker_suffix(region_id=config.region_id, trace_on=config.trace_on, cluster_name=config.cluster_name)


def disk_full_remark(used_ratio: float) -> str:
    """RocketMQ's sentence for a full disk; log, queues and index lie on one here."""
    ratio = f"{used_ratio:5.2f}"
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full"
        f" [CL: {ratio} CQ: {ratio} INDEX: {ratio}], messages are put to the slave, message store has been shut down,"
        " etc."
    )


def _check_supported(header: SendMessageRequestHeader, properties: dict[str, str]) -> None:
    """Pass a message whose type its topic accepts."""
    if header.sys_flag & sys_flags.TRANSACTION_MASK and not _is_half(properties):
        # RocketMQ stores it where no consumer finds it.
        raise MessageIllegalError("the message is part of a transaction, but no half message", flag=header.sys_flag)
    if header.sys_flag & (sys_flags.INNER_BATCH | sys_flags.NEED_UNWRAP) or PropertyName.INNER_NUM in properties:
        raise MessageIllegalError("the message is an inner batch, but its topic is no batch topic")


def _queue_by_priority(properties: dict[str, str], queue_id: int, queue_count: int) -> int:
    """The queue that the message's priority names, the last one at most. A message of another kind loses its priority.

    Source: SendMessageProcessor.java, TopicMessageType.java (parseFromMessageProperty), Apache RocketMQ 5.5.0.
    """
    text = properties.get(PRIORITY)
    if text is None or not _PRIORITY.fullmatch(text) or not 0 <= int(text) <= INT_MAX or queue_count <= 0:
        return queue_id
    if any(name in properties for name in KINDS_WITHOUT_PRIORITY) or _is_half(properties):
        del properties[PRIORITY]
        return queue_id
    return min(int(text), queue_count - 1)


def _is_half(properties: dict[str, str]) -> bool:
    return properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"


def _check_in_batch(properties: dict[str, str]) -> None:
    """Pass what a batch, or a message in it, may say of itself."""
    if _is_half(properties):
        raise MessageIllegalError("a batch takes no half messages")
    if _delay_level(properties) > 0:
        raise MessageIllegalError("a batch takes no delayed messages")
    if is_timer_request(properties):
        raise MessageIllegalError("a batch takes no messages with a time of delivery")


def _delay_level(properties: dict[str, str]) -> int:
    """The delay level; 0 for none."""
    text = properties.get(PropertyName.DELAY_LEVEL)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError as error:
        raise MessageIllegalError("the delay level is no number", delay_level=text[:32]) from error


def _record_sys_flag(sys_flag: int, config: TopicConfig) -> int:
    multi_tags = sys_flags.MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0
    return sys_flag & KEPT_SYS_FLAG | multi_tags
