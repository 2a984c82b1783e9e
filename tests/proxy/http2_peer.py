"""The connecting half of HTTP/2, for tests of the serving half: frames as they are, and gRPC calls on top.

`Http2Peer` sends any bytes and reads frames; `GrpcPeer` does what a client does. Headers are written as plain literals.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from thermocline.proxy.grpc.messages import SERVICE, messages
from thermocline.proxy.http2.frames import FRAME_HEAD, PREFACE, FrameType, encode_frame, encode_settings
from thermocline.proxy.http2.hpack import HeaderDecoder, encode_field

END_STREAM, END_HEADERS = 0x1, 0x4
ANSWER_TIMEOUT_S = 60.0
CLIENT_ID = "test-client"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that came."""

    type: int
    flags: int
    stream_id: int
    payload: bytes


def headers_block(headers: Mapping[str, str]) -> bytes:
    return b"".join(encode_field(name, value) for name, value in headers.items())


def request_headers(path: str, metadata: Mapping[str, str], *, timeout_ms: int | None) -> dict[str, str]:
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "test"}
    headers |= {"te": "trailers", "content-type": "application/grpc", **metadata}
    return headers if timeout_ms is None else {**headers, "grpc-timeout": f"{timeout_ms}m"}


class Http2Peer:
    """A connection to a server; `async with`."""

    def __init__(
        self, host: str, port: int, *, settings: bytes | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`settings`: the first frame; None: an empty SETTINGS. `tls`: None for a plain connection."""
        self._address = host, port
        self._tls = tls
        self._settings = encode_settings({}) if settings is None else settings

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(*self._address, ssl=self._tls)
        self.writer.write(PREFACE + self._settings)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.writer.close()

    def send(self, frame_type: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        self.writer.write(encode_frame(frame_type, flags, stream_id, payload))

    async def read(self) -> Frame | None:
        """The next frame; None at the connection's end."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                head = await self.reader.readexactly(FRAME_HEAD.size)
                high, low, frame_type, flags, stream_id = FRAME_HEAD.unpack(head)
                return Frame(frame_type, flags, stream_id, await self.reader.readexactly(high << 8 | low))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def read_until(self, frame_type: int) -> Frame:
        """The next frame of a type, others passed over."""
        while True:
            frame = await self.read()
            assert frame is not None, f"the connection ended before a frame of the type {frame_type}"
            if frame.type == frame_type:
                return frame

    async def error_code(self) -> int | None:
        """The code of the GOAWAY that ends the connection; None when it ends without one."""
        code: int | None = None
        while (frame := await self.read()) is not None:
            if frame.type == FrameType.GOAWAY:
                (code,) = struct.unpack(">I", frame.payload[4:8])
        return code


@dataclass(slots=True)
class RpcAnswer:
    """What an RPC was answered."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    reset_code: int | None = None
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    has_more: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> int:
        return int(self.trailers.get("grpc-status", "-1"))

    @property
    def message(self) -> str:
        return self.trailers.get("grpc-message", "")

    def payloads(self) -> list[bytes]:
        """The messages that are complete."""
        found, position = [], 0
        while len(self.data) - position >= 5:
            (size,) = struct.unpack_from(">I", self.data, position + 1)
            if position + 5 + size > len(self.data):
                break
            found.append(bytes(self.data[position + 5 : position + 5 + size]))
            position += 5 + size
        return found


class GrpcPeer:
    """A gRPC client on one connection."""

    def __init__(self, address: str, *, client_id: str | None = CLIENT_ID, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._peer = Http2Peer(host, int(port), tls=tls)
        self._client_id = client_id
        self._answers: dict[int, RpcAnswer] = {}
        self._next_id = 1
        self._task: asyncio.Task[None] | None = None
        self.takes = True
        """Whether it widens its windows by what it has read."""

    async def __aenter__(self) -> Self:
        await self._peer.__aenter__()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._peer.__aexit__(exc_type, exc, traceback)

    @property
    def agreed_protocol(self) -> str | None:
        """By ALPN."""
        protocol: str | None = self._peer.writer.get_extra_info("ssl_object").selected_alpn_protocol()
        return protocol

    def open(
        self,
        path: str,
        payload: bytes | None,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout_ms: int | None = 20_000,
        ends: bool = True,
        is_compressed: bool = False,
    ) -> tuple[int, RpcAnswer]:
        """Begin an RPC; its stream and its answer to come."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        answer = self._answers[stream_id] = RpcAnswer()
        client_headers = {"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}
        if self._client_id is not None:
            client_headers["x-mq-client-id"] = self._client_id
        headers = request_headers(path, {**client_headers, **(metadata or {})}, timeout_ms=timeout_ms)
        self._peer.send(FrameType.HEADERS, END_HEADERS, stream_id, headers_block(headers))
        if payload is not None:
            self.write(stream_id, payload, ends=ends, is_compressed=is_compressed)
        return stream_id, answer

    def write(self, stream_id: int, payload: bytes, *, ends: bool = False, is_compressed: bool = False) -> None:
        data = struct.pack(">BI", is_compressed, len(payload)) + payload
        pieces = [data[start : start + 16_384] for start in range(0, len(data), 16_384)]
        for number, piece in enumerate(pieces, start=1):
            self._peer.send(FrameType.DATA, END_STREAM if ends and number == len(pieces) else 0, stream_id, piece)

    def write_frame(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        """A piece of a message, as one frame."""
        self._peer.send(FrameType.DATA, END_STREAM if ends else 0, stream_id, data)

    def cancel(self, stream_id: int) -> None:
        self._peer.send(FrameType.RST_STREAM, 0, stream_id, struct.pack(">I", 8))

    async def call(self, name: str, request: Any, **more: Any) -> Any:
        """A unary RPC of MessagingService; its answer. Fails when gRPC's status is not OK."""
        _, answer = self.open(f"/{SERVICE}/{name}", request.SerializeToString(), **more)
        await self.done(answer)
        assert answer.status == 0, answer
        (payload,) = answer.payloads()
        return getattr(messages, f"{name}Response").FromString(payload)

    async def stream(self, name: str, request: Any, **more: Any) -> list[Any]:
        """A streaming RPC of MessagingService; its answers."""
        _, answer = self.open(f"/{SERVICE}/{name}", request.SerializeToString(), **more)
        await self.done(answer)
        assert answer.status == 0, answer
        response = getattr(messages, f"{name}Response")
        return [response.FromString(payload) for payload in answer.payloads()]

    async def done(self, answer: RpcAnswer) -> RpcAnswer:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await answer.is_done.wait()
        return answer

    async def answers(self, answer: RpcAnswer, count: int) -> list[bytes]:
        """The payloads of a stream once there are so many."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while len(answer.payloads()) < count:
                assert not answer.is_done.is_set(), answer
                answer.has_more.clear()
                await answer.has_more.wait()
        return answer.payloads()

    async def _read(self) -> None:
        decoder = HeaderDecoder(list_bytes_max=1 << 20)
        while (frame := await self._peer.read()) is not None:
            answer = self._answers.get(frame.stream_id)
            if frame.type == FrameType.DATA:
                for stream_id in (0, frame.stream_id):
                    if frame.payload and self.takes:
                        size = struct.pack(">I", len(frame.payload))
                        self._peer.send(FrameType.WINDOW_UPDATE, 0, stream_id, size)
            if answer is None:
                continue
            if frame.type == FrameType.HEADERS:
                found = dict(decoder.decode(frame.payload))
                if frame.flags & END_STREAM:
                    answer.trailers = found
                else:
                    answer.headers = found
            elif frame.type == FrameType.DATA:
                answer.data += frame.payload
            elif frame.type == FrameType.RST_STREAM:
                (answer.reset_code,) = struct.unpack(">I", frame.payload)
                answer.is_done.set()
            if frame.flags & END_STREAM and frame.type in (FrameType.HEADERS, FrameType.DATA):
                answer.is_done.set()
            answer.has_more.set()
        for answer in self._answers.values():
            answer.is_done.set()
            answer.has_more.set()
