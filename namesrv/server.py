"""NameServer: the registry behind a listening socket.

    config = NameServerConfig(listen_host="127.0.0.1", listen_port=0)
    server = NameServer(config)
    port = await server.start()
    ...
    await server.close()

Two things happen beside requests: a connection that closes takes its broker with it at once, and a scan finds brokers
that fell silent without closing (a cut cable) and closes their connections.
With `authenticationEnabled` every request is checked first (access.py).
Several NameServers know nothing of each other: brokers register with all of them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from thermocline.namesrv.access import PortAccess
from thermocline.namesrv.kv_config import KVConfig
from thermocline.namesrv.least_id_notices import LeastIdNotices
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.processor import NameServerProcessor
from thermocline.namesrv.route_registry import RouteRegistry
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.clocks import steady_clock_ms, wall_clock_ms
from thermocline.remoting.connections import (
    CONNECTIONS_MOST,
    Connection,
    DescriptorWatch,
    Dispatcher,
    LimitCounts,
    RemotingServer,
    warn_if_exposed,
)
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.tls import ClientTls, TlsGate, outgoing_options

logger = logging.getLogger(__name__)


class NameServer:
    """One NameServer. `start` once, `close` as often as wanted; both on one event loop."""

    def __init__(
        self,
        config: NameServerConfig,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        steady_clock: Callable[[], int] | None = None,
        connections_max: int = CONNECTIONS_MOST,
        descriptors: DescriptorWatch | None = None,
    ) -> None:
        """`steady_clock`: never set, by which times pass; None: the machine's with its wall clock, else `clock`.
        `descriptors` is asked to look at each scan; none where another part of the process has one.

        Raises:
            SettingError: A TLS file cannot be used.
        """
        self._clock = clock
        self.limits = LimitCounts()
        self._state_files = (StateFile(config.kv_config_path), StateFile(config.config_store_path))
        outgoing = outgoing_options(config.tls)
        self._notices = LeastIdNotices(None if outgoing is None else ClientTls(outgoing))
        steady_clock = steady_clock or (steady_clock_ms if clock is wall_clock_ms else clock)
        self.registry = RouteRegistry(
            clock=steady_clock,
            config=lambda: self._processor.config,
            limits=self.limits,
            on_least_id=self._notices.send,
        )
        self._processor = NameServerProcessor(
            self.registry,
            KVConfig(self._state_files[0]),
            config,
            clock=steady_clock,
            changes=self._state_files[1],
            limits=self.limits,
        )
        self._gate = TlsGate(config.tls, self.limits)
        self._access = (
            PortAccess(
                config,
                clock=clock,
                current=lambda: self.config,
                counts=self.limits,
                cluster_of=self.registry.cluster_of,
            )
            if config.authentication_enabled
            else None
        )
        access = self._access
        self.dispatcher = Dispatcher(
            [self._processor, *((access.processor,) if access is not None else ())],
            on_closed=[self.registry.connection_closed],
            guard=access.check if access is not None else None,
        )
        self._server = RemotingServer(
            self.dispatcher,
            idle_timeout_ms=config.server_idle_ms,
            connections_max=connections_max,
            gate=self._gate,
            server_limits=config.server_limits,
            counts=self.limits,
        )
        self._descriptors = descriptors
        self._scan: asyncio.Task[None] | None = None

    @property
    def config(self) -> NameServerConfig:
        """The settings as they are now."""
        return self._processor.config

    async def start(self) -> int:
        """Listen; returns the bound port.

        Raises:
            UnavailableError: A state file belongs to another user, or another daemon has it.
            OSError: The port is taken.
        """
        config = self.config
        for state_file in self._state_files:
            state_file.lock()
            state_file.close_to_others()
        if self._access is not None:
            await self._access.start()
        port = await self._server.start(config.listen_host, config.listen_port)
        self._gate.open()
        address = format_address(config.listen_host, port)
        warn_if_exposed([address], authentication_enabled=config.authentication_enabled)
        self._scan = asyncio.create_task(self._scan_brokers(), name="scan for silent brokers")
        logger.info("name server started host=%s port=%d", config.listen_host, port)
        return port

    async def close(self) -> None:
        """Stop listening, close all connections, end the scan. Idempotent."""
        if self._scan is not None:
            self._scan.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scan
            self._scan = None
        await self._server.close()
        await self._notices.close()
        self._gate.close()
        if self._access is not None:
            self._access.close()
        for state_file in self._state_files:
            state_file.unlock()

    def expire_brokers(self) -> None:
        """Forget brokers that fell silent, and close what they were connected by. What the scan does each time."""
        for connection in self.registry.expire():
            assert isinstance(connection, Connection)
            connection.close()

    async def _scan_brokers(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_interval_ms / 1000)
            self.expire_brokers()
            if self._descriptors is not None:
                self._descriptors.check()
