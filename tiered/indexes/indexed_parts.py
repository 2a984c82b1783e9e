"""The input of index objects: the `.cq` and `.idx` parts of segments and pieces, as columns; never records.

The bytes of a pack behind the `.log` parts are one request; a segment is one request, or two if its parts are separate
objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog, PackPieces
from thermocline.tiered.index_format import salt_of, salted
from thermocline.tiered.objects import ObjectStore, SegmentFormatError, SegmentOffset
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.segments import (
    ColumnsFooter,
    Hashes,
    SegmentEntry,
    decode_columns_footer,
    decode_key_index_footer,
)

Longs = npt.NDArray[np.int64]


class IndexedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one segment in a range of the log, in no order, and their keys: `key_records` has the record of
    each key. `newest_ms`: no record was stored after that."""

    topic: str
    incarnation: int
    places: Longs
    sizes: Longs
    queue_ids: Longs
    offsets: Longs
    newest_ms: Longs
    oldest_ms: int
    key_hashes: Hashes
    key_records: Longs


class PartBytes(msgspec.Struct, frozen=True):
    """Stored parts of a segment."""

    entry: SegmentEntry
    cq: memoryview
    idx: memoryview


def part_bytes(columns: Iterable[tuple[SegmentEntry, bytes, bytes]]) -> Iterator[PartBytes]:
    """The stored parts of segments just written: entry, `.cq` and `.idx` part of each."""
    return (PartBytes(entry, memoryview(cq), memoryview(idx)) for entry, cq, idx in columns)


async def stored_parts(
    store: ObjectStore, catalog: Catalog, item: SegmentEntry | PackEntry, *, wants: Callable[[str], bool]
) -> list[PartBytes]:
    """The parts of a segment, or of the live pieces of a pack, of topics that are wanted.

    Raises the store's errors and CorruptDataError.
    """
    if isinstance(item, PackEntry):
        return await _parts_of_pack(store, catalog, item, wants)
    if not wants(item.topic):
        return []
    cq, idx = item.cq, item.idx
    if cq.key == idx.key and cq.end == idx.start:
        both = memoryview(await store.get_range(cq.key, start=cq.start, end=idx.end))
        return [PartBytes(item, both[: cq.size_bytes], both[cq.size_bytes :])]
    return [
        PartBytes(
            item,
            memoryview(await store.get_range(cq.key, start=cq.start, end=cq.end)),
            memoryview(await store.get_range(idx.key, start=idx.start, end=idx.end)),
        )
    ]


async def _parts_of_pack(
    store: ObjectStore, catalog: Catalog, pack: PackEntry, wants: Callable[[str], bool]
) -> list[PartBytes]:
    if pack.columns_start:
        start = pack.columns_start
        tail = memoryview(await store.get_range(pack.key, start=start, end=SegmentOffset(pack.object_bytes)))
        pieces = PackPieces.in_tail(pack, tail)
    else:
        pieces = await PackPieces(store).all_of(pack)
        start, end = min(each.cq.start for each in pieces), max(each.idx.end for each in pieces)
        tail = memoryview(await store.get_range(pack.key, start=start, end=end))
    return [
        PartBytes(
            piece,
            tail[piece.cq.start - start : piece.cq.end - start],
            tail[piece.idx.start - start : piece.idx.end - start],
        )
        for piece in pieces
        if wants(piece.topic)
        and (packed := catalog.packed.get(piece.topic)) is not None
        and pack.pack_id in packed.packs
        and packed.incarnation == piece.incarnation
    ]


def decode_part(part: PartBytes, *, start: PhysicalOffset, end: PhysicalOffset) -> IndexedPart | None:
    """The records with places in [start, end); None without any. CorruptDataError when a part is damaged."""
    entry = part.entry
    if entry.min_physical_offset >= end or entry.end_physical_offset <= start:
        return None
    footer = columns_footer_of(part)
    columns = [_columns(part.cq, footer, block) for block in footer.blocks]
    places, sizes, queue_ids, offsets = (np.concatenate(each) for each in zip(*columns, strict=True))
    newest = np.concatenate([np.full(run.record_count, run.max_store_ms, np.int64) for run in entry.runs])
    inside = (places >= start) & (places < end)
    if not inside.any():
        return None
    numbers = np.cumsum(inside) - 1
    hashes, ordinals = decode_all_keys(part.idx, entry)
    wanted = inside[ordinals]
    return IndexedPart(
        topic=entry.topic,
        incarnation=entry.incarnation,
        places=places[inside],
        sizes=sizes[inside],
        queue_ids=queue_ids[inside],
        offsets=offsets[inside],
        newest_ms=newest[inside],
        oldest_ms=entry.min_store_ms,
        key_hashes=salted(hashes[wanted], salt_of(entry.topic, entry.incarnation)),
        key_records=numbers[ordinals[wanted]],
    )


def columns_footer_of(part: PartBytes) -> ColumnsFooter:
    """The footer of the `.cq` part. CorruptDataError when it is damaged, or another segment's."""
    entry, footer = part.entry, decode_columns_footer(part.cq)
    if str(footer.segment_id) != entry.segment_id or footer.record_count != entry.record_count:
        raise SegmentFormatError(
            "another segment is stored here", expected=entry.segment_id, found=str(footer.segment_id)
        )
    return footer


def _columns(cq: memoryview, footer: ColumnsFooter, block: np.void) -> tuple[Longs, Longs, Longs, Longs]:
    position = int(block["position"])
    found = footer.decode_block(cq[position : position + int(block["stored_bytes"])], block)
    count = len(found.sizes)
    return (
        found.physical_offsets,
        found.sizes.astype(np.int64),
        np.full(count, found.queue_id, np.int64),
        found.start_offset + np.arange(count, dtype=np.int64),
    )


def decode_all_keys(idx: memoryview, entry: SegmentEntry) -> tuple[Hashes, Longs]:
    """Hash and ordinal of every entry of an `.idx` part, by hash."""
    footer = decode_key_index_footer(idx)
    if str(footer.segment_id) != entry.segment_id:
        raise SegmentFormatError(
            "another segment is stored here", expected=entry.segment_id, found=str(footer.segment_id)
        )
    hashes, ordinals = [np.empty(0, np.uint32)], [np.empty(0, np.int64)]
    for block in footer.blocks:
        position = int(block["position"])
        stored = idx[position : position + int(block["stored_bytes"])]
        found = footer.decode_block(stored, entry_count=int(block["entry_count"]))
        hashes.append(found[0])
        ordinals.append(found[1].astype(np.int64))
    joined = np.concatenate(ordinals)
    if len(joined) and int(joined.max()) >= entry.record_count:
        raise SegmentFormatError("a key names a record that the segment has not", segment_id=entry.segment_id)
    return np.concatenate(hashes), joined
