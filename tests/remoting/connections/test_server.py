"""The server: addresses it listens on, idle connections, limits, shutdown.

Covers `remoting/connections/request_handler.py`.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable
from pathlib import Path

import pytest

from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import ConnectionLostError

TIMEOUT_MS = 10_000
ECHO, SLOW = 1, 2


class Handler:
    """Echoes at once, or on request."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.started = asyncio.Event()

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """By the code."""
        if command.code == SLOW:
            return self._slow(command)
        return RemotingCommand.response(command, body=command.body)

    async def _slow(self, command: RemotingCommand) -> RemotingCommand:
        self.started.set()
        await self.release.wait()
        return RemotingCommand.response(command, remark="slow")

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do."""


async def echo(client: ClientConnection) -> None:
    answer = await client.call(RemotingCommand.request(ECHO, body=b"x"), timeout_ms=TIMEOUT_MS)
    assert answer.body == b"x"


async def test_several_addresses(tmp_path: Path) -> None:
    server = RemotingServer(Handler())
    path = str(tmp_path / "s")
    first, second = await server.start("127.0.0.1", 0), await server.start("127.0.0.1", 0)
    await server.start_unix(path)
    clients = [await ClientConnection.open(a) for a in (f"127.0.0.1:{first}", f"127.0.0.1:{second}", path)]
    for client in clients:
        await echo(client)
    assert server.connection_count == 3
    await server.close()
    assert server.connection_count == 0
    assert not os.path.exists(path)
    for client in clients:
        await client.wait_closed()


async def test_port_in_use() -> None:
    first, second = RemotingServer(Handler()), RemotingServer(Handler())
    port = await first.start("127.0.0.1", 0)
    with pytest.raises(OSError, match="address already in use"):
        await second.start("127.0.0.1", port)
    await first.close()
    await second.close()


async def test_unix_socket_is_private_and_replaces_a_dead_one(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    dead, server = RemotingServer(Handler()), RemotingServer(Handler())
    await dead.start_unix(path)
    dead._unix_paths.clear()  # as if it had been killed: its socket file stays
    await dead.close()
    assert os.path.exists(path)
    await server.start_unix(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    client = await ClientConnection.open(path)
    await echo(client)
    assert client.remote_address == "unix"
    await server.close()


async def test_unix_socket_replaces_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    server = RemotingServer(Handler())
    with pytest.raises(OSError, match=r".+"):
        await server.start_unix(str(path))
    assert path.read_text() == "data"
    await server.close()


async def test_idle_connections_are_closed() -> None:
    now = 1_000.0
    server = RemotingServer(Handler(), idle_timeout_ms=120_000, clock=lambda: now)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    idle, busy = await ClientConnection.open(address), await ClientConnection.open(address)
    await echo(idle)
    await echo(busy)
    now += 119.0
    assert server.close_idle() == 0
    await echo(busy)
    now += 1.0
    assert server.close_idle() == 1
    await idle.wait_closed()
    await echo(busy)
    await server.close()


async def test_a_connection_whose_request_is_being_handled_is_not_idle() -> None:
    now = 0.0
    handler = Handler()
    server = RemotingServer(handler, idle_timeout_ms=120_000, clock=lambda: now)
    client = await ClientConnection.open(f"127.0.0.1:{await server.start('127.0.0.1', 0)}")
    answer = client.start_call(RemotingCommand.request(SLOW), timeout_ms=TIMEOUT_MS)
    await handler.started.wait()
    now += 1_000.0
    assert server.close_idle() == 0
    handler.release.set()
    assert (await answer).remark == "slow"
    now += 1_000.0
    assert server.close_idle() == 1
    await server.close()


async def test_idle_connections_are_looked_for() -> None:
    now = 0.0
    server = RemotingServer(Handler(), idle_timeout_ms=20, clock=lambda: now)
    client = await ClientConnection.open(f"127.0.0.1:{await server.start('127.0.0.1', 0)}")
    now = 1.0
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        await client.wait_closed()
    await server.close()


async def test_connections_are_limited() -> None:
    server = RemotingServer(Handler(), connections_max=2)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    clients = [await ClientConnection.open(address) for _ in range(2)]
    for client in clients:
        await echo(client)
    refused = await ClientConnection.open(address)
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        await refused.wait_closed()
    for client in clients:
        await echo(client)
    await server.close()


async def test_shutdown_answers_running_requests() -> None:
    handler = Handler()
    server = RemotingServer(handler)
    port = await server.start("127.0.0.1", 0)
    client = await ClientConnection.open(f"127.0.0.1:{port}")
    call = client.start_call(RemotingCommand.request(SLOW), timeout_ms=TIMEOUT_MS)
    await handler.started.wait()
    closing = asyncio.ensure_future(server.close(timeout_ms=TIMEOUT_MS))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLostError):
        await ClientConnection.open(f"127.0.0.1:{port}")
    handler.release.set()
    assert (await call).remark == "slow"
    await closing
    await server.close()


async def test_shutdown_does_not_wait_for_ever() -> None:
    handler = Handler()
    server = RemotingServer(handler)
    client = await ClientConnection.open(f"127.0.0.1:{await server.start('127.0.0.1', 0)}")
    call = client.start_call(RemotingCommand.request(SLOW), timeout_ms=TIMEOUT_MS)
    await handler.started.wait()
    await server.close(timeout_ms=20)
    with pytest.raises(ConnectionLostError):
        await call
    handler.release.set()
