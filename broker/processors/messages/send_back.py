"""Send-back: 36 CONSUMER_SEND_MSG_BACK, a message that a consumer could not consume.

    group may try again    -> %RETRY%group, a random queue, after a delay level that grows with each try
    tried often enough,    -> %DLQ%group, queue 0: the dead-letter topic, for people to look at
    or delay level below 0

The message goes on with its body, tag, keys and birth; it counts its tries, and remembers its first topic (RETRY_TOPIC)
and its first id (ORIGIN_MESSAGE_ID). A delay level of 0 leaves it to the broker: level 3 plus the tries so far: 10 s,
30 s, 1 min and so on. A message that is only in the cold tier by now is read from there.
Source: broker/processor/AbstractSendMessageProcessor.java (consumerSendMsgBack), Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Mapping
from random import Random

import msgspec

from thermocline.broker.cold import ColdReads
from thermocline.broker.due import DelayService, schedule
from thermocline.broker.processors.messages.topic_check import TopicCheck
from thermocline.broker.sends import MessageAppender
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import GroupTable, TopicTable
from thermocline.remoting.bodies import PERM_WRITE, TOPIC_SYS_FLAG_UNIT_SUB
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import (
    CorruptDataError,
    GroupNotFoundError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
)
from thermocline.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import dlq_topic, retry_topic
from thermocline.store.log import MessageDraft
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

FIRST_RETRY_LEVEL = 3
DEAD_LETTER_QUEUES = 1
MAX_TIMES_VERSION = 121
"""Release 3.4.9: the first whose clients say themselves how often they want to try."""
HELP_TEXT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class SendBackProcessor:
    """Serves send-backs."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        delays: DelayService,
        stats: BrokerStats,
        cold: ColdReads,
        appender: MessageAppender,
        random: Random,
        store_host: tuple[str, int],
        check_topic: TopicCheck | None = None,
    ) -> None:
        """`check_topic`: access control, if it is on."""
        self._check_topic = check_topic
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._delays = delays
        self._stats = stats
        self._cold = cold
        self._appender = appender
        self._random = random
        self._store_host = store_host

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """36: store a message again for the group, or for the dead letters; as safe as a send on return."""
        header = command.header(ConsumerSendMsgBackRequestHeader)
        group = self._groups.find_or_create(header.group, connection.remote_address)
        if group is None:
            raise GroupNotFoundError(f"subscription group not exist, {header.group} {HELP_TEXT}")
        if not self._settings.broker.is_writable:
            raise PermissionDeniedError(f"the broker[{self._store_host[0]}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return RemotingCommand.response(command)

        record = await self._read(header.offset)
        if self._check_topic is not None:
            self._check_topic(connection, command, record.topic)
        tries_max = group.retry_max_times
        if command.version >= MAX_TIMES_VERSION and header.max_reconsume_times is not None:
            tries_max = header.max_reconsume_times
        is_dead = record.reconsume_times >= tries_max or header.delay_level < 0
        if is_dead:
            topic, queue_count, sys_flag = dlq_topic(header.group), DEAD_LETTER_QUEUES, 0
        else:
            topic, queue_count = retry_topic(header.group), group.retry_queue_nums
            sys_flag = TOPIC_SYS_FLAG_UNIT_SUB if header.unit_mode else 0
        config = await self._topics.ensure(topic, queue_count=queue_count, sys_flag=sys_flag)
        if not config.perm & PERM_WRITE:
            raise PermissionDeniedError(f"the topic[{topic}] sending message is forbidden")

        properties = self._properties(record)
        draft = MessageDraft(
            topic=topic,
            queue_id=self._random.randrange(queue_count),
            body=record.body,
            properties_text=b"",
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            flag=record.flag,
            sys_flag=record.sys_flag,
            reconsume_times=record.next_reconsume_times,
        )
        if is_dead:
            properties[PropertyName.DELAY_LEVEL] = "0"
            draft = msgspec.structs.replace(draft, properties_text=encode_properties(properties))
        else:
            # A producer may have sent a count of tries below 0.
            level = header.delay_level or max(1, FIRST_RETRY_LEVEL + record.reconsume_times)
            draft = schedule(draft, properties, level, level_count=self._delays.level_count)
        await self._appender.append_safely(draft)

        first_topic = properties[PropertyName.RETRY_TOPIC]
        self._stats.add_send_back(first_topic, header.group)
        if is_dead:
            self._stats.add_dead_letter(first_topic, header.group)
            logger.info(
                "dead letter topic=%s group=%s unique_key=%s tries=%d",
                first_topic,
                header.group,
                record.unique_key,
                record.reconsume_times,
            )
        return RemotingCommand.response(command)

    async def _read(self, physical_offset: PhysicalOffset) -> MessageRecord:
        """The message, from the local log or from the cold tier; UnavailableError when that cannot be asked now."""
        store = self._store
        try:
            if physical_offset >= store.commit_log.min_offset:
                return store.read_record(physical_offset)
            cold = await self._cold.view(physical_offset) if physical_offset >= 0 else None
            if cold is not None:
                return decode_record(cold.record)
        except (OffsetOutOfRangeError, CorruptDataError) as error:
            raise InvalidRequestError(f"look message by offset failed, {physical_offset}") from error
        raise InvalidRequestError(f"look message by offset failed, {physical_offset}")

    def _properties(self, record: MessageRecord) -> dict[str, str]:
        properties = record.properties
        properties.setdefault(PropertyName.RETRY_TOPIC, record.topic)
        properties[PropertyName.WAIT_STORE] = "false"
        if not properties.get(PropertyName.ORIGIN_MESSAGE_ID, "").strip():
            properties[PropertyName.ORIGIN_MESSAGE_ID] = encode_message_id(record.store_host, record.physical_offset)
        return properties
