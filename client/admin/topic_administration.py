"""Topics: create, change, delete, list, where they are and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.admin.topic_header import topic_header
from thermocline.client.fan_out import Answers
from thermocline.client.message_queue import MessageQueue, from_wire
from thermocline.client.topic_route import BrokerAddress, TopicRoute
from thermocline.remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    GroupList,
    TopicConfig,
    TopicConfigAndMapping,
    TopicList,
    TopicStatsTable,
)
from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError
from thermocline.remoting.headers import (
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import (
    check_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)

__all__ = ["QueueStats", "TopicAdministration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """What one queue holds: [min_offset, max_offset). `gap_count`: how many of these offsets have no message."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_timestamp_ms: int
    gap_count: int = 0

    @property
    def message_count(self) -> int:
        """How many messages a consumer that starts with the first one gets."""
        return self.max_offset - self.min_offset - self.gap_count


class TopicAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def create_topic(
        self,
        topic: str,
        *,
        queue_nums: int = 8,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Create a topic on every master, those of a cluster, or one broker (name or address); return their names.

        A topic that exists gets these settings. `attributes` such as `{"reserve.time": "72"}`; see `update_topic` to
        remove one.

        Raises:
            InvalidRequestError: The name, a number or an attribute is impossible.
            ObjectNotFoundError: No such broker.
            PartialResultError: Some brokers failed; `result` names those that have the topic.
        """
        check_topic(topic)
        if queue_nums < 1 or (read_queue_nums or 1) < 1 or (write_queue_nums or 1) < 1:
            raise InvalidRequestError("a topic has at least one queue", topic=topic)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=read_queue_nums or queue_nums,
            write_queue_nums=write_queue_nums or queue_nums,
            perm=perm,
            order=order,
        )
        changes = dict(attributes or {})
        answers = await self._ask_each(
            await self._masters(cluster=cluster, broker=broker), lambda master: self._put_topic(master, config, changes)
        )
        return answers.whole(answers.names())

    async def update_topic(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Change what is given, on every broker that has the topic, or on one; an attribute of None is removed.

        Raises:
            TopicNotFoundError: There is no such topic, or not on that broker.
            InvalidRequestError: A number or an attribute is impossible.
            PartialResultError: Some brokers failed; `result` names those that were changed.
        """
        masters = [one for one in await self._topic_masters(topic) if broker in (None, one.broker_name, one.address)]
        if not masters:
            raise TopicNotFoundError("the broker has no such topic", topic=topic, broker=broker)

        async def change(master: BrokerAddress) -> None:
            config = await self._config_at(master, topic)
            if read_queue_nums is not None:
                config.read_queue_nums = read_queue_nums
            if write_queue_nums is not None:
                config.write_queue_nums = write_queue_nums
            if perm is not None:
                config.perm = perm
            await self._put_topic(master, config, dict(attributes or {}))

        answers = await self._ask_each(masters, change)
        return answers.whole(answers.names())

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete a topic with all its messages, hot and cold, and its route; return the brokers that had it.

        A cluster of which a broker failed keeps its route, so that the call can be repeated.

        Raises:
            TopicNotFoundError: No broker has it.
            InvalidRequestError: It is a system topic.
            PartialResultError: Some brokers or NameServers failed; `result` names the brokers that have deleted it.
        """
        masters = await self._topic_masters(topic)
        masters = [master for master in masters if cluster in (None, master.cluster)]
        if not masters:
            raise TopicNotFoundError("no broker of this cluster has the topic", topic=topic, cluster=cluster)
        session = self._running()

        async def delete(master: BrokerAddress) -> None:
            header = DeleteTopicRequestHeader(topic=topic)
            await session.call(master.address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

        deleted = await self._ask_each(masters, delete)
        failed_clusters = {master.cluster for master in masters if master not in deleted.by_peer}
        failures = list(deleted.failures)
        for name in sorted({master.cluster for master in masters} - failed_clusters):
            header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=name)
            failures += (await session.name_servers.call_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)).failures
        session.routes.unwatch(topic)
        return Answers(deleted.by_peer, failures).whole(deleted.names())

    async def list_topics(self, *, cluster: str | None = None, include_system: bool = False) -> list[str]:
        """Return the names of all topics, sorted; system, retry and dead-letter topics only with `include_system`."""
        name_servers = self._running().name_servers
        if cluster is None:
            answer = await name_servers.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            answer = await name_servers.call(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        names = set(TopicList.decode(answer.body).topic_list)
        if not include_system:
            brokers = await self._brokers()
            own = {one.cluster for one in brokers} | {one.broker_name for one in brokers}
            own |= {f"{one.cluster}_REPLY_TOPIC" for one in brokers}
            names = {name for name in names - own if not _is_system(name)}
        return sorted(names)

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """Return a topic's settings on each broker that has it.

        Raises:
            TopicNotFoundError: No broker has it.
            PartialResultError: Some brokers failed.
        """
        answers = await self._ask_each(
            await self._topic_masters(topic), lambda master: self._config_at(master, topic), takes_replicas=True
        )
        return answers.whole(answers.by_name())

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return where a topic's queues are; TopicNotFoundError when nowhere."""
        return await self._running().routes.refresh(topic)

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """Return what each queue of a topic holds, sorted.

        Raises:
            TopicNotFoundError: There is no such topic.
            PartialResultError: Some brokers failed; `result` has the queues of the others.
        """

        async def ask(master: BrokerAddress) -> list[QueueStats]:
            header = GetTopicStatsInfoRequestHeader(topic=topic)
            answer = await self._running().call(master.address, RequestCode.GET_TOPIC_STATS_INFO, header)
            return [
                QueueStats(
                    queue=from_wire(queue),
                    min_offset=offsets.min_offset,
                    max_offset=offsets.max_offset,
                    last_update_timestamp_ms=offsets.last_update_timestamp,
                    gap_count=(
                        0
                        if offsets.message_count is None
                        else offsets.max_offset - offsets.min_offset - offsets.message_count
                    ),
                )
                for queue, offsets in TopicStatsTable.decode(answer.body).offset_table.items()
            ]

        answers = await self._ask_each(await self._topic_masters(topic), ask, takes_replicas=True)
        return answers.whole(sorted((one for each in answers.values() for one in each), key=lambda one: one.queue))

    async def topic_consumers(self, topic: str) -> list[str]:
        """Return the groups that consume a topic or have offsets in it, sorted.

        Raises:
            TopicNotFoundError: There is no such topic.
            PartialResultError: Some brokers failed.
        """

        async def ask(master: BrokerAddress) -> list[str]:
            header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
            answer = await self._running().call(master.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            return list(GroupList.decode(answer.body).group_list)

        answers = await self._ask_each(await self._topic_masters(topic), ask, takes_replicas=True)
        return answers.whole(sorted({group for groups in answers.values() for group in groups}))

    async def _config_at(self, master: BrokerAddress, topic: str) -> TopicConfig:
        header = GetTopicConfigRequestHeader(topic=topic, logical=True)
        answer = await self._running().call(master.address, RequestCode.GET_TOPIC_CONFIG, header)
        return TopicConfigAndMapping.decode(answer.body)

    async def _put_topic(
        self, master: BrokerAddress, config: TopicConfig, attributes: Mapping[str, str | None]
    ) -> None:
        changes = [f"-{name}" if value is None else f"+{name}={value}" for name, value in attributes.items()]
        header = topic_header(config.topic_name, config, force=False, attributes=",".join(changes))
        await self._running().call(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _is_system(topic: str) -> bool:
    return is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic) or topic.startswith("RMQ_SYS_")
