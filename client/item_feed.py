"""ItemFeed: what one thread reads from an iterable, for a coroutine that takes it on a background loop.

An iterable of the application may wait, for a file, a database or a person. Read on the loop, it would hold up all that
the client does there, and some iterables belong to their thread. So the calling thread reads it.

Bound: `count_max` items wait; the thread that puts a further one waits too.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from thermocline.client.blocking import BackgroundLoop
from thermocline.remoting.errors import ClosedError

__all__ = ["ItemFeed"]

T = TypeVar("T")


class ItemFeed(Generic[T]):
    """One thread calls `put` and `end`, one coroutine iterates; `close` may come from either."""

    def __init__(self, loop: BackgroundLoop, *, count_max: int) -> None:
        self._loop = loop
        self._items: deque[T] = deque()
        self._room = threading.Semaphore(count_max)
        self._arrived = asyncio.Event()
        self._is_waiting = False
        self._has_ended = False
        self._is_closed = False

    def put(self, item: T) -> bool:
        """Hand an item over, once there is room; False when no more are taken.

        Raises:
            ClosedError: The loop has ended.
        """
        self._room.acquire()
        if self._is_closed:
            return False
        self._items.append(item)
        self._wake()
        return True

    def end(self) -> None:
        """No more items come."""
        self._has_ended = True
        with contextlib.suppress(ClosedError):
            self._wake()

    def close(self) -> None:
        """No more items are taken."""
        self._is_closed = True
        self._room.release()

    async def __aiter__(self) -> AsyncIterator[T]:
        """Give each item, as soon as it comes."""
        while True:
            has_ended = self._has_ended  # first: the last item was put before it was set
            while self._items:
                self._room.release()
                yield self._items.popleft()
            if has_ended:
                return
            self._arrived.clear()
            self._is_waiting = True
            if not self._items and not self._has_ended:  # what comes from here on finds the flag
                await self._arrived.wait()
            self._is_waiting = False

    def _wake(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.post(self._arrived.set)
