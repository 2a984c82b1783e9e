"""Slumber: a process that stands still for a while, as in a virtual machine that is paused, and then goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from thermocline.tiered.objects.object_store import ObjectInfo, ObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore


class Slumber:
    """Where the sleeper sleeps, and with it all that it does."""

    def __init__(self) -> None:
        self.asleep = asyncio.Event()
        self.woken = asyncio.Event()

    async def sleep(self) -> None:
        """Until it is woken."""
        self.asleep.set()
        await self.woken.wait()

    async def pause(self) -> None:
        """What other tasks of a process do while it sleeps."""
        if self.asleep.is_set():
            await self.woken.wait()


class SleepingObjectStore(WrappingObjectStore):
    """No request goes out while its process sleeps, nor is an answer heard."""

    def __init__(self, inner: ObjectStore, slumber: Slumber) -> None:
        super().__init__(inner)
        self._slumber = slumber

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        await self._slumber.pause()
        result = await attempt()
        await self._slumber.pause()
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        await self._slumber.pause()
        async for info in self._inner.list(prefix, start_after=start_after):
            await self._slumber.pause()
            yield info
        await self._slumber.pause()
