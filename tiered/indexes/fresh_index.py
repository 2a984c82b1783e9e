"""FreshIndex: what of the newest segments and packs lookups need, in memory until index objects cover it.

    sealed, merged   the writer reads what it has just written (`read`), before it is committed
    opened           whoever begins later fetches the same parts once (`lookup_memory.py`)
    indexed, gone    dropped (`follow`)

Bounded in bytes: the newest of the log keep their place. What is not here costs lookups requests, and is found all the
same. Belongs to one event loop, but for `read`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

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
"""No more than so many are kept, however small: who opens the catalog sends a request or two for each."""

OVERHEAD_BYTES = 1_000
SIZES_MAX = 4_096
"""Of so many the sizes are remembered, kept or not: what has turned out too large is not fetched again."""


@dataclass(slots=True)
class _Kept:
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
        self._indexed_to = 0
        self.unindexed = Unindexed()
        """Whoever looks for something to index looks there, too."""
        self.size_bytes = 0

    @property
    def count(self) -> int:
        """Segments and packs that are here."""
        return len(self._kept)

    def get(self, item: Item) -> FreshRecords | None:
        """What is known of a segment or pack, if it is here."""
        kept = self._kept.get(item_id(item))
        return kept.records if kept is not None else None

    def find_place(self, place: int) -> IndexedPlace | None:
        """The record that lay at a place, if one of those here has it."""
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
        """What is to be kept of a segment or pack with these parts, by whatever thread; None when nothing is.

        CorruptDataError leaves when a part is damaged.
        """
        if item.end_physical_offset <= self._indexed_to or self._guess(item) > self._bytes_max:
            return None
        return FreshRecords.of_stored(stored, start=self._indexed_to)

    def add(self, item: Item, records: FreshRecords | None) -> None:
        """Keep what `read` has given, if need be instead of older ones; it need not be in the catalog yet."""
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
        """Let go of what index objects cover by now, and of what has left the catalog."""
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
        """What no index object covers and is not here, the newest first, no more than there might be room for."""
        newest_first = self.unindexed.of(catalog).newest_first()
        return list(
            itertools.islice((item for item in newest_first if item_id(item) not in self._kept), self._items_max)
        )

    def _guess(self, item: Item) -> int:
        """About how many bytes the records take that no index object covers."""
        return int(records_behind(item, self._indexed_to) * RECORD_BYTES) + OVERHEAD_BYTES

    def _drop(self, name: str) -> None:
        self.size_bytes -= self._kept.pop(name).size_bytes
