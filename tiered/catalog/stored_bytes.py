"""The stored bytes of each topic: its live segments, and its share of live packs. Arithmetic on the catalog."""

from __future__ import annotations

import msgspec

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.segments import NO_SEGMENTS


class StoredBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as they are stored, and of the records in them."""

    stored_bytes: int
    raw_bytes: int


def stored_by_topic(catalog: Catalog) -> dict[str, StoredBytes]:
    """By topic; expired records in a live pack count, as they are stored."""
    stored: dict[str, StoredBytes] = {}
    for name in catalog.topics.keys() | catalog.packed.keys():
        entry, packed = catalog.topics.get(name), catalog.packed.get(name)
        segments = entry.segments if entry is not None else NO_SEGMENTS
        stored[name] = StoredBytes(
            stored_bytes=segments.stored_bytes + (packed.stored_bytes if packed else 0),
            raw_bytes=segments.raw_bytes + (packed.raw_bytes if packed else 0),
        )
    return stored
