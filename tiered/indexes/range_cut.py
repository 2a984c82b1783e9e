"""How much of the log one index object is made of: ranges of at most RECORDS_MAX records or so. Arithmetic on catalogs.

What a range holds is guessed from what the catalog says of each segment and pack, as if its records lay evenly.
"""

from __future__ import annotations

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.indexes.indexed_parts import items_between
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.segment_entry import SegmentEntry

RECORDS_MAX = 1 << 18
"""Some 220 bytes of memory each, while it is made."""


def cut(catalog: Catalog, *, start: int, end: int, records_max: int = RECORDS_MAX) -> int:
    """Up to where a range from `start` holds `records_max` records at most, by what the catalog says; at most `end`,
    and no further than records lie: what is behind the last one may not be durable in the log, and be given out again.
    """
    end = min(end, max((item.end_physical_offset for item in items_between(catalog, start, end)), default=start))
    changes = [change for item in items_between(catalog, start, end) for change in _changes(item, start, end)]
    last_end, at, records, density = start, start, 0.0, 0.0
    for place, change in sorted(changes):
        if records + density * (place - at) > records_max:
            break
        records, at = records + density * (place - at), place
        density += change
        if change < 0:
            last_end = place
    if last_end > start or not changes:
        return last_end
    return max(start + 1, at + int((records_max - records) / density))


def records_behind(item: SegmentEntry | PackEntry, start: int) -> float:
    """About how many records of a segment or pack lie at or behind a place."""
    return _density(item) * max(0, item.end_physical_offset - max(start, item.min_physical_offset))


def _changes(item: SegmentEntry | PackEntry, start: int, end: int) -> tuple[tuple[int, float], tuple[int, float]]:
    """Where the number of records a byte of log changes, and by how much: up where it begins, down where it ends."""
    density = _density(item)
    return (max(start, item.min_physical_offset), density), (min(end, item.end_physical_offset), -density)


def _density(item: SegmentEntry | PackEntry) -> float:
    return item.record_count / max(1, item.end_physical_offset - item.min_physical_offset)
