"""Bounds on what all connections of a server hold together, and on the connections of one address.

Covers `remoting/connections/server_limits.py`, `remoting/connections/limit_counts.py`,
`remoting/connections/closing.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from time import perf_counter

import pytest

from tests.waiting import until
from thermocline.broker.process.event_loop import new_event_loop
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import (
    RECEIVE_BYTES,
    Connection,
    LimitCounts,
    RemotingServer,
    ServerLimits,
    client_address,
)
from thermocline.remoting.connections.held_bytes import LARGE_BYTES
from thermocline.remoting.connections.limit_counts import LOG_PERIOD_S

MIB = 1 << 20
ECHO, GIVE = 1, 2


class Handler:
    """Echoes, or answers with the requested number of bytes."""

    def __init__(self) -> None:
        self.closed: list[Connection] = []

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        body = bytes(int(bytes(command.body))) if command.code == GIVE else command.body
        return RemotingCommand.response(command, body=body)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)


class Setup:
    """A server, and plain sockets that misbehave."""

    def __init__(self, limits: ServerLimits) -> None:
        self.now_s = 100.0
        self.handler = Handler()
        self.counts = LimitCounts()
        self.server = RemotingServer(
            self.handler, server_limits=limits, counts=self.counts, clock=lambda: self.now_s, idle_timeout_ms=1 << 40
        )
        self.port = 0
        self.sockets: list[socket.socket] = []

    async def open(self, host: str = "127.0.0.1") -> socket.socket:
        sock = socket.socket()
        self.sockets.append(sock)
        sock.setblocking(False)
        sock.bind((host, 0))
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def send(self, sock: socket.socket, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(sock, data)

    async def echo(self, size_bytes: int) -> None:
        client = await ClientConnection.open(f"127.0.0.1:{self.port}")
        answer = await client.call(RemotingCommand.request(ECHO, body=bytes(size_bytes)), timeout_ms=60_000)
        assert len(answer.body) == size_bytes
        client.close()
        await client.wait_closed()


@asynccontextmanager
async def serving(**limits: int) -> AsyncIterator[Setup]:
    setup = Setup(ServerLimits(**limits))
    setup.port = await setup.server.start("127.0.0.1", 0)
    try:
        yield setup
    finally:
        for sock in setup.sockets:
            sock.close()
        await setup.server.close()


async def is_closed(sock: socket.socket) -> bool:
    """Whether the server has closed it; waits for that."""
    try:
        async with asyncio.timeout(60):
            return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionError:
        return True


async def test_half_frames_over_all_connections_are_bounded() -> None:
    """The oldest of the large ones go, one for each that comes; what is complete is served, however large."""
    async with serving(receiving_bytes_max=16 * MIB) as setup:
        half = struct.pack(">i", 6 * MIB) + bytes(5 * MIB)
        small = await setup.open()
        await setup.send(small, half[:100])
        stalled = [await setup.open() for _ in range(8)]
        half_frames = setup.server._half_frames
        for number, sock in enumerate(stalled):
            await setup.send(sock, half)
            held = min(number + 1, 3) * len(half) + 100
            await until(lambda held=held: half_frames.total_bytes == held)
        assert [await is_closed(sock) for sock in stalled[:5]] == [True] * 5
        assert setup.counts.totals == {"serverReceivingBytesMax": 5}
        await setup.echo(4 * MIB)
        assert setup.counts.totals["serverReceivingBytesMax"] == 6, "an honest frame has room made for it"
        assert len(half_frames) == 3
        assert await is_closed(stalled[5])
        stalled[6].close()
        await until(lambda: half_frames.total_bytes == len(half) + 100)
        await setup.send(stalled[7], bytes(MIB - 100))  # complete, and no frame
        await setup.send(stalled[7], bytes(100))
        await until(lambda: half_frames.total_bytes == 100)


async def test_small_half_frames_are_bounded_too() -> None:
    async with serving(receiving_bytes_max=MIB) as setup:
        half = struct.pack(">i", MIB) + bytes(LARGE_BYTES - 100)
        stalled = [await setup.open() for _ in range(5)]
        for sock in stalled:
            await setup.send(sock, half)
        assert await is_closed(stalled[0])
        assert setup.counts.totals == {"serverReceivingBytesMax": 1}
        assert setup.server._half_frames.total_bytes == 4 * len(half)


async def test_a_frame_has_a_deadline() -> None:
    """It counts from the first byte, whatever comes later; a frame that is complete ends it."""
    async with serving(frame_timeout_ms=10_000) as setup:
        half_frames = setup.server._half_frames
        slow = await setup.open()
        frame = RemotingCommand.request(ECHO, body=b"x" * 100).encode()
        await setup.send(slow, frame[:10])
        await until(lambda: half_frames.total_bytes == 10)
        setup.now_s += 9
        await setup.send(slow, frame[10:] + frame[:20])
        await until(lambda: half_frames.total_bytes == 20)
        trickling = await setup.open()
        await setup.send(trickling, frame[:10])
        await until(lambda: half_frames.total_bytes == 30)
        setup.now_s += 9
        await setup.send(trickling, frame[10:20])
        await until(lambda: half_frames.total_bytes == 40)
        half_frames.expire()
        assert not setup.handler.closed, "each frame by itself"
        setup.now_s += 1
        half_frames.expire()
        assert setup.counts.totals == {"serverFrameTimeoutMillis": 2}
        assert await is_closed(trickling)
        assert half_frames.total_bytes == 0


async def test_the_deadline_is_kept_without_a_call() -> None:
    counts = LimitCounts()
    server = RemotingServer(Handler(), server_limits=ServerLimits(frame_timeout_ms=100), counts=counts)
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x00\x00")
    assert await reader.read() == b""
    assert counts.totals == {"serverFrameTimeoutMillis": 1}
    writer.close()
    await server.close()


async def test_unread_answers_of_all_connections_are_bounded() -> None:
    """Whose peer has been behind for longest is closed; a peer that has read meanwhile is not."""
    async with serving(unsent_bytes_max=16 * MIB) as setup:
        loop = asyncio.get_running_loop()
        give = RemotingCommand.request(GIVE, body=b"%d" % (10 * MIB)).encode()
        reading, *idle = [await setup.open() for _ in range(4)]
        unsent = setup.server._unsent_of_all
        await setup.send(reading, give)
        await until(lambda: len(unsent) == 1)
        taken = 0
        while taken < 10 * MIB:
            taken += len(await loop.sock_recv(reading, MIB))
        for sock in idle:
            await setup.send(sock, give)
        assert await is_drained_and_closed(idle[0])
        assert setup.counts.totals == {"serverUnsentBytesMax": 1}
        await setup.echo(100)
        await setup.send(reading, RemotingCommand.request(ECHO, body=b"x").encode())
        assert await loop.sock_recv(reading, 100)


async def is_drained_and_closed(sock: socket.socket) -> bool:
    """Whether it ends before all ten MiB have come."""
    loop = asyncio.get_running_loop()
    taken = 0
    try:
        async with asyncio.timeout(60):
            while chunk := await loop.sock_recv(sock, MIB):
                taken += len(chunk)
    except ConnectionError:
        pass
    return taken < 10 * MIB


async def test_connections_of_one_address_are_bounded() -> None:
    async with serving(address_connections_max=2) as setup:
        first, _second, third = [await setup.open() for _ in range(3)]
        assert await is_closed(third)
        assert setup.counts.totals == {"serverConnectionsPerAddressMax": 1}
        other = await setup.open("127.0.0.2")
        await until(lambda: setup.server.connection_count == 3)
        first.close()
        await until(lambda: setup.server.connection_count == 2)
        await setup.echo(10)
        other.close()
        await until(lambda: setup.server._by_address == {"127.0.0.1": 1})


def test_an_ipv6_network_is_one_address() -> None:
    assert client_address("10.0.0.1") == "10.0.0.1"
    assert client_address("2001:db8::1") == client_address("2001:db8::ffff:1:1") != client_address("2001:db8:0:1::1")


def test_the_log_has_one_line_a_limit_and_period(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    counts = LimitCounts(clock=lambda: now_s)
    caplog.set_level(logging.WARNING)
    for _ in range(1_000):
        counts.refused("longPollsMax", address="10.0.0.1:5", detail="a pull is not kept waiting")
    counts.refused("clientGroupsMax", address="10.0.0.1:5", detail="group not joined")
    assert len(caplog.records) == 2
    now_s = LOG_PERIOD_S
    counts.refused("longPollsMax", address="10.0.0.2:5", detail="a pull is not kept waiting")
    assert "limit=longPollsMax remote=10.0.0.2:5 times=1000 total=1001" in caplog.records[-1].getMessage()
    assert counts.totals == {"longPollsMax": 1_001, "clientGroupsMax": 1}


REQUEST_S = 0.00005


class RoundHandler(Handler):
    """Counts the requests that come in each round of the loop. Those of a full buffer take over ten milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.round = 0
        self.by_round: dict[int, int] = {}

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        self.by_round[self.round] = self.by_round.get(self.round, 0) + 1
        end_s = perf_counter() + REQUEST_S
        while perf_counter() < end_s:  # work
            pass
        return None

    def next_round(self) -> None:
        self.round += 1
        asyncio.get_running_loop().call_soon(self.next_round)


def test_one_connection_does_not_keep_the_loop_for_long() -> None:
    """uvloop reads on while a buffer comes full, up to 32 of them: a connection that sends all it can stopped all
    others for half a second. Now a round of the loop ends after ten milliseconds, with the buffer that is being
    handled: here that is one."""
    frame = RemotingCommand.request(ECHO, body=bytes(1_000)).encode()
    count = 8 * RECEIVE_BYTES // len(frame)

    async def main() -> RoundHandler:
        handler = RoundHandler()
        server = RemotingServer(handler)
        port = await server.start("127.0.0.1", 0)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * RECEIVE_BYTES)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port))
        handler.next_round()
        await loop.sock_sendall(sock, frame * count)
        await until(lambda: sum(handler.by_round.values()) == count, pause_s=0)
        sock.close()
        await server.close()
        return handler

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        handler = runner.run(main())
    assert max(handler.by_round.values()) <= RECEIVE_BYTES // len(frame) + 1
