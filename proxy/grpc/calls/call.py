"""RpcCall: one RPC between its HTTP/2 stream and its handler.

Messages travel as: 1 byte "compressed" | length, 4 bytes | protobuf. Requests that are compressed are refused, as gRPC
wants it of a server that supports no compression; no client of RocketMQ compresses.

A handler is a coroutine, run as a task of its own; it is cancelled when the client cancels or is lost. Its errors end
the RPC: an RpcError by its status, anything else, which is a bug of ours, as INTERNAL without a word about it.

Bounds: one message `message_bytes_max`, on a bidirectional stream COMMAND_BYTES_MAX; requests of all calls, from their
first byte until they are answered, `bytes_max` (ReceivedBytes); a bidirectional stream's unread messages
MESSAGES_UNREAD_MAX.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from thermocline.proxy.grpc.calls.status import (
    HEAD_BLOCK,
    OK_TRAILERS,
    GrpcStatus,
    RpcError,
    refusal_block,
    trailers_block,
)
from thermocline.proxy.http2 import Balancers, ErrorCode, Stream
from thermocline.remoting.errors import ConnectionLostError
from thermocline.remoting.socket_address import Host

__all__ = ["Method", "MethodKind", "ReceivedBytes", "RpcCall", "RpcService"]

logger = logging.getLogger(__name__)

PREFIX = struct.Struct(
    ">B"  # 1: compressed
    "I"  # length of the message
)
assert PREFIX.size == 5

MESSAGES_UNREAD_MAX = 64
COMMAND_BYTES_MAX = 4 << 20
STREAM_PENDING_BYTES_MAX = 256 * 1024
INTERNAL_SENTENCE = "internal error, see the proxy's log"
_TIMEOUT_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class MethodKind(Enum):
    """What an RPC's two directions carry."""

    UNARY = "unary"
    SERVER_STREAM = "server stream"
    BIDIRECTIONAL = "bidirectional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One RPC: `handle(call, request bytes)`; the answer's bytes for a unary one. Of a bidirectional one no request."""

    name: str
    kind: MethodKind
    handle: Callable[[RpcCall, bytes], Awaitable[bytes | None]]


class ReceivedBytes:
    """What the requests of all calls take together."""

    __slots__ = ("bytes_max", "message_bytes_max", "total_bytes")

    def __init__(self, *, message_bytes_max: int, bytes_max: int) -> None:
        self.message_bytes_max = message_bytes_max
        self.bytes_max = bytes_max
        self.total_bytes = 0


