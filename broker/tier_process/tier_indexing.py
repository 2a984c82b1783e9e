"""Tier indexing: the index objects of a broker that writes, put together; made anew whenever the ledger is opened.

With `coldMergeBytesPerSecond=0` nothing is indexed, as nothing is merged. Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from thermocline.broker.tier_process.lasting_work import keep_working
from thermocline.broker.tier_process.tier_account import TierAccount
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.indexes import BloomCache, FreshIndex, IndexBuilder, IndexMerger
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.merging import MergeBudget
from thermocline.tiered.service import Indexing, TierService


class TierIndexing:
    """`committed` tells it that the catalog or the gate of local deletion has moved."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        service: TierService,
        account: TierAccount,
        config: TierConfig,
        blooms: BloomCache,
        fresh: FreshIndex,
        spool_folder: Path | None,
        clock: Callable[[], int],
    ) -> None:
        self._is_on = config.merge_bytes_per_second > 0
        self._service = service
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.builder = IndexBuilder(writer, spool_folder=spool_folder, clock=clock)
        self._indexing = Indexing(
            builder=self.builder,
            merger=IndexMerger(writer, spool_folder=spool_folder, clock=clock),
            budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=clock),
            blooms=blooms,
            fresh=fresh,
            catalog=lambda: service.catalog,
            gate=self._gate,
            class_of=service.class_of,
            cuts_ms=service.cuts_ms,
            amend=service.amend_with_next,
            requests=account.requests,
            commit_cost=lambda: writer.commit_cost_max,
            sweep_interval_ms=config.sweep_interval_ms,
        )

    def start(self) -> None:
        """Work until `stop`."""
        if self._is_on:
            work = keep_working(lambda: self._indexing.run(self._changed), name="indexing")
            self._task = asyncio.create_task(work, name="indexing")

    def committed(self) -> None:
        """There is something new to look at."""
        self._changed.set()

    async def stop(self) -> None:
        """Stop; idempotent. What was under way is found by the next writer's collector."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _gate(self) -> PhysicalOffset:
        """Every record below it that the cold tier is to hold is in the catalog."""
        self._service.backlog.account()
        return self._service.backlog.committed_offset()
