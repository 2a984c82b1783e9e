"""Deletion gate: the log offset below which local files may be deleted, from the reports of the broker's parts.

    cold tier      the committed offset; no file is deleted once the broker is fenced
    index          the offset up to which the index is durable
    holds          messages that are delayed, timed, popped or in open transactions and that are still needed; at a
                   slave those that its master holds

Under disk pressure `relax` lets the oldest files go all the same, for topics that allow it (`drop_oldest.py`).
Belongs to the hot process's loop.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.cold import ColdReads, DroppedRanges, dropped_ranges
from thermocline.broker.due import DelayService
from thermocline.broker.helpers import IndexLink
from thermocline.broker.queues import VisibleQueues
from thermocline.broker.state_files import ConfigPersister, load_file
from thermocline.broker.tables import TopicTable, full_policy
from thermocline.broker.tier.drop_oldest import DropOldest
from thermocline.broker.tier.fence import Fence
from thermocline.broker.tier.tier_link import TierLink
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets import FullPolicy
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.transactions.transaction_coordinator import TransactionCoordinator


class DeletionGate:
    """See the module's header."""

    def __init__(
        self,
        *,
        delays: DelayService,
        timers: TimerMessageStore | None,
        transactions: TransactionCoordinator,
        pops: PopStore,
        cold: ColdReads,
        index: IndexLink,
        fence: Fence,
        drop_oldest: DropOldest | None,
        is_slave: bool = False,
        held_at_master: Callable[[], PhysicalOffset | None] = lambda: None,
    ) -> None:
        """Without `drop_oldest` nothing is let go before its time. `is_slave`: what waits in the log is delivered by
        the master. `held_at_master`: what of the log it needs, at a slave that follows a ledger; at another one None:
        files go by their age alone, as those of RocketMQ's slave."""
        self._held_at_master = held_at_master
        self._is_slave = is_slave
        self._delays = delays
        self._timers = timers
        self._transactions = transactions
        self._pops = pops
        self._cold = cold
        self._index = index
        self._fence = fence
        self._drop_oldest = drop_oldest

    def now(self) -> RetentionGate:
        """The gate of local deletion."""
        committed_offset: PhysicalOffset | None = None
        if isinstance(self._cold, TierLink):
            committed_offset = LOG_START if self._fence.reason else self._cold.committed_offset
        if self._is_slave:
            return RetentionGate(
                committed_offset=committed_offset,
                index_offset=self._index.durable_offset,
                held_offset=self._held_at_master(),
            )
        return RetentionGate(
            committed_offset=committed_offset,
            index_offset=self._index.durable_offset,
            held_offset=_least(self._delays.earliest_undelivered_offset(), self._pops.held_offset),
            timers_offset=None if self._timers is None else self._timers.held_offset,
            transactions_offset=self._transactions.held_offset,
        )

    def waiting_offset(self) -> PhysicalOffset | None:
        """From where on the log has messages that wait: delayed, timed, popped, or in an open transaction; None: it has
        none."""
        gate = self.now()
        return _least(gate.held_offset, gate.timers_offset, gate.transactions_offset)

    def lacking_offset(self) -> PhysicalOffset | None:
        """From where on the log has messages that are nowhere else: such as wait, and those that the cold tier lacks;
        None without a cold tier."""
        committed_offset = self.now().committed_offset
        return None if committed_offset is None else _least(committed_offset, self.waiting_offset())

    async def relax(self, gate: RetentionGate) -> RetentionGate:
        """The gate of a round while the disk is full; messages that it gives up are declared lost before it returns."""
        # A fenced broker deletes nothing: it takes no messages either, and its operator may need its log.
        if self._drop_oldest is None or self._fence.reason:
            return gate
        return await self._drop_oldest.relax(gate)


def open_drop_oldest(
    *,
    disk: Disk,
    store: MessageStore,
    persister: ConfigPersister,
    topics: TopicTable,
    visible: VisibleQueues,
    cold: TierLink,
    ranges: DroppedRanges,
    default_policy: Callable[[], str],
    clock: Callable[[], int],
) -> DropOldest:
    """With the ranges of earlier boots, less what is still here. `default_policy`: of topics that say nothing."""

    def policy_of(topic: str) -> FullPolicy:
        topic_config = topics.get(topic)
        attributes = topic_config.attributes if topic_config is not None else {}
        return full_policy(attributes, default=default_policy())

    path = store.config.dropped_ranges_path
    persister.register(dropped_ranges.FILE_NAME, path, ranges.encode)
    ranges.load(load_file(disk, path))
    ranges.clip(store.queues)
    return DropOldest(
        store,
        bounds=cold.bounds,
        policy_of=policy_of,
        visible_start=visible.hot_start,
        ranges=ranges,
        save=lambda: persister.save(dropped_ranges.FILE_NAME),
        tell=cold.dropped,
        clock=clock,
    )


def _least(*offsets: PhysicalOffset | None) -> PhysicalOffset | None:
    """The lowest log offset that a part holds; None when none does."""
    return min((offset for offset in offsets if offset is not None), default=None)
