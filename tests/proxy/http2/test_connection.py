"""An HTTP/2 server: the rules of RFC 9113, hostile clients, and ends of streams and connections.

Covers `proxy/http2/server.py`, `proxy/http2/stream.py`, `proxy/http2/frames.py`, `proxy/http2/limits.py` and
`proxy/http2/unsent_bytes.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.proxy.http2_peer import END_HEADERS, END_STREAM, Http2Peer, headers_block, request_headers
from tests.waiting import TIMEOUT_S, until
from thermocline.proxy.http2 import ErrorCode, Http2Limits, Http2Server, Stream, connection, encode_field
from thermocline.proxy.http2.frames import PREFACE, FrameType, Setting, encode_settings
from thermocline.remoting.connections import LimitCounts

HEAD = encode_field(":status", "200")
TRAILERS = encode_field("grpc-status", "0")
REQUEST = headers_block(request_headers("/echo", {}, timeout_ms=None))
LIMITS = Http2Limits()
ACK = 0x1


class Echo:
    """Answers a request with its body, when it is complete; keeps streams that are lost."""

    def __init__(self, stream: Stream, lost: list[int]) -> None:
        self._stream, self._lost = stream, lost
        self._body = bytearray()

    def data_received(self, data: bytes) -> None:
        self._body += data

    def request_ended(self) -> None:
        if not self._stream.headers[":path"].startswith("/silent"):
            self._stream.respond(HEAD, bytes(self._body), TRAILERS)

    def stream_lost(self) -> None:
        self._lost.append(self._stream.stream_id)


class EchoServer:
    def __init__(self, limits: Http2Limits) -> None:
        self.lost: list[int] = []
        self.counts = LimitCounts()
        self.server = Http2Server(self._open, limits=limits, counts=self.counts)
        self.port = 0

    def _open(self, stream: Stream) -> None:
        stream.owner = Echo(stream, self.lost)


@contextlib.asynccontextmanager
async def echo_server(limits: Http2Limits = LIMITS) -> AsyncIterator[EchoServer]:
    echo = EchoServer(limits)
    echo.port = await echo.server.start("127.0.0.1", 0)
    try:
        yield echo
    finally:
        await echo.server.close()


@contextlib.asynccontextmanager
async def peer_of(echo: EchoServer, *, settings: bytes | None = None) -> AsyncIterator[Http2Peer]:
    async with Http2Peer("127.0.0.1", echo.port, settings=settings) as peer:
        yield peer


def ask(peer: Http2Peer, stream_id: int, body: bytes) -> None:
    """Send a whole request."""
    peer.send(FrameType.HEADERS, END_HEADERS, stream_id, REQUEST)
    peer.send(FrameType.DATA, END_STREAM, stream_id, body)


async def body_of(peer: Http2Peer, stream_id: int) -> bytes:
    """The body of one answer, to its trailers."""
    body = b""
    while True:
        frame = await peer.read()
        assert frame is not None
        if frame.stream_id != stream_id:
            continue
        if frame.type == FrameType.DATA:
            body += frame.payload
        if frame.flags & END_STREAM:
            return body


async def test_requests_are_answered_whatever_the_bounds_of_reads() -> None:
    async with echo_server() as echo, peer_of(echo) as peer:
        frames = peer.writer
        whole = bytearray()
        for stream_id in (1, 3):
            whole += struct.pack(">HBBBI", 0, len(REQUEST), FrameType.HEADERS, END_HEADERS, stream_id) + REQUEST
            whole += struct.pack(">HBBBI", 0, 5, FrameType.DATA, END_STREAM, stream_id) + b"hello"
        for place in range(0, len(whole), 7):
            frames.write(bytes(whole[place : place + 7]))
            await frames.drain()
            await asyncio.sleep(0)
        assert [await body_of(peer, 1), await body_of(peer, 3)] == [b"hello", b"hello"]


async def test_padding_priority_and_continuations_are_read() -> None:
    async with echo_server() as echo, peer_of(echo) as peer:
        half = len(REQUEST) // 2
        peer.send(FrameType.HEADERS, 0x20 | 0x8, 1, b"\x03" + b"\0\0\0\0\x10" + REQUEST[:half] + b"\0\0\0")
        peer.send(FrameType.CONTINUATION, 0, 1, REQUEST[half:-1])
        peer.send(FrameType.CONTINUATION, END_HEADERS, 1, REQUEST[-1:])
        peer.send(FrameType.DATA, END_STREAM | 0x8, 1, b"\x02okxx")
        assert await body_of(peer, 1) == b"ok"


async def test_trailers_of_a_request_end_it() -> None:
    async with echo_server() as echo, peer_of(echo) as peer:
        peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)
        peer.send(FrameType.DATA, 0, 1, b"body")
        peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, encode_field("checksum", "1"))
        assert await body_of(peer, 1) == b"body"


@pytest.mark.parametrize(
    "block",
    [
        REQUEST + encode_field(":path", "/other"),
        encode_field("te", "trailers") + REQUEST,
        REQUEST + encode_field(":authority", "behind"),
        REQUEST + encode_field("Content-Type", "application/grpc"),
    ],
)
async def test_a_malformed_request_is_reset_and_the_connection_goes_on(block: bytes) -> None:
    """RFC 9113, 8.1.1."""
    async with echo_server() as echo, peer_of(echo) as peer:
        peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, block)
        reset = await peer.read_until(FrameType.RST_STREAM)
        assert (reset.stream_id, reset.payload) == (1, struct.pack(">I", ErrorCode.PROTOCOL_ERROR))
        ask(peer, 3, b"body")
        assert await body_of(peer, 3) == b"body"


async def test_an_answer_waits_for_the_clients_windows() -> None:
    settings = encode_settings({Setting.INITIAL_WINDOW_SIZE: 10})
    async with echo_server() as echo, peer_of(echo, settings=settings) as peer:
        ask(peer, 1, b"0123456789abcdef")
        frame = await peer.read_until(FrameType.DATA)
        assert (frame.payload, frame.flags) == (b"0123456789", 0)
        peer.send(FrameType.PING, 0, 0, b"12345678")  # nothing more comes before the window is wider
        ping = await peer.read()
        assert ping is not None
        assert ping.type == FrameType.PING
        peer.send(FrameType.WINDOW_UPDATE, 0, 1, struct.pack(">I", 100))
        assert await body_of(peer, 1) == b"abcdef"


async def test_streams_that_wait_for_their_own_windows_cost_nothing_per_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may widen the connection's window, or one stream's, a byte at a time, with thousands closed."""
    looks: list[int] = []
    pump_stream = connection.Http2Connection._pump_stream

    def counted(each: connection.Http2Connection, stream: Stream) -> None:
        looks.append(stream.stream_id)
        pump_stream(each, stream)

    monkeypatch.setattr(connection.Http2Connection, "_pump_stream", counted)
    closed = encode_settings({Setting.INITIAL_WINDOW_SIZE: 0})
    streams, frames = range(1, 201, 2), 1_000
    async with echo_server() as echo, peer_of(echo, settings=closed) as peer:
        for stream_id in streams:
            ask(peer, stream_id, b"answer")
        for _ in range(frames):
            peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))
            peer.send(FrameType.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))
        assert await body_of(peer, 1) == b"answer"
        peer.send(FrameType.SETTINGS, 0, 0, encode_settings({Setting.INITIAL_WINDOW_SIZE: 100})[9:])
        assert await body_of(peer, streams[-1]) == b"answer"
        assert len(looks) <= 10 * len(streams)


