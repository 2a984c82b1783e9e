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
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from thermocline.broker import log_reservation
from thermocline.broker.advertised_address import advertised_host
from thermocline.broker.broker_settings import SETTINGS, BrokerSettings, SettingsChange
from thermocline.broker.build_id import current_build_id
from thermocline.broker.cold_reads import ColdReads, NoColdTier
from thermocline.broker.config_persister import load_file
from thermocline.broker.context import BrokerContext
from thermocline.broker.context_builder import build_context, wall_clock_ms
from thermocline.broker.deletion_gate import DeletionGate, open_drop_oldest
from thermocline.broker.drop_oldest import DropOldest
from thermocline.broker.dropped_ranges import DroppedRanges
from thermocline.broker.fence import Fence
from thermocline.broker.follower.followed_topics import TopicFollower
from thermocline.broker.follower.source import Source
from thermocline.broker.health import HealthServer
from thermocline.broker.helper_hub import HelperHub
from thermocline.broker.helper_process import SOCKET_LIMITS
from thermocline.broker.helper_protocol import HelloReply
from thermocline.broker.helpers import make_helpers
from thermocline.broker.hot_server import HotServer
from thermocline.broker.housekeeping import Housekeeping
from thermocline.broker.index_link import ROLE as INDEX_ROLE
from thermocline.broker.index_link import IndexLink
from thermocline.broker.late_handler import LateHandler
from thermocline.broker.log_reservation import LogReservation, reserve_bytes
from thermocline.broker.long_polling import LongPolling
from thermocline.broker.metrics.metrics_page import MetricsPage
from thermocline.broker.pop_service import PopService
from thermocline.broker.request_families import RunningParts, make_dispatcher
from thermocline.broker.runtime_folder import runtime_folder, socket_path
from thermocline.broker.shared_page import SharedPage
from thermocline.broker.state_link import StateLink
from thermocline.broker.store_rounds import TICK_MS, StoreRounds
from thermocline.broker.tier_feed import TierFeed
from thermocline.broker.tier_link import ROLE as TIER_ROLE
from thermocline.broker.tier_link import TierLink
from thermocline.remoting.descriptor_limit import raise_descriptor_limit
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.server import RemotingServer
from thermocline.store.disk import RealDisk
from thermocline.store.message_store import MessageStore
from thermocline.store.private_files import close_to_others
from thermocline.store.store_config import LARGE_FOLDERS, STORE_NAMES
from thermocline.tiered.object_store_url import is_directory_url
from thermocline.transactions.settlement import settle_commits

logger = logging.getLogger(__name__)

