"""FirstByte: stands in front of a server's connection until its first bytes have come, which tell TLS from remoting.

After that the transport talks to the connection itself: a connection that is served costs nothing more.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

__all__ = ["FirstByte", "Gate", "GatedConnection", "OtherProtocol"]


class GatedConnection(Protocol):
    """What a gate, and a layer of TLS, need of a connection: remoting's, or another protocol's."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, from either side."""

    @property
    def remote_address(self) -> str:
        """The peer's `host:port`."""

    def secure(self, transport: asyncio.Transport, *, certificate_subject: str) -> None:
        """Go on over a transport that encrypts, before anything was read or written."""

    def close(self) -> None:
        """Send what is unsent, and close. Idempotent."""

    def abort(self) -> None:
        """Close at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go; room for a record of TLS, 16 KiB, at least."""

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""

    def eof_received(self) -> bool:
        """The peer has closed its half."""

    def pause_writing(self) -> None:
        """The peer reads slower than this side writes."""

    def resume_writing(self) -> None:
        """It has caught up."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""


class Gate(Protocol):
    """Decides about new connections."""

    def admit(self, connection: GatedConnection, transport: asyncio.Transport, chunk: memoryview) -> bool:
        """Whether a connection that begins with these bytes is served as it is; otherwise the gate deals with it."""


class OtherProtocol(Protocol):
    """Another protocol that is spoken on a server's port."""

    first_byte: int
    """With which each of its connections begins, and no connection of the server's own."""

    def adopt(self, transport: asyncio.Transport, received: bytes) -> None:
        """Go on with a connection; `received`: its first bytes."""


class FirstByte(asyncio.BufferedProtocol):
    """See the module."""

    __slots__ = ("_connection", "_gate", "_transport")

    def __init__(self, connection: GatedConnection, gate: Gate) -> None:
        self._connection = connection
        self._gate = gate
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._connection.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the first bytes go."""
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """The first bytes have come."""
        connection, transport = self._connection, self._transport
        assert transport is not None
        if connection.is_closed:
            return
        if self._gate.admit(connection, transport, connection.get_buffer(-1)[:nbytes]):
            transport.set_protocol(cast(asyncio.BufferedProtocol, connection))
            connection.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        """The client closed before it sent anything."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """More is unsent than fits."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._connection.connection_lost(exc)
