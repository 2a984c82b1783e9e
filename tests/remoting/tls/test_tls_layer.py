"""Bytes through TLS: whole at any size and in any pieces, slowed down by slow readers; and what is no TLS."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import gc
import logging
import random
import resource
import socket
import ssl
import termios
from collections.abc import Callable

import pytest

from tests.remoting.tls.tls_server import (
    ECHO,
    SLOW,
    TIMEOUT_MS,
    Certificates,
    Served,
    echo,
    make_server_certificates,
    served,
    unchecked_context,
)
from tests.waiting import until
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.connections.connection import RECEIVE_BYTES
from thermocline.remoting.connections.connection_limits import ConnectionLimits
from thermocline.remoting.errors import ConnectionLostError
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.tls.tls_layer import RECORD_BYTES, TlsLayer

MIB = 1 << 20
SEED = 20261126


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_server_certificates(tmp_path_factory.mktemp("certificates"))


class RawClient:
    """TLS over a socket by hand, so that a test says how its bytes are cut."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = unchecked_context().wrap_bio(self._incoming, self.outgoing, server_hostname="localhost")

    @classmethod
    async def open(cls, port: int) -> RawClient:
        """Connected, before the handshake."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def shake(self) -> None:
        """The handshake; its last flight is left in `outgoing`."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.writer.write(self.outgoing.read())
                await self.writer.drain()
                await self.receive()

    async def receive(self) -> bool:
        """What the server sent next; False at its end."""
        data = await self._reader.read(MIB)
        self._incoming.write(data)
        return bool(data)

    async def frames(self, count: int) -> list[RemotingCommand]:
        """So many answers."""
        buffer, found = bytearray(), []
        while len(found) < count:
            try:
                buffer += self.tls.read(MIB)
            except ssl.SSLWantReadError:
                assert await self.receive(), "the server closed"
                continue
            while len(buffer) >= LENGTH.size and len(buffer) >= (end := LENGTH.size + LENGTH.unpack_from(buffer)[0]):
                found.append(decode_command(memoryview(bytes(buffer[LENGTH.size : end]))))
                del buffer[:end]
        return found


@pytest.mark.parametrize("size_bytes", [0, 1, 16_383, 16_384, 16_385, 300_000, 3 * MIB, 12 * MIB])
async def test_a_body_of_any_size_comes_back(certificates: Certificates, size_bytes: int) -> None:
    async with served(certificates.server()) as serving:
        client = await serving.connect(certificates.client())
        await asyncio.gather(*(echo(client, random.Random(SEED).randbytes(size_bytes)) for _ in range(3)))


