"""LookupMemory: indexes kept in memory for lookups: bloom pages of index objects, keys and places of newer records.

    there at once    indexes of data that this process has written
    `load`           everything else, as far as there is room: called once after opening a catalog. One request for an
                     index object, a pack, a segment whose parts follow one another, two for one whose parts are objects
    missed           an index that a lookup lacked is loaded the same way, in the background

Without either cache no index is kept, and no source is excluded without a request. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.index_format import IndexedPlace, IndexEntry, IndexObject
from thermocline.tiered.indexes import BloomCache, FreshIndex, FreshRecords, Item, stored_parts
from thermocline.tiered.objects import ObjectStore, run_all

logger = logging.getLogger(__name__)

CONCURRENCY_MAX = 4


class LookupMemory:
    """See the module's header."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        catalog: Callable[[], Catalog],
        blooms: BloomCache | None,
        fresh: FreshIndex | None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._blooms = blooms
        self._fresh = fresh
        self._followed: Catalog | None = None
        self._loading: asyncio.Task[None] | None = None

    def blooms_of(self, index: IndexEntry) -> bytes | None:
        """All bloom pages of an index object, if cached."""
        if self._blooms is None:
            return None
        self._follow()
        pages = self._blooms.get(index)
        if pages is None and self._blooms.has_room(index):
            self.load_soon()
        return pages

    def records_of(self, item: Item, *, start: PhysicalOffset) -> FreshRecords | None:
        """The records of a segment or pack at or behind the place `start`, if all of them are cached."""
        if self._fresh is None:
            return None
        self._follow()
        records = self._fresh.get(item)
        if records is None:
            if item.end_physical_offset > self._catalog().indexed_to and self._fresh.has_room(item):
                self.load_soon()
            return None
        return records if records.start <= max(start, item.min_physical_offset) else None

    def find_place(self, place: PhysicalOffset) -> IndexedPlace | None:
        """The record stored at a place, if cached."""
        if self._fresh is None:
            return None
        self._follow()
        return self._fresh.find_place(place)

    async def load(self) -> None:
        """Fetch missing indexes that fit.

        Raises the store's errors and CorruptDataError; indexes fetched by then stay.
        """
        catalog = self._follow()
        await run_all([self._fetch(wanted) for wanted in self._missing(catalog)], concurrency_max=CONCURRENCY_MAX)

    def load_soon(self) -> None:
        """Run `load` in the background; failures are left to the next run."""
        if (self._blooms is not None or self._fresh is not None) and (self._loading is None or self._loading.done()):
            self._loading = asyncio.get_running_loop().create_task(self._load_in_background(), name="lookup-memory")

    async def close(self) -> None:
        """Stop fetching."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    def _follow(self) -> Catalog:
        """Drop the indexes of objects removed from the catalog; return the catalog."""
        catalog = self._catalog()
        if self._followed is not catalog:
            self._followed = catalog
            if self._blooms is not None:
                self._blooms.keep_only(catalog.indexes)
            if self._fresh is not None:
                self._fresh.follow(catalog)
        return catalog

    def _missing(self, catalog: Catalog) -> list[Item | IndexEntry]:
        """The indexes to fetch: of unindexed items, the newest first, then bloom pages, the newest first."""
        items: list[Item | IndexEntry] = []
        if self._fresh is not None:
            items += self._fresh.missing(catalog)
        if self._blooms is not None:
            newest = sorted(catalog.indexes.values(), key=lambda each: each.end, reverse=True)
            items += [index for index in newest if index.page_count and self._blooms.get(index) is None]
        return items

    async def _fetch(self, wanted: Item | IndexEntry) -> None:
        if isinstance(wanted, IndexEntry):
            if self._blooms is not None and self._blooms.has_room(wanted):
                self._blooms.add(wanted, await IndexObject(self._store, wanted).blooms())
        elif self._fresh is not None and self._fresh.has_room(wanted):
            stored = await stored_parts(self._store, self._catalog(), wanted, wants=lambda topic: True)
            self._fresh.add(wanted, await asyncio.to_thread(self._fresh.read, wanted, stored))

    async def _load_in_background(self) -> None:
        async def fetch(wanted: Item | IndexEntry) -> None:
            try:
                await self._fetch(wanted)
            except MQError as error:
                logger.debug("not loaded, lookups ask for it: %s", error)

        loaded: Catalog | None = None
        while loaded is not self._catalog():  # it may have moved meanwhile
            loaded = self._follow()
            await run_all([fetch(wanted) for wanted in self._missing(loaded)], concurrency_max=CONCURRENCY_MAX)
