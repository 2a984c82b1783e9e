"""InFlight: how much a producer has under way, and who waits for it to become less.

Bounds: a number of messages and of bytes; a single message always fits, however large. Counted is a message from its
start to its outcome, lingering included.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["InFlight"]


class InFlight:
    """Counts and bounds. Belongs to the producer's loop."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Future[None] | None = None

    @property
    def has_room(self) -> bool:
        """Whether another message may begin."""
        return self._count == 0 or (self._count < self._count_max and self._bytes < self._bytes_max)

    def add(self, count: int, size_bytes: int) -> None:
        """These begin."""
        self._count += count
        self._bytes += size_bytes

    def remove(self, count: int, size_bytes: int) -> None:
        """These have their outcome."""
        self._count -= count
        self._bytes -= size_bytes
        assert self._count >= 0
        assert self._bytes >= 0
        if self._waiting:
            self._wake_next()
        if self._count == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def wait_for_room(self) -> None:
        """Return when another message may begin."""
        while not self.has_room:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self._wake_next()  # the turn was ours, and passes on
                raise
            # The caller counts itself before this is called, or it was refused and there is still room for the next.
            asyncio.get_running_loop().call_soon(self._wake_next)

    async def wait_until_idle(self) -> None:
        """Return when nothing is under way."""
        if self._count:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _wake_next(self) -> None:
        """Wake one who waits: it counts itself when it runs, and wakes the next if there is room for more."""
        while self._waiting and self.has_room:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
