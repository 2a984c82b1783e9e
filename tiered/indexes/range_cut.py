"""The range of the log for one index object: about RECORDS_MAX records at most. Arithmetic on items.

The number of records in a range is estimated from the catalog, assuming an even distribution in each segment and pack.
"""

from __future__ import annotations

import numpy as np

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.indexes.log_items import Item, LogItems

RECORDS_MAX = 1 << 19
"""Some 220 bytes of memory each, while it is made. Half as many made twice as many objects: a pack of messages of 1 KiB
that come at 1 MiB/s holds 117 000, and four packs are one range."""


def cut(
    items: LogItems, *, start: PhysicalOffset, end: PhysicalOffset, records_max: int = RECORDS_MAX
) -> PhysicalOffset:
    """The end of a range from `start` with at most about `records_max` records; at most `end`, and not behind the last
    record: places behind it may not be durable in the log, and be assigned again.
    """
    there = items.between(start, end)
    densities = there.densities
    # The changes of records per byte of log: up where an item begins, down where it ends.
    places = np.concatenate([np.maximum(there.starts, start), np.minimum(there.ends, end)])
    changes = np.concatenate([densities, -densities])
    last_end, at, records, density = start, start, 0.0, 0.0
    for row in np.lexsort((changes, places)).tolist():
        place, change = PhysicalOffset(places[row]), float(changes[row])
        if records + density * (place - at) > records_max:
            break
        records, at = records + density * (place - at), place
        density += change
        if change < 0:
            last_end = place
    if last_end > start or not there.items:
        return last_end
    return max(start + 1, at + int((records_max - records) / density))


def records_behind(item: Item, start: PhysicalOffset) -> float:
    """The approximate number of records of a segment or pack at or behind a place."""
    first, end = item.min_physical_offset, item.end_physical_offset
    return item.record_count / max(1, end - first) * max(0, end - max(start, first))
