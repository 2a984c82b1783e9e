"""IndexPolicy: when a range is indexed, which index objects are merged, and which have expired. Arithmetic on catalogs.

    a range     up to the gate, as soon as it wholly contains ITEMS_MIN segments and packs that may hold one topic, or
                RECORDS_MAX records of any topics: this bounds the memory of lookups
    a merge     FAN_IN adjacent objects of one class and level
    slots       the time to live of a class is divided into SLOTS; no merge crosses the border of a slot, and once a
                slot is over its objects become one. So an object expires whole, at most one slot after its first record
    the cap     no class has more than OBJECTS_MAX objects: then the adjacent ones that are smallest together are
                merged, whatever their levels and slots are

So a topic has at most SLOTS + 1 objects of slots that are over, FAN_IN - 1 a level of the one that goes on, and
ITEMS_MIN segments or packs behind them: OBJECTS_MAX + ITEMS_MIN together.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.index_format import PLACES, IndexEntry
from thermocline.tiered.indexes.log_items import LogItems
from thermocline.tiered.indexes.range_cut import RECORDS_MAX
from thermocline.tiered.packs import PackEntry, longest_ttl_ms, ttl_class

ITEMS_MIN = 4
FAN_IN = 4
SLOTS = 12
OBJECTS_MAX = 28


def is_range_due(unindexed: LogItems, *, start: PhysicalOffset, gate: PhysicalOffset) -> bool:
    """Whether the unindexed records from `start` to the gate are worth an object."""
    below = unindexed.where((unindexed.ends > start) & (unindexed.ends <= gate))
    if (below.densities * (below.ends - np.maximum(below.starts, start))).sum() >= RECORDS_MAX:
        return True
    packs, segments = Counter[str](), Counter[str]()
    for item in below.items:
        if isinstance(item, PackEntry):
            packs[item.ttl_class] += 1
        else:
            segments[item.topic] += 1
    return max(packs.values(), default=0) + max(segments.values(), default=0) >= ITEMS_MIN


def next_merge(catalog: Catalog) -> list[IndexEntry] | None:
    """Adjacent objects of one class to merge, in the order of the log; None when none are due."""
    by_class: dict[str, list[IndexEntry]] = {}
    for index in sorted(catalog.indexes.values(), key=lambda each: each.start):
        by_class.setdefault(index.ttl_class, []).append(index)
    for name in sorted(by_class):
        slot_ms = _slot_ms(catalog, name)
        found = choose_of_class(by_class[name], slot_ms)
        if found is not None:
            return found
    return None


def expired_indexes(catalog: Catalog, cuts_ms: Mapping[str, int]) -> tuple[str, ...]:
    """The objects whose records were all stored before their topics' cuts, as the serving broker reported them, or are
    of deleted topics."""
    newest_cut_ms = max(cuts_ms.values(), default=0)
    suspects = [
        index
        for index in catalog.indexes.values()
        if index.max_store_ms < newest_cut_ms or not _topics_of(index, catalog)
    ]
    return tuple(
        index.index_id
        for index in suspects
        if all(index.max_store_ms < cuts_ms.get(topic, 0) for topic in _topics_of(index, catalog))
    )


def _topics_of(index: IndexEntry, catalog: Catalog) -> list[str]:
    return [name for name, topic in catalog.topics.items() if not topic.deleted and index.may_hold(name)]


def _slot_ms(catalog: Catalog, name: str) -> int | None:
    """The length of a class's slot; None without a time to live. Places use the longest time to live of any topic."""
    if name != PLACES:
        ttl_ms = longest_ttl_ms(name)
    else:
        times = [catalog.ttl_ms(topic.topic) for topic in catalog.topics.values() if not topic.deleted]
        limited = [each for each in times if each is not None]
        ttl_ms = longest_ttl_ms(ttl_class(max(limited))) if limited and len(limited) == len(times) else None
    return None if ttl_ms is None else max(1, ttl_ms // SLOTS)


class LeveledObject(Protocol):
    """The properties of an index object that decide about merges."""

    @property
    def level(self) -> int:
        """How often its content was merged."""

    @property
    def max_store_ms(self) -> int:
        """Store time of its newest record."""

    @property
    def object_bytes(self) -> int:
        """Its size."""


Leveled = TypeVar("Leveled", bound=LeveledObject)


def choose_of_class(indexes: Sequence[Leveled], slot_ms: int | None) -> list[Leveled] | None:
    """The objects of one class to merge, in the order of the log; `slot_ms`: the length of a slot, None without any."""
    slots = [
        list(group)
        for _, group in itertools.groupby(indexes, key=lambda each: each.max_store_ms // slot_ms if slot_ms else 0)
    ]
    for number, slot in enumerate(slots):
        if slot_ms and number < len(slots) - 1 and len(slot) > 1:
            return slot
        for start in range(len(slot) - FAN_IN + 1):
            part = slot[start : start + FAN_IN]
            if len({each.level for each in part}) == 1:
                return part
    if len(indexes) > OBJECTS_MAX:
        starts = range(len(indexes) - FAN_IN + 1)
        smallest = min(starts, key=lambda at: sum(each.object_bytes for each in indexes[at : at + FAN_IN]))
        return list(indexes[smallest : smallest + FAN_IN])
    return None
