"""Local store: the commit log with its queues, and the rounds that publish, sync and delete.

made          the store is open: locked, recovered
make_rounds   the rounds, not started
start         ticks begin
close         the rounds end with a last one of the timers; much later, as the last of the broker: the log is
              flushed, queues are synced, the checkpoint is written, the abort mark goes
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.helpers import IndexLink, SharedPage
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.tier import DeletionGate, StoreRounds
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.config import LARGE_FOLDERS, STORE_NAMES, SlaveStoreConfig, StoreConfig
from thermocline.store.files import Disk, close_to_others
from thermocline.store.message_store import MessageStore
from thermocline.transactions.settlement import settle_commits


class LocalStore:
    """See the module's header. On the loop."""

    rounds: StoreRounds

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk,
        clock: Callable[[], int],
        resources: AsyncExitStack,
        begin: Callable[[MessageStore], None] | None = None,
    ) -> None:
        """Closes with `resources`. `begin`: called with the recovered store before anything is put.

        Raises:
            UnavailableError: The store is open elsewhere, or a file could not be written.
            CorruptDataError: The store cannot be recovered.
        """
        close_to_others(settings.store.root_path, names=STORE_NAMES, large=LARGE_FOLDERS)
        self._settings = settings
        self.store = open_store(settings, disk=disk, clock=clock, begin=begin)
        resources.callback(self.store.close)

    def make_rounds(
        self,
        parts: BrokerParts,
        *,
        page: SharedPage,
        gate: DeletionGate,
        index: IndexLink,
        on_tick: Callable[[bool], None],
    ) -> None:
        """`on_tick(pressure)`: called after each tick."""

        def await_below(offset: PhysicalOffset) -> None:
            parts.due.delays.release_below(offset)
            parts.pops.store.release_below(offset)

        self.rounds = StoreRounds(
            self.store,
            retention=self.store.retention,
            page=page,
            clock=parts.base.clock,
            gate=gate.now,
            index_timestamp_ms=lambda: index.index_timestamp_ms,
            on_tick=on_tick,
            timers=parts.due.timers,
            on_wanted=parts.due.transactions.release_below,
            on_awaited=await_below,
            relax=gate.relax,
        )

    def start(self, resources: AsyncExitStack) -> None:
        """Begin the rounds, until `resources` close."""
        self.rounds.start()
        resources.push_async_callback(self.rounds.close)

    def follow_settings(self) -> None:
        """Settings of the store have changed."""
        self.store.retention.follow(self._settings.store)

    async def flush_to_end(self) -> PhysicalOffset:
        """Make the log durable up to its end now; returns that offset, or what was reached when the flush failed."""
        store = self.store
        log, flushed = store.commit_log, asyncio.Event()
        if log.flush_offset < log.append_offset:
            store.flush.wait(log.append_offset, lambda _: flushed.set())
            store.flush.flush()
            await flushed.wait()
        return log.flush_offset

    async def publish_all(self) -> None:
        """Flush, write queue files, and publish how far the log is."""
        await self.flush_to_end()
        self.store.queues.write_dirty()
        self.rounds.publish()


def open_store(
    settings: BrokerSettings,
    config: StoreConfig | None = None,
    *,
    disk: Disk,
    clock: Callable[[], int],
    begin: Callable[[MessageStore], None] | None = None,
) -> MessageStore:
    """Open a broker's store; see LocalStore. `config`: instead of that of the broker's role."""
    is_slave = settings.broker.is_slave

    def settle(store: MessageStore) -> None:
        if begin is not None:
            begin(store)
        if not is_slave:  # a slave's transactions end on its master
            settle_commits(store)

    if config is None:
        config = SlaveStoreConfig.of(settings.store) if is_slave and settings.tier.is_enabled else settings.store
    return MessageStore.open(config, disk=disk, clock=clock, settle=settle)
