"""Finds a pack's record by physical offset: by one request for everything behind the `.log` parts; if that is large, by
one for the footer and one for all `.cq` parts.

Topics that were sealed together are interleaved in the log, so nearly every piece of a pack may hold an offset; their
columns are stored end to end, so that one request reads all of them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.pack_pieces import PackPieces
from thermocline.tiered.objects import ObjectStore, SegmentOffset
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.segments import QueueRun, SegmentEntry, decode_columns_footer

TAIL_BYTES_MAX = 16 * 1024 * 1024


class FoundRecord(msgspec.Struct, frozen=True):
    """Where a record of a pack is."""

    segment: SegmentEntry
    run: QueueRun
    queue_offset: QueueOffset


async def find_in_pack(
    pieces: PackPieces, store: ObjectStore, catalog: Catalog, pack: PackEntry, physical_offset: PhysicalOffset
) -> FoundRecord | None:
    """The record stored at `physical_offset`, within the pack's range, if the pack holds it for a live topic.

    Raises the store's errors and CorruptDataError.
    """
    tail = await _tail(store, pack)
    candidates = [
        segment
        for segment in (await pieces.all_of(pack) if tail is None else pieces.in_tail(pack, tail))
        if (packed := catalog.packed.get(segment.topic)) is not None
        and pack.pack_id in packed.packs
        and any(run.min_physical_offset <= physical_offset < run.end_physical_offset for run in segment.runs)
    ]
    if not candidates:
        return None
    start, end = min(each.cq.start for each in candidates), max(each.cq.end for each in candidates)
    if tail is not None:
        columns = tail[start - pack.columns_start : end - pack.columns_start]
    else:
        columns = memoryview(await store.get_range(pack.key, start=start, end=end))
    for segment in candidates:
        part = columns[segment.cq.start - start : segment.cq.end - start]
        footer = decode_columns_footer(part[segment.cq.footer_start - segment.cq.start :])
        for block in footer.blocks_at(physical_offset):
            position = int(block["position"])
            found = footer.decode_block(part[position : position + int(block["stored_bytes"])], block)
            index = int(np.searchsorted(found.physical_offsets, physical_offset))
            if index < len(found.physical_offsets) and int(found.physical_offsets[index]) == physical_offset:
                run = segment.run(found.queue_id)
                assert run is not None
                return FoundRecord(segment, run, found.start_offset + index)
    return None


async def _tail(store: ObjectStore, pack: PackEntry) -> memoryview | None:
    """The bytes behind the `.log` parts; None when their start is not known, or when they are large."""
    if not pack.columns_start or pack.object_bytes - pack.columns_start > TAIL_BYTES_MAX:
        return None
    return memoryview(await store.get_range(pack.key, start=pack.columns_start, end=SegmentOffset(pack.object_bytes)))
