"""Listener: the port on which clients are served.

made     not bound yet
start    the port is taken; requests are answered "the broker is starting", so that ports and addresses are known
         before the parts that show them are made. So is the VIP port, two below, if it is free: it serves the same to
         slaves of RocketMQ, which fetch topics and timers there, and to Java clients with `vipChannelEnabled`
serve    requests are served
pause    the broker's role changes: requests are refused or wait until others serve them; connections stay
start_local   processes of this user are served on a unix socket, too
close    no new connections; open ones get the answers to requests in flight and are closed
"""

import logging
from collections.abc import Collection, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from thermocline.broker.port.late_handler import LateHandler
from thermocline.broker.process import advertised_host
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.connections import (
    ChunkHandler,
    ConnectionLimits,
    LimitCounts,
    RemotingServer,
    RequestHandler,
)
from thermocline.remoting.tls import TlsGate

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 2_000
DRAIN_TIMEOUT_MS = 1_000
"""What still runs then is of a role that has ended: its store closes under it, and it is answered with an error."""
VIP_PORT_DISTANCE = 2
LOCAL_LIMITS = ConnectionLimits(requests_running_max=4_096)
"""A connection of the unix socket carries the requests of all clients of a proxy."""


class Listener:
    """See the module's header. On the loop."""

    store_host: tuple[str, int]
    """The advertised address."""

    def __init__(self, settings: BrokerSettings, *, connections_max: int, limits: LimitCounts) -> None:
        """Read the files of the port's certificate.

        Raises:
            SettingError: One cannot be used.
        """
        self._settings = settings
        self._late = LateHandler(tells_state=not settings.auth.authentication_enabled)
        self._gate = TlsGate(settings.tls, limits)
        self._server = RemotingServer(
            self._late,
            chunk_handler=self._late,
            idle_timeout_ms=settings.broker.server_idle_ms,
            connections_max=connections_max,
            gate=self._gate,
            server_limits=settings.broker.server_limits,
            counts=limits,
            local_limits=LOCAL_LIMITS,
        )
        self.port = 0
        self.vip_port = 0
        """0: none is open."""

    @property
    def gate(self) -> TlsGate:
        """What decides about TLS; the health port has it, too."""
        return self._gate

    async def start(self, resources: AsyncExitStack) -> None:
        """Take the port, until `resources` close. The gate is the caller's to close, after the health port.

        Raises:
            OSError: The port is taken.
        """
        config = self._settings.broker
        self.port = port = await self._server.start(config.bound_host, config.listen_port)
        resources.push_async_callback(self._server.close, timeout_ms=CLOSE_TIMEOUT_MS)
        await self._open_vip_port()
        self._gate.open()
        self._settings.broker = replace(config, listen_port=port)  # after port 0: the free port that was bound
        host = advertised_host(listen_host=config.bound_host, configured_host=config.advertised_host)
        self.store_host = host, config.advertised_port or port

    async def _open_vip_port(self) -> None:
        """Take the VIP port of a port that was named. Without it the broker serves all but what comes there."""
        config = self._settings.broker
        vip_port = config.listen_port - VIP_PORT_DISTANCE
        if not config.vip_port_on or vip_port <= 0:
            return
        try:
            self.vip_port = await self._server.start(config.bound_host, vip_port)
        except OSError as error:
            logger.warning("VIP port not opened, slaves of RocketMQ need it port=%d error=%s", vip_port, error)

    async def start_local(self, path: str) -> None:
        """Serve processes of this user on a unix socket, too, as on the port; it closes with the port.

        Raises:
            OSError: The socket cannot be made.
        """
        await self._server.start_unix(path)

    def serve(self, handler: RequestHandler, chunk_handler: ChunkHandler) -> None:
        """From now on requests go to these."""
        self._late.serve(handler, chunk_handler)

    def pause(self, sentence: str, *, refused_codes: Collection[int]) -> Coroutine[Any, Any, int]:
        """Let others serve soon what comes from now on, see LateHandler. To be awaited: until the requests under way
        are answered, or DRAIN_TIMEOUT_MS are over; how many are not."""
        answered = self._server.wait_requests(timeout_ms=DRAIN_TIMEOUT_MS)
        self._late.pause(sentence, refused_codes=refused_codes)
        return answered

    @property
    def is_open(self) -> bool:
        """Whether the port is taken."""
        return bool(self.port)

    async def stop_accepting(self) -> None:
        """Take no new connections."""
        await self._server.stop_accepting()
