"""Frames that no client would send: the connection ends with an error or goes on, and nothing else happens.

The connection stands on a transport in memory, so that a case costs no socket.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.proxy.http2_peer import headers_block, request_headers
from thermocline.proxy.grpc.calls import Method, MethodKind, ReceivedBytes, RpcCall, RpcService
from thermocline.proxy.http2 import Http2Limits, Stream
from thermocline.proxy.http2.connection import RECEIVE_BYTES, Http2Connection
from thermocline.proxy.http2.frames import PREFACE, FrameType, encode_frame, encode_settings
from thermocline.proxy.http2.unsent_bytes import UnsentBytes
from thermocline.remoting.connections import LimitCounts

REQUEST = headers_block(request_headers("/test/Echo", {"x-mq-client-id": "c"}, timeout_ms=1_000))
TALK = headers_block(request_headers("/test/Talk", {}, timeout_ms=None))
MESSAGE = b"\0\0\0\0\x05hello"


class MemoryTransport(asyncio.Transport):
    """Takes what is written, and tells the protocol when it is closed."""

    def __init__(self) -> None:
        super().__init__(extra={"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.protocol: Http2Connection | None = None
        self.written = bytearray()
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            assert self.protocol is not None
            self.protocol.connection_lost(None)

    def abort(self) -> None:
        self.close()


async def echo(call: RpcCall, request: bytes) -> bytes:
    return request


async def talk(call: RpcCall, request: bytes) -> None:
    while (message := await call.read()) is not None:
        call.write(message)


class Fuzzed:
    """A connection that serves two RPCs."""

    def __init__(self) -> None:
        methods = {
            "/test/Echo": Method(name="Echo", kind=MethodKind.UNARY, handle=echo),
            "/test/Talk": Method(name="Talk", kind=MethodKind.BIDIRECTIONAL, handle=talk),
        }
        self.received = ReceivedBytes(message_bytes_max=1 << 16, bytes_max=1 << 20)
        self.service = RpcService(methods, self.received)
        self.transport = MemoryTransport()
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        on_request: Callable[[Stream], None] = self.service.open
        self.connection = Http2Connection(
            loop=asyncio.get_running_loop(),
            limits=Http2Limits(streams_max=8, window_bytes=1 << 17, resets_max=50),
            unsent_of_all=UnsentBytes(bytes_max=1 << 20, counts=LimitCounts()),
            receive_buffer=self.buffer,
            too_large_block=b"",
            on_request=on_request,
            on_opened=lambda connection: True,
            on_closed=lambda connection: None,
        )
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        for start in range(0, len(data), RECEIVE_BYTES):
            piece = data[start : start + RECEIVE_BYTES]
            self.buffer[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))


def honest_frames(source: random.Random) -> list[bytes]:
    """Frames of a few requests, as a client sends them."""
    frames = [encode_settings({})]
    for stream_id in range(1, 2 * source.randint(1, 6), 2):
        block = source.choice((REQUEST, REQUEST, TALK))
        if source.random() < 0.3:
            place = source.randrange(len(block))
            frames.append(encode_frame(FrameType.HEADERS, 0, stream_id, block[:place]))
            frames.append(encode_frame(FrameType.CONTINUATION, 4, stream_id, block[place:]))
        else:
            frames.append(encode_frame(FrameType.HEADERS, 4, stream_id, block))
        pieces = source.choice(([MESSAGE], [MESSAGE[:3], MESSAGE[3:]], [MESSAGE] * 3, []))
        frames += [encode_frame(FrameType.DATA, 0, stream_id, piece) for piece in pieces]
        if source.random() < 0.8:
            frames.append(encode_frame(FrameType.DATA, 1, stream_id, b""))
    return frames


def any_frame(source: random.Random) -> bytes:
    payload = source.choice(
        (b"", source.randbytes(source.randrange(20)), source.randbytes(4), source.randbytes(8), REQUEST)
    )
    stream_id = source.choice((0, 1, 3, 5, 7, 2, (1 << 31) - 1, source.getrandbits(31)))
    return encode_frame(source.randrange(12), source.getrandbits(8), stream_id, payload)


def mutated(source: random.Random) -> bytes:
    frames = honest_frames(source)
    for _ in range(source.randrange(4)):
        frames.insert(source.randrange(len(frames) + 1), any_frame(source))
    if source.random() < 0.2:
        source.shuffle(frames)
    if source.random() < 0.2:
        del frames[source.randrange(len(frames))]
    data = bytearray(PREFACE + b"".join(frames))
    for _ in range(source.choice((0, 0, 1, 3, 10))):
        data[source.randrange(len(data))] = source.getrandbits(8)
    if source.random() < 0.1:
        place = source.randrange(len(data))
        data[place:place] = struct.pack(">I", source.getrandbits(32))
    return bytes(data)


@pytest.mark.soak
async def test_any_frames_end_the_connection_or_are_served(
    case_count: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    cases = case_count(quick=1_500, soak=300_000)
    answered = 0
    for seed in range(cases):
        source = random.Random(seed)
        fuzzed = Fuzzed()
        data = mutated(source)
        try:
            while data:
                size = source.choice((1, 7, 50, 10_000))
                fuzzed.feed(data[:size])
                data = data[size:]
                if source.random() < 0.1:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            answered += b"grpc-status" in fuzzed.transport.written
            fuzzed.transport.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert fuzzed.service.call_count == 0
            assert fuzzed.received.total_bytes == 0
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert answered > cases // 4, "most cases reach an RPC"
    assert "a bug of ours" not in caplog.text
    assert "Traceback" not in caplog.text