async def test_requests_may_come_with_the_end_of_the_handshake(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        client = await RawClient.open(serving.port)
        await client.shake()
        for number in range(5):
            client.tls.write(RemotingCommand.request(ECHO, body=b"%d" % number).encode())
        client.writer.write(client.outgoing.read())  # the last flight and five requests, in one piece
        assert [bytes(answer.body) for answer in await client.frames(5)] == [b"%d" % number for number in range(5)]
        client.writer.close()


async def test_bytes_cut_anywhere_are_put_together(certificates: Certificates, case_count: Callable[..., int]) -> None:
    """A seeded choice of pieces: the last flight and records of any size, cut at any place."""
    async with served(certificates.server()) as serving:
        for seed in range(case_count(quick=8, soak=2_000)):
            choice = random.Random(SEED + seed)
            client = await RawClient.open(serving.port)

            async def cut(data: bytes, choice: random.Random = choice, client: RawClient = client) -> None:
                while data:
                    size = choice.choice((1, 2, 5, 100, 5_000, 100_000))
                    client.writer.write(data[:size])
                    data = data[size:]
                    await client.writer.drain()
                    await asyncio.sleep(0)

            await client.shake()
            bodies = [choice.randbytes(choice.choice((0, 1, 700, 20_000, 200_000))) for _ in range(6)]
            plain = b"".join(RemotingCommand.request(ECHO, body=body).encode() for body in bodies)
            while plain:
                size = choice.choice((1, 3, 1_000, 16_384, 70_000))
                client.tls.write(plain[:size])
                plain = plain[size:]
            sending = asyncio.create_task(cut(client.outgoing.read()))
            answers = await client.frames(len(bodies))
            await sending
            assert [bytes(answer.body) for answer in answers] == bodies, f"seed {SEED + seed}"
            client.writer.close()


async def test_a_server_that_is_busy_reads_no_more_and_loses_nothing(certificates: Certificates) -> None:
    """More requests than may run at a time: what was decrypted already waits, and is handled afterwards."""
    async with served(certificates.server(), limits=ConnectionLimits(requests_running_max=4)) as serving:
        client = await serving.connect(certificates.client())
        bodies = [b"%d" % number * 2_000 for number in range(300)]
        calls = [client.start_call(RemotingCommand.request(SLOW, body=body), timeout_ms=TIMEOUT_MS) for body in bodies]
        (connection,) = serving.server.connections
        await until(lambda: connection.requests_running == 4)
        serving.handler.release.set()
        assert [bytes(answer.body) for answer in await asyncio.gather(*calls)] == bodies


async def test_what_was_read_before_a_pause_is_handled_after_it(certificates: Certificates) -> None:
    """One read of the socket holds more than the connection takes before it pauses, and nothing comes behind it."""
    count, body = 250, b"x" * 900
    async with served(certificates.server(), limits=ConnectionLimits(requests_running_max=4)) as serving:
        client = await RawClient.open(serving.port)
        await client.shake()
        client.writer.write(client.outgoing.read())
        await until(lambda: serving.gate.handshakes == 0)
        (connection,) = serving.server.connections
        layer = connection._transport
        assert isinstance(layer, TlsLayer)
        frames = [RemotingCommand.request(SLOW, body=body).encode() for _ in range(count)]
        for frame in frames:  # a record each, so that the last ones do not fit behind the first ones
            client.tls.write(frame)
        data = client.outgoing.read()
        assert RECEIVE_BYTES - RECORD_BYTES + 2_000 < sum(map(len, frames)) < len(data) < RECEIVE_BYTES
        layer._socket.pause_reading()
        layer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        client.writer.write(data)
        received = array.array("i", [0])

        def has_come() -> bool:
            fcntl.ioctl(layer.get_extra_info("socket").fileno(), termios.FIONREAD, received)
            return received[0] == len(data)

        await until(has_come)
        layer._socket.resume_reading()
        await until(lambda: connection.requests_running == 4)
        serving.handler.release.set()
        assert [bytes(answer.body) for answer in await client.frames(count)] == [body] * count
        client.writer.close()


async def test_a_client_that_takes_no_answers_is_dropped(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits(unsent_bytes_high=64 * 1024, drain_timeout_ms=200)
    async with served(certificates.server(), limits=limits) as serving:
        client = await RawClient.open(serving.port)
        client.writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await client.shake()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(40):
            client.tls.write(RemotingCommand.request(ECHO, body=bytes(MIB)).encode())
        client.writer.write(client.outgoing.read())
        with caplog.at_level(logging.WARNING):
            await until(lambda: serving.server.connection_count == 0)
        assert "connection dropped, the peer is too slow" in caplog.text
        client.writer.transport.abort()


async def test_answers_are_sent_before_a_server_closes(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        client = await serving.connect(certificates.client())
        await echo(client)
        call = client.start_call(RemotingCommand.request(SLOW, body=bytes(2 * MIB)), timeout_ms=TIMEOUT_MS)
        (connection,) = serving.server.connections
        await until(lambda: connection.requests_running == 1)
        serving.handler.release.set()
        await serving.server.close()
        assert len((await call).body) == 2 * MIB


async def test_one_way_requests_before_a_close_are_handled(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        client = await serving.connect(certificates.client())
        for _ in range(50):
            client.send_oneway(RemotingCommand.request(ECHO, body=bytes(10_000), oneway=True))
        client.close()
        await until(lambda: serving.handler.oneway_bytes == 500_000)
        await until(lambda: serving.server.connection_count == 0)


async def test_a_frame_that_is_none_closes_the_connection(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        client = await RawClient.open(serving.port)
        await client.shake()
        client.tls.write(LENGTH.pack(-5) + bytes(100))
        client.writer.write(client.outgoing.read())
        while await client.receive():
            pass
        client.writer.close()
        await until(lambda: serving.server.connection_count == 0)


# -- what is no TLS ----------------------------------------------------------------------------------------------------


async def hello() -> bytes:
    """What a client sends first."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        unchecked_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def throw_at(serving: Served, data: bytes, then: bytes) -> None:
    """Send, half close, and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
        if then:
            await reader.read(1)
            writer.write(then)
        writer.write_eof()
        async with asyncio.timeout(60):
            while await reader.read(65_536):
                pass
    writer.close()


async def test_garbage_behind_the_first_byte(
    certificates: Certificates, case_count: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    """Random bytes, mutated hellos, garbage in place of the second flight: no traceback, no growth, others served."""
    choice, count = random.Random(SEED), case_count(quick=3_000, soak=10**5)
    good = await hello()

    def case() -> tuple[bytes, bytes]:
        kind = choice.randrange(3)
        if kind == 0:
            return b"\x16" + choice.randbytes(choice.randrange(400)), b""
        mutated = bytearray(good)
        if kind == 1:
            for _ in range(choice.randrange(1, 6)):
                mutated[choice.randrange(1, len(mutated))] = choice.randrange(256)
            return bytes(mutated[: choice.randrange(1, len(mutated) + 1)]), b""
        return good, choice.randbytes(choice.randrange(1, 300))

    async with served(certificates.server()) as serving:
        client = await serving.connect(certificates.client())
        memory_kb = 0
        for start in range(0, count, 50):
            await asyncio.gather(*(throw_at(serving, *case()) for _ in range(min(50, count - start))))
            if start == count // 3 // 50 * 50:
                gc.collect()
                memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await echo(client)
        await until(lambda: serving.gate.handshakes == 0)
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb
        assert grown_kb < 20_000
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_records_that_were_changed_on_the_way_end_the_connection(
    certificates: Certificates, case_count: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    choice = random.Random(SEED)
    async with served(certificates.server()) as serving:
        for _ in range(case_count(quick=40, soak=5_000)):
            client = await RawClient.open(serving.port)
            await client.shake()
            client.writer.write(client.outgoing.read())
            client.tls.write(RemotingCommand.request(ECHO, body=bytes(500)).encode())
            record = bytearray(client.outgoing.read())
            record[choice.randrange(5, len(record))] ^= 1 << choice.randrange(8)
            client.writer.write(record)
            with contextlib.suppress(ConnectionError):
                while await client.receive():
                    pass
            with pytest.raises(ssl.SSLError):
                client.tls.read(MIB)
            client.writer.close()
        await until(lambda: serving.server.connection_count == 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_client_of_a_server_without_tls_fails_soon(certificates: Certificates) -> None:
    """A port that answers something else, or closes: an error that says so, not a wait."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    from thermocline.remoting.clients.client import ClientConnection
    from thermocline.remoting.tls.client_context import ClientTls

    with pytest.raises(ConnectionLostError, match="the TLS handshake failed"):
        await ClientConnection.open(f"127.0.0.1:{port}", tls=ClientTls(certificates.client()))
    server.close()
