"""Connections by address: opened when needed, shared, forgotten when they break."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.address_server import name_zone
from tests.frozen_peer import frozen_peer
from thermocline.remoting.clients.client import ClientConnection, RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import (
    ClosedError,
    ConnectionLostError,
    InvalidParameterError,
    ResponseError,
    TopicNotFoundError,
)

TIMEOUT_MS = 10_000
ECHO, REFUSED = 1, 2


class Handler:
    """Echoes, or refuses."""

    def __init__(self) -> None:
        self.oneway_bodies: list[bytes] = []
        self.oneway_came = asyncio.Event()

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """By the code."""
        if command.is_oneway:
            self.oneway_bodies.append(bytes(command.body))
            self.oneway_came.set()
            return None
        if command.code == REFUSED:
            raise TopicNotFoundError("no such topic", topic="t")
        return RemotingCommand.response(command, body=command.body)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do."""


class Peer:
    """A server to talk to."""

    def __init__(self) -> None:
        self.handler = Handler()
        self.server = RemotingServer(self.handler)
        self.address = ""


@contextlib.contextmanager
def silent_listener(host: str, port: int) -> Iterator[None]:
    """An address at which no connection is made, nor refused: the line of those that wait there is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


@pytest_asyncio.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    peer.address = f"127.0.0.1:{await peer.server.start('127.0.0.1', 0)}"
    yield peer
    await peer.server.close()


async def test_one_connection_an_address(peer: Peer) -> None:
    async with RemotingClient() as client:
        requests = [RemotingCommand.request(ECHO, body=bytes([n])) for n in range(20)]
        answers = await asyncio.gather(*(client.call(peer.address, r, timeout_ms=TIMEOUT_MS) for r in requests))
        assert [answer.body for answer in answers] == [request.body for request in requests]
        assert peer.server.connection_count == 1
        assert client.addresses == (peer.address,)
        assert client.traffic.sent_bytes == peer.server.traffic.received_bytes
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        for connection in peer.server.connections:
            await connection.wait_closed()


async def test_broken_connection_is_replaced(peer: Peer) -> None:
    gone: list[ClientConnection] = []
    async with RemotingClient(on_closed=gone.append) as client:
        await client.call(peer.address, RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        broken = client.connection(peer.address)
        assert broken is not None
        for connection in peer.server.connections:
            connection.abort()
        await broken.wait_closed()
        assert gone == [broken]
        assert client.connection(peer.address) is None
        await client.call(peer.address, RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        assert client.connection(peer.address) is not broken


async def test_request_wants_success(peer: Peer) -> None:
    async with RemotingClient() as client:
        await client.request(peer.address, RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        with pytest.raises(ResponseError, match="no such topic"):
            await client.request(peer.address, RemotingCommand.request(REFUSED), timeout_ms=TIMEOUT_MS)


async def test_oneway(peer: Peer) -> None:
    async with RemotingClient() as client:
        await client.send_oneway(peer.address, RemotingCommand.request(ECHO, body=b"x", oneway=True))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await peer.handler.oneway_came.wait()
        assert peer.handler.oneway_bodies == [b"x"]


async def test_a_missing_server_is_a_lost_connection(tmp_path: Path) -> None:
    unused = RemotingServer(Handler())
    port = await unused.start("127.0.0.1", 0)
    await unused.close()
    async with RemotingClient(connect_timeout_ms=500) as client:
        for address in (f"127.0.0.1:{port}", str(tmp_path / "none"), "no-such-host.invalid:1"):
            with pytest.raises(ConnectionLostError):
                await client.call(address, RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        with pytest.raises(InvalidParameterError):
            await client.connect("nonsense")
        assert client.addresses == ()


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test", "a\0b", "caf\udce9", "\u00fc..b"])
async def test_a_host_that_is_none_is_a_lost_connection(host: str) -> None:
    """Python refuses such names before any lookup, with a UnicodeError or a ValueError."""
    async with RemotingClient(connect_timeout_ms=500) as client:
        with pytest.raises(ConnectionLostError):
            await client.call(f"{host}:9876", RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)


async def test_a_host_whose_first_address_answers_nothing(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the time was spent at the first address, at each call anew, so that the host was never reached."""
    port = peer.address.rpartition(":")[2]
    name_zone(monkeypatch, {"two.test": ["127.0.0.2", "127.0.0.1"]})
    with silent_listener("127.0.0.2", int(port)):
        async with RemotingClient(connect_timeout_ms=1_000) as client:
            answer = await client.call(
                f"two.test:{port}", RemotingCommand.request(ECHO, body=b"x"), timeout_ms=TIMEOUT_MS
            )
            assert answer.body == b"x"
            with pytest.raises(ConnectionLostError, match="in time"):
                await client.connect(f"127.0.0.2:{port}")


async def test_a_connection_whose_peer_acknowledges_nothing_is_dropped() -> None:
    """As to a machine without power; here the peer's machine takes no more bytes. Else it stays for 15 minutes."""
    async with frozen_peer() as address:
        closed = asyncio.Event()
        connection = await ClientConnection.open(address, on_closed=lambda _: closed.set())
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000, "the limit of each connection"
        connection.drop_unacknowledged(after_ms=200)
        for _ in range(16):
            connection.send_oneway(RemotingCommand.request(ECHO, body=bytes(1 << 20), oneway=True))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await closed.wait()


async def test_one_caller_leaving_does_not_stop_the_others(peer: Peer) -> None:
    async with RemotingClient() as client:
        first = asyncio.ensure_future(client.connect(peer.address))
        second = asyncio.ensure_future(client.connect(peer.address))
        await asyncio.sleep(0)
        first.cancel()
        assert not (await second).is_closed
        assert first.cancelled()
        assert peer.server.connection_count <= 1


async def test_disconnect_and_close(peer: Peer) -> None:
    client = RemotingClient()
    connection = await client.connect(peer.address)
    client.disconnect(peer.address)
    client.disconnect(peer.address)
    assert connection.is_closed
    opening = asyncio.ensure_future(client.connect(peer.address))
    await asyncio.sleep(0)
    await client.close()
    await client.close()
    with pytest.raises((asyncio.CancelledError, ClosedError)):
        await opening
    with pytest.raises(ClosedError):
        await client.connect(peer.address)
