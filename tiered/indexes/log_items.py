"""LogItems: segments and packs with their ranges of log places, as columns; Unindexed: those that no index object
covers.

A catalog may have a million segments, and indexing searches for unindexed ones after every commit: it uses the columns
of their lists (`segment_list.py`), only of changed topics, and only unindexed segments become objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.segments import SegmentEntry, SegmentList

Item = SegmentEntry | PackEntry
Longs = npt.NDArray[np.int64]

END_OF_LOG = PhysicalOffset(1 << 62)


def item_id(item: Item) -> str:
    """The id of a segment or pack."""
    return item.segment_id if isinstance(item, SegmentEntry) else item.pack_id


class LogItems(msgspec.Struct, frozen=True):
    """In the order in which a catalog has them; places [start, end), and how many records each holds."""

    items: Sequence[Item]
    starts: Longs
    ends: Longs
    record_counts: Longs

    @classmethod
    def of(cls, items: Iterable[Item]) -> LogItems:
        """Columns of these items."""
        there = list(items)
        columns = [(each.min_physical_offset, each.end_physical_offset, each.record_count) for each in there]
        starts, ends, counts = np.array(columns, np.int64).reshape(-1, 3).T
        return cls(there, starts, ends, counts)

    @classmethod
    def between_of(cls, segments: SegmentList, start: PhysicalOffset, end: PhysicalOffset) -> LogItems:
        """The segments with places in [start, end)."""
        items, columns = segments.columns_between(start, end)
        return cls(items, *columns)

    @classmethod
    def of_catalog(cls, catalog: Catalog) -> LogItems:
        """All live segments and packs."""
        segments: Iterable[Item] = (segment for topic in catalog.topics.values() for segment in topic.segments)
        return cls.of([*segments, *catalog.packs.values()])

    @classmethod
    def joined(cls, parts: Sequence[LogItems]) -> LogItems:
        """Concatenate the parts."""
        return cls(
            [item for part in parts for item in part.items],
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.record_counts for part in parts]),
        )

    @property
    def densities(self) -> npt.NDArray[np.float64]:
        """Records per byte of log, assuming an even distribution in each item."""
        found: npt.NDArray[np.float64] = self.record_counts / np.maximum(1, self.ends - self.starts)
        return found

    def where(self, wanted: npt.NDArray[np.bool_]) -> LogItems:
        """The items selected by the mask."""
        if wanted.all():
            return self
        (rows,) = wanted.nonzero()
        return LogItems(
            [self.items[row] for row in rows.tolist()], self.starts[rows], self.ends[rows], self.record_counts[rows]
        )

    def between(self, start: PhysicalOffset, end: PhysicalOffset) -> LogItems:
        """The items with places in [start, end)."""
        return self.where((self.starts < end) & (self.ends > start))

    def newest_first(self) -> Iterator[Item]:
        """The items by descending end."""
        return (self.items[row] for row in np.argsort(-self.ends, kind="stable").tolist())


NOTHING = LogItems.of(())


class _Topic(msgspec.Struct, frozen=True):
    """A topic's segments, and the unindexed ones among them."""

    segments: SegmentList
    unindexed: LogItems


class Unindexed:
    """Follows one ledger from version to version; belongs to one event loop."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._topics: dict[str, _Topic] = {}
        self._found = NOTHING

    def of(self, catalog: Catalog) -> LogItems:
        """The catalog's items that are behind `indexed_to`, wholly or in part."""
        if catalog is self._catalog:
            return self._found
        before = self._topics
        if self._catalog is not None and catalog.indexed_to < self._catalog.indexed_to:
            before = {}
        self._catalog, self._topics = catalog, {}
        packs = LogItems.of(pack for pack in catalog.packs.values() if pack.end_physical_offset > catalog.indexed_to)
        parts = []
        for name, entry in catalog.topics.items():
            topic = before.get(name)
            if topic is None or topic.segments is not entry.segments:
                unindexed = LogItems.between_of(entry.segments, catalog.indexed_to, END_OF_LOG)
            else:
                unindexed = topic.unindexed
                if unindexed.items:
                    unindexed = unindexed.where(unindexed.ends > catalog.indexed_to)
            if unindexed.items:
                parts.append(unindexed)
            self._topics[name] = _Topic(entry.segments, unindexed)
        self._found = LogItems.joined([*parts, packs])
        return self._found
