"""FreshIndex: keys and places of the newest segments and packs, in memory until index objects cover them.

    sealed, merged   the writer reads the parts it has just written (`read`), before they are committed
    opened           a process that starts later fetches the same parts once (`lookup_memory.py`)
    indexed, gone    dropped (`follow`)

Bounded in bytes: the newest of the log are kept. Lookups of records that are not cached need requests, with the same
result. Belongs to one event loop, except `read`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.index_format import IndexedPlace
from thermocline.tiered.indexes.fresh_records import RECORD_BYTES, FreshRecords
from thermocline.tiered.indexes.indexed_parts import PartBytes
from thermocline.tiered.indexes.log_items import Item, Unindexed, item_id
from thermocline.tiered.indexes.range_cut import records_behind
from thermocline.tiered.segments import SegmentEntry

FRESH_BYTES_MAX = 24 * 1024 * 1024
"""A range that is due, and what is sealed until the next entry names its objects: a million records of two keys."""
ITEMS_MAX = 256
"""The most segments and packs kept, however small: opening a catalog sends a request or two for each."""

OVERHEAD_BYTES = 1_000
SIZES_MAX = 4_096
"""The most sizes remembered, of cached items or not: an item that proved too large is not fetched again."""


class _Kept(msgspec.Struct):
    item: Item
    records: FreshRecords
    size_bytes: int
    was_live: bool = False


class FreshIndex:
    """By id of the segment or pack."""

    def __init__(self, *, bytes_max: int = FRESH_BYTES_MAX, items_max: int = ITEMS_MAX) -> None:
        self._bytes_max = bytes_max
        self._items_max = items_max
        self._kept: dict[str, _Kept] = {}
        self._sizes: dict[str, int] = {}
        self._catalog: Catalog | None = None
        self._indexed_to = LOG_START
        self.unindexed = Unindexed()
        """Also used by the search for records to index."""
        self.size_bytes = 0

    @property
    def count(self) -> int:
        """The number of cached segments and packs."""
        return len(self._kept)

    def get(self, item: Item) -> FreshRecords | None:
        """The records of a segment or pack, if cached."""
        kept = self._kept.get(item_id(item))
        return kept.records if kept is not None else None

    def find_place(self, place: PhysicalOffset) -> IndexedPlace | None:
        """The record stored at a place, if a cached segment or pack has it."""
        for kept in self._kept.values():
            if kept.item.min_physical_offset <= place < kept.item.end_physical_offset:
                found = kept.records.find_place(place)
                if found is not None:
                    return found
        return None

    def has_room(self, item: Item) -> bool:
        """Whether it would be kept: by its size if that is known, else by a guess."""
        newer = [kept for kept in self._kept.values() if kept.item.end_physical_offset >= item.end_physical_offset]
        newer_bytes = sum(kept.size_bytes for kept in newer)
        size_bytes = self._sizes.get(item_id(item)) or self._guess(item)
        return newer_bytes + size_bytes <= self._bytes_max and len(newer) < self._items_max

    def read(self, item: Item, stored: Iterable[PartBytes]) -> FreshRecords | None:
        """The records to cache of a segment or pack with these parts, in any thread; None without any.

        Raises CorruptDataError when a part is damaged.
        """
        if item.end_physical_offset <= self._indexed_to or self._guess(item) > self._bytes_max:
            return None
        return FreshRecords.of_stored(stored, start=self._indexed_to)

    def add(self, item: Item, records: FreshRecords | None) -> None:
        """Cache the result of `read`, if needed instead of older ones; the item need not be in the catalog yet."""
        if records is None or item_id(item) in self._kept:
            return
        size_bytes = self._sizes[item_id(item)] = records.memory_bytes
        while len(self._sizes) > SIZES_MAX:
            del self._sizes[next(iter(self._sizes))]
        if size_bytes > self._bytes_max:
            return
        self._kept[item_id(item)] = _Kept(item, records, size_bytes)
        self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max or len(self._kept) > self._items_max:
            self._drop(min(self._kept, key=lambda each: self._kept[each].item.end_physical_offset))

    def follow(self, catalog: Catalog) -> None:
        """Drop records that index objects now cover, and items removed from the catalog."""
        if catalog is self._catalog:
            return
        self._catalog, self._indexed_to = catalog, catalog.indexed_to
        for name, kept in list(self._kept.items()):
            item = kept.item
            if isinstance(item, SegmentEntry):
                entry = catalog.topics.get(item.topic)
                is_live = entry is not None and entry.segments.has(name)
            else:
                is_live = name in catalog.packs
            if item.end_physical_offset <= catalog.indexed_to or (kept.was_live and not is_live):
                self._drop(name)
            kept.was_live = is_live

    def missing(self, catalog: Catalog) -> list[Item]:
        """Items that no index object covers and that are not cached, the newest first, as many as may fit."""
        newest_first = self.unindexed.of(catalog).newest_first()
        return list(
            itertools.islice((item for item in newest_first if item_id(item) not in self._kept), self._items_max)
        )

    def _guess(self, item: Item) -> int:
        """The approximate memory of the item's records that no index object covers."""
        return int(records_behind(item, self._indexed_to) * RECORD_BYTES) + OVERHEAD_BYTES

    def _drop(self, name: str) -> None:
        self.size_bytes -= self._kept.pop(name).size_bytes
