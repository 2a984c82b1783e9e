"""Production: what it means to send a message through a proxy, for every protocol.

    the message's type fits the topic's -> a queue is chosen -> the broker stores it

    several messages       one batch, in one queue
    a message group        always the same queue (messaging/topics.py), of a batch, too
    otherwise              the write queues in turn; a broker that fails is passed over while there is another one

The producer group is the topic's name: clients of this kind have none.
Source: ProducerProcessor.java, DefaultTopicMessageTypeValidator.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.flow.broker_traffic import BrokerTraffic
from thermocline.proxy.messaging import (
    Messaging,
    OutgoingMessage,
    SendOutcome,
    TopicQueues,
    TopicType,
    choose_by_group,
)
from thermocline.remoting.errors import InvalidRequestError, PermissionDeniedError
from thermocline.remoting.topic_validation import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

__all__ = ["NoQueueError", "Production", "TypeConflictError"]

TURNS_MAX = 20_000


class TypeConflictError(InvalidRequestError):
    """The message's type does not fit the topic's."""


class NoQueueError(PermissionDeniedError):
    """The topic has no queue for this."""


class Production:
    """See the module. Belongs to one event loop."""

    def __init__(self, messaging: Messaging, *, checks_message_type: bool, clock_ms: Callable[[], float]) -> None:
        self._messaging = messaging
        self._checks_message_type = checks_message_type
        self._traffic = BrokerTraffic(messaging, clock_ms=clock_ms)
        self._turns: dict[str, itertools.count[int]] = {}

    async def send(
        self,
        messages: Sequence[OutgoingMessage],
        *,
        message_type: TopicType,
        message_group: str,
        timeout_ms: int,
    ) -> SendOutcome:
        """Store one message, or a batch. `message_group`: of all of them; "" for none.

        Raises:
            TypeConflictError: The topic is for other messages.
            NoQueueError: No queue can be written to.
            MQError: See `Messaging`.
        """
        topic = messages[0].topic
        if self._checks_message_type and not topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)):
            await self.check_type(topic, message_type)
        queue = self._choose(await self._messaging.topic_queues(topic), message_group)
        with self._traffic.sending(queue):
            return await self._messaging.send(queue, messages, producer_group=topic, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """End what runs beside sends. Idempotent."""
        await self._traffic.close()

    async def check_type(self, topic: str, message_type: TopicType, *, broker_name: str = "") -> None:
        """Pass a message type that the topic takes; of several clusters in that of the broker, if one is named.

        Raises:
            TypeConflictError: It does not.
        """
        topic_type = await self._messaging.topic_type(topic, broker_name=broker_name)
        if topic_type not in (message_type, TopicType.MIXED):
            raise TypeConflictError(
                "TopicMessageType validate failed, the expected type is "
                f"{topic_type.value}, but actual type is {message_type.value}"
            )

    def _choose(self, queues: TopicQueues, message_group: str) -> MessageQueue:
        candidates: Sequence[MessageQueue] = queues.write_queues
        if not candidates:
            raise NoQueueError("no writable queue")
        if message_group:
            return choose_by_group(candidates, message_group)
        turn = self._turns.get(queues.topic)
        if turn is None:
            if len(self._turns) >= TURNS_MAX:
                self._turns.clear()
            turn = self._turns[queues.topic] = itertools.count()
        queue = candidates[next(turn) % len(candidates)]
        if self._traffic.is_fit(queue.broker_name):
            return queue
        fit = [other for other in candidates if self._traffic.is_fit(other.broker_name)] or candidates
        return fit[next(turn) % len(fit)]
