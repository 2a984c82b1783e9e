"""Housekeeping: what a broker does beside requests, on the event loop, in small steps.

    every second       statistics take their samples; old check points of POP are put anew where that is due
    every 5 s          consumer offsets and order infos that changed are written (flushConsumerOffsetInterval)
    every 10 s         silent clients and proxies are removed; expired queue locks are dropped; filters that changed are
                       written
    every 10 s         open files are counted
    every 30 s         huge pages are requested for the heap's growth
    every 5 min        order infos of POP that are of no more use are dropped
    every 5 min        mappings of static topics are cleaned, in the hours of deleteWhen
    always             delayed and timed messages are delivered (delay_service.py, timer_service.py), open transactions
                       asked about (transaction_service.py); not on a slave, whose master does it

`close` ends the tasks and writes offsets, filters and delay progress a last time: a clean stop repeats no message.
Owner: the hot process's event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator

from thermocline.broker.due import (
    DelayService,
    TimerService,
    TransactionService,
    delay_service,
    transaction_counts,
)
from thermocline.broker.process import advise_heap
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.static_topics import MappingCleaner
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import (
    ClientRegistry,
    ProxiedClients,
    QueueLocks,
    consumer_filter_table,
    consumer_offsets,
)
from thermocline.pop import order_table
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.connections import DescriptorWatch
from thermocline.remoting.errors import MQError, UnavailableError

logger = logging.getLogger(__name__)

STEP_MS = 1_000
CLIENT_SCAN_MS = 10_000
HEAP_ADVICE_MS = 30_000
ORDERS_SCAN_MS = 300_000


class Housekeeping:
    """The recurring work of one broker. `start` once, `close` as often as wanted."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        persister: ConfigPersister,
        clients: ClientRegistry,
        proxied: ProxiedClients,
        locks: QueueLocks,
        delays: DelayService,
        timers: TimerService | None,
        transactions: TransactionService,
        pops: PopStore,
        clean_orders: Callable[[], Iterator[None]],
        mappings: MappingCleaner,
        stats: BrokerStats,
        clock: Callable[[], int],
    ) -> None:
        """`timers`: None while they are switched off. `clean_orders`: drops order infos of POP, a slice at a time."""
        self._settings = settings
        self._persister = persister
        self._clients = clients
        self._proxied = proxied
        self._locks = locks
        self._delays = delays
        self._timers = timers
        self._transactions = transactions
        self._pops = pops
        self._clean_orders = clean_orders
        self._mappings = mappings
        self._stats = stats
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._descriptors = DescriptorWatch()
        self._offsets_due_ms = 0
        self._scan_due_ms = 0
        self._heap_due_ms = 0
        # Not at the start: a group made by its first use may not have been on disk yet when the broker was killed.
        self._orders_due_ms = clock() + ORDERS_SCAN_MS

    def start(self) -> None:
        """Begin; returns at once."""
        assert not self._tasks
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="housekeeping")]
        if self._settings.broker.is_slave:
            return
        self._tasks += [
            loop.create_task(self._delays.run(), name="delay service"),
            loop.create_task(self._transactions.run(), name="transaction service"),
            loop.create_task(self._mappings.run(), name="mapping cleaner"),
        ]
        if self._timers is not None:
            self._tasks.append(loop.create_task(self._timers.run(), name="timer service"))

    async def close(self) -> None:
        """End the tasks and write their last changes. Idempotent.

        Raises:
            UnavailableError: The files could not be written; a group repeats messages after the next start.
        """
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._transactions.close()
        await self.save()

    def write_notes(self) -> None:
        """Write the notes of ended transactions that wait to the log."""
        self._transactions.write_notes()

    async def save(self) -> None:
        """Write what changed of offsets, order infos, filters, delay progress and counts; durable on return.

        Raises:
            UnavailableError: A file could not be written.
        """
        await self._save_popped()
        for name in (
            consumer_offsets.FILE_NAME,
            consumer_filter_table.FILE_NAME,
            delay_service.FILE_NAME,
            transaction_counts.FILE_NAME,
        ):
            await self._persister.save_changed(name)

    async def step(self) -> None:
        """Do what is due now."""
        now = self._clock()
        self._stats.sample(now)
        is_slave = self._settings.broker.is_slave
        if not is_slave:
            await self._maintain_popped()
        if now >= self._scan_due_ms:
            self._scan_due_ms = now + CLIENT_SCAN_MS
            self._clients.expire(self._settings.broker.client_expiry_ms)
            self._proxied.expire()
            self._locks.expire()
            await asyncio.to_thread(self._descriptors.check)
            await self._try_to_save(consumer_filter_table.FILE_NAME)
        if now >= self._heap_due_ms:
            self._heap_due_ms = now + HEAP_ADVICE_MS
            await asyncio.to_thread(advise_heap)
        if not is_slave:
            self._transactions.step(now)
            if now >= self._orders_due_ms:
                self._orders_due_ms = now + ORDERS_SCAN_MS
                for _ in self._clean_orders():
                    await asyncio.sleep(0)
        if now >= self._offsets_due_ms:
            self._offsets_due_ms = now + self._settings.broker.offset_flush_interval_ms
            try:
                await self._save_popped()
            except UnavailableError as error:
                logger.error("order infos not written, will try again error=%s", error)
            else:
                await self._try_to_save(consumer_offsets.FILE_NAME)

    async def _try_to_save(self, name: str) -> None:
        try:
            await self._persister.save_changed(name)
        except UnavailableError as error:
            logger.error("state not written, will try again file=%s error=%s", name, error)

    async def _save_popped(self) -> None:
        """Write order infos if they changed; then the offsets may say that their records are done with."""
        await self._persister.save_changed(order_table.FILE_NAME)
        self._pops.note_progress()

    async def _maintain_popped(self) -> None:
        try:
            while self._pops.maintain():  # noqa: ASYNC110 - lets requests in between two slices
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
