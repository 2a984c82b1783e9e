"""Health endpoint over a real socket."""

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.waiting import until
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.health.health_server import CONNECTIONS_MAX, REQUEST_BYTES_MAX, UNAUTHORIZED, HealthServer
from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.tls import TlsGate


async def ask(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
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

    async def may_read(user: str, key: str, address: str, request: str) -> bool:
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


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_the_port_takes_tls_as_the_brokers_port_does(tmp_path: Path, mode: str) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("s.pem", "s.key", subject="broker", addresses=["127.0.0.1"])
    config = TlsConfig(server_mode=mode, server_certificate_path=str(certificate), server_key_path=str(key))
    gate = TlsGate(config, LimitCounts())
    gate.open()
    figures = b"figures 1\n" * 50_000

    async def metrics() -> bytes:
        return figures

    server = HealthServer(lambda: (True, {}), metrics, gate=gate)
    port = await server.start("127.0.0.1", 0)
    context = ssl.create_default_context(cafile=str(authority.path))
    try:
        for path, end in (("/health", b'{"status": "ok"}'), ("/metrics", figures)):
            answer = await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), context)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(end)
        plain = await ask(port, b"GET /health HTTP/1.1\r\n\r\n")
        assert plain.startswith(b"HTTP/1.1 200 OK\r\n") if mode == "permissive" else plain == b""
    finally:
        await server.close()
        gate.close()


async def test_more_connections_than_the_bound_are_closed() -> None:
    server = HealthServer(lambda: (True, {}))
    port = await server.start("127.0.0.1", 0)
    try:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        with contextlib.suppress(ConnectionError):
            assert await ask(port, b"GET /health HTTP/1.1\r\n\r\n") == b""
        held.pop()[1].close()
        await until(lambda: len(server._connections) < CONNECTIONS_MAX)
        assert (await ask(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()
    finally:
        await server.close()
