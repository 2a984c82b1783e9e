"""Hot process: puts a broker together, starts it, and stops it in the order in which nothing is lost.

Each family of parts has its construction, start and stop in one file of `assembly/`; the order is here. What is started
is pushed on one stack at once, so a stop is the start in reverse, and a start that fails stops what it has started.

    start   descriptor limit -> files of TLS -> store (lock, recovery) -> shared page -> helpers' socket -> ports
            -> what slaves did in a master's place -> parts from their files -> state -> messages -> POP
            -> store rounds -> tier's feed -> requests served -> recurring work -> health
            -> helper processes, a proxy among them -> link to the master -> NameServers
    stop    proxy drained -> no new connections -> NameServers notified -> requests in flight answered
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
Owner: the one event loop of the process.
"""

import asyncio
import gc
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack

from thermocline.broker.assembly import (
    ColdTier,
    HelperLinks,
    Listener,
    LocalStore,
    MergedProxy,
    ProxyAddresses,
    ProxyPlan,
    Replicas,
    make_dispatcher,
    make_housekeeping,
    make_parts,
    start_health,
    start_recurring_work,
)
from thermocline.broker.follower import Source
from thermocline.broker.pulls import LongPolling
from thermocline.broker.settings import BrokerSettings, SettingsChange
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.connections import LimitCounts, is_loopback, raise_descriptor_limit, warn_if_exposed
from thermocline.remoting.socket_address import format_address
from thermocline.store.files import RealDisk
from thermocline.tiered.stores import is_directory_url

logger = logging.getLogger(__name__)

