"""Role parts: all of a broker but its port and its clients' connections, for as long as it has one role.

Each family of parts has its construction, start and stop in one file of `assembly/`; the order is here. What is started
is pushed on one stack at once, so a stop is the start in reverse, and a start that fails stops what it has started.

    start   ledger continued, if it was a slave's -> store (lock, recovery, epoch) -> shared page -> helpers' socket
            -> port, the first time -> port for slaves -> parts from their files -> state -> messages -> POP
            -> store rounds -> tier's feed -> requests served -> recurring work -> health -> helper processes
            -> link to the master -> NameServers
    end     the log takes no writes -> requests wait or are refused -> puts and pulls that wait are answered
            -> registration ends -> link to the master -> health -> recurring work ends, offsets written -> feed
            -> store rounds, with the timers' last -> POP -> messages, with a last flush -> state -> clock kept
            -> peers, topics, persister, timers -> helpers end -> socket, page
            -> log flushed, queues synced, checkpoint, abort mark last (store.close)

The rules behind the order, by which no acknowledged message is lost
  - The store is opened first and closed last: all else may still append or read until its own stop.
  - Requests in flight are answered before anything stops that they use.
  - Offsets are written after the last request that moves them; the persister closes after all that ask it to write.
  - Timers' files close after the rounds that write them, and before the log that they point into.
  - No helper runs while recovery truncates: they start after it.
  - A master that is one no more appends nothing: its successor's log has other bytes there.
Owner: the one event loop of the process.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from thermocline.broker.assembly import (
    Assignment,
    ColdTier,
    ConnectedClients,
    HelperLinks,
    LocalStore,
    MergedProxy,
    ProxyPlan,
    Replicas,
    make_dispatcher,
    make_housekeeping,
    make_parts,
    open_store,
    start_health,
    start_recurring_work,
)
from thermocline.broker.control import Control
from thermocline.broker.follower import Source
from thermocline.broker.port import Listener
from thermocline.broker.present_log import PresentLog
from thermocline.broker.processors import WRITES
from thermocline.broker.pulls import LongPolling
from thermocline.broker.settings import BrokerSettings, SettingsChange
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.connections import LimitCounts
from thermocline.replication import Alignment
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

GC_THRESHOLDS = (50_000, 20, 100)
"""The message path makes no cycles; what it makes and drops at once need not be looked through every 700 objects."""
ROLE_ENDS = "the broker's role changes"
"""Why the log takes no writes, and requests are refused."""
BEHIND_ALL_DEADLINES_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingParts:
    """What a broker has whatever its role."""

    settings: BrokerSettings
    disk: Disk
    listener: Listener
    limits: LimitCounts
    connected: ConnectedClients
    log: PresentLog
    control: Control | None
    """Under a controller."""
    resources: AsyncExitStack
    """Closes what lasts."""
    environment: Mapping[str, str]
    log_level: str
    single_process: bool
    source: Source | None
    """The broker whose cold tier is served, read-only."""
    proxy: ProxyPlan | None
    refusal: asyncio.Future[str]
    """Done when this broker must not run: the cold tier's prefix holds another store's history."""
    is_closing: Callable[[], bool]
    cut: Callable[[Alignment], None]
    """Has a slave's log cut at an alignment with its master's."""
    reopen: Callable[[], None]
    """Has a slave's store opened again whose log has failed."""
    role_error: Callable[[], str]
    """Why the broker does not have the role that it should have."""


