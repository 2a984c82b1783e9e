"""Held bytes: bounds on the memory that all connections of a server take together.

    HalfFrames     bytes of frames that are received in part; a frame has a deadline too
    UnsentBytes    bytes of answers that peers do not read

Rules
  - Over the bound, connections are closed until the sum is below it again, so that the other connections are served.
    Half frames: the frame that began first among those of LARGE_BYTES and more, then among the others; an honest frame
    is complete after a moment. Unsent bytes: the connection whose peer has been behind for longest.
  - A frame that is not complete `frame_timeout_s` after its first byte closes its connection, however slowly or fast
    its bytes come. While this side has stopped reading, the time does not count.
  - Connections without a half frame, and those with less than UNSENT_NOTED_BYTES unsent, are not in these tables.
Owner: the server's event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from thermocline.remoting.connections.limit_counts import LimitCounts

if TYPE_CHECKING:
    from thermocline.remoting.connections.connection import Connection

LARGE_BYTES = 256 * 1024
UNSENT_NOTED_BYTES = 64 * 1024
CHECKS_PER_TIMEOUT = 4

RECEIVING_BYTES_MAX = "serverReceivingBytesMax"
FRAME_TIMEOUT = "serverFrameTimeoutMillis"
UNSENT_BYTES_MAX = "serverUnsentBytesMax"


class _HalfFrame(msgspec.Struct):
    bytes: int
    began_s: float


class HalfFrames:
    """The frames of a server's connections that are not complete."""

    def __init__(
        self,
        *,
        bytes_max: int,
        frame_timeout_s: float,
        counts: LimitCounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds."""
        self._bytes_max = bytes_max
        self._frame_timeout_s = frame_timeout_s
        self._counts = counts
        self._clock = clock
        self._frames: dict[Connection, _HalfFrame] = {}  # in the order in which they began
        self._large: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def note(self, connection: Connection, size_bytes: int, *, is_new: bool) -> None:
        """A connection holds so many bytes of a frame; `is_new`: its first bytes came just now.

        It may be closed in this call, and so may others.
        """
        if is_new:
            self.end(connection)
        frame = self._frames.get(connection)
        if frame is None:
            frame = self._frames[connection] = _HalfFrame(0, self._clock())
            if self._timer is None:
                self._watch(connection.loop)
        self.total_bytes += size_bytes - frame.bytes
        frame.bytes = size_bytes
        if size_bytes >= LARGE_BYTES:
            self._large[connection] = None
        while self.total_bytes > self._bytes_max:
            victim = next(iter(self._large or self._frames))
            self._close(victim, RECEIVING_BYTES_MAX, "half-received frames of all connections take too much memory")

    def end(self, connection: Connection) -> None:
        """The frame is complete, or its connection closed."""
        frame = self._frames.pop(connection, None)
        if frame is not None:
            self.total_bytes -= frame.bytes
            self._large.pop(connection, None)

    def expire(self) -> None:
        """Close connections whose frame is past its deadline. Runs by itself, a few times a timeout."""
        now_s = self._clock()
        for connection, frame in list(self._frames.items()):
            if now_s - frame.began_s < self._frame_timeout_s:
                break
            if connection.is_reading_paused:
                self.note(connection, frame.bytes, is_new=True)
            else:
                self._close(connection, FRAME_TIMEOUT, "the frame was not complete in time")

    def _close(self, connection: Connection, limit: str, detail: str) -> None:
        size_bytes = self._frames[connection].bytes
        self._counts.refused(
            limit, address=connection.remote_address, detail=f"connection closed, {detail}, bytes={size_bytes}"
        )
        connection.abort()
        self.end(connection)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._frame_timeout_s / CHECKS_PER_TIMEOUT, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self.expire()
        if self._frames and self._timer is None:
            self._watch(loop)

    def close(self) -> None:
        """Stop the timer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class UnsentBytes:
    """The answers of a server's connections that peers have not read."""

    def __init__(self, *, bytes_max: int, counts: LimitCounts) -> None:
        self._bytes_max = bytes_max
        self._counts = counts
        self._bytes: dict[Connection, int] = {}  # in the order in which peers fell behind
        self.total_bytes = 0

    def note(self, connection: Connection, size_bytes: int) -> None:
        """So much is unsent on a connection, at least UNSENT_NOTED_BYTES. It may be closed here, and so may others."""
        assert size_bytes >= UNSENT_NOTED_BYTES
        self.total_bytes += size_bytes - self._bytes.get(connection, 0)
        self._bytes[connection] = size_bytes
        if self.total_bytes > self._bytes_max:
            self._make_room()

    def end(self, connection: Connection) -> None:
        """The peer has caught up, or the connection closed."""
        self.total_bytes -= self._bytes.pop(connection, 0)

    def __len__(self) -> int:
        return len(self._bytes)

    def _make_room(self) -> None:
        """Measure anew, since peers read without notice; then close until a part of the room is free again."""
        for connection in list(self._bytes):
            size_bytes = connection.unsent_bytes
            self.total_bytes += size_bytes - self._bytes[connection]
            self._bytes[connection] = size_bytes
            if size_bytes < UNSENT_NOTED_BYTES:
                self.end(connection)
        while self.total_bytes > self._bytes_max:
            victim = next(iter(self._bytes))
            self._counts.refused(
                UNSENT_BYTES_MAX,
                address=victim.remote_address,
                detail=f"connection closed, its peer does not read answers, bytes={self._bytes[victim]}",
            )
            victim.abort()
            self.end(victim)
