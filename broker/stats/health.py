"""Health endpoint: HTTP/1.1 resources for load balancers, containers, monitoring and people.

    GET /health    200 and JSON when the broker takes messages, 503 and the same JSON when it does not; `cold` says how
                   the cold tier is (cold_state.py), on which taking messages does not depend
    GET /metrics   200 and figures as Prometheus reads them

With access control both need the name and key of a user (`Authorization: Basic ...`, as Prometheus' `basic_auth` sends
them) that may read the cluster's state. Without them /health tells 200 or 503 and nothing else, for load balancers, and
any other path is answered 401.

Of a request the first line and this header are read; every answer closes the connection. A request that is not whole
within REQUEST_TIMEOUT_S, or longer than REQUEST_BYTES_MAX, is dropped.
"""

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from thermocline.broker.metrics import CONTENT_TYPE

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
UNAUTHORIZED = (
    b"HTTP/1.1 401 Unauthorized\r\n"
    b'WWW-Authenticate: Basic realm="broker", charset="UTF-8"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)

ReaderCheck: TypeAlias = Callable[[str, str, str, str], bool]
"""Whether a user may read: name, key, client address, what is read. Name and key are empty when none are given."""


class HealthServer:
    """Answers GET /health from a callable that returns (healthy, details), GET /metrics from one that returns text."""

    def __init__(
        self,
        probe: Callable[[], tuple[bool, Mapping[str, object]]],
        metrics: Callable[[], Awaitable[bytes]] | None = None,
        *,
        may_read: ReaderCheck | None = None,
    ) -> None:
        """`may_read`: access control; without it every client may."""
        self._may_read = may_read
        self._probe = probe
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port."""
        assert self._server is None
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening; idempotent."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                peer = writer.get_extra_info("peername")
                writer.write(await self._answer(head, peer[0] if peer else ""))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            logger.debug("health request dropped error=%s", type(error).__name__)
        finally:
            writer.close()

    async def _answer(self, head: bytes, address: str) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if self._may_read is not None:
            keys = basic_keys(head)
            is_probe = method == b"GET" and path == b"/health"
            if is_probe and keys is None:
                return _bare(self._probe()[0])
            if not self._may_read(*(keys or ("", "")), address, f"GET {path.decode('latin-1')}"):
                return UNAUTHORIZED
        if method == b"GET" and path == b"/metrics" and self._metrics is not None:
            return _response(b"200 OK", CONTENT_TYPE.encode(), await self._metrics())
        if method != b"GET" or path != b"/health":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        healthy, details = self._probe()
        body = json.dumps({"status": "ok" if healthy else "unavailable", **details}).encode()
        return _response(_status(healthy), b"application/json", body)


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
