"""Dispatcher: what hands pulled messages to the listener and acts upon its answers; there are two kinds.

`ConcurrentDispatcher` runs batches side by side, `OrderlyDispatcher` one batch of a queue at a time. Neither acts upon
an outcome once the queue was dropped: its new owner gets the messages again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from thermocline.client.consumer.dispatch.process_queue import ProcessQueue
from thermocline.client.received_message import ReceivedMessage

__all__ = ["Dispatcher", "DispatcherHost"]


class DispatcherHost(Protocol):
    """What a dispatcher needs of its consumer."""

    def queue_changed(self, process_queue: ProcessQueue) -> None:
        """The queue holds less than before."""

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something until it ends or the consumer closes."""


class Dispatcher(Protocol):
    """Hands messages to the listener."""

    @property
    def is_orderly(self) -> bool:
        """Whether a queue is consumed in order, under a lock."""

    def dispatch(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages consumed that were put into the process queue."""

    async def release(self, process_queue: ProcessQueue) -> None:
        """After a queue was dropped: return when the next owner may begin."""

    def stop(self) -> None:
        """Begin no further listener call; outcomes of those that have begun are acted upon."""

    def give_back_expired(self) -> None:
        """Give back messages whose listener takes too long."""

    async def settle(self) -> None:
        """Wait until every outcome so far is acted upon."""

    async def consume_directly(self, message: ReceivedMessage) -> object:
        """Have one message consumed now, out of turn, and return the listener's answer or raise its exception."""
