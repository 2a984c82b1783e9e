"""BloomCache: bloom pages of index objects in memory, so that looking up an absent key costs no request.

Bounded in bytes: the newest objects of the log are kept, as most lookups are for new records; pages that do not fit
are not kept. Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.tiered.index_format import IndexEntry

BLOOMS_BYTES_MAX = 122 * 1024 * 1024


class BloomCache:
    """By id of the object."""

    def __init__(self, *, bytes_max: int = BLOOMS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pages: dict[str, tuple[int, bytes]] = {}
        self.size_bytes = 0

    def get(self, index: IndexEntry) -> bytes | None:
        """All bloom pages of an object, if cached."""
        found = self._pages.get(index.index_id)
        return found[1] if found is not None else None

    def has_room(self, index: IndexEntry) -> bool:
        """Whether the pages would be kept."""
        older_bytes = sum(len(pages) for end, pages in self._pages.values() if end < index.end)
        return self.size_bytes - older_bytes + index.bloom_bytes <= self._bytes_max

    def add(self, index: IndexEntry, pages: bytes) -> None:
        """Cache the pages, if needed instead of those of older objects."""
        assert len(pages) == index.bloom_bytes
        if not pages or index.index_id in self._pages or not self.has_room(index):
            return
        while self.size_bytes + len(pages) > self._bytes_max:
            oldest = min(self._pages, key=lambda index_id: self._pages[index_id][0])
            self._drop(oldest)
        self._pages[index.index_id] = (index.end, pages)
        self.size_bytes += len(pages)

    def keep_only(self, live: Iterable[str]) -> None:
        """Drop the pages of objects removed from the catalog."""
        live = set(live)
        for index_id in [index_id for index_id in self._pages if index_id not in live]:
            self._drop(index_id)

    def _drop(self, index_id: str) -> None:
        self.size_bytes -= len(self._pages.pop(index_id)[1])