async def test_answers_that_no_client_takes_are_bounded_over_all_connections() -> None:
    """A client may keep its windows closed, and open thousands of streams."""
    closed = encode_settings({Setting.INITIAL_WINDOW_SIZE: 0})
    body = bytes(16_000)
    async with (
        echo_server(replace(LIMITS, all_unsent_bytes_max=20 * len(body))) as echo,
        peer_of(echo, settings=closed) as slow,
        peer_of(echo, settings=closed) as greedy,
    ):
        ask(slow, 1, body)
        await slow.read_until(FrameType.HEADERS)
        for stream_id in range(1, 51, 2):
            ask(greedy, stream_id, body)
        await until(lambda: echo.server.connection_count == 1)
        assert echo.counts.totals == {"grpcUnsentBytesMax": 1}
        slow.send(FrameType.WINDOW_UPDATE, 0, 1, struct.pack(">I", len(body)))
        assert await body_of(slow, 1) == body


async def test_answers_that_are_taken_do_not_add_up() -> None:
    closed = encode_settings({Setting.INITIAL_WINDOW_SIZE: 0})
    body = bytes(4_000)
    async with (
        echo_server(replace(LIMITS, all_unsent_bytes_max=3 * len(body))) as echo,
        peer_of(echo, settings=closed) as peer,
        peer_of(echo, settings=closed) as cancelling,
    ):
        for stream_id in range(1, 21, 2):
            for each in (peer, cancelling):
                ask(each, stream_id, body)
                await each.read_until(FrameType.HEADERS)
            peer.send(FrameType.WINDOW_UPDATE, 0, stream_id, struct.pack(">I", len(body)))
            cancelling.send(FrameType.RST_STREAM, 0, stream_id, struct.pack(">I", ErrorCode.CANCEL))
            assert await body_of(peer, stream_id) == body
        assert not echo.counts.totals


