"""Mapping cleaner: removes unneeded items from mappings, every five minutes in the hours of `deleteWhen`.

    of a queue that this broker leads      its oldest item, when its physical queue holds nothing visible any more, hot
                                           or cold; one item a round
    of a queue that others lead            the whole list, when it names another leader than there is now, and the one
                                           there is has a mapping of the same age

Before an item goes, groups that have an offset there and none further on are noted at the start of the next item:
otherwise they would be new groups, and those that begin at the end would skip what came meanwhile, as they do with
RocketMQ.

While another broker does not answer, nothing is changed. Owner: the hot process's event loop.
Source: broker/topic/TopicQueueMappingCleanService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from thermocline.broker.cluster import PeerBrokers, Registration
from thermocline.broker.static_topics.physical_queues import MappedQueues
from thermocline.broker.tables import LedQueue, StaticTopicTable
from thermocline.remoting.bodies import (
    LogicQueueMappingItem,
    TopicConfigAndMapping,
    TopicQueueMappingDetail,
    TopicRouteData,
)
from thermocline.remoting.bodies.logic_queue import is_decided, leaders, led_queues, virtual_broker_name
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.broker import GetTopicConfigRequestHeader
from thermocline.remoting.headers.namesrv import GetRouteInfoRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

INTERVAL_S = 300
ROUTE_TIMEOUT_MS = 3_000


def local_hour() -> int:
    """The hour of the day, local time."""
    return time.localtime().tm_hour


class MappingCleaner:
    """Cleans the mappings of one broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        static_topics: StaticTopicTable,
        peers: PeerBrokers,
        registration: Registration,
        mapped_queues: MappedQueues,
        hour: Callable[[], int] = local_hour,
    ) -> None:
        self._store = store
        self._static_topics = static_topics
        self._peers = peers
        self._registration = registration
        self._mapped_queues = mapped_queues
        self._hour = hour

    async def run(self) -> None:
        """Clean for ever; cancelling is safe."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.clean()
            except Exception:
                # A bug in one round must not end all that recur.
                logger.exception("mappings not cleaned")

    async def clean(self) -> None:
        """Clean every mapping, if this is the hour for it."""
        hours = self._store.config.delete_when_hours
        if hours and self._hour() not in hours:
            return
        for topic in list(self._static_topics.details):
            for step in (self._drop_empty_items, self._drop_outdated_lists):
                detail = self._static_topics.details.get(topic)
                if detail is None:
                    break
                try:
                    await step(topic, detail)
                except MQError as error:
                    logger.warning("mapping not cleaned topic=%s error=%s", topic, error)

    async def _drop_empty_items(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        queues = dict(detail.hosted_queues)
        for queue_id in led_queues(detail):
            items = queues[queue_id]
            if len(items) < 2 or not is_decided(items[1]):
                continue
            led = LedQueue(topic=topic, queue_id=queue_id, detail=detail, items=tuple(items))
            there = self._mapped_queues.find(led, items[0])
            end = await there.end(topic, items[0].queue_id)
            if end == 0 or end == await there.minimum(topic, items[0].queue_id):
                await self._keep_groups(led)
                queues[queue_id] = items[1:]
                logger.info(
                    "oldest part of a logic queue is empty topic=%s queue=%d broker=%s physical_queue=%d end=%d",
                    topic,
                    queue_id,
                    items[0].broker_name,
                    items[0].queue_id,
                    end,
                )
        await self._put(detail, queues)

    async def _keep_groups(self, led: LedQueue) -> None:
        first, following = led.items[:2]
        old, new = (self._mapped_queues.find(led, item) for item in (first, following))
        for group in await old.groups(led.topic):
            if await old.committed(led.topic, first.queue_id, group) is None:
                continue
            for item in led.items[1:]:
                queues = self._mapped_queues.find(led, item)
                if await queues.committed(led.topic, item.queue_id, group) is not None:
                    break
            else:
                await new.commit(led.topic, following.queue_id, group, following.start_offset)

    async def _drop_outdated_lists(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        named = {
            queue_id: items[-1].broker_name
            for queue_id, items in detail.hosted_queues.items()
            if items and items[-1].broker_name != detail.broker_name
        }
        if not named:
            return
        now = await self._leaders(topic, detail)
        mappings: dict[str, TopicQueueMappingDetail | None] = {}
        queues = dict(detail.hosted_queues)
        for queue_id, name in named.items():
            leader = now.get(queue_id)
            if leader is None or leader == name:
                continue
            if leader not in mappings:
                mappings[leader] = await self._mapping_at(leader, topic, detail)
            mapping = mappings[leader]
            if mapping is not None and queue_id in led_queues(mapping):
                del queues[queue_id]
                logger.info("list of a former leader is outdated topic=%s queue=%d leader=%s", topic, queue_id, leader)
        await self._put(detail, queues)

    async def _leaders(self, topic: str, detail: TopicQueueMappingDetail) -> dict[int, str]:
        """Logic queue -> its leader, as NameServers say."""
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        answer = await self._registration.call(command, timeout_ms=ROUTE_TIMEOUT_MS)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return {}
        infos = TopicRouteData.decode(answer.body).topic_queue_mapping_by_broker or {}
        scope = virtual_broker_name(detail.scope or "")
        return {queue_id: leader for (name, queue_id), leader in leaders(infos).items() if name == scope}

    async def _mapping_at(
        self, leader: str, topic: str, own: TopicQueueMappingDetail
    ) -> TopicQueueMappingDetail | None:
        """The leader's mapping, if it is of the same age as ours."""
        if leader == own.broker_name:
            return own
        command = RemotingCommand.request(
            RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic, logical=True)
        )
        answer = await self._peers.call(leader, command)
        if answer.code != ResponseCode.SUCCESS:
            return None
        mapping = TopicConfigAndMapping.decode(answer.body).mapping_detail
        is_of_age = (
            mapping is not None
            and mapping.broker_name == leader
            and (mapping.epoch, mapping.total_queues) == (own.epoch, own.total_queues)
        )
        return mapping if is_of_age else None

    async def _put(self, detail: TopicQueueMappingDetail, queues: dict[int, list[LogicQueueMappingItem]]) -> None:
        if queues != detail.hosted_queues:
            await self._static_topics.clean(detail, msgspec.structs.replace(detail, hosted_queues=queues))
