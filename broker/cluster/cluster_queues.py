"""Cluster queues: the queues of a topic on all brokers, to be assigned among consumers.

This broker's own come from its topic table, the others' from a NameServer, which is queried per requested topic, once
in `loadBalancePollNameServerInterval`. While no NameServer answers, the last answer stays in use.
Bound: TOPICS_MAX topics are remembered. A name that is too long for a topic is neither looked up nor remembered:
clients choose it, and it may have megabytes.
Owner: the hot process's event loop.
Source: broker/topic/TopicRouteInfoManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from thermocline.broker.cluster.registration import Registration
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables import TopicTable
from thermocline.remoting.bodies import PERM_READ, MessageQueue, TopicRouteData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.namesrv import GetRouteInfoRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import RETRY_TOPIC_CHARACTERS_MAX

logger = logging.getLogger(__name__)

TOPICS_MAX = 10_000
TIMEOUT_MS = 1_000


class _Route(msgspec.Struct, frozen=True, kw_only=True):
    """A NameServer's answer about the other brokers' queues."""

    asked_ms: int
    queues: tuple[MessageQueue, ...]


class ClusterQueues:
    """Readable queues of topics, on all brokers."""

    def __init__(
        self,
        topics: TopicTable,
        registration: Registration,
        *,
        config: Callable[[], BrokerConfig],
        clock: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._registration = registration
        self._config = config
        self._clock = clock
        self._routes: dict[str, _Route] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def find(self, topic: str) -> list[MessageQueue] | None:
        """The queues that consumers may read; None when no broker has the topic. Cancelling is safe."""
        if len(topic) > RETRY_TOPIC_CHARACTERS_MAX and topic not in self._topics:
            return None
        route = self._routes.get(topic)
        if route is None or self._clock() - route.asked_ms >= self._config().route_poll_interval_ms:
            await self._ask_once(topic)
            route = self._routes.get(topic)
        config = self._topics.get(topic)
        others = () if route is None else route.queues
        if config is None:
            return list(others) or None
        count = config.read_queue_nums if config.perm & PERM_READ else 0
        name = self._config().broker_name
        return [*(MessageQueue(topic=topic, broker_name=name, queue_id=number) for number in range(count)), *others]

    async def _ask_once(self, topic: str) -> None:
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.get_running_loop().create_task(self._ask(topic))
            task.add_done_callback(lambda _: self._asking.pop(topic))
        await asyncio.shield(task)

    async def _ask(self, topic: str) -> None:
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        route = self._routes.get(topic)
        queues = () if route is None else route.queues
        try:
            answer = await self._registration.call(command, timeout_ms=TIMEOUT_MS)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                queues = self._others(topic, TopicRouteData.decode(answer.body))
            elif answer is not None and answer.code == ResponseCode.TOPIC_NOT_EXIST:
                queues = ()
        except MQError as error:
            logger.warning("route not refreshed topic=%s error=%s", topic, error)
        if len(self._routes) >= TOPICS_MAX:
            self._routes.clear()
        self._routes[topic] = _Route(asked_ms=self._clock(), queues=queues)

    def _others(self, topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
        own_name = self._config().broker_name
        return tuple(
            MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=number)
            for data in route.queue_datas
            if data.broker_name != own_name and data.perm & PERM_READ
            for number in range(data.read_queue_nums)
        )
