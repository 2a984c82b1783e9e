"""Topic requests: making, changing, deleting and listing topics.

     17 UPDATE_AND_CREATE_TOPIC          21 GET_ALL_TOPIC_CONFIG      305 GET_SYSTEM_TOPIC_LIST_FROM_BROKER
     18 UPDATE_AND_CREATE_TOPIC_LIST     351 GET_TOPIC_CONFIG         215 DELETE_TOPIC_IN_BROKER
    513 UPDATE_AND_CREATE_STATIC_TOPIC

Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.3.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

import msgspec

from thermocline.broker.settings import CurrentConfig
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import (
    MESSAGE_TYPE,
    MESSAGE_TYPE_MIXED,
    ConsumerOffsets,
    StaticTopicTable,
    TopicTable,
    consumer_offsets,
    parse_change,
)
from thermocline.remoting.bodies import (
    DataVersion,
    TopicConfig,
    TopicConfigAndMapping,
    TopicConfigListBody,
    TopicList,
    TopicQueueMappingDetail,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler, LimitCounts
from thermocline.remoting.errors import (
    InvalidParameterError,
    InvalidRequestError,
    LimitReachedError,
    TopicNotFoundError,
)
from thermocline.remoting.headers.broker import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import check_topic, retry_topic

logger = logging.getLogger(__name__)

QUEUES_MAX = 16_384
"""Queues of one topic on one broker. RocketMQ has no limit; without one a single request could stop the broker."""
PERM_MAX = 15
FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})

DEFAULT_REMARK = "not set any response code"
"""Apache RocketMQ leaves it in the answer to a topic that was made."""


class TopicProcessor:
    """Serves the topic requests."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        persister: ConfigPersister,
        limits: LimitCounts,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._static_topics = static_topics
        self._offsets = offsets
        self._stats = stats
        self._persister = persister
        self._limits = limits

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.update_static_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
        }

    async def update_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """17: make a topic or set it up anew; durable before the answer."""
        header = command.header(CreateTopicRequestHeader)
        config = _config_of(header)
        change = parse_change(header.attributes)
        self._check(config, change)
        self._check_room(connection, [config])
        await self._topics.update(config, change)
        logger.info("topic set up topic=%s by=%s", header.topic, connection.remote_address)
        return RemotingCommand.response(command, remark=DEFAULT_REMARK)

    async def update_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """18: the same for several topics; all are checked before the first is made."""
        configs = TopicConfigListBody.decode(command.body).topic_config_list
        for config in configs:
            self._check(config, config.attributes)
        self._check_room(connection, configs)
        results = await asyncio.gather(
            *(self._topics.update(config, config.attributes) for config in configs), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        logger.info("topics set up count=%d by=%s", len(configs), connection.remote_address)
        return RemotingCommand.response(command, remark=DEFAULT_REMARK)

    async def delete_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """215: delete a topic with its offsets, and the retry topics that POP made for it; durable first."""
        topic = command.header(DeleteTopicRequestHeader).topic
        if not topic.strip():
            raise InvalidParameterError("The specified topic is blank.")
        check_topic(topic)  # the name becomes part of the path that is removed
        self._check_not_system(topic)
        topics = [topic]
        if self._settings.broker.clear_retry_topics:
            for group in sorted(self._offsets.groups_of(topic)):
                topics += [name for name in _pop_retry_topics(group, topic) if name in self._topics]
        for name in topics:
            # Both are gone from memory at once; a mapping without its topic is dropped at the next start.
            await asyncio.gather(self._static_topics.delete(name), self._topics.delete(name))
            self._offsets.remove_topic(name)
            self._stats.remove_topic(name)
        # Were they still there after a crash, a group would skip the first messages of the topic's next life.
        await self._persister.save_changed(consumer_offsets.FILE_NAME)
        logger.info("topics deleted topics=%s by=%s", ",".join(topics), connection.remote_address)
        return RemotingCommand.response(command)

    async def update_static_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """513: make a static topic, or give it another mapping; durable before the answer."""
        header = command.header(CreateTopicRequestHeader)
        mapping = TopicQueueMappingDetail.decode(command.body)
        config = _config_of(header)
        self._check(config, {})
        mapping.topic = mapping.topic or header.topic
        if mapping.topic != header.topic:
            raise InvalidRequestError("the mapping is another topic's", topic=header.topic, mapping=mapping.topic)
        static_topics = self._static_topics
        static_topics.check(mapping, force=header.force)
        self._check_room(connection, [config])
        if header.topic in self._topics:
            await self._topics.update(config, {})  # its queues first: the mapping may name new ones
            await static_topics.update(mapping, force=header.force)
        else:
            # Never without its mapping, or it would be an ordinary topic; a mapping without a topic counts for nothing.
            await static_topics.update(mapping, force=header.force)
            await self._topics.update(config, {})
        logger.info("static topic set up topic=%s by=%s", header.topic, connection.remote_address)
        return RemotingCommand.response(command, remark=DEFAULT_REMARK)

    def get_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """351: one topic's configuration; with `lo` also the mapping of a static topic."""
        header = command.header(GetTopicConfigRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            raise TopicNotFoundError(f"No topic in this broker. topic: {header.topic}")
        mapping = self._static_topics.details.get(header.topic) if header.logical else None
        if mapping is not None:
            config = TopicConfigAndMapping(**msgspec.structs.asdict(config), mapping_detail=mapping)
        return RemotingCommand.response(command, body=config.encode())

    def get_all_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """21: all topics, or one page of them in the order of their names."""
        header = command.header(GetAllTopicConfigRequestHeader)
        names: Collection[str] = self._topics.configs().keys()
        if self._settings.broker.split_metadata and not (
            header.data_version is None and header.topic_seq is None and header.max_topic_num is None
        ):
            page_max = self._settings.broker.split_metadata_size
            names = page_of(
                names,
                start=header.topic_seq or 0,
                count=page_max if header.max_topic_num is None else min(page_max, header.max_topic_num),
                is_continued=is_same_version(header.data_version, self._topics.data_version),
            )
        static = self._static_topics
        wanted = set(names)
        body = (
            b'{"dataVersion":%s,"mappingDataVersion":%s,"topicConfigTable":{%s},"topicQueueMappingDetailMap":{%s}}'
        ) % (
            self._topics.data_version.encode(),
            static.data_version.encode(),
            b",".join([self._topics.encoded(name) for name in names]),
            b",".join([static.encoded_detail(name) for name in static.details if name in wanted]),
        )
        return RemotingCommand.response(
            command, header=GetAllTopicConfigResponseHeader(total_topic_num=len(self._topics)), body=body
        )

    def get_system_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """305: the topics that belong to the broker."""
        names = sorted(self._topics.system_topics)
        return RemotingCommand.response(command, body=TopicList(topic_list=names).encode())

    def _check(self, config: TopicConfig, change: Mapping[str, str]) -> None:
        check_topic(config.topic_name)
        self._check_not_system(config.topic_name)
        for count in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= count <= QUEUES_MAX:
                raise InvalidParameterError(f"a topic has 0 to {QUEUES_MAX} queues", queues=count)
        if not 0 <= config.perm <= PERM_MAX:
            raise InvalidParameterError(f"a permission is 0 to {PERM_MAX}", perm=config.perm)
        if config.topic_filter_type not in FILTER_TYPES:
            raise InvalidParameterError(f"topicFilterType = [{config.topic_filter_type}] value invalid")
        if change.get(f"+{MESSAGE_TYPE}") == MESSAGE_TYPE_MIXED and not self._settings.broker.mixed_message_type:
            raise InvalidParameterError("MIXED message type is not supported.")

    def _check_room(self, connection: Connection, configs: Iterable[TopicConfig]) -> None:
        new = {config.topic_name for config in configs if config.topic_name not in self._topics}
        most, present = self._settings.broker.request_topics_max, len(self._topics)
        if new and present + len(new) > most:
            error = LimitReachedError("topics", limit="createTopicsMax", present=present, most=most)
            self._limits.refused(error.limit, address=connection.remote_address, detail="topics not created")
            raise error

    def _check_not_system(self, topic: str) -> None:
        if self._settings.broker.protect_system_topics and self._topics.is_system_topic(topic):
            raise InvalidParameterError(f"The topic[{topic}] is conflict with system topic.")


def _config_of(header: CreateTopicRequestHeader) -> TopicConfig:
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
    )


def page_of(names: Iterable[str], *, start: int, count: int, is_continued: bool) -> list[str]:
    """Names `[start, start + count)` in sorted order, from the first when the table changed since the page before."""
    begin = max(0, start) if is_continued else 0
    return sorted(names)[begin : begin + max(0, count)]


def is_same_version(text: str | None, version: DataVersion) -> bool:
    """Whether a client's version, as JSON, is this one; text that is none is not."""
    if not text or not text.strip():
        return False
    try:
        return DataVersion.decode(text.encode()) == version
    except InvalidRequestError:
        return False


def _pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    return f"{retry_topic(group)}_{topic}", f"{retry_topic(group)}+{topic}"
