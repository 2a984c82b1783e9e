"""Flow control: how many messages a consumer may hold that its listeners have not finished.

Bounds per queue (messages, bytes, span) and for the whole consumer (messages, bytes). A pull loop that meets one waits;
it goes on when an outcome makes room. A pull under way when a bound is met still lands, so each bound may be exceeded
by one pull's batch a queue. A consumer may have thousands of queues: what all hold is counted as it changes.
Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (pullMessage), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from thermocline.client.consumer.dispatch.held_messages import HeldMessages, HeldTotal

__all__ = ["FlowControl", "FlowLimits", "HeldQueue"]


class HeldQueue(Protocol):
    """A queue whose messages count."""

    dropped: bool
    """Whether the queue is given up."""

    @property
    def held(self) -> HeldMessages:
        """What it holds."""

    @property
    def span(self) -> int:
        """How far the newest message held is ahead of the oldest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """What a consumer may hold at most."""

    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int | None
    """Bound on newest minus oldest unfinished offset, against one stuck message; None where order rules that out."""
    total_messages_max: int
    total_bytes_max: int


class FlowControl:
    """Counts what one consumer holds, and lets pull loops wait for room. Belongs to the consumer's loop."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self._total = HeldTotal()
        self._waiting: dict[HeldQueue, asyncio.Future[None]] = {}

    def add(self, queue: HeldQueue) -> None:
        """Count this queue's messages from now on."""
        held = queue.held
        assert held.total is None
        held.total = self._total
        self._total.count += held.cached_count
        self._total.size_bytes += held.cached_bytes

    def remove(self, queue: HeldQueue) -> None:
        """Count this queue's messages no longer."""
        held = queue.held
        if held.total is not None:
            held.total = None
            self._total.count -= held.cached_count
            self._total.size_bytes -= held.cached_bytes
        self._wake(queue)
        self.changed()

    def changed(self) -> None:
        """Some queue holds less than before: those that have room now go on."""
        if self._has_room_for_all():
            for queue in [queue for queue in self._waiting if self._has_room_of_its_own(queue)]:
                self._wake(queue)

    def has_room(self, queue: HeldQueue) -> bool:
        """Whether this queue may pull."""
        return self._has_room_for_all() and self._has_room_of_its_own(queue)

    async def wait_for_room(self, queue: HeldQueue) -> None:
        """Return when this queue may pull, or is dropped."""
        while not queue.dropped and not self.has_room(queue):
            waiter = self._waiting[queue] = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                if self._waiting.get(queue) is waiter:
                    del self._waiting[queue]

    def _has_room_for_all(self) -> bool:
        total, limits = self._total, self._limits
        return total.count < limits.total_messages_max and total.size_bytes < limits.total_bytes_max

    def _has_room_of_its_own(self, queue: HeldQueue) -> bool:
        held, limits = queue.held, self._limits
        return (
            held.cached_count < limits.queue_messages_max
            and held.cached_bytes < limits.queue_bytes_max
            and (limits.queue_span_max is None or queue.span <= limits.queue_span_max)
        )

    def _wake(self, queue: HeldQueue) -> None:
        waiter = self._waiting.pop(queue, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