async def test_windows_that_change_again_and_again_end_the_connection() -> None:
    """Each change counts for all open streams (CVE-2019-9515)."""
    silent = headers_block(request_headers("/silent", {}, timeout_ms=None))
    async with echo_server(replace(LIMITS, resets_max=50)) as echo, peer_of(echo) as peer:
        peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, silent)
        for number in range(60):
            peer.send(FrameType.SETTINGS, 0, 0, encode_settings({Setting.INITIAL_WINDOW_SIZE: number})[9:])
        assert await peer.error_code() == ErrorCode.ENHANCE_YOUR_CALM


async def test_a_large_answer_is_cut_into_frames_and_a_large_request_gets_windows() -> None:
    async with echo_server() as echo, peer_of(echo) as peer:
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 24))
        peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)
        peer.send(FrameType.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1 << 24))
        body = bytes(range(256)) * 64 * 150  # 2.4 MB, more than a stream's window
        sent = 0
        window = LIMITS.window_bytes
        received = b""
        while len(received) < len(body):
            while sent < len(body) and window >= 16_384:
                peer.send(
                    FrameType.DATA, END_STREAM if sent + 16_384 >= len(body) else 0, 1, body[sent : sent + 16_384]
                )
                sent, window = sent + 16_384, window - 16_384
            frame = await peer.read()
            assert frame is not None
            if frame.type == FrameType.WINDOW_UPDATE and frame.stream_id == 1:
                window += struct.unpack(">I", frame.payload)[0]
            elif frame.type == FrameType.DATA:
                assert len(frame.payload) <= 16_384
                received += frame.payload
        assert received == body


async def test_a_cancelled_stream_is_lost_and_the_others_go_on() -> None:
    async with echo_server() as echo, peer_of(echo) as peer:
        peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)
        peer.send(FrameType.RST_STREAM, 0, 1, struct.pack(">I", ErrorCode.CANCEL))
        ask(peer, 3, b"x")
        assert await body_of(peer, 3) == b"x"
        assert echo.lost == [1]