class RpcCall:
    """See the module. The owner of its stream."""

    __slots__ = (
        "_held_bytes",
        "_is_ended",
        "_is_over",
        "_is_two_way",
        "_method",
        "_needed_bytes",
        "_on_done",
        "_received",
        "_rest",
        "_task",
        "_unread",
        "_waiter",
        "code",
        "deadline",
        "is_canceled",
        "metadata",
        "remote_host",
        "stream",
    )

    def __init__(
        self,
        stream: Stream,
        method: Method,
        received: ReceivedBytes,
        on_done: Callable[[RpcCall], None],
        *,
        remote_host: Host,
    ) -> None:
        self.stream = stream
        self.remote_host = remote_host
        """The client's address and port."""
        self.metadata = stream.headers
        """Metadata of the request, names in lower case."""
        self.deadline: float | None = None
        """By the loop's clock; None without one."""
        timeout_text = stream.headers.get("grpc-timeout")
        if timeout_text:
            timeout_s = _timeout_s(timeout_text)
            if timeout_s is not None:
                self.deadline = stream.opened + timeout_s
        self.code = 0
        """The protocol's code of the answer, as the handler sets it; 0: there was none."""
        self.is_canceled = False
        """Whether the client cancelled it, or is gone."""
        self._method = method
        self._is_two_way = method.kind is MethodKind.BIDIRECTIONAL
        self._received = received
        self._on_done = on_done
        self._rest: bytearray | None = None
        """What has come of a message that is not complete; one piece, for a client may send it byte by byte."""
        self._held_bytes = 0
        self._needed_bytes = PREFIX.size
        self._unread: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False
        self._is_over = False

    # -- what a handler uses -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The RPC's name."""
        return self._method.name

    @property
    def kind(self) -> MethodKind:
        """What the RPC's two directions carry."""
        return self._method.kind

    @property
    def local_host(self) -> tuple[str, int]:
        """The address and port that the client connected to."""
        return self.stream.connection.local_host

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_over

    def remaining_ms(self) -> int | None:
        """Milliseconds until the client's deadline, at least 0; None without one."""
        if self.deadline is None:
            return None
        return max(0, int((self.deadline - self.stream.connection.loop.time()) * 1000))

    async def read(self) -> bytes | None:
        """Return the next message of a bidirectional RPC; None when the client has ended its side."""
        while not self._unread:
            if self._is_ended:
                return None
            self._waiter = self.stream.connection.loop.create_future()
            await self._waiter
        message = self._unread.popleft()
        self._hold(-len(message))
        return message

    def begin(self) -> None:
        """Send the head of a streamed answer now; otherwise it goes before the first message."""
        if not self.stream.is_headed:
            self.stream.send_headers(HEAD_BLOCK)

    def write(self, message: bytes) -> int:
        """Send one message of a streamed answer; its bytes on the stream. Lost when the stream is; `drain` tells."""
        return self.write_all((message,))[0]

    def write_all(self, messages: Sequence[bytes]) -> list[int]:
        """Send messages of a streamed answer together; the bytes of each on the stream. Lost when the stream is."""
        self.begin()
        framed = [PREFIX.pack(0, len(message)) + message for message in messages]
        self.stream.send_data(b"".join(framed))
        return list(map(len, framed))

    async def drain(self, *, pending_bytes_max: int = STREAM_PENDING_BYTES_MAX) -> None:
        """Wait until no more than so much of what was written waits for the client's windows.

        Raises:
            ConnectionLostError: It is gone.
        """
        await self.stream.drain(pending_bytes_max=pending_bytes_max)

    @property
    def unsent_bytes(self) -> int:
        """What was written and not sent; of a stream that is lost, then."""
        return self.stream.pending_bytes

    # -- the stream's calls ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: a bidirectional handler runs before any message."""
        if self._is_two_way:
            self.stream.is_two_way = True
            self._run(b"")

    def data_received(self, data: bytes) -> None:
        """Put messages together."""
        if self._is_over or (self._task is not None and not self._is_two_way):
            return
        self._hold(len(data))
        if self._received.total_bytes > self._received.bytes_max:
            self._refuse(GrpcStatus.RESOURCE_EXHAUSTED, "the requests of all clients together take too much")
            return
        if self._rest is None:
            message = _only_message(data)
            if message is not None and len(message) <= self._message_bytes_max:
                self._take_message(message)
                return
            self._rest = bytearray()
        self._rest += data
        if len(self._rest) >= self._needed_bytes:
            self._take_messages(memoryview(self._rest))

    def _take_messages(self, buffer: memoryview) -> None:
        """Take the whole messages at the front, and keep the rest."""
        position, end = 0, len(buffer)
        while end - position >= PREFIX.size:
            is_compressed, size = PREFIX.unpack_from(buffer, position)
            if is_compressed:
                self._refuse(GrpcStatus.UNIMPLEMENTED, "compressed messages are not supported")
                return
            if size > self._message_bytes_max:
                sentence = f"a message may hold {self._message_bytes_max} bytes"
                self._refuse(GrpcStatus.RESOURCE_EXHAUSTED, sentence)
                return
            message_end = position + PREFIX.size + size
            if message_end > end:
                self._needed_bytes = message_end - position
                break
            self._needed_bytes = PREFIX.size
            if not self._take_message(bytes(buffer[position + PREFIX.size : message_end])):
                return
            position = message_end
        self._rest = bytearray(buffer[position:]) if position < end else None

    def request_ended(self) -> None:
        """The client has sent all."""
        self._is_ended = True
        if self._is_over:
            return
        if self._is_two_way:
            self._wake()
        elif self._unread and not self._rest:
            self._run(self._unread.popleft())
        else:
            self._refuse(GrpcStatus.INVALID_ARGUMENT, "the request is not one whole message")

    def stream_lost(self) -> None:
        """The client cancelled, or is gone."""
        self.is_canceled = True
        self._over()
        if self._task is not None:
            self._task.cancel()

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _message_bytes_max(self) -> int:
        bytes_max = self._received.message_bytes_max
        return min(bytes_max, COMMAND_BYTES_MAX) if self._is_two_way else bytes_max

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._received.total_bytes += size_bytes

    def _take_message(self, message: bytes) -> bool:
        """Keep a message until it is read; False when it is one too many, which ends the call."""
        if len(self._unread) >= (MESSAGES_UNREAD_MAX if self._is_two_way else 1):
            self._refuse(GrpcStatus.RESOURCE_EXHAUSTED, "more messages than are read")
            return False
        self._unread.append(message)
        self._wake()
        return True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _refuse(self, status: GrpcStatus, message: str) -> None:
        self._end(status, message)
        if self._task is not None:
            self._task.cancel()

    def _end(self, status: GrpcStatus, message: str = "") -> None:
        if self._is_over:
            return
        self._over()
        stream = self.stream
        if stream.is_headed:
            stream.end(trailers_block(status, message))
        elif status is GrpcStatus.OK:
            stream.send_headers(HEAD_BLOCK)
            stream.end(OK_TRAILERS)
        else:
            stream.end(refusal_block(status, message))

    def _over(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._hold(-self._held_bytes)
            self._rest = None
            self._on_done(self)

    def _run(self, request: bytes) -> None:
        self._task = self.stream.connection.loop.create_task(self._serve(request))

    async def _serve(self, request: bytes) -> None:
        try:
            answer = await self._method.handle(self, request)
        except RpcError as error:
            self._end(error.status, error.message)
        except ConnectionLostError:
            self.is_canceled = True
            self.stream.reset(ErrorCode.CANCEL)
            self._over()
        except asyncio.CancelledError:
            self._end(GrpcStatus.UNAVAILABLE, "the proxy stops")
            raise
        except Exception:
            logger.exception("an RPC failed, a bug of ours method=%s", self._method.name)
            self._end(GrpcStatus.INTERNAL, INTERNAL_SENTENCE)
        else:
            if answer is None:
                self._end(GrpcStatus.OK)
            elif not self._is_over:
                self._over()
                self.stream.respond(HEAD_BLOCK, PREFIX.pack(0, len(answer)) + answer, OK_TRAILERS)

    def cancel(self) -> None:
        """End the RPC because the proxy stops."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._end(GrpcStatus.UNAVAILABLE, "the proxy stops")


class RpcService:
    """The RPCs by their paths; what an Http2Server gives its requests to."""

    def __init__(
        self,
        methods: dict[str, Method],
        received: ReceivedBytes,
        *,
        on_done: Callable[[RpcCall], None] = lambda call: None,
        balancers: Balancers | None = None,
    ) -> None:
        """`methods`: by `/package.Service/Method`. `on_done` is called with each RPC that has ended. `balancers`: those
        that tell a client's address; None: a client is what is connected."""
        self._balancers = balancers or Balancers()
        self._on_done = on_done
        self._methods = methods
        self._received = received
        self._calls: set[RpcCall] = set()
        self._done: asyncio.Event | None = None

    @property
    def call_count(self) -> int:
        """RPCs that are open."""
        return len(self._calls)

    def open(self, stream: Stream) -> None:
        """Give a new stream its RPC, or answer that there is none."""
        headers = stream.headers
        if headers.get(":method") != "POST" or not headers.get("content-type", "").startswith("application/grpc"):
            stream.end(refusal_block(GrpcStatus.INVALID_ARGUMENT, "this is a gRPC port", http_status=415))
            return
        method = self._methods.get(headers.get(":path", ""))
        if method is None:
            stream.end(refusal_block(GrpcStatus.UNIMPLEMENTED, "there is no such method"))
            return
        remote_host = self._balancers.client_host(stream.connection.remote_host, headers)
        call = RpcCall(stream, method, self._received, self._forget, remote_host=remote_host)
        self._calls.add(call)
        stream.owner = call
        call.start()

    async def wait_done(self, *, timeout_ms: int) -> None:
        """Return when no RPC is open, or the time is over."""
        self._done = asyncio.Event()
        if self._calls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._done.wait()

    def _forget(self, call: RpcCall) -> None:
        self._calls.discard(call)
        self._on_done(call)
        if self._done is not None and not self._calls:
            self._done.set()

    def cancel_all(self, kinds: frozenset[MethodKind] = frozenset(MethodKind)) -> None:
        """End the RPCs of these kinds because the proxy stops."""
        for call in tuple(self._calls):
            if call.kind in kinds:
                call.cancel()


def _only_message(data: bytes) -> bytes | None:
    """The message that is all of `data`, and is not compressed; None where it is anything else."""
    if len(data) < PREFIX.size or data[0] or int.from_bytes(data[1 : PREFIX.size], "big") != len(data) - PREFIX.size:
        return None
    return data[PREFIX.size :]


def _timeout_s(text: str) -> float | None:
    """The value of `grpc-timeout`: up to 8 digits and a unit; None where it cannot be read."""
    if not text[:-1].isdecimal() or len(text) > 9:
        return None
    unit_s = _TIMEOUT_UNITS_S.get(text[-1])
    return None if unit_s is None else int(text[:-1]) * unit_s
