"""RouteTable: the routes of the topics that a client uses, and the addresses of all brokers in them.

A route is fetched when a topic is first used, again every 30 s, and soon after a broker failed: another one may be the
master since. Simultaneous callers share one fetch. A route that cannot be fetched any more stays as it was: brokers
outlive NameServers, and sending to a known broker beats not sending. A broker's addresses are those of the route that
was fetched last: one of a topic that was deleted may name a master from before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from thermocline.client.message_queue import MessageQueue
from thermocline.client.name_servers import NameServers
from thermocline.client.topic_route import MASTER_ID, BrokerAddress, TopicRoute, borrowed_route, read_route
from thermocline.remoting.bodies import PERM_WRITE, TopicRouteData
from thermocline.remoting.errors import MQError, TopicNotFoundError, UnavailableError
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = ["RouteTable"]

logger = logging.getLogger(__name__)

REFRESH_PAUSE_S = 0.2
"""After failures a topic's route is fetched at most so often."""


class RouteTable:
    """Topic -> route. Belongs to its session's loop. Bounded by the number of topics that the application uses."""

    def __init__(self, name_servers: NameServers, *, may_leave_zone: bool = False) -> None:
        """`may_leave_zone`: a topic without a broker in the client's zone is looked for everywhere."""
        self._name_servers = name_servers
        self._may_leave_zone = may_leave_zone
        self._routes: dict[str, TopicRoute] = {}
        """The one that was fetched last at the end."""
        self._fetches: dict[str, asyncio.Task[TopicRoute]] = {}
        self._soon: dict[str, asyncio.Task[None]] = {}
        self._templates: dict[str, tuple[str, int]] = {}
        """Topic with a borrowed route -> the topic that it is borrowed from, and the most queues."""
        self._is_closed = False
        self._watched: set[str] = set()
        self._on_change: list[Callable[[TopicRoute], None]] = []

    def on_change(self, callback: Callable[[TopicRoute], None]) -> None:
        """Call `callback` with every route that is new or differs from before."""
        self._on_change.append(callback)

    def watch(self, topic: str) -> None:
        """Keep this topic's route fresh before its first use (the topic may be created later)."""
        self._watched.add(topic)

    def unwatch(self, topic: str) -> None:
        """Stop keeping this topic's route fresh."""
        self._watched.discard(topic)
        self._routes.pop(topic, None)
        self._templates.pop(topic, None)

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the route as far as it is known."""
        return self._routes.get(topic)

    def brokers(self) -> set[BrokerAddress]:
        """Return every broker in any known route."""
        return {broker for route in self._routes.values() for broker in route.brokers}

    def reader(self, broker_name: str, broker_id: int = 0) -> str:
        """Return the address to read from, by the newest route with this broker.

        Raises:
            UnavailableError: The broker is in no route.
        """
        return self._route_of(broker_name).reader(broker_name, broker_id)

    def master(self, broker_name: str) -> str:
        """Return the address of a broker's master, by the newest route with this broker.

        Raises:
            UnavailableError: The broker is in no route, or has no master now.
        """
        return self._route_of(broker_name).master(broker_name)

    def _route_of(self, broker_name: str) -> TopicRoute:
        for route in reversed(self._routes.values()):
            if route.addresses.get(broker_name):
                return route
        raise UnavailableError("this broker is in no route", broker_name=broker_name)

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the broker to ask about a queue: the one it is named after, or a logic queue's leader."""
        route = self._routes.get(queue.topic)
        return queue.broker_name if route is None else route.broker_of(queue)

    def is_master(self, queue: MessageQueue, address: str) -> bool:
        """Whether the address is that of the master of the queue's broker."""
        route = self._routes.get(queue.topic)
        return route is not None and route.addresses.get(route.broker_of(queue), {}).get(MASTER_ID) == address

    async def find_reader(self, queue: MessageQueue, broker_id: int = 0) -> str:
        """Return the address to read a queue from, if need be after one more look at the topic's route.

        One that was fetched while a broker was away would hide it for up to 30 s after its return.

        Raises:
            UnavailableError: Its broker is in no route, or it has no leader now; or no NameServer answers.
        """
        try:
            return self.reader(self.broker_of(queue), broker_id)
        except UnavailableError as error:
            try:
                await self.refresh(queue.topic)
            except TopicNotFoundError:
                raise error from None
        return self.reader(self.broker_of(queue), broker_id)

    async def get(self, topic: str) -> TopicRoute:
        """Return the route, fetching it when it is not known or only borrowed.

        Raises:
            TopicNotFoundError: No live broker has the topic.
            UnavailableError: No NameServer answers.
        """
        route = self._routes.get(topic)
        return route if route is not None and not route.is_borrowed else await self.refresh(topic)

    async def get_for_sending(self, topic: str, *, template_topic: str, queue_nums_max: int) -> TopicRoute:
        """Return the route to send by; a topic that does not exist borrows `template_topic`'s.

        Raises:
            TopicNotFoundError: Neither topic is on any live broker: it does not exist, and is not made by sending.
            UnavailableError: No NameServer answers.
        """
        try:
            route = await self.get(topic)
        except TopicNotFoundError:
            try:
                template = await self._route_data(template_topic)
            except TopicNotFoundError:
                raise TopicNotFoundError("no route to this topic, and no broker creates it", topic=topic) from None
            route = borrowed_route(topic, template, queue_nums_max=queue_nums_max)
            self._templates[topic] = template_topic, queue_nums_max
            self._put(route)
        else:
            self._templates.pop(topic, None)
        return route

    async def refresh(self, topic: str) -> TopicRoute:
        """Fetch the route anew.

        Raises:
            TopicNotFoundError: No live broker has the topic.
            UnavailableError: No NameServer answers.
        """
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = asyncio.get_running_loop().create_task(self._fetch(topic))
            self._fetches[topic] = fetch
            fetch.add_done_callback(lambda _: self._fetches.pop(topic, None))
        return await asyncio.shield(fetch)

    def refresh_soon(self, topic: str) -> None:
        """Fetch the route anew, unless that was done just now. Returns at once; a failure is logged."""
        if topic not in self._soon and not self._is_closed:
            task = self._soon[topic] = asyncio.get_running_loop().create_task(self._refresh_and_pause(topic))
            task.add_done_callback(lambda _: self._soon.pop(topic, None))

    async def _refresh_and_pause(self, topic: str) -> None:
        try:
            await self._renew(topic)
        except MQError as error:
            logger.info("route refresh failed topic=%s error=%s", topic, error)
        await asyncio.sleep(REFRESH_PAUSE_S)

    async def _renew(self, topic: str) -> None:
        """Fetch the route anew; borrow it anew while the topic does not exist, for masters come and go meanwhile."""
        if topic in self._templates:
            template_topic, queue_nums_max = self._templates[topic]
            await self.get_for_sending(topic, template_topic=template_topic, queue_nums_max=queue_nums_max)
        else:
            await self.refresh(topic)

    async def refresh_all(self) -> None:
        """Fetch every known or watched route anew; failures are logged and leave what is known."""
        for topic in sorted(self._watched | self._routes.keys()):
            try:
                await self._renew(topic)
            except TopicNotFoundError as error:
                # Retry topics come to exist with the group's first heartbeat, new topics with their first message.
                if not topic.startswith(RETRY_TOPIC_PREFIX) and topic not in self._routes:
                    logger.info("topic not found topic=%s error=%s", topic, error)
            except UnavailableError as error:
                logger.warning("route refresh failed topic=%s error=%s", topic, error)
                return

    async def close(self) -> None:
        """Abandon the fetches that are under way."""
        self._is_closed = True
        tasks: list[asyncio.Task[Any]] = [*self._soon.values(), *self._fetches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, topic: str) -> TopicRoute:
        route = read_route(topic, await self._route_data(topic))
        self._put(route)
        return route

    async def _route_data(self, topic: str) -> TopicRouteData:
        data = await self._name_servers.topic_route(topic)
        if self._may_leave_zone and not any(queues.perm & PERM_WRITE for queues in data.queue_datas):
            data = await self._name_servers.topic_route(topic, everywhere=True)
        return data

    def _put(self, route: TopicRoute) -> None:
        before = self._routes.pop(route.topic, None)
        self._routes[route.topic] = route
        if route == before:
            return
        for callback in self._on_change:
            callback(route)
