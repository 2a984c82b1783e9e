"""RemotingServer: accepts connections and looks after them.

It belongs to one event loop and its thread. Close it with `close`, which stops accepting, lets running requests end,
sends what is unsent and closes the connections.

Rules
  - A connection on which nothing passed for `idle_timeout_ms`, in either direction, is closed, unless a request of it
    is being handled.
  - Above `connections_max`, in all, or above the limit of its address, a new connection is closed at once.
  - With a gate, it decides about each TCP connection by its first bytes (first_byte.py).
  - With another protocol beside it, a TCP connection that begins with that one's first byte is handed over.
  - What connections hold together is bounded (held_bytes.py).
  - A unix socket is made with mode 0600 before it listens, and serves processes of this user alone: a peer of another
    user (SO_PEERCRED, where the system has it) is closed at once.
Source: NettyRemotingServer.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from thermocline.remoting.connections.closing import close_all
from thermocline.remoting.connections.connection import RECEIVE_BYTES, ChunkHandler, Connection, RequestHandler
from thermocline.remoting.connections.connection_limits import ConnectionLimits, Traffic
from thermocline.remoting.connections.first_byte import FirstByte, Gate, OtherProtocol
from thermocline.remoting.connections.held_bytes import HalfFrames, UnsentBytes
from thermocline.remoting.connections.limit_counts import LimitCounts
from thermocline.remoting.connections.listening import BACKLOG, listen
from thermocline.remoting.connections.outbox import Outbox
from thermocline.remoting.connections.server_limits import (
    ADDRESS_CONNECTIONS_MAX,
    CONNECTIONS_MAX,
    ServerLimits,
    client_address,
)
from thermocline.remoting.socket_address import UNIX_PEER

__all__ = [
    "ChunkHandler",
    "Connection",
    "ConnectionLimits",
    "RemotingServer",
    "RequestHandler",
    "Traffic",
]

logger = logging.getLogger(__name__)

IDLE_TIMEOUT_MS = 120_000
PEER_CREDENTIALS = struct.Struct(
    "i"  # process
    "I"  # user
    "I"  # group
)
assert PEER_CREDENTIALS.size == 12, "struct ucred of Linux"


class RemotingServer:
    """The listening half of the remoting protocol."""

    def __init__(
        self,
        handler: RequestHandler,
        *,
        chunk_handler: ChunkHandler | None = None,
        limits: ConnectionLimits | None = None,
        idle_timeout_ms: int = IDLE_TIMEOUT_MS,
        connections_max: int = 65_536,
        server_limits: ServerLimits | None = None,
        counts: LimitCounts | None = None,
        user: Callable[[], int] = os.geteuid,
        clock: Callable[[], float] | None = None,
        gate: Gate | None = None,
        other_protocol: OtherProtocol | None = None,
        local_limits: ConnectionLimits | None = None,
    ) -> None:
        """`limits`: of each connection; `local_limits`: of those on unix sockets, if they differ; `server_limits`: of
        all together; `counts`: where refusals are counted.
        `user`: whose processes may connect to a unix socket.

        `clock` gives seconds, for idle connections and deadlines of frames; without it a clock that never steps back.
        `gate`: decides about TCP connections. `other_protocol`: gets those TCP connections that begin with its first
        byte, in plain text or TLS.
        """
        self._gate = gate
        self._other_protocol = other_protocol
        self._handler = handler
        self._chunk_handler = chunk_handler
        self._limits = limits or ConnectionLimits()
        self._local_limits = local_limits or self._limits
        self._idle_timeout_s = idle_timeout_ms / 1000
        self._connections_max = connections_max
        server_limits = server_limits or ServerLimits()
        self._address_connections_max = server_limits.address_connections_max
        self._counts = counts or LimitCounts()
        self._half_frames = HalfFrames(
            bytes_max=server_limits.receiving_bytes_max,
            frame_timeout_s=server_limits.frame_timeout_ms / 1000,
            counts=self._counts,
            clock=clock or time.monotonic,
        )
        self._unsent_of_all = UnsentBytes(bytes_max=server_limits.unsent_bytes_max, counts=self._counts)
        self._by_address: dict[str, int] = {}
        self._user = user
        self._clock = clock
        self._receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._outbox = Outbox()
        self._listeners: list[asyncio.Server] = []
        self._unix_paths: list[str] = []
        self._connections: set[Connection] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.traffic = Traffic()

    @property
    def connections(self) -> Iterator[Connection]:
        """The open connections."""
        return iter(tuple(self._connections))

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def start(self, host: str, port: int, *, gate: Gate | None = None) -> int:
        """Accept connections on a TCP address; the port, which is a free one for port 0. `gate`: of this address; None:
        that of all.

        Raises:
            OSError: The address cannot be listened on.
        """
        listener = await listen(partial(self._accept, gate or self._gate), host, port)
        self._listeners.append(listener)
        self._watch_idle(asyncio.get_running_loop())
        bound_port = int(listener.sockets[0].getsockname()[1])
        logger.info("listening host=%s port=%d", host, bound_port)
        return bound_port

    async def start_unix(self, path: str) -> None:
        """Accept connections on a unix socket; a socket left there by a dead process is replaced.

        Raises:
            OSError: The path is taken by something else, or cannot be made.
        """
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)
            sock.bind(path)
            os.chmod(path, 0o600)  # no client can connect before it listens
            sock.setblocking(False)
            listener = await loop.create_unix_server(self._accept_local, sock=sock, backlog=BACKLOG)
        except BaseException:
            sock.close()
            raise
        self._listeners.append(listener)
        self._unix_paths.append(path)
        self._watch_idle(loop)
        logger.info("listening path=%s", path)

    async def stop_accepting(self) -> None:
        """Take no new connection; those that are open stay. Idempotent."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        paths, self._unix_paths = self._unix_paths, []
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)

    def wait_requests(self, *, timeout_ms: int) -> Coroutine[Any, Any, int]:
        """Wait until the requests that run at the call are answered, or the time is over; how many are not."""
        tasks = {task for connection in self._connections for task in connection.running_requests}
        return _wait_tasks(tasks, timeout_ms=timeout_ms)

    async def close(self, *, timeout_ms: int = 5_000) -> None:
        """Stop accepting, let running requests end within `timeout_ms`, send what is unsent, close. Idempotent."""
        self._closing = True
        await self.stop_accepting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._half_frames.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        connections = tuple(self._connections)
        try:
            async with asyncio.timeout_at(deadline):
                for connection in connections:
                    await connection.wait_requests()
        except TimeoutError:
            logger.warning(
                "requests were cut off by the shutdown count=%d", sum(c.requests_running for c in connections)
            )
        remaining_ms = max(0, int((deadline - loop.time()) * 1000))
        await close_all(tuple(self._connections), timeout_ms=remaining_ms)

    def close_idle(self) -> int:
        """Close every connection that was idle for too long; how many. Runs by itself, a few times a period."""
        now = asyncio.get_running_loop().time() if self._clock is None else self._clock()
        idle = [
            connection
            for connection in self._connections
            if now - connection.last_active >= self._idle_timeout_s
            # Its peer waits for an answer that takes long (a seal of everything): that is not idle.
            and not (connection.is_closed or connection.requests_running)
        ]
        for connection in idle:
            logger.info("connection closed, idle remote=%s", connection.remote_address)
            connection.close()
        return len(idle)

    def _watch_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._idle_timer is None and self._idle_timeout_s > 0:
            self._idle_timer = loop.call_later(self._idle_timeout_s / 4, self._idle_tick, loop)

    def _idle_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._idle_timer = None
        self.close_idle()
        if not self._closing:
            self._watch_idle(loop)

    def _accept(self, gate: Gate | None) -> asyncio.BufferedProtocol:
        connection_type = _ServerConnection if self._other_protocol is None else _EitherConnection
        connection = connection_type(self, self._limits)
        return connection if gate is None else FirstByte(connection, gate)

    def _accept_local(self) -> asyncio.BufferedProtocol:
        return _ServerConnection(self, self._local_limits)

    def _opened(self, connection: _ServerConnection) -> bool:
        """Register a connection; False when it is one too many."""
        address = client_address(connection.remote_host[0])
        count = self._by_address.get(address, 0)
        is_full = len(self._connections) >= self._connections_max
        self._connections.add(connection)
        self._by_address[address] = count + 1
        if connection.remote_address == UNIX_PEER and connection.peer_user() not in (None, self._user()):
            logger.warning("connection refused, its process is another user's user=%s", connection.peer_user())
            return False
        if is_full:
            detail = f"connection refused, {self._connections_max} are open"
            self._counts.refused(CONNECTIONS_MAX, address=connection.remote_address, detail=detail)
        elif count >= self._address_connections_max and connection.remote_address != UNIX_PEER:
            is_full = True
            detail = f"connection refused, {count} of this address are open"
            self._counts.refused(ADDRESS_CONNECTIONS_MAX, address=connection.remote_address, detail=detail)
        return not is_full and not self._closing

    def _lost(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        address = client_address(connection.remote_host[0])
        count = self._by_address.pop(address) - 1
        if count:
            self._by_address[address] = count


async def _wait_tasks(tasks: set[asyncio.Task[None]], *, timeout_ms: int) -> int:
    if not tasks:
        return 0
    _, late = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
    return len(late)


class _ServerConnection(Connection):
    """A connection that is registered with its server."""

    __slots__ = ("_server",)

    def __init__(self, server: RemotingServer, limits: ConnectionLimits) -> None:
        super().__init__(
            loop=asyncio.get_running_loop(),
            handler=server._handler,
            chunk_handler=server._chunk_handler,
            limits=limits,
            receive_buffer=server._receive_buffer,
            is_server=True,
            on_closed=server._lost,
            outbox=server._outbox,
            traffic=server.traffic,
            clock=server._clock,
            half_frames=server._half_frames,
            unsent_of_all=server._unsent_of_all,
        )
        self._server = server

    def peer_user(self) -> int | None:
        """The user of the process at the other end of a unix socket; None where the system does not tell."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None or not hasattr(socket, "SO_PEERCRED"):
            return None
        with socket.socket(fileno=os.dup(sock.fileno())) as own:
            _process, user, _group = PEER_CREDENTIALS.unpack(
                own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
            )
        return int(user)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse at once what is over a limit; the handler still sees it come and go."""
        super().connection_made(transport)
        if not self._server._opened(self):
            self.abort()


class _EitherConnection(_ServerConnection):
    """A connection that is the other protocol's if its first byte says so."""

    __slots__ = ("_is_own",)

    def __init__(self, server: RemotingServer, limits: ConnectionLimits) -> None:
        super().__init__(server, limits)
        self._is_own = False

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come; the first ones decide."""
        other = self._server._other_protocol
        assert other is not None
        if not self._is_own and not self.is_closed and self._receive[0] == other.first_byte:
            other.adopt(self.give_up_transport(), bytes(self._receive[:nbytes]))
            return
        self._is_own = True
        super().buffer_updated(nbytes)