BROKEN = {
    "a frame before SETTINGS": [(FrameType.PING, 0, 0, b"12345678")],
    "a frame that is too large": [(FrameType.DATA, 0, 1, b"x" * 16_385)],
    "data on an unknown stream": [(FrameType.DATA, 0, 1, b"x")],
    "an even stream": [(FrameType.HEADERS, END_HEADERS, 2, REQUEST)],
    "a frame within a header block": [(FrameType.HEADERS, 0, 1, REQUEST), (FrameType.PING, 0, 0, b"12345678")],
    "a continuation of nothing": [(FrameType.CONTINUATION, END_HEADERS, 1, REQUEST)],
    "padding over the end": [(FrameType.HEADERS, END_HEADERS, 1, REQUEST), (FrameType.DATA, 0x8, 1, b"\x09x")],
    "a window of zero": [(FrameType.WINDOW_UPDATE, 0, 0, b"\0\0\0\0")],
    "a window that is too wide": [(FrameType.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff")],
    "settings that are cut short": [(FrameType.SETTINGS, 0, 0, b"\0")],
    "settings of a stream": [(FrameType.SETTINGS, 0, 1, b"")],
    "a ping of another size": [(FrameType.PING, 0, 0, b"x")],
    "a pushed promise": [(FrameType.PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2")],
    "a header block that cannot be read": [(FrameType.HEADERS, END_HEADERS, 1, b"\x80")],
    "two header blocks": [(FrameType.HEADERS, END_HEADERS, 1, REQUEST), (FrameType.HEADERS, END_HEADERS, 1, REQUEST)],
    "a reset of no stream": [(FrameType.RST_STREAM, 0, 9, b"\0\0\0\0")],
    "an endless header block": [
        (FrameType.HEADERS, 0, 1, REQUEST),
        *[(FrameType.CONTINUATION, 0, 1, encode_field("x", "y" * 8_000))] * 6,
    ],
    "empty continuations": [(FrameType.HEADERS, 0, 1, REQUEST), (FrameType.CONTINUATION, 0, 1, b"")],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_breaks_the_rules_ends_the_connection_with_an_error(name: str) -> None:
    settings = b"" if name == "a frame before SETTINGS" else None
    async with echo_server() as echo, peer_of(echo, settings=settings) as peer:
        for frame in BROKEN[name]:
            peer.send(*frame)
        assert await peer.error_code() not in (None, ErrorCode.NO_ERROR)
        await until(lambda: echo.server.connection_count == 0)


async def test_a_peer_that_speaks_something_else_is_closed() -> None:
    async with echo_server() as echo:
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
        writer.close()


async def test_too_many_cancelled_streams_end_the_connection() -> None:
    """Each cancelled at once: cheap for the client, work for the server (CVE-2023-44487)."""
    async with echo_server(replace(LIMITS, resets_max=50)) as echo, peer_of(echo) as peer:
        for stream_id in range(1, 2 * 60, 2):
            peer.send(FrameType.HEADERS, END_HEADERS, stream_id, REQUEST)
            peer.send(FrameType.RST_STREAM, 0, stream_id, struct.pack(">I", ErrorCode.CANCEL))
        assert await peer.error_code() == ErrorCode.ENHANCE_YOUR_CALM


async def test_streams_that_are_cancelled_after_a_while_end_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "YOUNG_STREAM_S", 0.0)
    silent = headers_block(request_headers("/silent", {}, timeout_ms=None))
    async with echo_server(replace(LIMITS, resets_max=5)) as echo, peer_of(echo) as peer:
        ids = range(1, 41, 2)
        for stream_id in ids:
            peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, stream_id, silent)
        for stream_id in ids:
            peer.send(FrameType.RST_STREAM, 0, stream_id, bytes(4))
        ask(peer, 41, b"another client's")
        assert await body_of(peer, 41) == b"another client's"
        assert echo.lost == list(ids)


async def test_streams_over_the_limit_are_refused() -> None:
    silent = headers_block(request_headers("/silent", {}, timeout_ms=None))
    async with echo_server(replace(LIMITS, streams_max=2)) as echo, peer_of(echo) as peer:
        for stream_id in (1, 3, 5):
            peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, stream_id, silent)
        reset = await peer.read_until(FrameType.RST_STREAM)
        assert (reset.stream_id, reset.payload) == (5, struct.pack(">I", ErrorCode.REFUSED_STREAM))


async def test_metadata_over_the_limit_refuse_their_request_alone() -> None:
    limits = replace(LIMITS, header_list_bytes_max=1_000)
    async with echo_server(limits) as echo, peer_of(echo) as peer:
        large = REQUEST + encode_field("x-large", "y" * 2_000)
        peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, large)
        answer = await peer.read_until(FrameType.HEADERS)
        assert answer.payload == encode_field(":status", "431")
        ask(peer, 3, b"x")
        assert await body_of(peer, 3) == b"x"


async def test_a_connection_over_the_limit_is_closed_and_counted() -> None:
    async with echo_server(replace(LIMITS, address_connections_max=1)) as echo, peer_of(echo) as peer:
        await peer.read_until(FrameType.SETTINGS)
        async with peer_of(echo) as second:
            assert await second.read() is None
        assert echo.counts.totals == {"serverConnectionsPerAddressMax": 1}


async def test_idle_connections_and_endless_requests_end() -> None:
    limits = replace(LIMITS, idle_ms=200, request_timeout_ms=200, settings_timeout_ms=200)
    async with echo_server(limits) as echo:
        async with peer_of(echo) as peer:
            peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)  # and no body, ever
            reset = await peer.read_until(FrameType.RST_STREAM)
            assert reset.stream_id == 1
            assert await peer.error_code() == ErrorCode.NO_ERROR
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        writer.write(PREFACE[:5])
        await until(lambda: echo.server.connection_count == 0)
        writer.close()
        del reader


