"""What the live objects of each topic hold: its segments, and its share of packs. Arithmetic on the catalog."""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.segments import NO_SEGMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBytes:
    """Bytes as they are stored, and of the records in them."""

    stored_bytes: int
    raw_bytes: int


def stored_by_topic(catalog: Catalog) -> dict[str, StoredBytes]:
    """By topic; what has expired of a pack that lives counts, as it is stored."""
    stored: dict[str, StoredBytes] = {}
    for name in catalog.topics.keys() | catalog.packed.keys():
        entry, packed = catalog.topics.get(name), catalog.packed.get(name)
        segments = entry.segments if entry is not None else NO_SEGMENTS
        stored[name] = StoredBytes(
            stored_bytes=segments.stored_bytes + (packed.stored_bytes if packed else 0),
            raw_bytes=segments.raw_bytes + (packed.raw_bytes if packed else 0),
        )
    return stored
