"""ByteBudget: bounds the bytes that several users of one resource hold at a time.

First come, first served: small shares do not overtake a large one. A share larger than the whole budget is granted
when no other share is held: so it makes progress, alone. A cancelled waiter gives up its place. Only one user may hold
a share and request another (`own_bytes`): two would wait for each other. Its request goes before all that wait: the
first of them may be too large to fit beside the share that this user holds until it gets the other.
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
        """Hold a share for the block; waits until there is room, or no other share is held. `own_bytes`: the share that
        the caller holds already. Cancelling is safe."""
        await self._acquire(size_bytes, own_bytes)
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
            assert self.used_bytes >= 0
            self._serve()

    async def give_way(self, size_bytes: int) -> None:
        """Let those that wait have a share of this size that the caller holds, and take it again behind them. It must
        not be in use meanwhile. Cancelling is safe."""
        if not self._waiting:
            return
        self.used_bytes -= size_bytes
        self._serve()
        try:
            await self._acquire(size_bytes, 0)
        except BaseException:
            self.used_bytes += size_bytes  # its holder gives it back
            raise

    async def _acquire(self, size_bytes: int, own_bytes: int) -> None:
        if (own_bytes or not self._waiting) and self._fits(size_bytes, own_bytes):
            self.used_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = turn, size_bytes, own_bytes
        if own_bytes:
            self._waiting.appendleft(place)
        else:
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
