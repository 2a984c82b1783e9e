"""Send requests over a few connections, each with a window of them in flight; every answer's code is checked.

For benchmarks whose messages the load generator cannot make, or that ask what was sent and not how fast.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator

from thermocline.remoting.frames import INCOMPLETE_FRAME, frame_end
from thermocline.remoting.socket_address import parse_address

WINDOW = 64
"""Requests in flight on a connection."""
READ_BYTES_MAX = 1 << 18
SUCCESS = b'"code":0,'


class SendFailedError(Exception):
    """A benchmark ends here: its figures would say nothing."""


async def send_all(
    address: str,
    frames: Iterable[bytes],
    *,
    connections: int = 4,
    window: int = WINDOW,
    seconds: float = float("inf"),
) -> int:
    """Send the frames, each once, for so many seconds at most; how many were answered.

    Raises:
        SendFailedError: An answer was no success, or none came.
    """
    shared = iter(frames)
    deadline_s = time.monotonic() + seconds
    return sum(await asyncio.gather(*(_send(address, shared, window, deadline_s) for _ in range(connections))))


async def _send(address: str, frames: Iterator[bytes], window: int, deadline_s: float) -> int:
    reader, writer = await asyncio.open_connection(*parse_address(address))
    answered = in_flight = 0
    buffer = bytearray()
    try:
        while time.monotonic() < deadline_s:
            part = list(itertools.islice(frames, window - in_flight))
            in_flight += len(part)
            if in_flight == 0:
                break
            writer.write(b"".join(part))
            data = await reader.read(READ_BYTES_MAX)
            if not data:
                raise SendFailedError("the broker has closed the connection")
            buffer += data
            start = 0
            while (end := frame_end(buffer, start)) != INCOMPLETE_FRAME:
                if SUCCESS not in buffer[start:end]:
                    raise SendFailedError(f"a send failed: {bytes(buffer[start:end])!r}")
                start, in_flight, answered = end, in_flight - 1, answered + 1
            del buffer[:start]
    finally:
        writer.close()
    return answered
