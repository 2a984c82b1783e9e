"""Controller: the coordinator behind a listening socket.

    server = ControllerServer(config)
    port = await server.start()
    ...
    await server.close()

It listens on its own port of `controllerDLegerPeers`, for brokers, tools and the other controllers alike; inside a
NameServer as well. With `authenticationEnabled` every request is checked first, as at a NameServer (namesrv/access.py);
controllers sign with `innerClientAuthenticationCredentials`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping

from thermocline.controller.consensus import ConsensusNode
from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.coordinator import Coordinator
from thermocline.controller.figures import FOLLOWER, RequestCounts, metrics_text, role_of
from thermocline.controller.processor import ControllerProcessor
from thermocline.controller.role_notices import RoleNotices
from thermocline.namesrv.access import PortAccess
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.connections import (
    CONNECTIONS_MOST,
    DescriptorWatch,
    Dispatcher,
    LimitCounts,
    RemotingServer,
    is_loopback,
    warn_if_exposed,
)
from thermocline.remoting.errors import SettingError
from thermocline.remoting.health import HealthServer
from thermocline.remoting.socket_address import format_address, parse_address
from thermocline.remoting.tls import ClientTls, TlsGate, outgoing_options
from thermocline.store.files import Disk, RealDisk, close_to_others

logger = logging.getLogger(__name__)

FILES = ("log", "vote", "snapshot", "lock")


class ControllerServer:
    """One controller. `start` once, `close` as often as wanted; both on one event loop."""

    def __init__(
        self,
        config: ControllerConfig,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
        connections_max: int = CONNECTIONS_MOST,
        descriptors: DescriptorWatch | None = None,
    ) -> None:
        """`clock`: seconds that never go back. `descriptors` is asked to look at each scan.

        Raises:
            SettingError: A TLS file cannot be used, or `controllerStorePath` is not one for this controller.
        """
        self.limits = LimitCounts()
        self._changes = StateFile(config.config_store_path)
        self._folder = _folder(config)
        outgoing = outgoing_options(config.tls)
        tls = None if outgoing is None else ClientTls(outgoing)
        credentials = config.auth.credentials() if config.inner_credentials else None
        self._notices = RoleNotices(tls=tls, credentials=credentials)
        self.coordinator = Coordinator(
            config=lambda: self.config,
            clock=lambda: int(clock() * 1000),
            notices=self._notices,
            counts=self.limits,
        )
        self.node = ConsensusNode(
            disk or RealDisk(),
            self._folder,
            config.peers,
            group=config.group,
            apply=self.coordinator.apply,
            encode_tables=self.coordinator.sets.encode,
            restore_tables=self.coordinator.sets.restore,
            on_leading=self.coordinator.leading,
            on_paused=self.coordinator.paused,
            tls=tls,
            credentials=credentials,
            clock=clock,
        )
        self.coordinator.node = self.node
        self._requests = RequestCounts()
        self._processor = ControllerProcessor(
            self.coordinator, self.node, config, changes=self._changes, counts=self.limits, requests=self._requests
        )
        self._gate = TlsGate(config.tls, self.limits)
        self._access = (
            PortAccess(
                config,
                clock=wall_clock_ms,
                current=lambda: self.config,
                counts=self.limits,
                cluster_of=self.coordinator.cluster_of,
            )
            if config.authentication_enabled
            else None
        )
        access = self._access
        self.dispatcher = Dispatcher(
            [self._processor, *((access.processor,) if access is not None else ())],
            on_closed=[self.coordinator.connection_closed],
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
        self._health = HealthServer(
            self._probe, self._metrics, may_read=None if access is None else access.may_read, gate=self._gate
        )
        self.health_port = -1
        """Where the HTTP port is bound; -1: there is none."""
        self._descriptors = descriptors
        self._scans: list[asyncio.Task[None]] = []

    @property
    def config(self) -> ControllerConfig:
        """The settings as they are now."""
        return self._processor.config

    async def start(self) -> int:
        """Open the folder, listen and take part; returns the bound port.

        Raises:
            CorruptDataError: A file of the controller cannot be read as what it is.
            UnavailableError: Another process has the folder open, or a state file belongs to another user.
            OSError: The port is taken.
        """
        config = self.config
        self._changes.close_to_others()
        close_to_others(self._folder, names=FILES)
        if self._access is not None:
            await self._access.start()
        await self.node.start()
        _, peer_port = parse_address(config.peers.address)
        port = await self._server.start(config.listen_host, peer_port)
        self._gate.open()
        address = format_address(config.listen_host, port)
        warn_if_exposed([address], authentication_enabled=config.authentication_enabled)
        if is_loopback(config.listen_host) and not is_loopback(parse_address(config.peers.address)[0]):
            logger.warning(
                "no other machine reaches this controller: it listens at %s, and others connect to %s; set bindAddress",
                address,
                config.peers.address,
            )
        if config.health_port >= 0:
            self.health_port = await self._health.start(config.health_host, config.health_port)
            logger.info("health endpoint host=%s port=%d", config.health_host, self.health_port)
        self._scans = [
            asyncio.create_task(self._scan_brokers(), name="scan for silent brokers"),
            asyncio.create_task(self._scan_masters(), name="scan for dead masters"),
        ]
        logger.info("controller started node=%s group=%s address=%s", config.node, config.group, address)
        return port

    async def close(self) -> None:
        """Stop listening, close all connections and files. Idempotent."""
        for scan in self._scans:
            scan.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await scan
        self._scans = []
        await self._health.close()
        await self.node.close()
        await self.coordinator.close()
        await self._notices.close()
        await self._server.close()
        self._gate.close()
        if self._access is not None:
            self._access.close()

    def _probe(self) -> tuple[bool, Mapping[str, object]]:
        """A node serves that leads, or follows one that does."""
        role, leader = role_of(self.node), self.node.leader
        details = {
            "status": "ok" if role >= FOLLOWER else "unavailable",
            "node": self.config.node,
            "leader": leader,
            "isLeader": self.node.is_serving,
            "failure": "" if self.node.failure is None else str(self.node.failure),
        }
        return role >= FOLLOWER, details

    async def _metrics(self) -> bytes:
        return metrics_text(
            self.config,
            self.node,
            self.coordinator,
            requests=self._requests,
            folder=self._folder,
            limits=self.limits,
            denials={} if self._access is None else self._access.denials,
        )

    async def _scan_brokers(self) -> None:
        while True:
            await asyncio.sleep(self.coordinator.scan_delay_ms(self.config.scan_brokers_ms) / 1000)
            _ = self.node.is_serving  # notices a pause before silence is counted
            self.coordinator.expire_brokers()
            if self._descriptors is not None:
                self._descriptors.check()

    async def _scan_masters(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_masters_ms / 1000)
            self.coordinator.replace_dead_masters()


def _folder(config: ControllerConfig) -> str:
    """Where this node's files are.

    Raises:
        SettingError: There is no place for them, or RocketMQ's controller has its own there.
    """
    if not config.store_path.strip():
        raise SettingError("controllerStorePath is needed: there a controller keeps what the group agrees on")
    root = config.store_path.rstrip("/") or "/"
    folder = f"{root}/controller-{config.node}"
    official = f"{root}/dledger-{config.node}"
    if os.path.isdir(official) and not os.path.isdir(folder):
        raise SettingError(
            "controllerStorePath holds the data of RocketMQ's controller, which is not read;"
            " epochs would begin anew: choose an empty folder",
            path=official,
        )
    return folder
