"""ByteBudget: how many bytes several users of one resource may hold at a time.

Who comes first is served first: a large share is not overtaken by small ones for ever. A share larger than the whole
budget passes when nobody else holds anything: it makes progress, alone. Cancelling whoever waits frees its place. Who
holds a share and wants another on top (`own_bytes`) must be the only one to do so: two would wait for each other.
Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """See the module's header. `used_bytes` is what is held now."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()
        self.used_bytes = 0

    @property
    def bytes_max(self) -> int:
        """The whole budget."""
        return self._bytes_max

    @property
    def waiting_count(self) -> int:
        """How many wait for their share."""
        return len(self._waiting)

    def resize(self, bytes_max: int) -> None:
        """Another size from now on; what is held stays held."""
        assert bytes_max > 0
        self._bytes_max = bytes_max
        self._serve()

    @asynccontextmanager
    async def hold(self, size_bytes: int, *, own_bytes: int = 0) -> AsyncIterator[None]:
        """Hold a share for the block; waits until there is room, or nobody else holds anything: `own_bytes` is what the
        caller holds already. Cancelling is safe."""
        await self._acquire(size_bytes, own_bytes)
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
            assert self.used_bytes >= 0
            self._serve()

    async def _acquire(self, size_bytes: int, own_bytes: int) -> None:
        if not self._waiting and self._fits(size_bytes, own_bytes):
            self.used_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = turn, size_bytes, own_bytes
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.used_bytes -= size_bytes  # its turn had come in the same moment
            else:
                self._waiting.remove(place)
            self._serve()
            raise

    def _fits(self, size_bytes: int, own_bytes: int) -> bool:
        return self.used_bytes <= own_bytes or self.used_bytes + size_bytes <= self._bytes_max

    def _serve(self) -> None:
        while self._waiting and self._fits(*self._waiting[0][1:]):
            turn, size_bytes, _ = self._waiting.popleft()
            self.used_bytes += size_bytes
            turn.set_result(None)
