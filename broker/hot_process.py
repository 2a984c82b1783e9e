"""Hot process: a broker's port, which lasts, and the parts of its present role (role_parts.py).

    start   broker's number (control.py) -> descriptor limit -> files of TLS -> parts of the role, the port among them
            -> controllers are asked
    change  the parts of the role before end, those of the new one start (role_switch.py); connections stay
    stop    a master's slaves have its log -> connections to controllers -> proxy drained -> no new connections
            -> NameServers notified -> the next master has its tables -> requests in flight answered
            -> parts of the role -> threads of TLS
Owner: the one event loop of the process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack

from thermocline.broker.assembly import (
    Assignment,
    BrokerParts,
    ConnectedClients,
    ProxyAddresses,
    ProxyPlan,
    open_store,
)
from thermocline.broker.control import Control
from thermocline.broker.due import timer_config
from thermocline.broker.follower import Source
from thermocline.broker.port import Listener
from thermocline.broker.present_log import PresentLog
from thermocline.broker.role_parts import LastingParts, RoleParts
from thermocline.broker.role_switch import RoleSwitch
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.clocks import steady_clock_ms, wall_clock_ms
from thermocline.remoting.connections import (
    Dispatcher,
    LimitCounts,
    is_loopback,
    raise_descriptor_limit,
    warn_if_exposed,
    warn_if_log_is_exposed,
)
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.remoting.socket_address import format_address
from thermocline.replication import Alignment, RoleChanger
from thermocline.store.files import Disk, RealDisk
from thermocline.tiered.stores import is_directory_url

logger = logging.getLogger(__name__)

STOP_HAND_OVER_MS = 2_000
"""How long a master that stops waits for the others of its SyncStateSet; one that is dead may be in it still."""
SUCCESSOR_S = 1.0
"""How long a master that stops waits for the next one, which takes its tables over before it begins."""
LOOK_S = 0.01
DESCRIPTORS_MIN = 1_024
DESCRIPTORS_FOR_FILES = 3_000
"""Kept free of connections, if the limit allows it."""


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
        disk: Disk | None = None,
    ) -> None:
        """`source`: whose cold tier is served, read-only; the settings are made for it (`make_read_only`). `proxy`: the
        one that serves gRPC clients beside it. `disk`: this machine's without it."""
        self._settings = settings
        self._source = source
        self._proxy_plan = proxy
        self._environment = environment
        self._log_level = log_level
        self._single_process = single_process
        self._disk = disk or RealDisk()
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
        proxy = self._role.proxy
        return ProxyAddresses("", "") if proxy is None else await proxy.wait_ready()

    @property
    def dispatcher(self) -> Dispatcher:
        """What serves requests now."""
        return self._role.dispatcher

    @property
    def role_changer(self) -> RoleChanger:
        """Changes this broker's role.

        Raises:
            InvalidRequestError: It has none that changes.
        """
        if self._source is not None or self._proxy_plan is not None:
            raise InvalidRequestError(
                "the role of a broker that is read-only, or has a proxy in its process group, does not change"
            )
        return self._switch

    @property
    def _role(self) -> RoleParts:
        return self._switch.parts

    @property
    def _parts(self) -> BrokerParts:
        return self._role.parts

    @property
    def is_complete(self) -> bool:
        """Whether the helpers serve too. A broker serves before: they start last, and may be away at any time."""
        return not self.missing_parts

    @property
    def missing_parts(self) -> list[str]:
        """The services of helper processes that are not ready yet: the key index, the cold tier."""
        are_missing = {
            "key index": not self._role.helpers.is_index_connected,
            "cold tier": self._role.tier.is_missing,
        }
        return [name for name, is_missing in are_missing.items() if is_missing]

    @property
    def is_waiting_for_store(self) -> bool:
        """Whether the tier process is there and all that is missing is a store that it reaches over a network."""
        tier, helpers = self._role.tier, self._role.helpers
        is_opening = tier.is_missing and tier.is_connected
        return is_opening and helpers.is_index_connected and not is_directory_url(self._settings.tier.cold_url)

    async def _start(self) -> str:
        settings, resources = self._settings, self._resources
        log = self._log = PresentLog(self._disk, settings.store)
        control = Control(settings, disk=self._disk, log=log) if settings.broker.controller_mode else None
        connections_max = raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
        limits = LimitCounts()
        listener = self._listener = Listener(settings, connections_max=connections_max, limits=limits)
        resources.callback(listener.gate.close)
        lasting = LastingParts(
            settings=settings,
            disk=self._disk,
            listener=listener,
            limits=limits,
            connected=ConnectedClients(settings, clock=steady_clock_ms, limits=limits),
            log=log,
            control=control,
            resources=resources,
            environment=self._environment,
            log_level=self._log_level,
            single_process=self._single_process,
            source=self._source,
            proxy=self._proxy_plan,
            refusal=self.refusal,
            is_closing=lambda: self._is_closing,
            role_error=lambda: self._switch.error,
            cut=lambda alignment: self._switch.cut(alignment),
            reopen=lambda: self._switch.reopen(),
        )
        self._switch = RoleSwitch(
            lambda assignment: RoleParts(lasting, assignment),
            apply=self._apply,
            cut_log=self._cut_log,
            first=None if control is None else control.first_assignment,
        )
        resources.push_async_callback(self._switch.close)
        await self._switch.start()
        self._warn_of_exposure()
        resources.push_async_callback(self._wait_successor)
        # First of all at a stop: clients are sent elsewhere, and what is in flight is still answered.
        resources.push_async_callback(self._leave)
        if self._role.proxy is not None:
            self._role.proxy.close_with(resources)
        address = self._parts.base.advertised_address
        if control is not None:
            control.start(self.role_changer, address=address)
            resources.push_async_callback(control.close)
            resources.push_async_callback(self._hand_over)
        queue_count = len(self._role.local.store.queues)
        logger.info("broker serves address=%s port=%d queues=%d", address, listener.port, queue_count)
        return address

    def _apply(self, assignment: Assignment) -> None:
        self._settings.broker = assignment.apply(self._settings.broker)

    def _cut_log(self, alignment: Alignment) -> None:
        from thermocline.broker.recovery.log_cut import cut_log

        cut_log(
            alignment,
            disk=self._disk,
            clock=wall_clock_ms,
            timers=timer_config(self._settings),
            epochs=self._log.epoch_start.file,
            open_local=lambda: open_store(self._settings, disk=self._disk, clock=wall_clock_ms),
        )

    def _warn_of_exposure(self) -> None:
        """Log when strangers reach the broker, and when clients that should reach it cannot."""
        config = self._settings.broker
        ports = [format_address(config.bound_host, config.listen_port)]
        has_users = self._settings.auth.authentication_enabled
        if config.takes_slaves:
            ports.append(format_address(config.bound_host, config.ha_port))
            if has_users:
                warn_if_log_is_exposed(ports[-1])
        if self._listener.vip_port:
            ports.append(format_address(config.bound_host, self._listener.vip_port))
        if config.health_port >= 0:
            ports.append(format_address(config.health_host, config.health_port))
        warn_if_exposed(ports, authentication_enabled=has_users)
        elsewhere = config.name_servers_elsewhere
        if elsewhere and is_loopback(self._listener.store_host[0]):
            logger.warning(
                "NameServers on other machines are given %s, which clients there cannot reach: set bindAddress or"
                " brokerIP1 name_servers=%s",
                self._listener.store_host[0],
                ",".join(elsewhere),
            )

    async def _hand_over(self) -> None:
        """A master that stops lets the others have all that it has acknowledged, before one of them is elected."""
        hand_over = self._log.hand_over
        if hand_over is None:
            return
        with contextlib.suppress(MQError):  # another one is under way: it has refused writes, too
            has_all = await hand_over.begin(None, pause_ms=STOP_HAND_OVER_MS, resumes=False)
            logger.info("master stops all_have_its_log=%s", has_all)

    async def _wait_successor(self) -> None:
        """A master that stops serves on until its slaves have left it: the next master does that when it has its
        tables, offsets of groups and progress of delayed messages among them."""
        sync_state_set = self._log.sync_state_set
        if sync_state_set is None or len(sync_state_set.members) < 2:
            return
        replicas = self._role.replicas
        logger.info("master stops when its slaves follow the next one")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SUCCESSOR_S):
                while replicas.has_slaves:  # noqa: ASYNC110 - bounded
                    await asyncio.sleep(LOOK_S)

    async def _leave(self) -> None:
        await self._listener.stop_accepting()
        if self._role.has_served:
            await self._parts.cluster.registration.unregister()
