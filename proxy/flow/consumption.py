"""Consumption: what it means to receive through a proxy, for every protocol.

    pop from the broker -> messages of other tags are acknowledged silently -> messages that were tried as often as the
    group allows go to the dead-letter topic -> the rest goes to the client

Source: ConsumerProcessor.java, PopMessageResultFilterImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from thermocline.proxy.flow.production import NoQueueError
from thermocline.proxy.messaging import HeldMessage, Messaging, PopStatus, ProxyHandle
from thermocline.remoting.bodies import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.remoting.handles import flagged_topic

__all__ = ["Consumption", "NoPlaceError", "ReceiveOutcome", "retry_delay_ms"]

logger = logging.getLogger(__name__)

POP_GRACE_MS = 2_000
"""How much longer than the broker waits its answer is waited for."""
INIT_MODE_MAX = 1
BROKER_TIMEOUT_MS = 2_000


class NoPlaceError(InvalidRequestError):
    """The receipt handle does not say where the message is, or names a place where another topic's message is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOutcome:
    """What a receive brought. `had_others`: there were messages, but none for the client."""

    status: PopStatus
    messages: Sequence[HeldMessage]
    had_others: bool = False


class Consumption:
    """See the module. Belongs to one event loop."""

    def __init__(self, messaging: Messaging) -> None:
        self._messaging = messaging
        self._turn = itertools.count()

    async def receive(
        self,
        subscription: SubscriptionData,
        *,
        broker_name: str,
        group: str,
        count_max: int,
        invisible_ms: int,
        await_ms: int,
        in_order: bool,
        attempts_max: int,
        attempt_id: str | None,
    ) -> ReceiveOutcome:
        """Take messages for a client: from the broker named, if it has a readable queue, else from any.

        Raises:
            NoQueueError: No queue can be read.
            MQError: See `Messaging`.
        """
        queues = await self._messaging.topic_queues(subscription.topic, group=group)
        brokers = [broker.broker_name for broker in queues.readable_brokers]
        if not brokers:
            raise NoQueueError("no readable queue")
        if broker_name not in brokers:
            broker_name = brokers[next(self._turn) % len(brokers)]
        outcome = await self._messaging.pop(
            broker_name,
            subscription,
            group=group,
            count_max=count_max,
            invisible_ms=invisible_ms,
            await_ms=await_ms,
            init_mode=INIT_MODE_MAX,
            in_order=in_order,
            attempt_id=attempt_id,
            timeout_ms=await_ms + POP_GRACE_MS,
        )
        messages: list[HeldMessage] = []
        ends: list[Awaitable[None]] = []
        for message in outcome.messages:
            if subscription.tags_set and message.record.tags not in subscription.tags_set:
                ends.append(self._drop_unwanted(message, subscription.topic, group))
            elif message.reconsume_times >= attempts_max:
                ends.append(self._bury(message, subscription.topic, group))
            else:
                messages.append(message)
        # Side by side: meanwhile the time of those for the client goes by.
        await asyncio.gather(*ends)
        return ReceiveOutcome(
            status=outcome.status, messages=messages, had_others=bool(outcome.messages) and not messages
        )

    async def forward_to_dead_letters(
        self, handle: ProxyHandle, *, topic: str, group: str, message_id: str, timeout_ms: int = BROKER_TIMEOUT_MS
    ) -> None:
        """Store a copy in the group's dead-letter topic, then acknowledge the message.

        Raises:
            NoPlaceError: The handle does not say where the message is.
            MQError: See `Messaging`; if the copy is stored and not acknowledged, the message comes back once more.
        """
        if handle.physical_offset < 0:
            raise NoPlaceError("commit log offset is empty")
        await self._messaging.send_back_dead(
            handle, topic=topic, group=group, message_id=message_id, timeout_ms=timeout_ms
        )
        await self._messaging.ack(handle, topic=topic, group=group, timeout_ms=timeout_ms)

    async def check_place(
        self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int = BROKER_TIMEOUT_MS
    ) -> None:
        """Pass a client's handle whose physical offset is that of its message: of this topic, or come back from it.

        A handle is a text of the client's, which could name any message, and a broker copies what a proxy asks for by
        the proxy's rights. Where the proxy may not view the message, it is no super user, and its own rights count.

        Raises:
            NoPlaceError: It names none, or that of another message.
            MQError: See `Messaging`.
        """
        receipt = handle.receipt
        if handle.physical_offset < 0:
            raise NoPlaceError("commit log offset is empty")
        record = await self._messaging.stored_record(receipt.broker_name, handle.physical_offset, timeout_ms=timeout_ms)
        if record is None:
            return
        place = flagged_topic(topic, group, receipt.retry_flag), receipt.queue_id, receipt.queue_offset
        if (record.topic, record.queue_id, record.queue_offset) != place:
            raise NoPlaceError("the receipt handle names the place of another message")

    async def give_back(self, messages: Sequence[HeldMessage], *, topic: str, group: str, invisible_ms: int) -> None:
        """Let messages that did not reach the client become visible soon; failures leave them to their time."""
        for message in messages:
            try:
                await self._messaging.change_invisible(
                    message.handle, topic=topic, group=group, invisible_ms=invisible_ms, timeout_ms=BROKER_TIMEOUT_MS
                )
            except MQError as error:
                logger.info("a message is not given back, its time ends by itself group=%s error=%s", group, error)

    async def _drop_unwanted(self, message: HeldMessage, topic: str, group: str) -> None:
        """No member of the group wants it: the broker compared hashes of tags."""
        try:
            await self._messaging.ack(message.handle, topic=topic, group=group, timeout_ms=BROKER_TIMEOUT_MS)
        except MQError as error:
            logger.info("a message of another tag comes back group=%s error=%s", group, error)

    async def _bury(self, message: HeldMessage, topic: str, group: str) -> None:
        try:
            await self.forward_to_dead_letters(message.handle, topic=topic, group=group, message_id=message.message_id)
        except MQError as error:
            logger.warning("a message does not reach the dead letters yet group=%s error=%s", group, error)


def retry_delay_ms(config: SubscriptionGroupConfig, reconsume_times: int) -> int:
    """How long a message waits before it is consumed again, after it was so often before."""
    policy = config.group_retry_policy
    if policy.type == "EXPONENTIAL":
        rules = policy.exponential_retry_policy or ExponentialRetryPolicy()
        steps = min(max(reconsume_times, 0), 32)
        return int(min(rules.max, rules.initial * rules.multiplier**steps))
    delays = (policy.customized_retry_policy or CustomizedRetryPolicy()).next
    # As RocketMQ counts: the first two delays belong to its older levels.
    place = min(max(reconsume_times, 0) + 2, len(delays) - 1)
    return delays[place] if delays else 0