DESCRIPTORS_MIN = 1_024
DESCRIPTORS_FOR_FILES = 3_000
"""Kept free of connections, if the limit allows it."""
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
        return not self.missing_parts

    @property
    def missing_parts(self) -> list[str]:
        """What a helper process serves and does not serve yet: the key index, the cold tier."""
        is_tier_missing = isinstance(self._cold, TierLink) and self._cold.version < 0
        are_missing = {"key index": not self._hub.is_connected(INDEX_ROLE), "cold tier": is_tier_missing}
        return [name for name, is_missing in are_missing.items() if is_missing]

    @property
    def is_waiting_for_store(self) -> bool:
        """Whether the tier process is there and all that is missing is a store that it reaches over a network."""
        cold = self._cold
        is_opening = isinstance(cold, TierLink) and cold.version < 0 and self._hub.is_connected(TIER_ROLE)
        return is_opening and self._hub.is_connected(INDEX_ROLE) and not is_directory_url(self._settings.tier.cold_url)

    async def _start(self) -> str:
        settings, resources = self._settings, self._resources
        config, disk = settings.broker, RealDisk()
        connections_max = raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
        close_to_others(settings.store.root_path, names=STORE_NAMES, large=LARGE_FOLDERS)
        store = self._store = MessageStore.open(settings.store, disk=disk, clock=wall_clock_ms, settle=settle_commits)
        resources.callback(store.close)
        self._fence = Fence(
            store.commit_log, refusal=self.refusal, unregister=lambda: self._context.registration.unregister()
        )
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
        helpers = self._helpers = make_helpers(
            has_tier=settings.tier.is_enabled,
            is_follower=self._source is not None,
            in_process=self._single_process,
            socket_path=path,
            page_path=str(self._page_path),
            nice=settings.broker.helper_nice,
            log_level=self._log_level,
            now_ms=wall_clock_ms,
        )
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
        resources.push_async_callback(context.topics.close)
        resources.push_async_callback(context.peers.close)
        resources.push_async_callback(self._keep_clock)
        reservation = self._reservation = self._make_reservation(context)
        housekeeping = Housekeeping(context)
        self._state = StateLink(
            hub, in_flight=context.pops.in_flight, reservation=reservation, save_files=housekeeping.save
        )
        resources.push_async_callback(self._state.close)
        feed = self._feed = TierFeed(
            hub,
            topics=context.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=context.kept_clock,
            cut_interval_ms=max(TICK_MS, settings.tier.sweep_interval_ms // 4),
        )
        gate = self._gate = self._make_gate(context)
        rounds = self._rounds = StoreRounds(
            store,
            retention=store.retention,
            page=page,
            clock=wall_clock_ms,
            gate=gate.now,
            index_timestamp_ms=lambda: index.index_timestamp_ms,
            on_tick=self._ticked,
            timers=context.timers,
            on_wanted=context.transactions.release_below,
            relax=gate.relax,
        )
        settings.add_listener(self._settings_changed)
        hot = HotServer(context, key_index=index, long_polling=long_polling)
        pop = PopService(context, long_polling)
        parts = RunningParts(
            hot=hot,
            pop=pop,
            hub=hub,
            helpers=helpers,
            rounds=rounds,
            index=index,
            gate=gate,
            fence=self._fence,
            dropped=self._dropped,
            report_now=self._report_now,
        )
        dispatcher = make_dispatcher(context, parts, source=self._source)
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

    @property
    def _page_path(self) -> Path:
        return Path(self._settings.store.own_path) / "shared-page"

    def _make_page(self, store: MessageStore) -> SharedPage:
        page = SharedPage.create(self._page_path, generation=time.time_ns(), build_id=current_build_id())
        log = store.commit_log
        page.publish(append_offset=log.append_offset, flush_offset=log.flush_offset, min_offset=log.min_offset)
        return page

    def _make_cold(self, hub: HelperHub, store: MessageStore) -> ColdReads:
        if not self._settings.tier.is_enabled:
            return NoColdTier()
        if self._source is not None:
            return self._follower.make_link(hub, timeout_ms=COLD_TIMEOUT_MS, on_fenced=self._fence.close)
        return TierLink(
            hub,
            incarnation_of=lambda topic: store.incarnations.find(topic).id,
            timeout_ms=COLD_TIMEOUT_MS,
            on_connected=self._tier_connected,
            on_fenced=self._fence.close,
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

    def _make_gate(self, context: BrokerContext) -> DeletionGate:
        settings, cold = self._settings, self._cold
        drop_oldest: DropOldest | None = None
        if settings.tier.is_enabled and self._source is None:
            assert isinstance(cold, TierLink)
            drop_oldest = open_drop_oldest(
                context, cold, self._dropped, default_policy=lambda: settings.tier.full_policy
            )
        return DeletionGate(context, cold=cold, index=self._index, fence=self._fence, drop_oldest=drop_oldest)

    async def _start_health(self, context: BrokerContext) -> None:
        config = self._settings.broker
        if config.health_port < 0:
            return
        metrics = MetricsPage(
            context,
            self._hub,
            helpers=self._helpers.statuses,
            committed_offset=lambda: self._gate.now().committed_offset,
            is_fenced=lambda: bool(self._fence.reason),
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
        refusal = self._fence.reason or log.refusal or ("stopping" if self._is_closing else "")
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
