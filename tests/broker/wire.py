"""A connection without a socket: bytes in, bytes out, through the real Connection."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.connections.connection import ChunkHandler, Connection, RequestHandler
from thermocline.remoting.frames import INCOMPLETE_FRAME, LENGTH, frame_end

DEADLINE_S = 10
HIGH_WATER_BYTES = 1 << 20
PEER = ("10.7.0.1", 4711)


class RoundHandler(ChunkHandler, Protocol):
    """A fast path that keeps some frames until the loop has read what came."""

    def end_round(self) -> None:
        """Handle them."""


class WireTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": PEER, "sockname": ("127.0.0.1", 10911)})
        self.written = bytearray()
        self.has_written = asyncio.Event()
        self.protocol: Connection | None = None
        self.is_slow = False
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.written += data
        self.has_written.set()
        if self.is_slow and len(self.written) > HIGH_WATER_BYTES and self.protocol is not None:
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self.is_slow else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def pause_reading(self) -> None:
        """The test decides what is received."""

    def resume_reading(self) -> None:
        """The test decides what is received."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True


class Wire:
    """One client's end. What it sends makes a round of the loop of its own."""

    def __init__(self, handler: RequestHandler, chunk_handler: RoundHandler | None = None) -> None:
        self._chunk_handler = chunk_handler
        self.connection = Connection(
            loop=asyncio.get_running_loop(), handler=handler, chunk_handler=chunk_handler, is_server=True
        )
        self._transport = WireTransport()
        self._transport.protocol = self.connection
        self.connection.connection_made(self._transport)

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed the connection."""
        return self._transport.is_closing()

    def receive(self, data: bytes) -> None:
        """Let the broker receive bytes, in chunks no larger than its buffer, and handle them."""
        self.receive_in_round(data)
        self.end_round()

    def receive_in_round(self, data: bytes) -> None:
        """The same, but the round goes on: other connections may receive something in it too."""
        view = memoryview(data)
        while view:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.connection.buffer_updated(count)
            view = view[count:]

    def end_round(self) -> None:
        """The loop has read all that came."""
        if self._chunk_handler is not None:
            self._chunk_handler.end_round()
        self.connection.flush()

    def slow_down(self) -> None:
        """Take nothing of what is sent from now on, until `catch_up`."""
        self._transport.is_slow = True

    def catch_up(self) -> bytes:
        """Take what was sent so far, and let the broker know."""
        written = self.drain()
        self.connection.resume_writing()
        return written

    def drain(self) -> bytes:
        """What was sent since the last call."""
        written = bytes(self._transport.written)
        self._transport.written.clear()
        self._transport.has_written.clear()
        return written

    def take_commands(self) -> list[RemotingCommand]:
        """The frames that were sent since the last call."""
        return split_frames(self.drain())

    async def wait_commands(self, count: int = 1) -> list[RemotingCommand]:
        """The next frames that are sent, exactly as many."""
        commands = self.take_commands()
        async with asyncio.timeout(DEADLINE_S):
            while len(commands) < count:
                await self._transport.has_written.wait()
                commands += self.take_commands()
        assert len(commands) == count
        return commands

    def lose(self) -> None:
        """The client goes away."""
        self.connection.connection_lost(None)


def split_frames(data: bytes) -> list[RemotingCommand]:
    """Whole frames, one after the other."""
    commands: list[RemotingCommand] = []
    position = 0
    while (end := frame_end(data, position)) != INCOMPLETE_FRAME:
        commands.append(decode_command(data[position + LENGTH.size : end]))
        position = end
    assert position == len(data)
    return commands
