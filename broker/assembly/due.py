"""Due messages: those with a delay level, those with a time of delivery, and those of open transactions.

    made                 delay progress and counts of transactions; nothing is read
    load                 from their files, which are registered with the persister
    open_delays          their progress is brought within their queues; a slave's is its master's
    open_transactions    what was open when the broker stopped; after the consumer offsets, which hold their progress
    open_timers          recovers the timers' files; those of a slave stay closed, as its master delivers
    close                the timers' files, before the store: their last round has ended (store rounds)

The services that deliver them run with the recurring work (recurring.py).
"""

from contextlib import AsyncExitStack

from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.due import (
    DelayService,
    TransactionCounts,
    delay_service,
    open_timers,
    open_transactions,
    transaction_counts,
)
from thermocline.broker.sends import MessageAppender
from thermocline.broker.state_files import log_is_durable
from thermocline.timers.taken_back import TakenBackTimers
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.transactions.transaction_coordinator import TransactionCoordinator


class DueMessages:
    """See the module's header. On the loop."""

    transactions: TransactionCoordinator
    timers: TimerMessageStore | None
    """None while they are switched off, and at a slave."""

    def __init__(self, base: Base, tables: Tables) -> None:
        settings = base.settings
        self._base = base
        self._tables = tables
        self.appender = MessageAppender(
            base.store,
            base.stats,
            arrived=base.arrived,
            queue_for=tables.static_topics.queue_for,
            steady_clock=base.steady_clock,
        )
        self.delays = DelayService(
            base.store,
            self.appender,
            tables.persister,
            clock=base.clock,
            stats=base.stats,
            flush_interval_ms=lambda: settings.broker.delay_flush_interval_ms,
            version_step=settings.broker.delay_version_step,
        )
        self.transaction_counts = TransactionCounts(clock=base.clock, has_topic=tables.topics.__contains__)

    def load(self) -> None:
        """Load the files.

        Raises:
            CorruptDataError: A file cannot be read.
        """
        persister, folder = self._tables.persister, self._base.store.config.config_path
        delays, counts, log = self.delays, self.transaction_counts, self._base.store.commit_log
        persister.open(
            folder,
            delay_service.FILE_NAME,
            delays,
            changes=delays.changes,
            durable_first=lambda: log_is_durable(log),
        )
        persister.open(folder, transaction_counts.FILE_NAME, counts, changes=counts.changes)

    async def open_delays(self) -> None:
        """Correct the progress; before anything is put.

        Raises:
            UnavailableError: The file could not be written.
        """
        if not self._base.is_slave:
            await self.delays.settle()

    async def open_transactions(self) -> None:
        """Recover what was open.

        Raises:
            UnavailableError: A state file could not be written.
        """
        base, tables = self._base, self._tables
        self.transactions = await open_transactions(
            base.settings,
            base.store,
            tables.offsets,
            tables.persister,
            self.appender,
            self.transaction_counts,
            clock=base.clock,
        )

    def open_timers(self, taken_back: TakenBackTimers | None = None) -> None:
        """Recover the timers; those of a slave stay closed, and their files follow the master's.

        `taken_back`: what a slave has delivered in this broker's place.

        Raises:
            CorruptDataError: They cannot be recovered.
            OSError, DiskFullError: The disk failed under them.
        """
        base = self._base
        if base.is_slave:
            self.timers = None
            return
        self.timers = open_timers(
            base.settings,
            base.store,
            disk=base.disk,
            clock=base.clock,
            chance=base.random,
            taken_back=taken_back,
        )

    def close_with(self, resources: AsyncExitStack) -> None:
        """Close the timers when `resources` close."""
        if self.timers is not None:
            resources.callback(self.timers.close)
