"""Stream: one request and its answer on an HTTP/2 connection.

Sending counts against two windows, the stream's and the connection's; what does not fit waits in the stream until
the client widens them. `drain` waits for that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from thermocline.remoting.errors import ConnectionLostError

if TYPE_CHECKING:
    from thermocline.proxy.http2.connection import Http2Connection

__all__ = ["Stream", "StreamOwner"]


class StreamOwner(Protocol):
    """What serves one stream. Every method is called by the connection, on its loop."""

    def data_received(self, data: bytes) -> None:
        """A piece of the request's body came."""

    def request_ended(self) -> None:
        """The request is complete."""

    def stream_lost(self) -> None:
        """The client cancelled the stream, or the connection is lost; nothing can be sent any more."""


class Stream:
    """One stream. Made by its connection."""

    __slots__ = (
        "_waiter",
        "connection",
        "headers",
        "is_closed",
        "is_headed",
        "is_request_ended",
        "is_two_way",
        "opened",
        "owner",
        "pending",
        "pending_bytes",
        "pending_end",
        "progressed",
        "receive_window",
        "send_window",
        "stream_id",
    )

    def __init__(
        self, connection: Http2Connection, stream_id: int, headers: dict[str, str], *, send_window: int
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.headers = headers
        """Names in lower case; of a field that came twice, the first value."""
        self.owner: StreamOwner | None = None
        self.send_window = send_window
        self.receive_window = connection.limits.window_bytes
        self.pending: list[bytes | memoryview] = []
        self.pending_bytes = 0
        """Of a stream that was lost: what was never sent."""
        self.pending_end: bytes | None = None
        """The header block of the trailers that follow what is pending."""
        self.progressed = 0.0
        """While something is pending: when a piece of it was sent last, or it began to wait."""
        self.is_request_ended = False
        self.is_two_way = False
        """Set by the owner: the request's body goes on beside the answer."""
        self.opened = connection.loop.time()
        self.is_headed = False
        self.is_closed = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def awaits_request(self) -> bool:
        """Whether the request is to come to an end."""
        return not (self.is_request_ended or self.is_two_way or self.is_closed)

    def send_headers(self, block: bytes) -> None:
        """Begin the answer with an encoded header block."""
        assert not self.is_headed
        self.is_headed = True
        if not self.is_closed:
            self.connection.send_headers(self, block)

    def send_data(self, data: bytes) -> None:
        """Send a piece of the answer as soon as it fits."""
        assert self.is_headed
        if not self.is_closed:
            self.connection.send_data(self, data)

    def end(self, trailers_block: bytes) -> None:
        """End the answer by trailers, behind all data. The stream is closed then; what it still has to send is sent."""
        if not self.is_closed:
            self.connection.end_stream(self, trailers_block)

    def respond(self, head_block: bytes, data: bytes, trailers_block: bytes) -> None:
        """Send a whole answer; the common case, as one write."""
        if not self.is_closed:
            self.connection.respond(self, head_block, data, trailers_block)

    def reset(self, code: int) -> None:
        """End the stream by an error of HTTP/2."""
        if not self.is_closed:
            self.connection.reset_stream(self, code)

    async def drain(self, *, pending_bytes_max: int) -> None:
        """Wait until no more than so many bytes are pending. Cancelling is safe.

        Raises:
            ConnectionLostError: The stream was lost.
        """
        while self.pending_bytes > pending_bytes_max:
            if self.is_closed:
                raise ConnectionLostError("the stream is closed")
            assert self._waiter is None, "one writer a stream"
            self._waiter = self.connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.is_closed:
            raise ConnectionLostError("the stream is closed")

    def wake(self) -> None:
        """Let a waiting `drain` look again. Called by the connection."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
