"""Housekeeping: what a broker does beside requests, on the event loop, in small steps.

    every second       statistics take their samples
    every second       old check points of POP are put anew where that is due
    every 5 s          consumer offsets and order infos that changed are written (flushConsumerOffsetInterval)
    every 10 s         clients that fell silent leave; expired queue locks are dropped
    every 30 s         huge pages are asked for, for what the heap has grown by
    always             delayed messages are delivered (delay_service.py)

`close` ends the tasks and writes offsets and delay progress a last time, so that a clean stop repeats no message.
Owner: the hot process's event loop.
"""

import asyncio
import contextlib
import logging

from thermocline.broker import consumer_offsets, delay_service
from thermocline.broker.context import BrokerContext
from thermocline.broker.huge_pages import advise_heap
from thermocline.pop import order_table
from thermocline.remoting.errors import MQError, UnavailableError

logger = logging.getLogger(__name__)

STEP_MS = 1_000
CLIENT_SCAN_MS = 10_000
HEAP_ADVICE_MS = 30_000


class Housekeeping:
    """The recurring work of one broker. `start` once, `close` as often as wanted."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []
        self._offsets_due_ms = 0
        self._scan_due_ms = 0
        self._heap_due_ms = 0

    def start(self) -> None:
        """Begin; returns at once."""
        assert not self._tasks
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(), name="housekeeping"),
            loop.create_task(self._context.delays.run(), name="delay service"),
        ]

    async def close(self) -> None:
        """End the tasks and write what they left. Idempotent.

        Raises:
            UnavailableError: The files could not be written; a group repeats messages after the next start.
        """
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.save()

    async def save(self) -> None:
        """Write offsets, order infos and delay progress, if they changed; durable on return.

        Raises:
            UnavailableError: A file could not be written.
        """
        context = self._context
        await self._save_popped()
        if context.offsets.is_dirty:
            try:
                await context.persister.save(consumer_offsets.FILE_NAME)
            except UnavailableError:
                context.offsets.is_dirty = True
                raise
        if context.delays.is_dirty:
            await context.persister.save(delay_service.FILE_NAME)

    async def step(self) -> None:
        """Do what is due now."""
        context = self._context
        now = context.clock()
        context.stats.sample(now)
        await self._maintain_popped()
        if now >= self._scan_due_ms:
            self._scan_due_ms = now + CLIENT_SCAN_MS
            context.clients.expire(context.config.client_expiry_ms)
            context.locks.expire()
        if now >= self._heap_due_ms:
            self._heap_due_ms = now + HEAP_ADVICE_MS
            await asyncio.to_thread(advise_heap)
        if now >= self._offsets_due_ms:
            self._offsets_due_ms = now + context.config.offset_flush_interval_ms
            try:
                await self._save_popped()
                if context.offsets.is_dirty:
                    await context.persister.save(consumer_offsets.FILE_NAME)
            except UnavailableError as error:
                context.offsets.is_dirty = True
                logger.error("consumer offsets not written, will try again error=%s", error)

    async def _save_popped(self) -> None:
        """Write order infos if they changed; then the offsets may say that their records are done with."""
        pops = self._context.pops
        if pops.orders.is_dirty:
            try:
                await self._context.persister.save(order_table.FILE_NAME)
            except UnavailableError:
                pops.orders.is_dirty = True
                raise
            pops.orders_saved()
        pops.note_progress()

    async def _maintain_popped(self) -> None:
        try:
            while self._context.pops.maintain():  # noqa: ASYNC110 - lets requests in between two slices
                await asyncio.sleep(0)
        except MQError as error:
            logger.error("check points not put anew, will try again error=%s", error)

    async def _run(self) -> None:
        while True:
            try:
                await self.step()
            except Exception:
                # A bug in one step must not end all that recurs.
                logger.exception("housekeeping failed")
            await asyncio.sleep(STEP_MS / 1000)
