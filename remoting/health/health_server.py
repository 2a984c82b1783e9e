"""Health endpoint: HTTP/1.1 resources for load balancers, containers, monitoring and people.

    GET /health    200 and JSON when the daemon serves, 503 and the same JSON when it does not
    GET /metrics   200 and figures as Prometheus reads them
    further paths  200 and JSON, of a daemon that has such

With access control both need the name and key of a user (`Authorization: Basic ...`, as Prometheus' `basic_auth` sends
them) that may read the cluster's state. Without them /health tells 200 or 503 and nothing else, for load balancers, and
any other path is answered 401.

The port takes TLS as the daemon's own port does.

Of a request the first line and this header are read; every answer closes the connection. Dropped is a request that is
not whole, or whose answer is not taken, within REQUEST_TIMEOUT_S, or that is longer than REQUEST_BYTES_MAX, and a
connection beyond CONNECTIONS_MAX.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

from thermocline.remoting.connections import FirstByte, Gate
from thermocline.remoting.health.exposition import CONTENT_TYPE
from thermocline.remoting.socket_address import peer_address

__all__ = ["HealthServer", "ReaderCheck"]

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 256
RECEIVE_BYTES = 32 * 1024
"""Of the buffer that connections share: room for records of TLS."""

END_OF_HEAD = b"\r\n\r\n"
UNAUTHORIZED = (
    b"HTTP/1.1 401 Unauthorized\r\n"
    b'WWW-Authenticate: Basic realm="thermocline", charset="UTF-8"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)

State: TypeAlias = tuple[bool, Mapping[str, object]]
Probe: TypeAlias = Callable[[], State | Awaitable[State]]
"""Whether the daemon serves, and details."""
ReaderCheck: TypeAlias = Callable[[str, str, str, str], Awaitable[bool]]
"""Whether a user may read: name, key, client address, what is read. Name and key are empty when none are given."""


class HealthServer:
    """Answers GET /health from a probe, GET /metrics from a callable that returns text."""

    def __init__(
        self,
        probe: Probe,
        metrics: Callable[[], Awaitable[bytes]] | None = None,
        *,
        documents: Mapping[str, Callable[[str], bytes]] | None = None,
        may_read: ReaderCheck | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`documents`: by path, what makes JSON of the request's query. `may_read`: access control; without it every
        client may. `gate`: of TLS; without it the port takes none."""
        self._documents = documents or {}
        self._may_read = may_read
        self._gate = gate
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._connections: set[HealthConnection] = set()
        self._probe = probe
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port."""
        assert self._server is None
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening, and drop what is not answered yet; idempotent."""
        if self._server is not None:
            self._server.close()
            for connection in tuple(self._connections):
                connection.abort()
            await self._server.wait_closed()
            self._server = None

    def _accept(self) -> asyncio.BufferedProtocol:
        connection = HealthConnection(self._answer, self._buffer, self._connections)
        return connection if self._gate is None else FirstByte(connection, self._gate)

    async def _answer(self, head: bytes, address: str) -> bytes:
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if self._may_read is not None:
            keys = basic_keys(head)
            is_probe = method == b"GET" and path == b"/health"
            if is_probe and keys is None:
                return _bare((await self._state())[0])
            if not await self._may_read(*(keys or ("", "")), address, f"GET {path.decode('latin-1')}"):
                return UNAUTHORIZED
        if method == b"GET" and path == b"/metrics" and self._metrics is not None:
            return _response(b"200 OK", CONTENT_TYPE.encode(), await self._metrics())
        document = self._documents.get(path.decode("latin-1")) if method == b"GET" else None
        if document is not None:
            return _response(b"200 OK", b"application/json", document(query.decode("latin-1")))
        if method != b"GET" or path != b"/health":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        healthy, details = await self._state()
        body = json.dumps({"status": "ok" if healthy else "unavailable", **details}).encode()
        return _response(_status(healthy), b"application/json", body)

    async def _state(self) -> State:
        found = self._probe()
        return found if isinstance(found, tuple) else await found


class HealthConnection(asyncio.BufferedProtocol):
    """One connection of the port, for one request. A `GatedConnection`."""

    def __init__(
        self,
        answer: Callable[[bytes, str], Awaitable[bytes]],
        buffer: memoryview,
        connections: set[HealthConnection],
    ) -> None:
        """`answer`: to the head of a request and the client's address. `buffer`: shared by all connections."""
        self.loop = asyncio.get_running_loop()
        self.remote_address, self._host = "", ""
        self._answer = answer
        self._buffer = buffer
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._head = bytearray()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self.remote_address, (self._host, _) = peer_address(transport.get_extra_info("peername"))
        if len(self._connections) >= CONNECTIONS_MAX:
            self.abort()
            return
        self._connections.add(self)
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self.abort)

    def secure(self, transport: asyncio.Transport, *, certificate_subject: str) -> None:
        """Go on over TLS."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self.is_closed or self._task is not None:
            return
        self._head += self._buffer[:nbytes]
        end = self._head.find(END_OF_HEAD)
        if len(self._head if end < 0 else self._head[:end]) > REQUEST_BYTES_MAX:
            logger.debug("health request dropped, it is too long remote=%s", self.remote_address)
            self.abort()
        elif end >= 0:
            self._task = self.loop.create_task(self._serve(bytes(self._head[: end + len(END_OF_HEAD)])))

    async def _serve(self, head: bytes) -> None:
        try:
            response = await self._answer(head, self._host)
        except Exception:  # the end of a task
            logger.exception("health request failed, a bug of ours remote=%s", self.remote_address)
            self.abort()
            return
        if not self.is_closed:
            assert self._transport is not None
            self._transport.write(response)
            self._transport.close()

    def eof_received(self) -> bool:
        """A client that has asked and closed its half still gets its answer."""
        return self._task is not None

    def pause_writing(self) -> None:
        """The answer is written at once; who takes none is dropped in time."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def close(self) -> None:
        """Close after what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()


def basic_keys(head: bytes) -> tuple[str, str] | None:
    """Name and key of a request's Authorization header; None without one that can be read."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        scheme, _, encoded = value.strip().partition(b" ")
        if name.strip().lower() == b"authorization" and scheme.lower() == b"basic":
            try:
                user, separator, key = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            return (user, key) if separator else None
    return None


def _status(healthy: bool) -> bytes:
    return b"200 OK" if healthy else b"503 Service Unavailable"


def _bare(healthy: bool) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % _status(healthy)


def _response(status: bytes, content_type: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, content_type, len(body)) + body
