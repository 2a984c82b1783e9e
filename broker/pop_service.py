"""POP service: what POP consumption needs in the hot process, put together.

    processors   POP, acknowledgements, peeks and notifications: for the dispatcher
    start        revive what is due, from now on
    close        stop; what is in flight is in the log

Belongs to the hot process's loop thread.
"""

from __future__ import annotations

import asyncio
import contextlib

from thermocline.broker.cold_pull_limits import ColdPullLimits
from thermocline.broker.context import BrokerContext
from thermocline.broker.flushed_answer import FlushedAnswers
from thermocline.broker.long_polling import LongPolling
from thermocline.broker.message_reader import MessageReader
from thermocline.broker.pop_admission import PopAdmission
from thermocline.broker.pop_finder import PopFinder
from thermocline.broker.pop_polling import PopPolling
from thermocline.broker.pop_reviver import PopReviver
from thermocline.broker.processors.ack import AckProcessor
from thermocline.broker.processors.pop import PopProcessor
from thermocline.broker.processors.pop_look import PopLookProcessor
from thermocline.broker.pull_finder import PullFinder
from thermocline.remoting.connection import Connection
from thermocline.remoting.dispatcher import Processor
from thermocline.remoting.pop_topics import normal_topic


class PopService:
    """See the module's header. On the loop."""

    def __init__(self, context: BrokerContext, long_polling: LongPolling, *, near_bytes: int | None = None) -> None:
        """`near_bytes`: how much of the log's end counts as being in memory; None: as settings say."""
        self._context = context
        call_soon = asyncio.get_running_loop().call_soon
        self.polling, self.notifications = (
            PopPolling(
                long_polling,
                clock=context.clock,
                call_soon=call_soon,
                place_max=lambda: context.config.pop_polling_place_max,
                total_max=lambda: context.config.pop_polling_max,
                newest_first=newest_first,
            )
            for newest_first in (False, True)
        )
        self.reviver = PopReviver(context, MessageReader(context.store, context.visible, context.cold))
        self._limits = ColdPullLimits()
        admission = PopAdmission(context)
        pulls = PullFinder(context, context.visible, near_bytes=near_bytes)
        finder = PopFinder(context, pulls, on_free=self._queue_is_free)
        answers = FlushedAnswers(context.store, clock=context.clock)
        self.processors: tuple[Processor, ...] = (
            PopProcessor(context, admission, finder, self.polling, answers, self._limits),
            AckProcessor(context, answers, self.polling, self.notifications),
            PopLookProcessor(context, admission, pulls, pops=self.polling, notifications=self.notifications),
        )
        """For the dispatcher; `connection_closed` is to be told of every connection that ends."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to revive; returns at once."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self.reviver.run(), name="POP reviver")

    async def close(self) -> None:
        """Stop. Idempotent."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def connection_closed(self, connection: Connection) -> None:
        """A client has left: nothing waits, and nothing is fetched for it."""
        self.polling.forget(connection)
        self.notifications.forget(connection)
        self._limits.forget(connection)

    def _queue_is_free(self, topic: str, group: str) -> None:
        """A queue that somebody waited for can be popped by others again."""
        self.polling.wake_group(normal_topic(topic, group), group)
