"""Flow control: how many messages a consumer may hold that its listeners have not finished.

Bounds per queue (messages, bytes, span) and for the whole consumer (messages, bytes). A pull loop that meets one waits;
it goes on when an outcome makes room. A pull under way when a bound is met still lands, so each bound may be exceeded
by one pull's batch a queue.
Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (pullMessage), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

__all__ = ["FlowControl", "FlowLimits", "HeldQueue"]


class HeldQueue(Protocol):
    """A queue whose messages count."""

    dropped: bool
    """Whether the queue is given up."""
    cached_count: int
    """Messages held."""
    cached_bytes: int
    """Their size."""

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
        self._process_queues: set[HeldQueue] = set()
        self._changed: asyncio.Event = asyncio.Event()

    def add(self, process_queue: HeldQueue) -> None:
        """Count this queue's messages from now on."""
        self._process_queues.add(process_queue)

    def remove(self, process_queue: HeldQueue) -> None:
        """Count this queue's messages no longer."""
        self._process_queues.discard(process_queue)
        self.changed()

    def changed(self) -> None:
        """Some queue holds less than before, or must not wait any longer: look again."""
        self._changed.set()

    def has_room(self, process_queue: HeldQueue) -> bool:
        """Whether this queue may pull."""
        limits = self._limits
        return (
            process_queue.cached_count < limits.queue_messages_max
            and process_queue.cached_bytes < limits.queue_bytes_max
            and (limits.queue_span_max is None or process_queue.span <= limits.queue_span_max)
            and sum(queue.cached_count for queue in self._process_queues) < limits.total_messages_max
            and sum(queue.cached_bytes for queue in self._process_queues) < limits.total_bytes_max
        )

    async def wait_for_room(self, process_queue: HeldQueue) -> None:
        """Return when this queue may pull, or is dropped."""
        while not process_queue.dropped and not self.has_room(process_queue):
            self._changed.clear()
            await self._changed.wait()
