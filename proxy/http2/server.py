"""Http2Server: accepts HTTP/2 connections, in plain text ("prior knowledge") or behind a gate, and looks after them.

Rules
  - Above `connections_max`, in all, or above the limit of its address, a new connection is closed at once.
  - A connection without a stream for `idle_ms` gets GOAWAY and is closed; one that has not sent its settings in time,
    without a word.
  - A client whose host is gone, or that is frozen, leaves its streams open: a connection with streams over which
    nothing has come for `idle_ms` gets a PING, and is closed when nothing comes for `sign_timeout_ms` more.
  - `stop_accepting`: no new connection, GOAWAY to all; streams that are open go on.
  - `close`: what is written is sent, then all connections are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from thermocline.proxy.http2.connection import RECEIVE_BYTES, Http2Connection
from thermocline.proxy.http2.frames import ErrorCode
from thermocline.proxy.http2.hpack import encode_field
from thermocline.proxy.http2.limits import Http2Limits
from thermocline.proxy.http2.stream import Stream
from thermocline.proxy.http2.unsent_bytes import UnsentBytes
from thermocline.remoting.connections import FirstByte, Gate, LimitCounts, client_address, listen

__all__ = ["Http2Server"]

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 1_000
TOO_LARGE_BLOCK = encode_field(":status", "431")


class Http2Server:
    """See the module. Belongs to one event loop."""

    first_byte = ord("P")
    """Of the preface; see `OtherProtocol`."""

    def __init__(
        self,
        on_request: Callable[[Stream], None],
        *,
        limits: Http2Limits,
        counts: LimitCounts,
        too_large_block: bytes = TOO_LARGE_BLOCK,
        gate: Gate | None = None,
    ) -> None:
        """`too_large_block`: the header block that answers a request whose fields are larger than the limit.

        `gate` decides about each connection by its first byte, where its address has no other; None: all are plain.
        """
        self._gate = gate
        self._too_large_block = too_large_block
        self._on_request = on_request
        self._limits = limits
        self._counts = counts
        self._unsent_bytes = UnsentBytes(bytes_max=limits.all_unsent_bytes_max, counts=counts)
        self._receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Http2Connection] = set()
        self._by_address: dict[str, int] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._all_closed: asyncio.Event | None = None

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def stream_count(self) -> int:
        """Open streams."""
        return sum(len(connection.streams) for connection in self._connections)

    async def start(self, host: str, port: int, *, gate: Gate | None = None) -> int:
        """Listen; returns the port, which is a free one for port 0. May be called for several addresses.

        `gate`: of this address; None: that of all.

        Raises:
            OSError: The address cannot be listened on.
        """
        listener = await listen(partial(self._accept, gate or self._gate), host, port)
        self._listeners.append(listener)
        if self._idle_timer is None:
            self._watch(asyncio.get_running_loop())
        return int(listener.sockets[0].getsockname()[1])

    async def stop_accepting(self) -> None:
        """Take no new connection, and no new stream on those that are open. Idempotent."""
        self._is_closing = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for connection in tuple(self._connections):
            connection.go_away()

    async def close(self, *, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """See the module. Idempotent."""
        await self.stop_accepting()
        if self.stream_count:
            logger.warning("streams were cut off by the shutdown count=%d", self.stream_count)
        self._all_closed = asyncio.Event()
        for connection in tuple(self._connections):
            connection.close()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._all_closed.wait()
        for connection in tuple(self._connections):
            connection.abort()

    def close_idle(self) -> int:
        """Close connections that were idle for too long; how many. And reset requests that do not come to an end and
        answers that are not taken, ask silent clients for a sign of life, abort connections of those that give none.

        Runs by itself, a few times a period.
        """
        now = asyncio.get_running_loop().time()
        idle = [
            connection
            for connection in self._connections
            if not connection.streams
            and now - connection.last_active
            >= (self._limits.idle_ms if connection.has_settings else self._limits.settings_timeout_ms) / 1000
        ]
        for connection in idle:
            connection.close()
        for connection in tuple(self._connections):
            if connection.abort_at is not None:
                if now >= connection.abort_at:
                    logger.info("connection closed, its client is gone remote=%s", connection.remote_address)
                    connection.abort()
            elif connection.streams and now - connection.last_received >= self._limits.idle_ms / 1000:
                connection.ask_for_sign()
            for stream in connection.stalled_streams():
                logger.info("answer cut off, its client does not take it remote=%s", connection.remote_address)
                stream.reset(ErrorCode.CANCEL)
        for connection in self._connections:
            for stream in list(connection.streams.values()):
                if stream.awaits_request and now - stream.opened >= self._limits.request_timeout_ms / 1000:
                    stream.reset(ErrorCode.CANCEL)
        return len(idle)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        period_ms = min(self._limits.idle_ms, self._limits.settings_timeout_ms)
        self._idle_timer = loop.call_later(period_ms / 4000, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close_idle()
        self._watch(loop)

    def _accept(self, gate: Gate | None) -> asyncio.BufferedProtocol:
        connection = self._connection()
        return connection if gate is None else FirstByte(connection, gate)

    def adopt(self, transport: asyncio.Transport, received: bytes) -> None:
        """Serve a connection that another listener accepted; `received`: its first bytes."""
        connection = self._connection()
        connection.connection_made(transport)
        transport.set_protocol(cast(asyncio.BufferedProtocol, connection))
        position = 0
        while position < len(received) and not connection.is_closed:
            buffer = connection.get_buffer(-1)
            piece = received[position : position + len(buffer)]
            buffer[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            position += len(piece)

    def _connection(self) -> Http2Connection:
        return Http2Connection(
            loop=asyncio.get_running_loop(),
            limits=self._limits,
            unsent_of_all=self._unsent_bytes,
            receive_buffer=self._receive_buffer,
            too_large_block=self._too_large_block,
            on_request=self._on_request,
            on_opened=self._opened,
            on_closed=self._closed,
        )

    def _opened(self, connection: Http2Connection) -> bool:
        address = client_address(connection.remote_host[0])
        count = self._by_address.get(address, 0)
        is_full = len(self._connections) >= self._limits.connections_max
        self._connections.add(connection)
        self._by_address[address] = count + 1
        if is_full:
            detail = f"connection refused, {self._limits.connections_max} are open"
            self._counts.refused("grpcConnectionsMax", address=connection.remote_address, detail=detail)
        elif count >= self._limits.address_connections_max:
            is_full = True
            detail = f"connection refused, {count} of this address are open"
            self._counts.refused("serverConnectionsPerAddressMax", address=connection.remote_address, detail=detail)
        return not is_full and not self._is_closing

    def _closed(self, connection: Http2Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()
        address = client_address(connection.remote_host[0])
        count = self._by_address.pop(address) - 1
        if count:
            self._by_address[address] = count
