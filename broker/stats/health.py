"""Health endpoint: HTTP/1.1 resources for load balancers, containers, monitoring and people.

    GET /health    200 and JSON when the broker takes messages, 503 and the same JSON when it does not; `cold` says how
                   the cold tier is (cold_state.py), on which taking messages does not depend
    GET /metrics   200 and figures as Prometheus reads them

The request line is all that is read; every answer closes the connection. A request that is not whole within
REQUEST_TIMEOUT_S, or longer than REQUEST_BYTES_MAX, is dropped.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping

from thermocline.broker.metrics import CONTENT_TYPE

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 5.0


class HealthServer:
    """Answers GET /health from a callable that returns (healthy, details), GET /metrics from one that returns text."""

    def __init__(
        self,
        probe: Callable[[], tuple[bool, Mapping[str, object]]],
        metrics: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
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
                writer.write(await self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            logger.debug("health request dropped error=%s", type(error).__name__)
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method == b"GET" and path == b"/metrics" and self._metrics is not None:
            return _response(b"200 OK", CONTENT_TYPE.encode(), await self._metrics())
        if method != b"GET" or path != b"/health":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        healthy, details = self._probe()
        body = json.dumps({"status": "ok" if healthy else "unavailable", **details}).encode()
        status = b"200 OK" if healthy else b"503 Service Unavailable"
        return _response(status, b"application/json", body)


def _response(status: bytes, content_type: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, content_type, len(body)) + body
