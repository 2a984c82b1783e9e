"""Hot process: puts a broker together, starts it, and stops it in the order in which nothing is lost.

    start   descriptor limit -> store (lock, recovery) -> shared page -> helpers' socket -> port -> parts from their
            files -> requests served -> helper processes -> NameServers
    stop    no new connections -> NameServers told -> requests in flight answered -> recurring work ends, offsets
            written -> timers' last round -> helpers end -> log flushed, queues synced, checkpoint, abort mark last
            (store.close)

No helper runs while recovery truncates: they start after it. Owner: the one event loop of the process.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from thermocline.broker import dropped_ranges, log_reservation
from thermocline.broker.advertised_address import advertised_host
from thermocline.broker.broker_settings import SETTINGS, BrokerSettings, SettingsChange
from thermocline.broker.build_id import current_build_id
from thermocline.broker.cluster_queues import ClusterQueues
from thermocline.broker.cold_reads import ColdReads, NoColdTier
from thermocline.broker.config_persister import load_file
from thermocline.broker.context import BrokerContext
from thermocline.broker.context_builder import build_context, wall_clock_ms
from thermocline.broker.descriptor_limit import raise_descriptor_limit
from thermocline.broker.drop_oldest import DropOldest
from thermocline.broker.dropped_ranges import DroppedRanges
from thermocline.broker.follower.followed_topics import TopicFollower
from thermocline.broker.follower.read_only_processor import ReadOnlyProcessor
from thermocline.broker.follower.source import Source
from thermocline.broker.health import HealthServer
from thermocline.broker.helper_hub import HelperHub
from thermocline.broker.helper_process import SOCKET_LIMITS
from thermocline.broker.helper_protocol import Fenced, HelloReply
from thermocline.broker.helpers import Helpers, InProcessHelpers
from thermocline.broker.hot_server import HotServer
from thermocline.broker.housekeeping import Housekeeping
from thermocline.broker.index_link import ROLE as INDEX_ROLE
from thermocline.broker.index_link import IndexLink
from thermocline.broker.late_handler import LateHandler
from thermocline.broker.log_reservation import LogReservation, reserve_bytes
from thermocline.broker.long_polling import LongPolling
from thermocline.broker.metrics.metrics_page import MetricsPage
from thermocline.broker.pop_service import PopService
from thermocline.broker.processors.admin import AdminProcessor
from thermocline.broker.processors.assignment import AssignmentProcessor
from thermocline.broker.processors.client import ClientProcessor
from thermocline.broker.processors.consumer_call import ConsumerCallProcessor
from thermocline.broker.processors.consumer_offset import ConsumerOffsetProcessor
from thermocline.broker.processors.cost import CostProcessor
from thermocline.broker.processors.dispatcher import Dispatcher
from thermocline.broker.processors.flushed_ranges import FlushedRangesProcessor
from thermocline.broker.processors.group import GroupProcessor
from thermocline.broker.processors.hand_off import HandOffProcessor
from thermocline.broker.processors.lock import LockProcessor
from thermocline.broker.processors.recall import RecallProcessor
from thermocline.broker.processors.replica import ReplicaProcessor
from thermocline.broker.processors.scrub import ScrubProcessor
from thermocline.broker.processors.send_back import SendBackProcessor
from thermocline.broker.processors.stats import StatsProcessor
from thermocline.broker.processors.tier import TierProcessor
from thermocline.broker.processors.topic import TopicProcessor
from thermocline.broker.processors.ttl import TtlProcessor
from thermocline.broker.runtime_folder import runtime_folder, socket_path
from thermocline.broker.shared_page import SharedPage
from thermocline.broker.state_link import StateLink
from thermocline.broker.store_rounds import TICK_MS, StoreRounds
from thermocline.broker.supervisor import HelperSpec, Supervisor
from thermocline.broker.tier_explanation import fenced_by
from thermocline.broker.tier_feed import TierFeed
from thermocline.broker.tier_link import ROLE as TIER_ROLE
from thermocline.broker.tier_link import TierLink
from thermocline.broker.topic_attributes import full_policy
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.server import RemotingServer
from thermocline.store.disk import RealDisk
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.tiered.tier_config import FullPolicy
from thermocline.transactions.settlement import settle_commits

logger = logging.getLogger(__name__)

INDEX_TIMEOUT_MS = 10_000
COLD_TIMEOUT_MS = 20_000
REGISTERED_TIMEOUT_S = 5.0
HELPERS_STOP_TIMEOUT_MS = 8_000
SERVER_CLOSE_TIMEOUT_MS = 2_000
GC_THRESHOLDS = (50_000, 20, 100)
"""The message path makes no cycles; what it makes and drops at once need not be looked through every 700 objects."""


class HotProcess:
    """One broker. `start` once, `close` as often as wanted."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        environment: Mapping[str, str],
        log_level: str = "INFO",
        single_process: bool = False,
        source: Source | None = None,
    ) -> None:
        """`source`: whose cold tier is served, read-only; the settings are made for it (`make_read_only`)."""
        self._settings = settings
        self._source = source
        self._follower = TopicFollower()
        self._environment = environment
        self._log_level = log_level
        self._single_process = single_process
        self._resources = AsyncExitStack()
        self._fenced = ""
        self._later_epoch = 0
        self.refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when this broker must not run: the cold tier's prefix holds another store's history."""
        self._is_closing = False

    async def start(self) -> str:
        """Start everything; returns the advertised address once requests are served and NameServers know it.

        Raises:
            UnavailableError: The store is open elsewhere, or a file could not be written.
            CorruptDataError: The store cannot be recovered.
            InvalidRequestError: The machine or a setting does not allow it.
            OSError: The port is taken.
        """
        try:
            return await self._start()
        except BaseException:
            await self._resources.aclose()
            raise

    async def close(self) -> None:
        """Stop cleanly; see the module's header. Idempotent."""
        self._is_closing = True
        await self._resources.aclose()
        logger.info("broker stopped")

    @property
    def is_complete(self) -> bool:
        """Whether the helpers serve too. A broker serves before: they start last, and may be away at any time."""
        is_tier_heard = not isinstance(self._cold, TierLink) or self._cold.version >= 0
        return is_tier_heard and self._hub.is_connected(INDEX_ROLE)

    async def _start(self) -> str:
        settings, resources = self._settings, self._resources
        config, disk = settings.broker, RealDisk()
        connections_max = raise_descriptor_limit()
        store = self._store = MessageStore.open(settings.store, disk=disk, clock=wall_clock_ms, settle=settle_commits)
        resources.callback(store.close)
        self._dropped = DroppedRanges(incarnation_of=lambda topic: store.incarnations.find(topic).id)
        page = self._make_page(store)
        resources.callback(page.close)

        hub = self._hub = HelperHub(
            generation=page.generation,
            build_id=page.build_id,
            settings=HelloReply(
                store=settings.store,
                tier=settings.tier,
                store_uuid=store.identity.store_id,
                cluster_name=config.cluster_name if self._source is None else self._source.cluster_name,
                broker_name=config.broker_name if self._source is None else self._source.broker_name,
                was_clean=store.recovery_report.was_clean,
            ),
        )
        path = socket_path(runtime_folder(self._environment), store_uuid=store.identity.store_id)
        Path(path).unlink(missing_ok=True)  # a stale one: the store's lock says that nobody else serves it
        helper_server = RemotingServer(hub, limits=SOCKET_LIMITS, idle_timeout_ms=1 << 40)
        await helper_server.start_unix(path)
        resources.push_async_callback(helper_server.close)
        index = self._index = IndexLink(hub, flushed=self._flushed, timeout_ms=INDEX_TIMEOUT_MS)
        cold = self._cold = self._make_cold(hub, store)
        helpers = self._helpers = self._make_helpers(path, page)
        resources.push_async_callback(helpers.stop, timeout_ms=HELPERS_STOP_TIMEOUT_MS)

        late = LateHandler()
        server = self._server = RemotingServer(
            late, chunk_handler=late, idle_timeout_ms=config.server_idle_ms, connections_max=connections_max
        )
        port = await server.start(config.listen_host, config.listen_port)
        resources.push_async_callback(server.close, timeout_ms=SERVER_CLOSE_TIMEOUT_MS)
        settings.broker = replace(settings.broker, listen_port=port)  # port 0 asked for a free one: show which
        host = advertised_host(listen_host=config.listen_host, configured_host=config.advertised_host)
        long_polling = LongPolling()
        context = self._context = await build_context(
            settings,
            store,
            disk=disk,
            cold=cold,
            store_host=(host, config.advertised_port or port),
            arrived=long_polling.arrived,
        )
        if context.timers is not None:
            resources.callback(context.timers.close)
        resources.push_async_callback(context.persister.close)
        resources.push_async_callback(context.peers.close)
        resources.push_async_callback(self._keep_clock)
        reservation = self._reservation = self._make_reservation(context)
        self._state = StateLink(hub, in_flight=context.pops.in_flight, reservation=reservation)
        resources.push_async_callback(self._state.close)
        feed = self._feed = TierFeed(
            hub,
            topics=context.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=context.kept_clock,
            cut_interval_ms=max(TICK_MS, settings.tier.sweep_interval_ms // 4),
        )
        rounds = self._rounds = StoreRounds(
            store,
            retention=store.retention,
            page=page,
            clock=wall_clock_ms,
            gate=self._gate,
            index_timestamp_ms=lambda: index.index_timestamp_ms,
            on_tick=self._ticked,
            timers=context.timers,
            on_wanted=context.transactions.release_below,
            relax=self._make_relax(context) if settings.tier.is_enabled and self._source is None else None,
        )
        settings.add_listener(self._settings_changed)
        hot = HotServer(context, key_index=index, long_polling=long_polling)
        pop = PopService(context, long_polling)
        dispatcher = self._make_dispatcher(context, hot, pop, helpers, rounds)
        hot.start()
        resources.push_async_callback(hot.close)
        pop.start()
        resources.push_async_callback(pop.close)
        rounds.start()
        resources.push_async_callback(rounds.close)
        if self._source is None:
            feed.start()
        else:
            self._follower.start(context, long_polling)
        resources.push_async_callback(feed.close)
        resources.push_async_callback(self._follower.close)
        late.serve(dispatcher, hot)
        housekeeping = Housekeeping(context)
        housekeeping.start()
        resources.push_async_callback(housekeeping.close)
        await self._start_health(context)
        helpers.start()
        context.registration.start()
        resources.push_async_callback(context.registration.close)
        # First of all at a stop: clients are sent elsewhere, and what is in flight is still answered.
        resources.push_async_callback(server.close, timeout_ms=SERVER_CLOSE_TIMEOUT_MS)
        resources.push_async_callback(self._leave)
        await self._wait_registered(context)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        logger.info("broker serves address=%s port=%d queues=%d", context.advertised_address, port, len(store.queues))
        return context.advertised_address

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _make_page(self, store: MessageStore) -> SharedPage:
        path = Path(store.config.own_path) / "shared-page"
        page = SharedPage.create(path, generation=time.time_ns(), build_id=current_build_id())
        log = store.commit_log
        page.publish(append_offset=log.append_offset, flush_offset=log.flush_offset, min_offset=log.min_offset)
        return page

    def _make_cold(self, hub: HelperHub, store: MessageStore) -> ColdReads:
        if not self._settings.tier.is_enabled:
            return NoColdTier()
        if self._source is not None:
            return self._follower.make_link(hub, timeout_ms=COLD_TIMEOUT_MS, on_fenced=self._fence)
        return TierLink(
            hub,
            incarnation_of=lambda topic: store.incarnations.find(topic).id,
            timeout_ms=COLD_TIMEOUT_MS,
            on_connected=self._tier_connected,
            on_fenced=self._fence,
            on_state=lambda code, body: self._state.told(code, body),
        )

    def _make_reservation(self, context: BrokerContext) -> LogReservation:
        tier, store, persister = self._settings.tier, self._store, context.persister
        reservation = LogReservation(
            store.commit_log,
            reserve_bytes=reserve_bytes(context.disk, store.config, configured=tier.reserve_bytes),
            request_save=lambda: persister.request(log_reservation.FILE_NAME),
        )
        path = store.config.log_ceiling_path
        persister.register(log_reservation.FILE_NAME, path, reservation.encode)
        if tier.is_enabled and self._source is None:
            reservation.load(load_file(context.disk, path))
        return reservation

    def _make_drop_oldest(self, context: BrokerContext) -> DropOldest:
        settings, store, persister, cold = self._settings, self._store, context.persister, context.cold
        assert isinstance(cold, TierLink)
        ranges = self._dropped

        def policy_of(topic: str) -> FullPolicy:
            topic_config = context.topics.get(topic)
            attributes = topic_config.attributes if topic_config is not None else {}
            return full_policy(attributes, default=settings.tier.full_policy)

        path = store.config.dropped_ranges_path
        persister.register(dropped_ranges.FILE_NAME, path, ranges.encode)
        ranges.load(load_file(context.disk, path))
        ranges.clip(store.queues)
        return DropOldest(
            store,
            bounds=cold.bounds,
            policy_of=policy_of,
            visible_start=context.visible.hot_start,
            ranges=ranges,
            save=lambda: persister.save(dropped_ranges.FILE_NAME),
            tell=cold.dropped,
            clock=context.clock,
        )

    def _make_relax(self, context: BrokerContext) -> Callable[[RetentionGate], Awaitable[RetentionGate]]:
        oldest = self._make_drop_oldest(context)

        async def relax(gate: RetentionGate) -> RetentionGate:
            # Whoever was fenced deletes nothing: it takes no messages either, and its log is to be looked through.
            return gate if self._fenced else await oldest.relax(gate)

        return relax

    def _make_helpers(self, path: str, page: SharedPage) -> Helpers:
        roles = ["index", "tier"] if self._settings.tier.is_enabled else ["index"]
        page_path = str(Path(self._settings.store.own_path) / "shared-page")
        if self._single_process:
            return InProcessHelpers(roles, socket_path=path, page_path=page_path, is_follower=self._source is not None)
        specs = [
            HelperSpec(
                name=role,
                module=self._module_of(role),
                arguments=(f"--socket={path}", f"--page={page_path}", f"--log-level={self._log_level}"),
            )
            for role in roles
        ]
        return Supervisor(specs, now_ms=wall_clock_ms)

    def _module_of(self, role: str) -> str:
        if role == TIER_ROLE and self._source is not None:
            return "thermocline.broker.follower.follower_process"
        return f"thermocline.broker.{role}_process"

    def _make_dispatcher(
        self, context: BrokerContext, hot: HotServer, pop: PopService, helpers: Helpers, rounds: StoreRounds
    ) -> Dispatcher:
        log = context.store.commit_log
        return Dispatcher(
            (
                *hot.processors,
                *pop.processors,
                TopicProcessor(context),
                GroupProcessor(context),
                ClientProcessor(context),
                ConsumerOffsetProcessor(context),
                HandOffProcessor(context),
                LockProcessor(context),
                AssignmentProcessor(
                    context,
                    ClusterQueues(
                        context.topics, context.registration, config=lambda: context.config, clock=context.clock
                    ),
                ),
                SendBackProcessor(context),
                RecallProcessor(context),
                StatsProcessor(context),
                ConsumerCallProcessor(context),
                ReplicaProcessor(context),
                AdminProcessor(
                    context,
                    run_retention=rounds.run_retention,
                    dispatch_behind_bytes=lambda: max(0, log.append_offset - self._index.durable_offset),
                ),
                TierProcessor(
                    context,
                    self._hub,
                    helpers=helpers.statuses,
                    report_now=self._report_now,
                    gate=self._gate,
                    dropped=self._dropped.live,
                    fenced_by=lambda: fenced_by(self._later_epoch) if self._fenced else "",
                ),
                ScrubProcessor(self._hub),
                TtlProcessor(context, self._hub, gate=self._gate, report_now=self._report_now),
                CostProcessor(context, self._hub),
                FlushedRangesProcessor(context),
            ),
            on_closed=(hot.connection_closed, pop.connection_closed, context.clients.connection_closed),
            before=() if self._source is None else (ReadOnlyProcessor(self._source),),
        )

    async def _start_health(self, context: BrokerContext) -> None:
        config = self._settings.broker
        if config.health_port < 0:
            return
        metrics = MetricsPage(
            context,
            self._hub,
            helpers=self._helpers.statuses,
            committed_offset=lambda: self._gate().committed_offset,
            is_fenced=lambda: bool(self._fenced),
            dropped=self._dropped.live,
        )
        health = HealthServer(self._probe, metrics.text)
        port = await health.start(config.listen_host, config.health_port)
        self._resources.push_async_callback(health.close)
        logger.info("health endpoint port=%d", port)

    async def _wait_registered(self, context: BrokerContext) -> None:
        try:
            async with asyncio.timeout(REGISTERED_TIMEOUT_S):
                await context.registration.wait_registered()
        except TimeoutError:
            logger.warning("not registered at every NameServer yet; the broker keeps trying")

    # -- while it runs -------------------------------------------------------------------------------------------------

    def _tier_connected(self) -> None:
        """A tier process is there: what was dropped it learns before any queue's minimum."""
        assert isinstance(self._cold, TierLink)
        self._cold.dropped(list(self._dropped))
        self._feed.restart()

    def _settings_changed(self, change: SettingsChange) -> None:
        settings = self._settings
        self._store.retention.follow(settings.store)
        if isinstance(self._cold, TierLink) and any(SETTINGS[name].section == "tier" for name in change.live):
            self._cold.follow(settings.tier)

    def _ticked(self, pressure: bool) -> None:
        self._reservation.check()
        self._feed.ticked(pressure=pressure)

    def _gate(self) -> RetentionGate:
        """What local deletion has to wait for."""
        committed_offset: int | None = None
        if isinstance(self._cold, TierLink):
            committed_offset = 0 if self._fenced else self._cold.committed_offset
        return RetentionGate(
            committed_offset=committed_offset,
            index_offset=self._index.durable_offset,
            held_offset=_least(self._context.delays.earliest_undelivered_offset(), self._context.pops.held_offset),
            timers_offset=None if self._context.timers is None else self._context.timers.held_offset,
            transactions_offset=self._context.transactions.held_offset,
        )

    def _fence(self, fenced: Fenced) -> None:
        """The cold tier is not ours to write: take no message, leave the NameServers or end, delete nothing."""
        if self._fenced:
            return
        reason = self._fenced = fenced.reason
        self._later_epoch = fenced.later_epoch
        if fenced.is_refused:
            self._store.commit_log.pause(reason)
            self.refusal.set_result(reason)
            return
        logger.error("fenced: another broker writes to this cold tier; sends are refused reason=%s", reason)
        self._store.commit_log.fail(f"fenced: {reason}")
        self._leaving = asyncio.get_running_loop().create_task(self._context.registration.unregister())

    async def _flushed(self) -> int:
        """Make the log durable up to its end now; returns that offset, or what was reached when the flush failed."""
        store = self._store
        log, flushed = store.commit_log, asyncio.Event()
        if log.flush_offset < log.append_offset:
            store.flush.wait(log.append_offset, lambda _: flushed.set())
            store.flush.flush()
            await flushed.wait()
        return log.flush_offset

    async def _report_now(self) -> None:
        """Flush, write queue files, and tell the tier process."""
        await self._flushed()
        self._store.queues.write_dirty()
        self._rounds.publish()
        await self._feed.flush()

    async def _keep_clock(self) -> None:
        if self._context.topics.topics_with_ttl():
            with contextlib.suppress(UnavailableError):  # logged where it was written
                await self._context.kept_clock.keep()

    def _probe(self) -> tuple[bool, Mapping[str, object]]:
        log = self._store.commit_log
        refusal = self._fenced or log.refusal or ("stopping" if self._is_closing else "")
        cold = self._cold.health()
        details = {
            "status": "unavailable" if refusal else "degraded" if cold.is_impaired else "ok",
            "address": self._context.advertised_address,
            "appendOffset": log.append_offset,
            "flushOffset": log.flush_offset,
            "refusal": refusal,
            "cold": cold.fields(),
        }
        return not refusal, details

    async def _leave(self) -> None:
        await self._server.stop_accepting()
        await self._context.registration.unregister()


def _least(*offsets: int | None) -> int | None:
    """The least offset that somebody holds the log at; None when nobody does."""
    return min((offset for offset in offsets if offset is not None), default=None)
