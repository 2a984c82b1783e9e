"""RemotingPort: the listener for remoting clients, with what stands behind it.

The port takes TLS and plain text, by the first byte, and gRPC too: a connection that begins with HTTP/2's preface is
handed to the gRPC server.

Stop: no new connection; requests that are being answered may end; long polls are cut off, and the clients go to another
proxy. A client's connections to brokers close with its own.
Source: RemotingProtocolServer.java, MultiProtocolRemotingServer.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random

import msgspec

from thermocline.client.name_servers import NameServers
from thermocline.proxy.flow import Production
from thermocline.proxy.messaging import CALLER, Caller, Messaging
from thermocline.proxy.metrics import RpcLatency, Traffic
from thermocline.proxy.remoting.client_session import ClientSession, SessionLimits, Shared
from thermocline.proxy.remoting.push_by_pop import PopOptions, PushByPop
from thermocline.proxy.remoting.quotas import PortQuotas, Quotas
from thermocline.proxy.remoting.relay import Relay
from thermocline.proxy.remoting.request_meter import RequestMeter
from thermocline.proxy.remoting.route_answers import RouteAnswers
from thermocline.proxy.routing import DEFAULT_CLUSTER, Routing
from thermocline.remoting.clients import NameServerSource, RemotingClient
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import (
    RECEIVE_BYTES,
    Connection,
    ConnectionLimits,
    Dispatcher,
    Gate,
    LimitCounts,
    OtherProtocol,
    RemotingServer,
    ServerLimits,
)
from thermocline.remoting.errors import ConnectionLostError, ServiceUnavailableError
from thermocline.remoting.request_signature import ACCESS_KEY
from thermocline.remoting.socket_address import Host, format_address, parse_address
from thermocline.remoting.tls import ClientTls

__all__ = ["RemotingOptions", "RemotingPort"]

logger = logging.getLogger(__name__)

LOOK_UP_TIMEOUT_MS = 3_000
CLOSE_TIMEOUT_MS = 1_000


class RemotingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the port is, what it names in routes, and its bounds."""

    host: str
    port: int
    """0 takes a free one."""
    access_address: str = ""
    """The host that routes name; empty: the one that the client is connected to."""
    access_of: Callable[[Host], Host | None] = lambda local_host: None
    """The address that routes name for clients that are connected to this one; None: as `access_address` says."""
    namesrv: tuple[str, ...]
    """Of the default cluster."""
    connections_max: int = 20_000
    address_connections_max: int = 20_000
    client_requests_max: int = 4_096
    """Requests of one client that are being answered; with more, no further one is read."""
    session_limits: SessionLimits = SessionLimits()
    pop: PopOptions | None = None
    """How push consumers are served by POP; None: they are not."""


