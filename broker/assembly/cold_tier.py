"""Cold tier: the link to the tier process, the messages sent over it, and the gate of local deletion.

made      the fence, the ranges dropped because of a full disk, the link; no data of the tier has arrived yet
attach    once the parts are there: the state that is saved, the feed, the deletion gate
start     changes are sent to the tier process; the tables follow the reports of a followed tier
close     both stop; the helper process itself ends later (helper_links.py)
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.assembly.state import SavedState
from thermocline.broker.cold import ColdReads, DroppedRanges, NoColdTier
from thermocline.broker.follower import SlaveLedger, Source, TopicFollower
from thermocline.broker.helpers import TIER_ROLE, HelperHub, IndexLink
from thermocline.broker.pulls import LongPolling
from thermocline.broker.replicas import EnrolmentFollower
from thermocline.broker.settings import SETTINGS, BrokerSettings, SettingsChange
from thermocline.broker.tier import TICK_MS, DeletionGate, DropOldest, Fence, TierFeed, TierLink, open_drop_oldest
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.message_store import MessageStore

TIMEOUT_MS = 20_000


class ColdTier:
    """See the module's header. On the loop."""

    gate: DeletionGate
    _state: SavedState
    _feed: TierFeed
    _parts: BrokerParts

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        hub: HelperHub,
        *,
        source: Source | None,
        refusal: asyncio.Future[str],
        enrolment: EnrolmentFollower | None,
        has_controller: bool = False,
    ) -> None:
        """`source`: the broker whose cold tier is served, read-only. `refusal`: done when this broker must not run.
        `enrolment`: of a slave, which follows its master's ledger. `has_controller`: that decides on the role."""
        self._settings = settings
        self._store = store
        self._hub = hub
        self._source = source
        self._follower = TopicFollower()
        self._enrolment = enrolment
        self._slave_ledger: SlaveLedger | None = None
        self.has_own_tier = settings.tier.is_enabled and source is None and enrolment is None
        """Whether this broker writes to its cold tier."""
        self.fence = Fence(
            store.commit_log,
            refusal=refusal,
            unregister=lambda: self._parts.cluster.registration.unregister(),
            has_controller=has_controller,
        )
        self.dropped = DroppedRanges(incarnation_of=self._incarnation_of)
        self.reads = self._make_reads()

    def _make_reads(self) -> ColdReads:
        if not self._settings.tier.is_enabled:
            return NoColdTier()
        if self._source is not None:
            return self._follower.make_link(self._hub, timeout_ms=TIMEOUT_MS, on_fenced=self.fence.close)
        if self._enrolment is not None:
            ledger = self._slave_ledger = SlaveLedger(
                self._store, self._hub, master_uuid=self._enrolment.master_store_id
            )
            self._enrolment.on_enrolled = ledger.enrol
            return ledger.make_link(timeout_ms=TIMEOUT_MS, restart_feed=lambda: self._feed.restart())
        return TierLink(
            self._hub,
            incarnation_of=self._incarnation_of,
            timeout_ms=TIMEOUT_MS,
            on_connected=self._connected,
            on_fenced=self.fence.close,
            on_state=lambda code, body: self._state.link.handle(code, body),
        )

    def attach(
        self,
        parts: BrokerParts,
        *,
        index: IndexLink,
        save_files: Callable[[], Awaitable[None]],
        resources: AsyncExitStack,
    ) -> None:
        """Connect the parts whose state is sent to the tier process. `save_files`: see Housekeeping.save.

        Raises:
            CorruptDataError: A state file cannot be read.
        """
        self._parts = parts
        self._state = SavedState(
            parts, self._hub, has_own_tier=self.has_own_tier, save_files=save_files, resources=resources
        )
        self._feed = TierFeed(
            self._hub,
            topics=parts.tables.topics,
            queues=self._store.queues,
            incarnations=self._store.incarnations,
            kept_clock=parts.tables.kept_clock,
            cut_interval_ms=max(TICK_MS, self._settings.tier.sweep_interval_ms // 4),
            waits_for_topics=self._settings.broker.is_slave,
        )
        self.gate = DeletionGate(
            delays=parts.due.delays,
            timers=parts.due.timers,
            transactions=parts.due.transactions,
            pops=parts.pops.store,
            cold=self.reads,
            index=index,
            fence=self.fence,
            drop_oldest=self._open_drop_oldest(parts) if self.has_own_tier else None,
            is_slave=self._settings.broker.is_slave,
            held_at_master=self._held_at_master,
        )

    def _open_drop_oldest(self, parts: BrokerParts) -> DropOldest:
        assert isinstance(self.reads, TierLink)
        return open_drop_oldest(
            disk=parts.base.disk,
            store=self._store,
            persister=parts.tables.persister,
            topics=parts.tables.topics,
            visible=parts.reads.visible,
            cold=self.reads,
            ranges=self.dropped,
            default_policy=lambda: self._settings.tier.full_policy,
            clock=parts.base.clock,
        )

    def start(self, long_polling: LongPolling, resources: AsyncExitStack) -> None:
        """Begin, until `resources` close.

        Raises:
            CorruptDataError: A state file cannot be read.
        """
        if self._slave_ledger is not None:
            self._slave_ledger.start(self._parts.tables.topics, long_polling)
        if self._source is None:
            self._feed.start()
        else:
            self._follower.start(
                store=self._store,
                topics=self._parts.tables.topics,
                offsets=self._parts.tables.offsets,
                long_polling=long_polling,
                persister=self._parts.tables.persister,
            )
        resources.push_async_callback(self._feed.close)
        resources.push_async_callback(self._follower.close)

    # -- while it runs -------------------------------------------------------------------------------------------------

    @property
    def is_missing(self) -> bool:
        """Whether there is a cold tier that has not reported yet."""
        return isinstance(self.reads, TierLink) and self.reads.version < 0

    @property
    def owns_ledger(self) -> bool:
        """Whether this broker owns the ledger of its name, by its own state."""
        return self.has_own_tier and not self.fence.reason

    @property
    def has_claimed(self) -> bool:
        """Whether it has claimed the ledger since it was started."""
        return self.owns_ledger and isinstance(self.reads, TierLink) and self.reads.version >= 0

    @property
    def is_connected(self) -> bool:
        """Whether the tier process is connected."""
        return self._hub.is_connected(TIER_ROLE)

    def ticked(self, pressure: bool) -> None:
        """After each tick of the store's rounds; `pressure`: the disk is fuller than it should be."""
        self._state.reservation.check()
        self._feed.ticked(pressure=pressure)

    def follow_settings(self, change: SettingsChange) -> None:
        """Settings have changed."""
        if isinstance(self.reads, TierLink) and any(SETTINGS[name].section == "tier" for name in change.live):
            self.reads.follow(self._settings.tier)

    async def report(self) -> None:
        """Send all published changes to the tier process."""
        await self._feed.flush()

    def _connected(self) -> None:
        """Handle a tier process that has connected: it receives the dropped ranges before any queue's minimum."""
        assert isinstance(self.reads, TierLink)
        self.reads.dropped(list(self.dropped))
        self._feed.restart()

    def _held_at_master(self) -> PhysicalOffset | None:
        return None if self._enrolment is None else self._enrolment.held_offset

    def _incarnation_of(self, topic: str) -> int:
        return self._store.incarnations.find(topic).id
