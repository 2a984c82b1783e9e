"""Indexing: builds index objects for the growing log, merges them, and drops expired ones; beside sealing.

    gate passes          -> IndexBuilder -> commit: `indexes_in`, `indexed_to`
    objects add up       -> IndexMerger  -> commit: `indexes_in`, `indexes_out`
    objects expire       -> commit: `indexes_out`, with one of these or by itself

Its commits wait for the entry of the next round (`TierService.amend_with_next`): an entry costs a request, and
meanwhile lookups use the indexes in memory, or the parts of segments.

One of these at a time, within a budget of bytes (`merging/merging.py`) and of requests. An object is complete before
the ledger names it, and until then the parts of the segments answer: it may stop anywhere. A part that is damaged or
missing stops the indexing of its range until a scrub has healed it, and a full disk stops it until there is room;
lookups still find all records. Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from thermocline.remoting.errors import (
    CorruptDataError,
    DiskFullError,
    FencedError,
    MQError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
)
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog, LedgerChanges, LiveNames
from thermocline.tiered.cost import RequestBudget
from thermocline.tiered.indexes import (
    BloomCache,
    FreshIndex,
    IndexBuilder,
    IndexMerger,
    IndexResult,
    cut,
    expired_indexes,
    is_range_due,
    next_merge,
)
from thermocline.tiered.merging import MergeBudget

logger = logging.getLogger(__name__)

RETRY_MS = 5_000
DAMAGED_RETRY_MS = 600_000

Change = Callable[[Catalog], LedgerChanges | None]


class Indexing:
    """See the module's header."""

    def __init__(
        self,
        *,
        builder: IndexBuilder,
        merger: IndexMerger,
        budget: MergeBudget,
        blooms: BloomCache,
        fresh: FreshIndex,
        catalog: Callable[[], Catalog],
        gate: Callable[[], PhysicalOffset],
        class_of: Callable[[str], str],
        cuts_ms: Callable[[], Mapping[str, int]],
        amend: Callable[[Change], Awaitable[bool]],
        requests: RequestBudget | None = None,
        commit_cost: Callable[[], int] = lambda: 1,
        sweep_interval_ms: int = 60_000,
    ) -> None:
        """`gate`: every record below it that the cold tier is to hold is in `catalog`. `amend`: see TierService.
        `requests`: what is done keeps to it, `commit_cost` of them at most for a commit."""
        self._builder = builder
        self._merger = merger
        self._budget = budget
        self._blooms = blooms
        self._fresh = fresh
        self._catalog = catalog
        self._gate = gate
        self._class_of = class_of
        self._cuts_ms = cuts_ms
        self._amend = amend
        self._requests = requests
        self._commit_cost = commit_cost
        self._sweep_interval_ms = sweep_interval_ms
        self._failed: frozenset[str] = frozenset()
        self._held = contextlib.ExitStack()
        """Requests of the budget that are held while objects are made."""

    async def run(self, changed: asyncio.Event) -> None:
        """Do whatever is due, again whenever `changed` is set, and look for what expires; until cancelled or fenced."""
        had_room = True
        while True:
            pause_ms = self._sweep_interval_ms
            try:
                if await self.run_once():
                    had_room = True
                    continue
                if self._is_due():
                    pause_ms = RETRY_MS  # the budget is negative: wait for time to pass
            except FencedError:
                return  # sealing fails likewise, and logs it
            except ObjectStoreUnavailableError as error:
                logger.debug("nothing indexed: %s retry_ms=%d", error, RETRY_MS)
                await asyncio.sleep(RETRY_MS / 1_000)
            except DiskFullError as error:
                if had_room:
                    logger.warning("nothing is indexed until there is room: %s", error)
                had_room = False
                await asyncio.sleep(RETRY_MS / 1_000)
            except CorruptDataError as error:
                logger.error("not indexed, lookups go by the parts of segments: %s", error)
                await asyncio.sleep(DAMAGED_RETRY_MS / 1_000)
            try:
                async with asyncio.timeout(pause_ms / 1_000):
                    await changed.wait()
            except TimeoutError:
                continue
            changed.clear()

    async def run_once(self) -> bool:
        """One build, merge or sweep, committed; False when none is due.

        Raises:
            ObjectStoreUnavailableError: No answer; what was written has been given up.
            CorruptDataError: A part or an object that is needed is damaged or missing.
            DiskFullError: There is no room to write an object; what was written has been given up.
            FencedError: Another writer has taken over.
        """
        if self._requests is None:
            return (self._budget.is_free and await self.build_or_merge()) or await self._sweep()
        if self._budget.is_free and self._is_due():
            cost = self._cost()
            if self._requests.allows(cost, who="index"):
                with contextlib.ExitStack() as self._held:
                    self._held.enter_context(self._requests.holding(cost))
                    if await self.build_or_merge():
                        return True
        if not expired_indexes(self._catalog(), self._cuts_ms()) or not self._requests.allows(self._commit_cost()):
            return False
        with self._requests.holding(self._commit_cost()):
            return await self._sweep()

    async def build_or_merge(self) -> bool:
        """One build or merge, whatever may be written now; False when none is due, or it was overtaken. Raises as
        `run_once`."""
        catalog, gate = self._catalog(), self._gate()
        if self._is_range_due(catalog, gate):
            return await self._build(catalog, gate)
        names = self._next_merge(catalog)
        return await self._merge(catalog, names) if names else False

    def _is_due(self) -> bool:
        catalog = self._catalog()
        return bool(self._next_merge(catalog)) or self._is_range_due(catalog, self._gate())

    def _is_range_due(self, catalog: Catalog, gate: PhysicalOffset) -> bool:
        return is_range_due(self._fresh.unindexed.of(catalog), start=catalog.indexed_to, gate=gate)

    def _cost(self) -> int:
        """Requests of a build or a merge at most: an object for each class, one of places, the commit."""
        catalog = self._catalog()
        classes = {self._class_of(topic) for topic in catalog.topics.keys() | catalog.packed.keys()}
        return len(classes) + 1 + self._commit_cost()

    def _next_merge(self, catalog: Catalog) -> list[str]:
        """What is to be merged, unless that has failed before."""
        names = [each.index_id for each in next_merge(catalog) or ()]
        return names if self._failed.isdisjoint(names) else []

    async def _build(self, catalog: Catalog, gate: PhysicalOffset) -> bool:
        start = catalog.indexed_to
        items = self._fresh.unindexed.of(catalog)
        end = cut(items, start=start, end=gate)
        assert start < end, "a range that is due holds records"
        assert end <= gate, "all records of the range are committed"
        try:
            result = await self._builder.build(catalog, items, start=start, end=end, class_of=self._class_of)
        except ObjectNotFoundError as error:
            key = error.context.get("key")
            if isinstance(key, str) and key in LiveNames(self._catalog()):
                await self._builder.check_newest()  # another writer may have deleted it
                raise CorruptDataError("an object that the catalog names is missing", **error.context) from error
            logger.info("parts went while they were indexed: %s", error)
            return False

        def change(newest: Catalog) -> LedgerChanges | None:
            if newest.indexed_to != start:
                return None
            return LedgerChanges(
                indexes_in=tuple(result.indexes_in),
                indexes_out=expired_indexes(newest, self._cuts_ms()),
                indexed_to=end,
            )

        return await self._commit(result, change, what="indexed")

    async def _merge(self, catalog: Catalog, names: list[str]) -> bool:
        inputs = [catalog.indexes[name] for name in names]
        try:
            result = await self._merger.merge(inputs, cuts_ms=self._cuts_ms())
        except ObjectNotFoundError as error:
            logger.info("index objects went while they were merged: %s", error)
            if all(name in self._catalog().indexes for name in names):
                await self._builder.check_newest()
                self._failed = self._failed.union(names)  # a scrub makes them anew, under other names
            return False
        except CorruptDataError:
            self._failed = self._failed.union(names)
            raise

        def change(newest: Catalog) -> LedgerChanges | None:
            if not all(name in newest.indexes for name in names):
                return None
            gone = [name for name in expired_indexes(newest, self._cuts_ms()) if name not in names]
            return LedgerChanges(indexes_in=tuple(result.indexes_in), indexes_out=(*names, *gone))

        return await self._commit(result, change, what="index objects merged")

    async def _commit(self, result: IndexResult, change: Change, *, what: str) -> bool:
        self._budget.charge(result.written_bytes)
        self._held.close()  # else the budget might refuse the round whose entry this change waits for
        try:
            is_in = await self._amend(change)
        except MQError:
            # The commit never began. (A cancelled one may have landed: its objects stay as uploads under way.)
            self._builder.give_up(result)
            raise
        if not is_in:
            self._builder.give_up(result)
            return False
        catalog = self._catalog()
        # First what was merged goes: else, where the cache is full, the oldest object's pages would make room for both.
        self._blooms.keep_only(catalog.indexes)
        for index in result.indexes_in:
            if index.index_id in catalog.indexes:
                self._blooms.add(index, result.blooms[index.index_id])
        self._fresh.follow(catalog)
        logger.info(
            "%s objects=%d bytes=%d indexed_to=%d", what, len(catalog.indexes), result.written_bytes, catalog.indexed_to
        )
        return True

    async def _sweep(self) -> bool:
        def change(newest: Catalog) -> LedgerChanges | None:
            gone = expired_indexes(newest, self._cuts_ms())
            return LedgerChanges(indexes_out=gone) if gone else None

        if not expired_indexes(self._catalog(), self._cuts_ms()):
            return False
        swept = await self._amend(change)
        self._blooms.keep_only(self._catalog().indexes)
        return swept
