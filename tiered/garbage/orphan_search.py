"""Orphan search: finds, by listing, the objects of earlier epochs that no readable version names.

A listing of a year's history takes minutes, so it goes on bit by bit, and commits are made meanwhile. What is found
stays an orphan: a writer commits only objects of its own epoch, so no later version names it. What is named when it is
listed, and removed later, is known to the collector by the catalog.
Belongs to the writer's loop. Bounded by the orphans found: a crash leaves a few.
"""

from __future__ import annotations

from thermocline.tiered.catalog import LiveNames
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.segments import segment_id_of


class OrphanSearch:
    """`found`: parts, packs and index objects, key to size in bytes. Objects of other names are left alone."""

    def __init__(self, writer: LedgerWriter) -> None:
        keys = writer.keys
        self.found: dict[str, int] = {}
        self._writer = writer
        self._prefixes = [keys.topics_prefix, keys.packs_prefix, keys.indexes_prefix]
        self._listed_to = ""

    async def go_on(self, *, keys_max: int | None = None) -> bool:
        """List up to `keys_max` further objects, or all of them; True once the search has come to its end.

        ObjectStoreUnavailableError when there is no answer: the next call goes on.
        """
        catalog, count = self._writer.catalog, 0
        live, removed = LiveNames(catalog), {key for segment in catalog.removed for key in segment.keys}
        while self._prefixes:
            async for info in self._writer.store.list(self._prefixes[0], start_after=self._listed_to):
                if count == keys_max:
                    return False
                count, self._listed_to = count + 1, info.key
                if self._is_earlier(info.key) and info.key not in removed and info.key not in live:
                    self.found[info.key] = info.size_bytes
            del self._prefixes[0]
            self._listed_to = ""
        return True

    def _is_earlier(self, key: str) -> bool:
        segment_id = segment_id_of(key)
        return segment_id is not None and segment_id.epoch < self._writer.epoch
