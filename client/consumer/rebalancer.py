"""Rebalancer: keeps this member working on its share of the queues.

One task: it waits for the interval or for a wake-up (a member came or went, a queue was dropped), computes for every
subscribed topic the queues that are this member's, and lets its owner give up and take up what changed. Giving up comes
first. Whatever cannot be found out (members, route, lock, offset) leaves things as they are and is tried again soon.
Source: client/impl/consumer/RebalanceImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from thermocline.client.consumer.allocation import AllocationStrategy
from thermocline.client.consumer.consumer_calls import ConsumerCalls
from thermocline.client.consumer.options import MessageModel
from thermocline.client.message_queue import MessageQueue
from thermocline.client.session import ClientSession
from thermocline.remoting.bodies import SubscriptionData
from thermocline.remoting.errors import InvalidRequestError, MQError, TopicNotFoundError
from thermocline.remoting.topic_validation import is_retry_topic

__all__ = ["RebalanceOwner", "Rebalancer"]

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.5
TAKE_UP_AT_ONCE = 32


class RebalanceOwner(Protocol):
    """The consumer whose queues are kept in balance."""

    def queues(self) -> set[MessageQueue]:
        """What it works on."""

    async def give_up(self, queue: MessageQueue) -> None:
        """Stop working on a queue: it is another member's now."""

    async def take_up(self, queue: MessageQueue) -> None:
        """Begin to work on a queue.

        Raises:
            MQError: Not now (its lock or its offset is not to be had); it will be asked again soon.
        """


class Rebalancer:
    """See the module. Belongs to its session's loop."""

    def __init__(
        self,
        owner: RebalanceOwner,
        *,
        session: ClientSession,
        calls: ConsumerCalls,
        subscriptions: Mapping[str, SubscriptionData],
        allocation: AllocationStrategy,
        message_model: MessageModel,
        interval_ms: int,
    ) -> None:
        self._owner = owner
        self._session = session
        self._calls = calls
        self._subscriptions = subscriptions
        self._allocation = allocation
        self._message_model = message_model
        self._interval_s = interval_ms / 1000
        self._due = asyncio.Event()

    def soon(self) -> None:
        """Balance again without waiting for the interval."""
        self._due.set()

    async def run(self) -> None:
        """Balance for ever."""
        while True:
            self._due.clear()
            is_balanced = await self.balance()
            try:
                async with asyncio.timeout(self._interval_s if is_balanced else RETRY_PAUSE_S):
                    await self._due.wait()
            except TimeoutError:
                pass

    async def balance(self) -> bool:
        """Bring this member's queues in line with its share; False when something could not be done yet."""
        is_balanced = True
        for queue in [queue for queue in self._owner.queues() if queue.topic not in self._subscriptions]:
            await self._owner.give_up(queue)
        for topic in list(self._subscriptions):
            try:
                share = await self._share(topic)
            except TopicNotFoundError:
                # Heartbeats create the retry topic; the first sender creates the topic.
                is_balanced = is_balanced and not is_retry_topic(topic)
                continue
            except MQError as error:
                logger.warning("share unknown topic=%s error=%s", topic, error)
                self._session.routes.refresh_soon(topic)
                is_balanced = False
                continue
            if share is None or not await self._apply(topic, share):
                is_balanced = False
        return is_balanced

    async def _share(self, topic: str) -> set[MessageQueue] | None:
        """Return this member's queues of a topic, None when the brokers do not know this member yet."""
        queues = sorted((await self._session.routes.get(topic)).subscribe_queues)
        if self._message_model is MessageModel.BROADCASTING:
            return set(queues)
        member_ids = await self._calls.member_ids(topic)
        if self._session.client_id not in member_ids:
            self._session.heartbeat_soon()
            return None
        try:
            share = self._allocation.allocate(client_id=self._session.client_id, queues=queues, client_ids=member_ids)
            return set(share)
        except MQError:
            raise
        except Exception as error:
            raise InvalidRequestError("the allocation strategy failed", topic=topic, reason=repr(error)) from error

    async def _apply(self, topic: str, share: set[MessageQueue]) -> bool:
        mine = {queue for queue in self._owner.queues() if queue.topic == topic}
        for queue in sorted(mine - share):
            await self._owner.give_up(queue)
        missing = sorted(share - mine)
        is_complete = True
        for start in range(0, len(missing), TAKE_UP_AT_ONCE):
            taken = await asyncio.gather(*map(self._take_up, missing[start : start + TAKE_UP_AT_ONCE]))
            is_complete = is_complete and all(taken)
        if mine != share:
            logger.info("queues changed topic=%s before=%d share=%d", topic, len(mine), len(share))
        return is_complete

    async def _take_up(self, queue: MessageQueue) -> bool:
        try:
            await self._owner.take_up(queue)
        except MQError as error:
            logger.warning("queue not taken up queue=%s error=%s", queue, error)
            self._session.routes.refresh_soon(queue.topic)
            return False
        return True