class RemotingPort:
    """See the module. `start` once, `close` as often as wanted; both on one event loop."""

    def __init__(
        self,
        options: RemotingOptions,
        messaging: Messaging,
        *,
        production: Production | None,
        routing: Routing,
        tls: ClientTls | None,
        gate: Gate,
        grpc: OtherProtocol,
        counts: LimitCounts,
        latency: RpcLatency,
        traffic: Traffic,
        quotas: Quotas,
    ) -> None:
        """`production`: checks messages' types; None: they are not checked. `tls`: of connections to NameServers and
        brokers, where a cluster has none of its own. `gate`: decides about TLS on the port. `grpc`: takes HTTP/2
        connections of the port. `latency` and `traffic`: where requests and messages are counted. `quotas`: the
        proxy's, for what passes the port."""
        self._options = options
        self._port = 0
        self._routing = routing
        tls_by_cluster = _tls_by_cluster(routing, tls)
        self._shared = Shared(
            messaging=messaging,
            tls=tls_by_cluster,
            names=routing.names,
            limits=options.session_limits,
            counts=counts,
            receive_buffer=memoryview(bytearray(RECEIVE_BYTES)),
        )
        self._name_server_connections = {
            cluster: RemotingClient(tls=found, receive_buffer=self._shared.receive_buffer)
            for cluster, found in tls_by_cluster.items()
        }
        addresses = {cluster.name: cluster.namesrv for cluster in routing.clusters}
        name_servers = {
            cluster: NameServers(
                NameServerSource.parse(list(addresses.get(cluster, options.namesrv))),
                connections=connections,
                timeout_ms=LOOK_UP_TIMEOUT_MS,
                random=Random(),
            )
            for cluster, connections in self._name_server_connections.items()
        }
        self._sessions: dict[Connection, ClientSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        relay = Relay(
            messaging,
            RouteAnswers(name_servers, routing),
            session_of=self._session_of,
            address_for=self._address_for,
            production=production,
            routing=routing,
        )
        self.pops: PushByPop | None = None
        """What serves push consumers; None: their requests pass as they are."""
        if options.pop is not None:
            self.pops = PushByPop(
                relay, messaging, options.pop, session_of=self._session_of, counts=counts, clock_ms=wall_clock_ms
            )
        self._quotas = PortQuotas(quotas)
        self._is_closing = False
        self._dispatcher = Dispatcher(
            [relay],
            before=[] if self.pops is None else [self.pops],
            on_closed=[self._client_gone],
            guard=self._begin,
        )
        self._server = RemotingServer(
            RequestMeter(self._dispatcher, latency, traffic, quotas=self._quotas, clock_s=time.monotonic),
            limits=ConnectionLimits(requests_running_max=options.client_requests_max),
            connections_max=options.connections_max,
            server_limits=ServerLimits(address_connections_max=options.address_connections_max),
            counts=counts,
            gate=gate,
            other_protocol=grpc,
        )

    @property
    def session_count(self) -> int:
        """Clients that have asked something and are connected."""
        return len(self._sessions)

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            OSError: The port is taken.
        """
        self._port = await self._server.start(self._options.host, self._options.port)
        return self._port

    async def listen(self, host: str, port: int, *, gate: Gate) -> None:
        """Listen on another address, too.

        Raises:
            OSError: It is taken.
        """
        await self._server.start(host, port, gate=gate)

    async def close(self, *, timeout_ms: int) -> None:
        """See the module. Idempotent."""
        self._is_closing = True
        await self._server.stop_accepting()
        await self._shared.wait_ended(timeout_ms=timeout_ms)
        await asyncio.gather(*(session.close() for session in tuple(self._sessions.values())))
        await self._server.close(timeout_ms=CLOSE_TIMEOUT_MS)
        if self._closing:
            await asyncio.wait(self._closing)
        if self.pops is not None:
            await self.pops.close(timeout_ms=CLOSE_TIMEOUT_MS)
        await asyncio.gather(*(each.close() for each in self._name_server_connections.values()))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self, connection: Connection, command: RemotingCommand) -> None:
        if self._is_closing:
            raise ServiceUnavailableError("the proxy stops")
        self._quotas.check(connection, command)
        if self._routing.has_clusters:
            user = (command.ext_fields or {}).get(ACCESS_KEY, "")
            CALLER.set(Caller(user=user, address=connection.remote_host[0]))

    def _session_of(self, connection: Connection) -> ClientSession:
        if connection.is_closed:  # after its request had been read
            raise ConnectionLostError("the client is gone", address=connection.remote_address)
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = ClientSession(
                connection, self._shared, before=None if self.pops is None else self.pops.broker_asks
            )
        return session

    def _client_gone(self, connection: Connection) -> None:
        if self.pops is not None:
            self.pops.client_gone(connection)
        session = self._sessions.pop(connection, None)
        if session is not None:
            task = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _address_for(self, connection: Connection) -> str:
        local_host = parse_address(connection.local_address)
        access = self._options.access_of(local_host)
        if access is None:
            access = self._options.access_address or local_host[0], self._port
        return format_address(*access)


def _tls_by_cluster(routing: Routing, tls: ClientTls | None) -> dict[str, ClientTls | None]:
    found: dict[str, ClientTls | None] = {DEFAULT_CLUSTER: tls}
    for cluster in routing.clusters:
        found[cluster.name] = tls
        if cluster.has_own_tls:
            found[cluster.name] = None if cluster.tls is None else ClientTls(cluster.tls)
    return found
