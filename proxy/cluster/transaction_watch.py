"""TransactionWatch: tells brokers that this proxy can be asked about transactions of its producers.

A broker asks any connected producer of a half message's group, and finds producers by their heartbeats; so the proxy
sends heartbeats in the name of the groups that its clients registered: at once for a new group, then every
`period_s`, to the masters of the group's topic.

A group that is announced no more, since its last client left, or its topic left the broker or was deleted, is
unregistered: a broker closes the connection of a client one of whose groups is silent for two minutes, and this one
serves all clients. So while a topic cannot be looked up its groups stay announced where they are.
Source: ClusterTransactionService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from thermocline.proxy.messaging import TopicQueues
from thermocline.remoting.bodies import HeartbeatData, ProducerData
from thermocline.remoting.errors import MQError, ObjectNotFoundError

__all__ = ["TransactionWatch"]

logger = logging.getLogger(__name__)

PARALLEL_MAX = 256
"""Groups that are unregistered at a time."""


class TransactionWatch:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        *,
        client_id: str,
        period_s: float,
        groups_per_heartbeat: int,
        topic_queues: Callable[[str], Awaitable[TopicQueues]],
        send_heartbeat: Callable[[str, bytes], Awaitable[None]],
        unregister: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`send_heartbeat`: to an address. `unregister`: at an address, a group."""
        self._client_id = client_id
        self._period_s = period_s
        self._groups_per_heartbeat = groups_per_heartbeat
        self._topic_queues = topic_queues
        self._send_heartbeat = send_heartbeat
        self._unregister = unregister
        self._topics: dict[str, str] = {}
        self._new: set[str] = set()
        self._announced: dict[str, set[str]] = {}
        """Where each group was announced, those that are to be unregistered too."""
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Send no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def add(self, group: str, topic: str) -> None:
        """Announce a group from now on."""
        if group not in self._topics:
            self._topics[group] = topic
            self._new.add(group)
            self._due.set()

    def remove(self, group: str) -> None:
        """Announce it no more."""
        self._topics.pop(group, None)
        self._new.discard(group)
        self._due.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_round = loop.time() + self._period_s
        while True:
            try:
                async with asyncio.timeout_at(next_round):
                    await self._due.wait()
                groups: Iterable[str] = tuple(self._new)
            except TimeoutError:
                groups = tuple(self._topics)
                next_round = loop.time() + self._period_s
            self._due.clear()
            self._new.clear()
            await self._unregister_gone()
            await self._announce(groups)

    async def _announce(self, groups: Iterable[str]) -> None:
        by_address: dict[str, list[str]] = {}
        former: list[tuple[str, str]] = []
        for group in groups:
            topic = self._topics.get(group)
            if topic is None:
                continue
            before = self._announced.get(group, set())
            try:
                queues = await self._topic_queues(topic)
                addresses = {broker.master_address for broker in queues.brokers if broker.master_address is not None}
            except ObjectNotFoundError:
                addresses = set()
            except MQError as error:
                logger.info("a topic cannot be looked up, its producers stay announced topic=%s error=%s", topic, error)
                addresses = before
            for address in addresses:
                by_address.setdefault(address, []).append(group)
            former += [(address, group) for address in before - addresses]
            self._announced[group] = addresses
        await self._unregister_each(former)
        await asyncio.gather(*(self._announce_to(address, names) for address, names in by_address.items()))

    async def _unregister_gone(self) -> None:
        gone = [group for group in self._announced if group not in self._topics]
        await self._unregister_each([(address, group) for group in gone for address in self._announced.pop(group)])

    async def _unregister_each(self, former: list[tuple[str, str]]) -> None:
        """Unregister groups at addresses, side by side: one that does not answer holds up no heartbeat of others."""
        for start in range(0, len(former), PARALLEL_MAX):
            part = former[start : start + PARALLEL_MAX]
            await asyncio.gather(*(self._unregister_at(address, group) for address, group in part))

    async def _unregister_at(self, address: str, group: str) -> None:
        try:
            await self._unregister(address, group)
        except MQError as error:
            logger.info("a group is not unregistered address=%s group=%s error=%s", address, group, error)

    async def _announce_to(self, address: str, groups: list[str]) -> None:
        for start in range(0, len(groups), self._groups_per_heartbeat):
            part = groups[start : start + self._groups_per_heartbeat]
            body = HeartbeatData(
                client_id=self._client_id, producer_data_set=[ProducerData(group_name=group) for group in part]
            ).encode()
            try:
                await self._send_heartbeat(address, body)
            except MQError as error:
                logger.warning("heartbeat failed address=%s error=%s", address, error)
                return