DESCRIPTORS_MIN = 1_024
DESCRIPTORS_FOR_FILES = 3_000
"""Kept free of connections, if the limit allows it."""
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
        proxy: ProxyPlan | None = None,
    ) -> None:
        """`source`: whose cold tier is served, read-only; the settings are made for it (`make_read_only`). `proxy`: the
        one that serves gRPC clients beside it."""
        self._settings = settings
        self._source = source
        self._proxy_plan = proxy
        self._proxy: MergedProxy | None = None
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
            InvalidRequestError: The machine or a setting does not allow it, or a TLS file cannot be used.
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

    async def wait_proxy(self) -> ProxyAddresses:
        """Wait until the proxy beside it serves; where, or nowhere if there is to be none.

        Raises:
            InvalidRequestError: It cannot serve.
            UnavailableError: It does not start.
        """
        return ProxyAddresses("", "") if self._proxy is None else await self._proxy.wait_ready()

    @property
    def is_complete(self) -> bool:
        """Whether the helpers serve too. A broker serves before: they start last, and may be away at any time."""
        return not self.missing_parts

    @property
    def missing_parts(self) -> list[str]:
        """The services of helper processes that are not ready yet: the key index, the cold tier."""
        are_missing = {"key index": not self._helpers.is_index_connected, "cold tier": self._tier.is_missing}
        return [name for name, is_missing in are_missing.items() if is_missing]

    @property
    def is_waiting_for_store(self) -> bool:
        """Whether the tier process is there and all that is missing is a store that it reaches over a network."""
        is_opening = self._tier.is_missing and self._tier.is_connected
        return is_opening and self._helpers.is_index_connected and not is_directory_url(self._settings.tier.cold_url)

    async def _start(self) -> str:
        settings, resources, disk = self._settings, self._resources, RealDisk()
        connections_max = raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
        limits = LimitCounts()
        listener = self._listener = Listener(settings, connections_max=connections_max, limits=limits)
        local = self._local = LocalStore(settings, disk=disk, clock=wall_clock_ms, resources=resources)
        replicas = self._replicas = Replicas(settings, local.store, disk=disk, limits=limits)
        helpers = self._helpers = HelperLinks(
            settings,
            local.store,
            environment=self._environment,
            source=self._source,
            flushed=local.flush_to_end,
            resources=resources,
        )
        await helpers.listen()
        tier = self._tier = ColdTier(
            settings,
            local.store,
            helpers.hub,
            source=self._source,
            refusal=self.refusal,
            enrolment=replicas.enrolment,
        )
        helpers.make_helpers(
            has_proxy=self._proxy_plan is not None,
            in_process=self._single_process,
            log_level=self._log_level,
            now_ms=wall_clock_ms,
        )
        await listener.start(resources)
        replicas.open_port(resources)
        if self._proxy_plan is not None:
            self._proxy = MergedProxy(self._proxy_plan, settings, helpers)
            await listener.start_local(self._proxy.socket_path)
        self._warn_of_exposure()
        long_polling = LongPolling(
            waiters_max=lambda: settings.broker.polls_max,
            connection_waiters_max=lambda: settings.broker.connection_polls_max,
            limits=limits,
        )
        parts = self._parts = await make_parts(
            settings,
            local.store,
            disk=disk,
            cold=tier.reads,
            store_host=listener.store_host,
            arrived=long_polling.arrived,
            limits=limits,
            taken_back=await replicas.take_back(listener.store_host),
        )
        parts.close_with(resources)
        # It starts last, but what it saves late is saved for each state snapshot too.
        housekeeping = make_housekeeping(parts)
        tier.attach(parts, index=helpers.index, save_files=housekeeping.save, resources=resources)
        replicas.lacking_offset = tier.gate.lacking_offset
        local.make_rounds(parts, page=helpers.page, gate=tier.gate, index=helpers.index, on_tick=tier.ticked)
        settings.add_listener(self._settings_changed)
        self._serve(long_polling)
        start_recurring_work(housekeeping, resources)
        await start_health(
            parts,
            helpers,
            tier,
            replicas,
            gate=listener.gate,
            is_closing=lambda: self._is_closing,
            resources=resources,
        )
        helpers.start()
        replicas.start_link(parts, resources)
        parts.cluster.start(resources)
        # First of all at a stop: clients are sent elsewhere, and what is in flight is still answered.
        listener.close_with(resources)
        resources.push_async_callback(self._leave)
        if self._proxy is not None:
            self._proxy.close_with(resources)
        await parts.cluster.wait_registered()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        address = parts.base.advertised_address
        logger.info("broker serves address=%s port=%d queues=%d", address, listener.port, len(local.store.queues))
        return address

    def _serve(self, long_polling: LongPolling) -> None:
        """Start what answers requests, then serve them."""
        parts, resources = self._parts, self._resources
        messages = parts.make_message_path(key_index=self._helpers.index, long_polling=long_polling)
        pops = parts.make_pop_path(long_polling=long_polling)
        self.dispatcher = make_dispatcher(
            parts,
            messages,
            pops,
            self._helpers,
            self._tier,
            run_retention=self._local.rounds.run_retention,
            report_now=self._report_now,
            replicas=self._replicas,
            source=self._source,
        )
        messages.start(resources)
        pops.start(resources)
        self._local.start(resources)
        self._tier.start(long_polling, resources)
        self._listener.serve(self.dispatcher, messages.hot)

    def _warn_of_exposure(self) -> None:
        """Log when strangers reach the broker, and when clients that should reach it cannot."""
        config = self._settings.broker
        ports = [format_address(config.bound_host, config.listen_port)]
        if config.takes_slaves:
            ports.append(format_address(config.bound_host, config.ha_port))
        if self._listener.vip_port:
            ports.append(format_address(config.bound_host, self._listener.vip_port))
        if config.health_port >= 0:
            ports.append(format_address(config.health_host, config.health_port))
        warn_if_exposed(ports, authentication_enabled=self._settings.auth.authentication_enabled)
        elsewhere = config.name_servers_elsewhere
        if elsewhere and is_loopback(self._listener.store_host[0]):
            logger.warning(
                "NameServers on other machines are given %s, which clients there cannot reach: set bindAddress or"
                " brokerIP1 name_servers=%s",
                self._listener.store_host[0],
                ",".join(elsewhere),
            )

    # -- while it runs -------------------------------------------------------------------------------------------------

    def _settings_changed(self, change: SettingsChange) -> None:
        self._local.follow_settings()
        self._tier.follow_settings(change)

    async def _report_now(self) -> None:
        """Flush, write queue files, and tell the tier process."""
        await self._local.publish_all()
        await self._tier.report()

    async def _leave(self) -> None:
        await self._listener.stop_accepting()
        await self._parts.cluster.registration.unregister()
