"""Index objects made beside rounds, on a clock that is moved: as in a tier process, what is made waits for the next
round's entry."""

from __future__ import annotations

import asyncio

from thermocline.tiered.service import Change, Indexing, TierService


class IndexingBeside:
    """`amend` is the one of the `Indexing` that `step` is given."""

    def __init__(self, service: TierService) -> None:
        self._service = service
        self._waits = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def amend(self, change: Change) -> bool:
        """See TierService.amend_with_next."""
        if self._service.wait_for_entry_ms() > 0:
            self._waits.set()
        try:
            return await self._service.amend_with_next(change)
        finally:
            self._waits.clear()

    async def step(self, indexing: Indexing) -> None:
        """Work until nothing is due, or what was made waits for a round."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(_run_all(indexing))
        waits = asyncio.create_task(self._waits.wait())
        await asyncio.wait({self._task, waits}, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """What waits for a round is not committed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def _run_all(indexing: Indexing) -> None:
    while await indexing.run_once():
        pass
