"""Health endpoint over a real socket."""

import asyncio
import base64
import json
from collections.abc import Mapping

from thermocline.broker.stats.health import REQUEST_BYTES_MAX, UNAUTHORIZED, HealthServer


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


async def test_with_access_control_details_are_for_users_that_may_read() -> None:
    asked: list[tuple[str, str, str, str]] = []

    def may_read(user: str, key: str, address: str, request: str) -> bool:
        asked.append((user, key, address, request))
        return (user, key) == ("prometheus", "a:key")

    async def metrics() -> bytes:
        return b"figures 1\n"

    is_healthy = True
    server = HealthServer(lambda: (is_healthy, {"appendOffset": 12}), metrics, may_read=may_read)
    port = await server.start("127.0.0.1", 0)
    right = base64.b64encode(b"prometheus:a:key").decode()
    wrong = base64.b64encode(b"prometheus:key").decode()
    try:

        async def get(path: str, keys: str = "") -> bytes:
            header = f"authorization: Basic {keys}\r\n" if keys else ""
            return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())

        bare = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        assert await get("/health") == bare
        assert asked == []
        assert (await get("/health", right)).endswith(b'{"status": "ok", "appendOffset": 12}')
        assert (await get("/metrics", right)).endswith(b"figures 1\n")
        for path, keys in (
            ("/metrics", ""),
            ("/metrics", wrong),
            ("/health", wrong),
            ("/nothing", ""),
            ("/metrics", "*"),
        ):
            assert await get(path, keys) == UNAUTHORIZED
        assert (await get("/nothing", right)).startswith(b"HTTP/1.1 404 ")
        assert asked[0] == ("prometheus", "a:key", "127.0.0.1", "GET /health")
        is_healthy = False
        assert (await get("/health")).startswith(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n")
    finally:
        await server.close()
