"""Traffic: how much goes into topics and out to consumer groups, as brokers count it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies import BrokerStatsData, ConsumeStats, GroupList, TopicConfigTableBody
from thermocline.remoting.errors import MQError, TopicNotFoundError, UnavailableError
from thermocline.remoting.headers import (
    GetConsumeStatsRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import is_dlq_topic, is_system_topic

__all__ = ["Traffic", "TrafficStatistics"]

TOPIC_IN, GROUP_OUT = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"
"""Names of the statistics, of which a topic, and a topic with a group, are the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What goes through one topic of one broker, and to one of its groups."""

    topic: str
    group: str
    """Empty when no group consumes the topic."""
    in_per_second: float
    """Over the last minute."""
    in_count_day: int
    out_per_second: float
    out_count_day: int
    lag: int
    """Messages that the group has not consumed yet."""


class TrafficStatistics(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def broker_traffic(self, broker: str, *, topics: Sequence[str] = ()) -> list[Traffic]:
        """Return what goes through the topics of a broker (name or address): all of them, or those named.

        One row for each group of a topic; one with an empty group for a topic that no group consumes.

        Raises:
            ObjectNotFoundError: No such broker, or no such topic there.
        """
        return await self._ask_one(broker, lambda master: self._traffic_at(master, topics))

    async def _traffic_at(self, master: BrokerAddress, topics: Sequence[str]) -> list[Traffic]:
        answer = await self._running().call(master.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        there = TopicConfigTableBody.decode(answer.body).topic_config_table
        for topic in topics:
            if topic not in there:
                raise TopicNotFoundError("the broker has no such topic", topic=topic, broker=master.broker_name)
        own = {master.cluster, master.broker_name}
        wanted = topics or sorted(
            name for name in there if name not in own and not is_system_topic(name) and not is_dlq_topic(name)
        )
        return [row for topic in wanted for row in await self._topic_traffic(master, topic)]

    async def _topic_traffic(self, master: BrokerAddress, topic: str) -> list[Traffic]:
        session = self._running()
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        answer = await session.call(master.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        groups = sorted(GroupList.decode(answer.body).group_list)
        incoming = await self._count(master, TOPIC_IN, topic)
        rows: list[Traffic] = []
        for group in groups or [""]:
            outgoing = await self._count(master, GROUP_OUT, f"{topic}@{group}") if group else BrokerStatsData()
            rows.append(
                Traffic(
                    topic=topic,
                    group=group,
                    in_per_second=incoming.stats_minute.tps,
                    in_count_day=_day_count(incoming),
                    out_per_second=outgoing.stats_minute.tps,
                    out_count_day=_day_count(outgoing),
                    lag=await self._lag(master, topic, group) if group else 0,
                )
            )
        return rows

    async def _count(self, master: BrokerAddress, name: str, key: str) -> BrokerStatsData:
        """A statistic; zeros for one that the broker does not have, as nothing was counted."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        try:
            answer = await self._running().call(master.address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except UnavailableError:
            raise
        except MQError:
            return BrokerStatsData()
        return BrokerStatsData.decode(answer.body)

    async def _lag(self, master: BrokerAddress, topic: str, group: str) -> int:
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        try:
            answer = await self._running().call(master.address, RequestCode.GET_CONSUME_STATS, header)
        except TopicNotFoundError:
            return 0
        return sum(
            offsets.broker_offset - max(0, offsets.consumer_offset)  # of static topics -1 where there is none
            for offsets in ConsumeStats.decode(answer.body).offset_table.values()
        )


def _day_count(counted: BrokerStatsData) -> int:
    """The count of the longest span that is there: brokers add up days only after the first hours."""
    return counted.stats_day.sum or counted.stats_hour.sum or counted.stats_minute.sum