async def test_what_waits_of_a_large_answer_is_not_copied_for_each_frame() -> None:
    body = bytes(1 << 20)
    opened: list[Stream] = []

    def respond(stream: Stream) -> None:
        opened.append(stream)
        stream.owner = Echo(stream, [])
        stream.respond(HEAD, body, TRAILERS)

    server = Http2Server(respond, limits=LIMITS, counts=LimitCounts())
    try:
        async with Http2Peer("127.0.0.1", await server.start("127.0.0.1", 0)) as peer:
            peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)
            await until(lambda: opened and opened[0].pending_bytes == len(body) - 65_535)
            (rest,) = opened[0].pending
            assert isinstance(rest, memoryview)
            assert rest.obj is body
    finally:
        await server.close()


async def test_an_answer_that_is_not_taken_is_cut_off_alone() -> None:
    narrow = encode_settings({Setting.INITIAL_WINDOW_SIZE: 10})
    limits = replace(LIMITS, idle_ms=400, answer_timeout_ms=400)
    async with echo_server(limits) as echo, peer_of(echo, settings=narrow) as peer:
        for stream_id in (1, 3):
            ask(peer, stream_id, bytes(150))
        taken = {1: 0, 3: 0}
        while echo.lost != [1]:  # the third stream's client is slow
            frame = await peer.read()
            assert frame is not None
            if frame.type == FrameType.DATA:
                taken[frame.stream_id] += len(frame.payload)
                if frame.stream_id == 3:
                    await asyncio.sleep(0.05)
                    peer.send(FrameType.WINDOW_UPDATE, 0, 3, (10).to_bytes(4, "big"))
            elif frame.type == FrameType.RST_STREAM:
                assert (frame.stream_id, frame.payload) == (1, int(ErrorCode.CANCEL).to_bytes(4, "big"))
        assert taken[1] == 10
        while taken[3] < 150:
            frame = await peer.read()
            assert frame is not None
            assert frame.type in (FrameType.DATA, FrameType.RST_STREAM, FrameType.PING)
            if frame.type == FrameType.DATA:
                taken[frame.stream_id] += len(frame.payload)
                peer.send(FrameType.WINDOW_UPDATE, 0, 3, (10).to_bytes(4, "big"))


