"""PopClient: the messages that one remoting client has by POP, and its groups by its heartbeat.

A client is served by POP for a group if it is a push consumer of a clustering group, nothing shows that the group
consumes in order, and it does not sign its requests: the proxy pops under its own name.

Bounds: `queues_max` queues a client, `queue_handles_max` messages a queue, `handles_max` messages of all clients; what
does not fit waits, or is refused with SYSTEM_BUSY.
Owner: the proxy's event loop.
"""

from __future__ import annotations

import msgspec

from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.remoting.pop_queue import Held, PopQueue
from thermocline.remoting.bodies import (
    CLUSTERING,
    CONSUME_PASSIVELY,
    EXPRESSION_TAG,
    SUBSCRIBE_ALL,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.topic_validation import GROUP_CHARACTERS_MAX

__all__ = ["HANDLES_MAX", "PopClient", "PopLimits", "PopTotals"]

QUEUES_MAX = "remotingPopQueuesPerClientMax"
HANDLES_MAX = "remotingPopHandlesMax"


class PopLimits(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    queues_max: int = 4_096
    queue_handles_max: int = 96
    handles_max: int = 1_000_000


class PopTotals(msgspec.Struct, kw_only=True):
    """What all clients of a port hold together."""

    limits: PopLimits
    counts: LimitCounts
    handles: int = 0

    def refuse(self, limit: str, *, address: str) -> BrokerBusyError:
        """Count a refusal by a limit; the error to raise."""
        text = f"the proxy holds as much as its limit {limit} allows"
        self.counts.refused(limit, address=address, detail=text)
        return BrokerBusyError(text)


class PopClient:
    """See the module."""

    def __init__(self, totals: PopTotals, *, address: str) -> None:
        self.client_id = ""
        self.is_signed = False
        self._totals = totals
        self._address = address
        self._groups: dict[str, ConsumerData] = {}
        self._queues: dict[tuple[str, MessageQueue], PopQueue] = {}

    # -- what it is --------------------------------------------------------------------------------------------------

    def heartbeat(self, data: HeartbeatData, *, is_signed: bool) -> None:
        """Take what a heartbeat says, but for groups whose names no broker takes.

        `is_signed`: whether the client signed it.
        """
        self.is_signed = is_signed
        self.client_id = data.client_id
        self._groups = {
            each.group_name: each for each in data.consumer_data_set if len(each.group_name) <= GROUP_CHARACTERS_MAX
        }

    def leave(self, group: str) -> None:
        """It has left a group, until its heartbeat names it again."""
        self._groups.pop(group, None)

    def has_named(self, group: str) -> bool:
        """Whether its heartbeat names this group."""
        return group in self._groups

    def pushes(self, group: str) -> bool:
        """Whether it is a push consumer that POP may serve, as far as its heartbeat says."""
        consumer = self._groups.get(group)
        return (
            consumer is not None
            and not self.is_signed
            and consumer.consume_type == CONSUME_PASSIVELY
            and consumer.message_model == CLUSTERING
        )

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What its heartbeat says that the group wants of a topic."""
        consumer = self._groups.get(group)
        if consumer is None:
            return None
        return next((each for each in consumer.subscription_data_set if each.topic == topic), None)

    # -- what it holds -----------------------------------------------------------------------------------------------

    def queue(self, group: str, queue: MessageQueue) -> PopQueue | None:
        """What it has of a queue, if it pulls it."""
        return self._queues.get((group, queue))

    def add_queue(self, group: str, queue: MessageQueue, *, position: int, now_ms: int) -> PopQueue:
        """Begin to serve a queue from a position.

        Raises:
            BrokerBusyError: It pulls too many.
        """
        if len(self._queues) >= self._totals.limits.queues_max:
            self.forget_expired(now_ms)
        if len(self._queues) >= self._totals.limits.queues_max:
            raise self._totals.refuse(QUEUES_MAX, address=self._address)
        made = self._queues[group, queue] = PopQueue(position)
        return made

    def drop_queue(self, group: str, queue: MessageQueue) -> list[Held]:
        """Stop serving a queue; what was held of it."""
        return self.count(self._queues.pop((group, queue)).take_below(None))

    def drop_queues(self, group: str | None = None) -> list[tuple[str, MessageQueue, list[Held]]]:
        """Stop serving all queues of a group, or of all; what was held of each."""
        keys = [key for key in self._queues if group in (None, key[0])]
        return [(*key, self.drop_queue(*key)) for key in keys]

    def forget_expired(self, now_ms: int) -> None:
        """Forget messages that the broker has taken back, and queues that nothing is held of."""
        for key, queue in list(self._queues.items()):
            self._totals.handles -= queue.take_expired(now_ms)
            if not len(queue):
                del self._queues[key]

    def find(self, group: str, broker_name: str, physical_offset: int) -> tuple[MessageQueue, Held] | None:
        """Take out the message that is sent back."""
        for (each, queue), held_queue in self._queues.items():
            if each == group and queue.broker_name == broker_name:
                held = held_queue.take_returned(physical_offset)
                if held is not None:
                    self._totals.handles -= 1
                    return queue, held
        return None

    def count(self, taken: list[Held]) -> list[Held]:
        """Take messages off the count of what is held."""
        self._totals.handles -= len(taken)
        return taken


def wanted(
    client: PopClient, group: str, topic: str, *, subscription: str | None, expression_type: str | None
) -> SubscriptionData | None:
    """The subscription of a pull: its own, else that of the heartbeat; None without either."""
    if subscription is not None:
        return SubscriptionData(
            topic=topic, sub_string=subscription or SUBSCRIBE_ALL, expression_type=expression_type or EXPRESSION_TAG
        )
    return client.subscription(group, topic)
