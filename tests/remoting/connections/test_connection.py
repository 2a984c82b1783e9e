"""One connection, both ends of it, on both event loops: framing, answers, calls, bounds, closing.

Covers `remoting/connections/pending_calls.py` and `remoting/connections/connection_limits.py`.
"""

import asyncio
import functools
import inspect
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand, SerializeType, decode_command
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.connection_limits import ConnectionLimits
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import (
    BrokerBusyError,
    ConnectionLostError,
    RequestTimeoutError,
    ResponseError,
    TopicNotFoundError,
)
from thermocline.remoting.frames import INCOMPLETE_FRAME, LENGTH, frame_end

try:
    import uvloop
except ImportError:
    uvloop = None

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if uvloop is not None:
    LOOPS["uvloop"] = uvloop.new_event_loop


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make two tests of one: asyncio's own loop and uvloop must look the same from outside."""
    parameters = [parameter.replace(kind=KEYWORD_ONLY) for parameter in inspect.signature(test).parameters.values()]

    @functools.wraps(test)
    def run(*, loop_name: str, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
            runner.run(test(**arguments))

    del run.__wrapped__
    run.__signature__ = inspect.Signature([inspect.Parameter("loop_name", KEYWORD_ONLY), *parameters])
    return pytest.mark.parametrize("loop_name", LOOPS)(run)


ECHO = 1
LATER = 2
BROKEN = 3
REFUSED = 4
NEVER = 5
BIG = 6
CALL_BACK = 7

TIMEOUT_MS = 10_000


class Handler:
    """Serves a few codes in the ways that a handler can."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.opened: list[Connection] = []
        self.closed: list[Connection] = []
        self.release = asyncio.Event()
        self.changed = asyncio.Condition()

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """By the code."""
        self.handled.append(command.opaque)
        self._notify()
        if command.code == ECHO:
            return RemotingCommand.response(command, body=command.body, ext_fields=command.ext_fields)
        if command.code == LATER:
            return self._later(command)
        if command.code == BROKEN:
            raise ValueError("a bug of ours")
        if command.code == REFUSED:
            raise TopicNotFoundError("no such topic", topic="t")
        if command.code == BIG:
            return RemotingCommand.response(command, body=bytes(1024 * 1024))
        if command.code == CALL_BACK:
            return self._call_back(connection, command)
        assert command.code == NEVER
        return None

    async def _later(self, command: RemotingCommand) -> RemotingCommand:
        await self.release.wait()
        if command.ext_fields and "fail" in command.ext_fields:
            raise TopicNotFoundError("no such topic", topic="t")
        return RemotingCommand.response(command, body=command.body)

    async def _call_back(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        answer = await connection.call(RemotingCommand.request(ECHO, body=command.body), timeout_ms=TIMEOUT_MS)
        return RemotingCommand.response(command, answer.code, remark=answer.remark, body=answer.body)

    def connection_opened(self, connection: Connection) -> None:
        """Remember it."""
        self.opened.append(connection)
        self._notify()

    def connection_closed(self, connection: Connection) -> None:
        """Remember it."""
        self.closed.append(connection)
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        task.add_done_callback(lambda task: task.exception())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that this handler sees makes `condition` true."""
        async with asyncio.timeout(TIMEOUT_MS / 1000), self.changed:
            await self.changed.wait_for(condition)


class Scene:
    """A server with its handler."""

    def __init__(self, server: RemotingServer, handler: Handler, address: str) -> None:
        self.server = server
        self.handler = handler
        self.address = address

    async def client(self, **options: Any) -> ClientConnection:
        return await ClientConnection.open(self.address, **options)

    async def raw(self, *, receive_bytes: int | None = None) -> "RawPeer":
        host, _, port = self.address.rpartition(":")
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        return RawPeer(sock)


class RawPeer:
    """A peer that sends and receives bytes of its own choosing, when it chooses."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self) -> bytes:
        """Bytes, none of them when the peer has closed."""
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                return await asyncio.get_running_loop().sock_recv(self.sock, 1 << 20)
        except ConnectionError:
            return b""

    async def command(self) -> RemotingCommand:
        """The next frame."""
        while True:
            end = frame_end(self.buffer)
            if end != INCOMPLETE_FRAME:
                command = decode_command(bytes(self.buffer[LENGTH.size : end]))
                del self.buffer[:end]
                return command
            data = await self.receive()
            assert data, "the connection was closed"
            self.buffer += data

    async def closed(self) -> bool:
        """Whether the peer closes, whatever it says before."""
        while await self.receive():
            pass
        return True

    def close(self) -> None:
        self.sock.close()


@asynccontextmanager
async def scene(*, chunk_handler: Any = None, **limits: Any) -> AsyncIterator[Scene]:
    handler = Handler()
    server = RemotingServer(handler, chunk_handler=chunk_handler, limits=ConnectionLimits(**limits))
    port = await server.start("127.0.0.1", 0)
    try:
        yield Scene(server, handler, f"127.0.0.1:{port}")
    finally:
        handler.release.set()
        await server.close()


# -- requests and answers ------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_answer(serialize_type: SerializeType) -> None:
    async with scene() as s:
        client = await s.client()
        request = RemotingCommand.request(ECHO, body=b"body", ext_fields={"k": "v"}, serialize_type=serialize_type)
        answer = await client.call(request, timeout_ms=TIMEOUT_MS)
        assert (answer.code, answer.body, answer.ext_fields) == (0, b"body", {"k": "v"})
        assert answer.serialize_type is serialize_type
        client.close()


@on_both_loops
async def test_frames_may_come_in_any_pieces() -> None:
    requests = [RemotingCommand.request(ECHO, body=bytes([n]) * n) for n in range(5)]
    data = b"".join(request.encode() for request in requests)
    async with scene() as s:
        peer = await s.raw()
        for start in range(0, len(data), 7):
            await peer.send(data[start : start + 7])
            await asyncio.sleep(0)
        for request in requests:
            answer = await peer.command()
            assert (answer.opaque, answer.body) == (request.opaque, request.body)
        peer.close()


@on_both_loops
async def test_large_frames() -> None:
    async with scene() as s:
        client = await s.client()
        body = bytes(range(256)) * 16_000
        calls = [client.start_call(RemotingCommand.request(ECHO, body=body), timeout_ms=TIMEOUT_MS) for _ in range(4)]
        assert all(answer.body == body for answer in await asyncio.gather(*calls))
        client.close()


@on_both_loops
async def test_answers_to_one_chunk_leave_in_one_write() -> None:
    requests = [RemotingCommand.request(ECHO, body=b"x") for _ in range(50)]
    async with scene() as s:
        peer = await s.raw()
        await peer.send(b"".join(request.encode() for request in requests))
        await peer.command()
        assert len(peer.buffer) > 49 * 100, "the first read brought all of them"
        peer.close()


@on_both_loops
async def test_errors_become_answers(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        client = await s.client()
        refused = await client.call(RemotingCommand.request(REFUSED), timeout_ms=TIMEOUT_MS)
        assert (refused.code, refused.remark) == (17, "no such topic topic=t")
        assert not caplog.records
        broken = await client.call(RemotingCommand.request(BROKEN), timeout_ms=TIMEOUT_MS)
        assert (broken.code, broken.remark) == (1, "internal error, see the broker's log")
        assert "a bug of ours" in caplog.text
        s.handler.release.set()
        later = await client.call(RemotingCommand.request(LATER, ext_fields={"fail": ""}), timeout_ms=TIMEOUT_MS)
        assert (later.code, later.remark) == (17, "no such topic topic=t")
        with pytest.raises(ResponseError) as caught:
            await client.request(RemotingCommand.request(REFUSED), timeout_ms=TIMEOUT_MS)
        assert (caught.value.code, caught.value.remark) == (17, "no such topic topic=t")
        client.close()


@on_both_loops
async def test_oneway_requests_are_never_answered() -> None:
    async with scene() as s:
        s.handler.release.set()
        peer = await s.raw()
        for code in (ECHO, LATER, REFUSED):
            await peer.send(RemotingCommand.request(code, oneway=True).encode())
        last = RemotingCommand.request(ECHO)
        await peer.send(last.encode())
        assert (await peer.command()).opaque == last.opaque
        assert len(s.handler.handled) == 4
        peer.close()


@on_both_loops
async def test_answers_may_overtake() -> None:
    async with scene() as s:
        client = await s.client()
        slow = client.start_call(RemotingCommand.request(LATER, body=b"slow"), timeout_ms=TIMEOUT_MS)
        assert (await client.call(RemotingCommand.request(ECHO, body=b"fast"), timeout_ms=TIMEOUT_MS)).body == b"fast"
        assert not slow.done()
        s.handler.release.set()
        assert (await slow).body == b"slow"
        client.close()


@on_both_loops
async def test_calls_in_the_other_direction() -> None:
    async with scene() as s:
        serving, plain = await s.client(handler=Handler()), await s.client()
        answer = await serving.call(RemotingCommand.request(CALL_BACK, body=b"x"), timeout_ms=TIMEOUT_MS)
        assert answer.body == b"x"
        refused = await plain.call(RemotingCommand.request(CALL_BACK, body=b"x"), timeout_ms=TIMEOUT_MS)
        assert (refused.code, refused.remark) == (3, f" request type {ECHO} not supported")
        serving.close()
        plain.close()


@on_both_loops
async def test_unasked_answers_are_passed_over() -> None:
    async with scene() as s:
        peer = await s.raw()
        request = RemotingCommand.request(ECHO)
        await peer.send(RemotingCommand.response(request).encode() + request.encode())
        assert (await peer.command()).opaque == request.opaque
        peer.close()


# -- what is no frame ----------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x00\x00\x01",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">iI", 6, 2) + b"{]",
        struct.pack(">iI", 6, 9) + b"{}",
        struct.pack(">iI", 6, 7 << 24 | 2) + b"{}",
        struct.pack(">iI", 6, 1 << 24 | 2) + b"{}",
    ],
)
async def test_an_invalid_frame_closes_the_connection(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with scene() as s:
        good = RemotingCommand.request(ECHO)
        peer = await s.raw()
        await peer.send(good.encode() + data)
        assert (await peer.command()).opaque == good.opaque, "what came before is answered"
        assert await peer.closed()
        peer.close()
        await s.handler.until(lambda: len(s.handler.closed) == 1)
    assert not caplog.records


@on_both_loops
async def test_frame_limit() -> None:
    async with scene(frame_bytes_max=1_000) as s:
        client = await s.client()
        with pytest.raises(ConnectionLostError):
            await client.call(RemotingCommand.request(ECHO, body=bytes(1_000)), timeout_ms=TIMEOUT_MS)
        assert client.is_closed


@on_both_loops
async def test_length_word_alone_takes_no_memory() -> None:
    async with scene() as s:
        peer = await s.raw()
        await peer.send(struct.pack(">i", 16 * 1024 * 1024) + b"\x00")
        await s.handler.until(lambda: len(s.handler.opened) == 1)
        assert len(s.handler.opened[0]._splitter._kept) <= 5
        peer.close()


# -- bounds --------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_slow_reader_is_paused_then_served() -> None:
    """Its requests are not even read while it takes no answers; afterwards each of them is answered."""
    count = 60
    async with scene(unsent_bytes_high=2 * 1024 * 1024) as s:
        peer = await s.raw(receive_bytes=8_192)
        await peer.send(b"".join(RemotingCommand.request(BIG).encode() for _ in range(count)))
        await s.handler.until(lambda: bool(s.handler.opened) and s.handler.opened[0].is_write_paused)
        handled = len(s.handler.handled)
        assert handled < count
        assert s.handler.opened[0].unsent_bytes < 4 * 1024 * 1024 + 2 * 1024 * 1024
        for _ in range(count):
            assert len((await peer.command()).body) == 1024 * 1024
        assert len(s.handler.handled) == count
        assert not s.handler.opened[0].is_write_paused
        peer.close()


@on_both_loops
async def test_slow_reader_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(unsent_bytes_high=1024 * 1024, drain_timeout_ms=50) as s:
        peer = await s.raw(receive_bytes=8_192)
        await peer.send(b"".join(RemotingCommand.request(BIG).encode() for _ in range(60)))
        await s.handler.until(lambda: len(s.handler.closed) == 1)
        assert "too slow" in caplog.text
        peer.close()


@on_both_loops
async def test_too_much_unsent_drops_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Answers of long polling, which come later than their requests, cannot pile up either."""
    async with scene(unsent_bytes_high=1024, unsent_bytes_max=20 * 1024 * 1024) as s:
        peer = await s.raw(receive_bytes=8_192)
        await peer.send(RemotingCommand.request(NEVER).encode())
        await s.handler.until(lambda: bool(s.handler.handled))
        connection = s.handler.opened[0]
        for _ in range(40):
            connection.write(bytes(1024 * 1024))
            await asyncio.sleep(0)
        assert connection.is_closed
        assert "too slow" in caplog.text
        connection.write(b"forgotten")
        peer.close()


@on_both_loops
async def test_running_requests_are_bounded() -> None:
    async with scene(requests_running_max=8) as s:
        peer = await s.raw()
        requests = [RemotingCommand.request(LATER) for _ in range(30)]
        await peer.send(b"".join(request.encode() for request in requests))
        await s.handler.until(lambda: len(s.handler.handled) == 8)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(s.handler.handled) == 8
        s.handler.release.set()
        answered = {(await peer.command()).opaque for _ in requests}
        assert answered == {request.opaque for request in requests}
        peer.close()


@on_both_loops
async def test_pending_calls_are_bounded() -> None:
    async with scene() as s:
        client = await s.client(limits=ConnectionLimits(calls_pending_max=2))
        calls = [client.start_call(RemotingCommand.request(NEVER), timeout_ms=TIMEOUT_MS) for _ in range(2)]
        with pytest.raises(BrokerBusyError):
            client.start_call(RemotingCommand.request(NEVER), timeout_ms=TIMEOUT_MS)
        client.close()
        for call in calls:
            with pytest.raises(ConnectionLostError):
                await call


@on_both_loops
async def test_client_waits_for_a_server_that_takes_nothing() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    limits = ConnectionLimits(unsent_bytes_high=1024, unsent_bytes_max=16 * 1024 * 1024)
    client = await ClientConnection.open(address, limits=limits)

    async def send_too_much() -> None:
        for _ in range(60):
            client.send_oneway(RemotingCommand.request(ECHO, body=bytes(1024 * 1024), oneway=True))
            await asyncio.sleep(0)

    with pytest.raises(BrokerBusyError):
        await send_too_much()
    assert client.is_write_paused
    assert not client.is_closed, "a client does not give up its connection for that"
    with pytest.raises(RequestTimeoutError):
        await client.call(RemotingCommand.request(ECHO), timeout_ms=20)
    waiting = asyncio.ensure_future(client.wait_writable())
    await asyncio.sleep(0)
    assert not waiting.done()
    client.abort()
    await waiting
    await client.wait_closed()
    listener.close()


# -- calls that get no answer --------------------------------------------------------------------------------------


@on_both_loops
async def test_timeouts() -> None:
    """The earliest deadline fires first, whatever the order of the calls; a late answer is dropped."""
    async with scene() as s:
        client = await s.client()
        long = client.start_call(RemotingCommand.request(LATER), timeout_ms=TIMEOUT_MS)
        middle = client.start_call(RemotingCommand.request(LATER), timeout_ms=60)
        short = client.start_call(RemotingCommand.request(LATER), timeout_ms=20)
        ended: list[object] = []
        for call in (long, middle, short):
            call.add_done_callback(ended.append)
        for call in (middle, short):
            with pytest.raises(RequestTimeoutError):
                await call
        assert ended == [short, middle]
        assert client.calls_pending == 1
        s.handler.release.set()
        await long
        await client.call(RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        client.close()


@on_both_loops
async def test_cancelled_calls_leave_nothing_behind() -> None:
    async with scene() as s:
        client = await s.client()
        task = asyncio.ensure_future(client.call(RemotingCommand.request(LATER), timeout_ms=TIMEOUT_MS))
        await s.handler.until(lambda: len(s.handler.handled) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        s.handler.release.set()
        await client.call(RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        assert client.calls_pending == 0
        client.close()


@on_both_loops
async def test_lost_connection_fails_all_pending_calls_at_once() -> None:
    async with scene() as s:
        closed: list[Connection] = []
        client = await s.client(on_closed=closed.append)
        calls = [client.start_call(RemotingCommand.request(NEVER), timeout_ms=TIMEOUT_MS) for _ in range(3)]
        await s.handler.until(lambda: len(s.handler.handled) == 3)
        s.handler.opened[0].abort()
        for call in calls:
            with pytest.raises(ConnectionLostError):
                await call
        await client.wait_closed()
        assert closed == [client]
        with pytest.raises(ConnectionLostError):
            await client.call(RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        with pytest.raises(ConnectionLostError):
            client.send_oneway(RemotingCommand.request(ECHO, oneway=True))


@on_both_loops
async def test_close_sends_written_bytes() -> None:
    async with scene() as s:
        client = await s.client()
        client.send_oneway(RemotingCommand.request(NEVER, oneway=True))
        client.close()
        client.close()
        await s.handler.until(lambda: len(s.handler.handled) == 1 and len(s.handler.closed) == 1)


# -- the fast path's seam ------------------------------------------------------------------------------------------


class EvenFastPath:
    """Takes ECHO requests with an even opaque; leaves every other frame to the handler."""

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.fail = False

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """As the real one: whole frames only, up to the first that is not for it."""
        if self.fail:
            raise ValueError("a bug in the fast path")
        consumed = 0
        while (end := frame_end(buffer, consumed)) != INCOMPLETE_FRAME:
            command = decode_command(buffer[consumed + LENGTH.size : end])
            if command.code != ECHO or command.opaque % 2:
                break
            self.fed.append(command.opaque)
            connection.write(RemotingCommand.response(command, remark="fast").encode())
            consumed = end
        return consumed


@on_both_loops
@pytest.mark.parametrize("piece_bytes", [1, 150, 100_000])
async def test_fast_path_and_handler_share_a_stream_in_order(piece_bytes: int) -> None:
    fast_path = EvenFastPath()
    async with scene(chunk_handler=fast_path) as s:
        requests = [RemotingCommand(code=ECHO, opaque=opaque) for opaque in (2, 4, 5, 6, 7, 9, 10)]
        data = b"".join(request.encode() for request in requests)
        peer = await s.raw()
        for start in range(0, len(data), piece_bytes):
            await peer.send(data[start : start + piece_bytes])
            await asyncio.sleep(0)
        answers = [await peer.command() for _ in requests]
        assert [answer.opaque for answer in answers] == [2, 4, 5, 6, 7, 9, 10]
        assert [answer.remark for answer in answers] == ["fast", "fast", None, "fast", None, None, "fast"]
        assert fast_path.fed == [2, 4, 6, 10]
        assert s.handler.handled == [5, 7, 9]
        peer.close()


@on_both_loops
async def test_bug_in_the_fast_path_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    fast_path = EvenFastPath()
    async with scene(chunk_handler=fast_path) as s:
        fast_path.fail = True
        peer = await s.raw()
        await peer.send(RemotingCommand.request(ECHO).encode())
        assert await peer.closed()
        peer.close()
        assert "a bug in the fast path" in caplog.text
        fast_path.fail = False
        client = await s.client()
        await client.call(RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        client.close()


class Flood:
    """Answers every request with a megabyte, until the connection is full."""

    def __init__(self) -> None:
        self.taken = 0
        self.full = asyncio.Event()

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """Requests of one size, one after another."""
        consumed = 0
        while not connection.is_full and (end := frame_end(buffer, consumed)) != INCOMPLETE_FRAME:
            request = decode_command(buffer[consumed + LENGTH.size : end])
            connection.write(RemotingCommand.response(request, body=bytes(1024 * 1024)).encode())
            self.taken += 1
            consumed = end
        if connection.is_full:
            self.full.set()
        return consumed


@on_both_loops
async def test_fast_path_answers_are_bounded_too() -> None:
    """A chunk of small requests for large answers stops at the first bound, and goes on when the peer has caught up."""
    count, flood = 60, Flood()
    async with scene(chunk_handler=flood, unsent_bytes_high=2 * 1024 * 1024) as s:
        peer = await s.raw(receive_bytes=8_192)
        await peer.send(b"".join(RemotingCommand(code=BIG, opaque=n).encode() for n in range(count)))
        await flood.full.wait()
        assert flood.taken < count
        assert s.handler.opened[0].unsent_bytes < 8 * 1024 * 1024
        assert {(await peer.command()).opaque for _ in range(count)} == set(range(count))
        assert flood.taken + len(s.handler.handled) == count
        peer.close()


# -- what a connection tells about itself --------------------------------------------------------------------------


@on_both_loops
async def test_addresses_and_context() -> None:
    async with scene() as s:
        client = await s.client()
        await client.call(RemotingCommand.request(ECHO), timeout_ms=TIMEOUT_MS)
        (connection,) = s.server.connections
        assert connection.local_address == s.address == client.remote_address
        assert connection.remote_address == client.local_address
        host, port = connection.remote_host
        assert f"{host}:{port}" == client.local_address
        assert connection.remote_host_bytes == b"\x7f\x00\x00\x01" + struct.pack(">i", port)
        connection.context = {"client": "c"}
        assert "127.0.0.1" in repr(connection)
        client.close()


@on_both_loops
async def test_traffic_is_counted() -> None:
    async with scene() as s:
        client = await s.client()
        request = RemotingCommand.request(ECHO, body=b"x" * 500)
        await client.call(request, timeout_ms=TIMEOUT_MS)
        assert s.server.traffic.received_bytes == len(request.encode())
        assert s.server.traffic.sent_bytes > 500
        client.close()