async def test_answers_that_wait_for_the_connections_window_are_cut_off() -> None:
    limits = replace(LIMITS, idle_ms=200, answer_timeout_ms=200)
    wide = encode_settings({Setting.INITIAL_WINDOW_SIZE: 1 << 20})
    async with echo_server(limits) as echo, peer_of(echo, settings=wide) as peer:
        for stream_id in (1, 3):
            peer.send(FrameType.HEADERS, END_HEADERS, stream_id, REQUEST)
            for _ in range(5):
                peer.send(FrameType.DATA, 0, stream_id, bytes(16_000))
            peer.send(FrameType.DATA, END_STREAM, stream_id)
        await until(lambda: sorted(echo.lost) == [1, 3])


async def test_a_client_that_is_gone_loses_its_streams() -> None:
    limits = replace(LIMITS, idle_ms=200, sign_timeout_ms=200)
    silent = headers_block(request_headers("/silent", {}, timeout_ms=None))
    async with echo_server(limits) as echo, peer_of(echo) as peer:
        peer.send(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, silent)
        for _ in range(3):  # as long as it answers, it stays
            assert (await peer.read_until(FrameType.PING)).payload == bytes(8)
            peer.send(FrameType.PING, ACK, 0, bytes(8))
        assert (echo.lost, echo.server.stream_count) == ([], 1)
        await until(lambda: echo.lost == [1])
        await until(lambda: echo.server.connection_count == 0)


async def test_a_client_that_does_not_take_the_end_is_closed_all_the_same() -> None:
    limits = replace(LIMITS, idle_ms=200, sign_timeout_ms=200, unsent_bytes_max=64 << 20)
    wide = encode_settings({Setting.INITIAL_WINDOW_SIZE: 1 << 30})
    async with echo_server(limits) as echo, peer_of(echo, settings=wide) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket's transport
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big"))
        peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)
        for _ in range(1_000):  # more than the kernel keeps
            peer.send(FrameType.DATA, 0, 1, bytes(16_000))
        peer.send(FrameType.DATA, END_STREAM, 1)
        await until(lambda: echo.server.connection_count == 0)


async def test_a_client_that_does_not_read_is_closed() -> None:
    async with echo_server(replace(LIMITS, unsent_bytes_max=1 << 20)) as echo, peer_of(echo) as peer:
        transport = peer.writer.transport
        transport.pause_reading()  # type: ignore[attr-defined]  # of a socket's transport
        await until(lambda: _flood(peer) or echo.server.connection_count == 0, pause_s=0)
        await until(lambda: echo.server.connection_count == 0)


def _flood(peer: Http2Peer) -> bool:
    if not peer.writer.is_closing():
        for _ in range(200):
            peer.send(FrameType.PING, 0, 0, b"12345678")
    return False


async def test_closing_sends_what_is_unsent_and_says_goodbye() -> None:
    async with echo_server() as echo, peer_of(echo) as peer:
        peer.send(FrameType.HEADERS, END_HEADERS, 1, REQUEST)
        await until(lambda: echo.server.stream_count == 1)
        await echo.server.stop_accepting()
        peer.send(FrameType.DATA, END_STREAM, 1, b"late")
        assert await body_of(peer, 1) == b"late"
        peer.send(FrameType.HEADERS, END_HEADERS, 3, REQUEST)
        reset = await peer.read_until(FrameType.RST_STREAM)
        assert reset.stream_id == 3
        await echo.server.close()
        assert await peer.read() is None


async def test_a_client_that_says_hello_while_the_server_stops_is_sent_away() -> None:
    async with echo_server() as echo:
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        await until(lambda: echo.server.connection_count == 1)
        await echo.server.stop_accepting()
        writer.write(PREFACE + encode_settings({}))
        received = b""
        while bytes((0, 0, 8, FrameType.GOAWAY)) not in received:
            piece = await asyncio.wait_for(reader.read(4_096), timeout=TIMEOUT_S)
            assert piece
            received += piece
        writer.close()