class RoleParts:
    """`start` once, then `end` or `close`."""

    def __init__(self, lasting: LastingParts, assignment: Assignment | None) -> None:
        """`assignment`: by a controller; None: the settings have the role."""
        self._lasting = lasting
        self._assignment = assignment
        self._settings = lasting.settings
        self.resources = AsyncExitStack()
        self.proxy: MergedProxy | None = None
        self.has_served = False
        """Whether requests have come to these parts, which have not ended since."""

    async def start(self) -> None:
        """Start everything; on return requests are served and NameServers know the broker. A start that fails has to
        be followed by `end` or `close`.

        Raises:
            UnavailableError: The store is open elsewhere, or a file could not be written.
            CorruptDataError: The store cannot be recovered.
            InvalidRequestError: A setting does not allow it.
            OSError: The port is taken.
            StaleEpochError, and as `continue_ledger`: With an assignment as master.
        """
        lasting, settings, resources, disk = self._lasting, self._settings, self.resources, self._lasting.disk
        await self._continue_ledger()
        local = self.local = LocalStore(
            settings, disk=disk, clock=wall_clock_ms, resources=resources, begin=self._begin_epoch
        )
        replicas = self.replicas = Replicas(
            settings,
            local.store,
            disk=disk,
            limits=lasting.limits,
            assignment=self._assignment,
            before=None if self._assignment is None else lasting.log.before,
        )
        lasting.log.began(replicas)
        resources.callback(lasting.log.ended)
        replicas.on_parted, replicas.on_failed = lasting.cut, lasting.reopen
        helpers = self.helpers = HelperLinks(
            settings,
            local.store,
            environment=lasting.environment,
            source=lasting.source,
            flushed=local.flush_to_end,
            resources=resources,
        )
        await helpers.listen()
        self.tier = ColdTier(
            settings,
            local.store,
            helpers.hub,
            source=lasting.source,
            refusal=lasting.refusal,
            enrolment=replicas.enrolment,
            has_controller=self._assignment is not None,
        )
        helpers.make_helpers(
            has_proxy=lasting.proxy is not None,
            in_process=lasting.single_process,
            log_level=lasting.log_level,
            now_ms=wall_clock_ms,
        )
        if not lasting.listener.is_open:
            await lasting.listener.start(lasting.resources)
        replicas.open_port(resources)
        if lasting.proxy is not None:
            self.proxy = MergedProxy(lasting.proxy, settings, helpers)
            await lasting.listener.start_local(self.proxy.socket_path)
        await self._serve()
        helpers.start()
        replicas.start_link(self.parts, resources)
        self.parts.cluster.start(resources)
        await self.parts.cluster.wait_registered()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    async def _serve(self) -> None:
        """Make what answers requests, then serve them."""
        lasting, settings, resources, tier = self._lasting, self._settings, self.resources, self.tier
        long_polling = self._long_polling = LongPolling(
            waiters_max=lambda: settings.broker.polls_max,
            connection_waiters_max=lambda: settings.broker.connection_polls_max,
            limits=lasting.limits,
        )
        kept_listeners = settings.listener_count
        resources.callback(lambda: settings.drop_listeners(kept=kept_listeners))
        parts = self.parts = await make_parts(
            settings,
            self.local.store,
            disk=lasting.disk,
            cold=tier.reads,
            store_host=lasting.listener.store_host,
            arrived=long_polling.arrived,
            limits=lasting.limits,
            connected=lasting.connected,
            taken_back=await self.replicas.take_back(lasting.listener.store_host),
            master_epoch=0 if self._assignment is None else self._assignment.role.master_epoch,
        )
        parts.close_with(resources)
        # It starts last, but what it saves late is saved for each state snapshot too.
        housekeeping = make_housekeeping(parts)
        tier.attach(parts, index=self.helpers.index, save_files=housekeeping.save, resources=resources)
        self.replicas.lacking_offset = tier.gate.lacking_offset
        self.local.make_rounds(
            parts, page=self.helpers.page, gate=tier.gate, index=self.helpers.index, on_tick=tier.ticked
        )
        settings.add_listener(self._settings_changed)
        self._serve_requests(long_polling)
        start_recurring_work(housekeeping, resources)
        if self.replicas.hand_over is not None:
            self.replicas.hand_over.write_last = housekeeping.write_notes
        await start_health(
            parts,
            self.helpers,
            tier,
            self.replicas,
            gate=lasting.listener.gate,
            is_closing=lasting.is_closing,
            role_error=lasting.role_error,
            resources=resources,
        )

    def _serve_requests(self, long_polling: LongPolling) -> None:
        parts, resources, control = self.parts, self.resources, self._lasting.control
        messages = parts.make_message_path(key_index=self.helpers.index, long_polling=long_polling)
        pops = parts.make_pop_path(long_polling=long_polling)
        self.dispatcher = make_dispatcher(
            parts,
            messages,
            pops,
            self.helpers,
            self.tier,
            run_retention=self.local.rounds.run_retention,
            delete_expired=self.local.rounds.delete_expired,
            report_now=self._report_now,
            replicas=self.replicas,
            source=self._lasting.source,
            controlled=None if control is None else control.make_processor(address=parts.base.advertised_address),
        )
        messages.start(resources)
        pops.start(resources)
        self.local.start(resources)
        self.tier.start(long_polling, resources)
        self._hot = messages.hot
        self.has_served = True
        if self._assignment is not None and self._assignment.is_master:
            self._lasting.log.epoch_start.served()
        self._lasting.listener.serve(self.dispatcher, messages.hot)

    # -- becoming a master ---------------------------------------------------------------------------------------------

    async def _continue_ledger(self) -> None:
        """Have an assigned master continue the ledger of its set."""
        if self._assignment is None or not self._assignment.is_master:
            return
        from thermocline.broker.recovery.promotion import continue_ledger

        disk = self._lasting.disk
        report = await continue_ledger(
            self._settings,
            disk=disk,
            clock=wall_clock_ms,
            open_local=partial(open_store, self._settings, disk=disk, clock=wall_clock_ms, begin=self._begin_epoch),
            master_epoch=self._assignment.role.master_epoch,
        )
        for line in report.lines() if report is not None else ():
            logger.warning("%s", line)

    def _begin_epoch(self, store: MessageStore) -> None:
        """Before anything is put by a master: its epoch begins at the log's end."""
        if self._assignment is None:
            return
        log, epoch_start = store.commit_log, self._lasting.log.epoch_start
        if self._assignment.is_master:
            epoch = self._assignment.role.master_epoch
            epoch_start.begin(epoch, min_offset=log.min_offset, end_offset=log.append_offset)
        else:
            epoch_start.settle(min_offset=log.min_offset, end_offset=log.append_offset)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        """The role ends, or could not start, and the port stays: answer what waits, then close all. What fails is
        logged: the next role begins with what is on the disk."""
        if self.has_served:
            self.has_served = False
            await self._answer_all()
        gc.unfreeze()
        try:
            await self.close()
        except Exception:
            logger.exception("parts of the role before did not end cleanly")

    async def _answer_all(self) -> None:
        store = self.local.store
        self._hot.end_round()
        store.commit_log.refuse_all(ROLE_ENDS)
        answered = self._lasting.listener.pause(ROLE_ENDS, refused_codes=WRITES)
        # Its notes of ended transactions would be appended; the next master finds the commits without them.
        store.before_promise = _promise_nothing
        self.replicas.end_puts()
        await self._answer_waiting_pulls()
        await self.local.flush_to_end()
        late_count = await answered
        if late_count:
            logger.warning("requests are cut off by a change of the role count=%d", late_count)

    async def close(self) -> None:
        """Close all. Idempotent. Raises as the store's close."""
        await self.resources.aclose()

    async def _answer_waiting_pulls(self) -> None:
        """Answer pulls and POPs that wait with what there is."""
        while self._long_polling.expire(BEHIND_ALL_DEADLINES_MS):  # noqa: ASYNC110 - lets others in between two slices
            await asyncio.sleep(0)

    # -- while it runs -------------------------------------------------------------------------------------------------

    def _settings_changed(self, change: SettingsChange) -> None:
        self.local.follow_settings()
        self.tier.follow_settings(change)

    async def _report_now(self) -> None:
        """Flush, write queue files, and tell the tier process."""
        await self.local.publish_all()
        await self.tier.report()


def _promise_nothing() -> None:
    """What has to be put before a promise of an ended role: nothing."""
