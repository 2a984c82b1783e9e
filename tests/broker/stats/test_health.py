"""Health endpoint over a real socket."""

import asyncio
import json
from collections.abc import Mapping

from thermocline.broker.stats.health import REQUEST_BYTES_MAX, HealthServer


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_health_follows_the_probe() -> None:
    state: tuple[bool, Mapping[str, object]] = (True, {"appendOffset": 12})
    server = HealthServer(lambda: state)
    port = await server.start("127.0.0.1", 0)
    try:
        head, _, body = (await ask(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert json.loads(body) == {"status": "ok", "appendOffset": 12}
        state = (False, {"reason": "disk full"})
        head, _, body = (await ask(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body) == {"status": "unavailable", "reason": "disk full"}
        assert (await ask(port, b"POST /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert await ask(port, b"GET " + b"x" * (REQUEST_BYTES_MAX + 1) + b"\r\n\r\n") == b""
    finally:
        await server.close()
