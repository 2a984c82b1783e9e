"""Statistics and progress: messages of topics, offsets and lag of groups, subscriptions.

    202 GET_TOPIC_STATS_INFO          300 QUERY_TOPIC_CONSUME_BY_WHO       343 QUERY_TOPICS_BY_CONSUMER
    208 GET_CONSUME_STATS             303 QUERY_CONSUME_TIME_SPAN          345 QUERY_SUBSCRIPTION_BY_CONSUMER
    317 GET_BROKER_CONSUME_STATS      321 QUERY_CONSUME_QUEUE              315 VIEW_BROKER_STATS_DATA

What a group has before it (208, 317) counts messages that exist (remaining_messages.py). Official tools work it out as
`brokerOffset - consumerOffset`, and use `consumerOffset` to move groups and to tell whether a message was consumed, but
`brokerOffset` for nothing else. So the answer has
    consumerOffset    the group's offset; in front of a gap, or below the first message, the next message's
    brokerOffset      the queue's end, less the gaps between the two; then `endOffset`, a member of ours, is the end
    pullOffset        in the same way, as tools work out `pullOffset - consumerOffset`
While the cold tier has not reported yet, gaps are unknown and are counted.

Of a static topic 208 shows NO_OFFSET where the group has none: tools take the offset of the newest part of a queue that
has one, and would take a 0 for it.

Minimum offsets are those that a consumer could read, the cold tier included; if it gives no answer, the request fails.
Store times that only the cold tier has are left out then, as RocketMQ leaves out missing ones.
Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.3.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping

import msgspec

from thermocline.broker.queues import QueueContent, QueueLookup, RemainingMessages
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats, StatsView, WindowSum
from thermocline.broker.tables import (
    ClientRegistry,
    ConsumerFilterData,
    ConsumerFilterTable,
    ConsumerOffsets,
    GroupTable,
    ProxiedClients,
    StaticTopicTable,
    TopicTable,
)
from thermocline.remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError, UnavailableError
from thermocline.remoting.handles import pop_retry_topic_v1, pop_retry_topic_v2
from thermocline.remoting.headers.broker import (
    GetConsumeStatsInBrokerHeader,
    GetTopicStatsInfoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from thermocline.remoting.headers.group import (
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from thermocline.remoting.headers.read import QueryConsumeQueueRequestHeader
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.store.queues import UNIT

UNITS_MAX = 1_024
"""Units of a queue shown in one answer to 321."""
UNKNOWN_TIME_MS = -1
NO_OFFSET = QueueOffset(-1)
DEFAULT_REMARK = "not set any response code"
QUEUES_A_SLICE = 256
"""Queues looked at before the loop serves others."""


class StatsProcessor:
    """Serves statistics and progress."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: ClientRegistry,
        proxied: ProxiedClients,
        consumer_filters: ConsumerFilterTable,
        stats: BrokerStats,
        lookup: QueueLookup,
        remaining: RemainingMessages,
        clock: Callable[[], int],
        advertised_address: str,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._static_topics = static_topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._proxied = proxied
        self._consumer_filters = consumer_filters
        self._stats = stats
        self._lookup = lookup
        self._remaining = remaining
        self._clock = clock
        self._advertised_address = advertised_address

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats,
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.get_groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.get_topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.get_subscription,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.get_time_span,
            RequestCode.QUERY_CONSUME_QUEUE: self.get_queue_units,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
        }

    # -- topics --------------------------------------------------------------------------------------------------------

    async def get_topic_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """202: least offset, end and last store time of each queue of a topic."""
        topic = command.header(GetTopicStatsInfoRequestHeader).topic
        config = self._config(topic)
        lookup = self._lookup
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            end, least = lookup.end(topic, queue_id), await lookup.minimum(topic, queue_id)
            content = await self._content(topic, queue_id, least)
            count = end - least if content is None else content.count(least)
            table[self._queue(topic, queue_id)] = TopicOffset(
                min_offset=least,
                max_offset=end,
                last_update_timestamp=await self._time_or(topic, queue_id, end - 1, 0),
                message_count=count if count != end - least else None,
            )
            await _rest(queue_id)
        body = TopicStatsTable(offset_table=table, topic_put_tps=self._stats.topic_put_per_second(topic))
        return RemotingCommand.response(command, body=body.encode())

    async def get_time_span(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """303: times of the first, the last and the next message of a group in each queue of a topic."""
        header = command.header(QueryConsumeTimeSpanRequestHeader)
        topic, group = header.topic, header.group
        config = self._config(topic)
        lookup = self._lookup
        spans: list[QueueTimeSpan] = []
        for queue_id in range(config.write_queue_nums):
            least, end = await lookup.minimum(topic, queue_id), lookup.end(topic, queue_id)
            first_ms = await self._time_or(topic, queue_id, least, UNKNOWN_TIME_MS)
            offset = self._offsets.query(topic, group, queue_id) or QUEUE_START
            span = QueueTimeSpan(
                message_queue=self._queue(topic, queue_id),
                min_time_stamp=first_ms,
                max_time_stamp=await self._time_or(topic, queue_id, end - 1, UNKNOWN_TIME_MS),
                consume_time_stamp=(
                    await self._time_or(topic, queue_id, offset - 1, UNKNOWN_TIME_MS) if offset > 0 else first_ms
                ),
            )
            if offset < end:
                content = await self._content(topic, queue_id, offset)
                following = max(offset, least) if content is None else content.next_offset(offset)
                next_ms = await self._time_or(topic, queue_id, following, UNKNOWN_TIME_MS)
                span.delay_time = self._clock() - next_ms if next_ms >= 0 else 0
            spans.append(span)
            await _rest(queue_id)
        return RemotingCommand.response(command, body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode())

    def get_queue_units(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """321: units of a queue's local part."""
        header = command.header(QueryConsumeQueueRequestHeader)
        place = f"{header.queue_id}@{header.topic}"
        queue = self._lookup.find(header.topic, header.queue_id)
        if queue is None:
            raise InvalidRequestError(f"{place} is not exist!")
        if not queue.min_offset <= header.index < queue.next_offset:
            return RemotingCommand.response(command, remark=f"Index {header.index} of {place} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.next_offset,
            min_queue_index=queue.min_offset,
            queue_data=[
                ConsumeQueueData(physic_offset=physical_offset, physic_size=size_bytes, tags_code=tags_code)
                for physical_offset, size_bytes, tags_code in UNIT.iter_unpack(
                    queue.units(header.index, max(0, min(header.count, UNITS_MAX)))
                )
            ],
        )
        if header.consumer_group:
            body.subscription_data = self._clients.subscription(header.consumer_group, header.topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
            else:
                body.filter_data = _filter_text(self._consumer_filters.get(header.topic, header.consumer_group))
        return RemotingCommand.response(command, remark=DEFAULT_REMARK, body=body.encode())

    # -- groups --------------------------------------------------------------------------------------------------------

    async def get_consume_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """208: how far a group is in each queue of its topics, of one, or of those listed."""
        header = command.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        listed = [topic for topic in (header.topic_list or "").split(";") if topic]
        if listed:
            topics: Iterable[str] = listed
        else:
            wanted = (header.topic or "").strip()
            topics = self._subscribed(group, [wanted] if wanted else sorted(self._offsets.topics_of(group)))
        stats = ConsumeStats()
        for topic in topics:
            config = self._topics.get(topic)
            if config is not None:
                is_static = topic in self._static_topics.details
                await self._add_progress(stats, topic, group, config.read_queue_nums, shows_none=is_static)
        return RemotingCommand.response(command, body=stats.encode())

    async def get_broker_consume_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """317: the same for every group of the broker; `isOrder`: of ordered topics only."""
        is_order = command.header(GetConsumeStatsInBrokerHeader).is_order
        body = ConsumeStatsList(broker_addr=self._advertised_address)
        for group in list(self._groups.configs()):
            stats_list: list[ConsumeStats] = []
            for topic in self._subscribed(group, sorted(self._offsets.topics_of(group))):
                config = self._topics.get(topic)
                if config is None or (is_order and not config.order):
                    continue
                stats = ConsumeStats()
                await self._add_progress(stats, topic, group, config.write_queue_nums)
                for progress in stats.offset_table.values():
                    body.total_diff += progress.broker_offset - progress.consumer_offset
                    body.total_inflight_diff += progress.pull_offset - progress.consumer_offset
                stats_list.append(stats)
            body.consume_stats_list.append({group: stats_list})
            await asyncio.sleep(0)
        return RemotingCommand.response(command, body=body.encode())

    def get_groups_of_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """300: groups that are subscribed to a topic now, behind proxies too, or have an offset of it."""
        topic = command.header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = (
            self._clients.groups_of_topic(topic) | self._proxied.groups_of_topic(topic) | self._offsets.groups_of(topic)
        )
        return RemotingCommand.response(command, body=GroupList(group_list=sorted(groups)).encode())

    def get_topics_of_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """343: topics of which a group has an offset."""
        group = command.header(QueryTopicsByConsumerRequestHeader).group
        topics = sorted(self._offsets.topics_of(group))
        body = TopicList(topic_list=topics, broker_addr=self._advertised_address)
        return RemotingCommand.response(command, body=body.encode())

    def get_subscription(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """345: what an online group wants of a topic."""
        header = command.header(QuerySubscriptionByConsumerRequestHeader)
        topic = header.topic or ""
        body = QuerySubscriptionResponseBody(
            group=header.group,
            topic=topic,
            subscription_data=self._clients.subscription(header.group, topic),
        )
        return RemotingCommand.response(command, body=body.encode())

    # -- counters ------------------------------------------------------------------------------------------------------

    def view_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """315: one statistic over a minute, an hour and a day."""
        header = command.header(ViewBrokerStatsDataRequestHeader)
        view = self._stats.view(header.stats_name, header.stats_key)
        if view is None:
            raise InvalidRequestError(f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return RemotingCommand.response(command, body=_stats_body(view).encode())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError(f"topic[{topic}] not exist")
        return config

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._settings.broker.broker_name, queue_id=queue_id)

    def _subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        """The topics without those that the group, being online, is no longer subscribed to.

        Members behind proxies count, and so do the retry topics of POP, which no heartbeat names.
        """
        online = self._clients.consumer_group(group)
        if online is None or not online.subscriptions:
            return list(topics)
        wanted = {*online.subscriptions}.union(
            each.topic for client in self._proxied.consumers(group) for each in client.subscriptions
        )
        for topic in list(wanted):
            wanted |= {pop_retry_topic_v1(topic, group), pop_retry_topic_v2(topic, group)}
        return [topic for topic in topics if topic in wanted]

    async def _add_progress(
        self, stats: ConsumeStats, topic: str, group: str, queue_count: int, *, shows_none: bool = False
    ) -> None:
        """`shows_none`: a queue without an offset of the group has NO_OFFSET, not 0."""
        offsets = self._offsets
        for queue_id in range(queue_count):
            committed = offsets.query(topic, group, queue_id)
            if committed is None and shows_none:
                pulled = offsets.query_pull(topic, group, queue_id)
                stats.offset_table[self._queue(topic, queue_id)] = OffsetWrapper(
                    broker_offset=self._lookup.end(topic, queue_id),
                    consumer_offset=NO_OFFSET,
                    pull_offset=NO_OFFSET if pulled is None else pulled,
                )
                continue
            consumed = committed or QUEUE_START
            pulled = max(consumed, offsets.query_pull(topic, group, queue_id) or QUEUE_START)
            content = await self._content(topic, queue_id, consumed)
            wrapper = OffsetWrapper(
                broker_offset=self._lookup.end(topic, queue_id),
                consumer_offset=consumed,
                pull_offset=pulled,
                last_timestamp=await self._time_or(topic, queue_id, consumed - 1, 0),
            )
            if content is not None and consumed < content.end:
                wrapper.consumer_offset = following = content.next_offset(consumed)
                wrapper.broker_offset = following + content.count(following)
                wrapper.pull_offset = following + content.count(following, pulled)
                wrapper.end_offset = content.end if wrapper.broker_offset != content.end else None
            stats.offset_table[self._queue(topic, queue_id)] = wrapper
            await _rest(queue_id)
        stats.consume_tps += self._stats.group_get_per_second(topic, group)

    async def _content(self, topic: str, queue_id: int, offset: QueueOffset) -> QueueContent | None:
        """The lag of a group at `offset`; None for a queue without messages, and while it is unknown."""
        queue = self._lookup.find(topic, queue_id)
        return None if queue is None else await self._remaining.nearest(queue, offset)

    async def _time_or(self, topic: str, queue_id: int, offset: QueueOffset, default_ms: int) -> int:
        """When the message at an offset was stored; the default when there is none, or it cannot be found out now."""
        try:
            time_ms = await self._lookup.message_time(topic, queue_id, offset)
        except UnavailableError:
            return default_ms
        return default_ms if time_ms is None else time_ms


def _filter_text(data: ConsumerFilterData | None) -> str:
    """A group's filter as fastjson prints it, for people to read."""
    return json.dumps(msgspec.to_builtins(data), indent="\t", separators=(",", ":"), ensure_ascii=False)


def _stats_body(view: StatsView) -> BrokerStatsData:
    return BrokerStatsData(
        stats_minute=_stats_item(view.minute), stats_hour=_stats_item(view.hour), stats_day=_stats_item(view.day)
    )


def _stats_item(total: WindowSum) -> BrokerStatsItem:
    return BrokerStatsItem(sum=total.sum, tps=total.per_second, avgpt=total.per_time)


async def _rest(queue_id: int) -> None:
    if queue_id % QUEUES_A_SLICE == QUEUES_A_SLICE - 1:
        await asyncio.sleep(0)
