"""Pack check: reads every byte of one pack, compares it with the catalog, and its pieces with their own footers.

    the object   its size and CRC-32 as the catalog has them; it holds no other pack
    footer       its checksum; every section decodes; topics, incarnations and ranges as the catalog has them
    parts        end to end, nothing between them
    each piece   as any segment (`segment_check.py`)

The pack is fetched once (`spooled_object.py`). Bounded: one pack on the disk, the entries of its pieces in memory.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from thermocline.remoting.errors import CorruptDataError, SegmentSizeError
from thermocline.tiered.catalog import PackPieces
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.objects import FormatTooNewError, ObjectStore, SegmentFormatError
from thermocline.tiered.packs import PackEntry, PieceExtent, extent_of, frame_groups, piece_groups_of, piece_log_starts
from thermocline.tiered.scrub.object_check import OtherSegmentError, problem_with
from thermocline.tiered.scrub.segment_check import SegmentCheck
from thermocline.tiered.segments import MAGIC_BYTES, SegmentEntry
from thermocline.tiered.wrappers import SpooledObject

PIECES_NAMED_MAX = 8


class PackCheck(msgspec.Struct):
    """Checks one pack once. `read_bytes` counts fetched bytes."""

    store: ObjectStore
    pack: PackEntry
    folder: Path | None = None
    read_bytes: int = 0

    async def run(self) -> list[Finding]:
        """Return at most one finding. ObjectStoreUnavailableError when the store gives no answer."""
        async with await SpooledObject.fetch(self.store, self.pack.key, folder=self.folder) as spooled:
            self.read_bytes += spooled.size_bytes
            problem = await problem_with(spooled, self._check_stored)
        return [] if problem is None else [self._finding(*problem)]

    def _finding(self, problem: Problem, detail: str) -> Finding:
        pack = self.pack
        return Finding(kind=ObjectKind.PACK, problem=problem, key=pack.key, detail=detail, segment_id=pack.pack_id)

    async def _check_stored(self, spooled: SpooledObject) -> None:
        pack = self.pack
        owner = await pack_lying_in(spooled, pack.key)
        if owner is not None and owner != pack.key:
            raise OtherSegmentError("another pack is stored here", expected=pack.key, found=owner)
        if spooled.size_bytes != pack.object_bytes:
            raise SegmentSizeError("another size", size_bytes=spooled.size_bytes, expected=pack.object_bytes)
        pieces = await PackPieces(spooled).all_of(pack)
        check_places(pack, pieces)
        check_extents(pack, pieces)
        broken: list[str] = []
        too_new: list[str] = []
        for piece in pieces:
            found = await SegmentCheck(spooled, piece).run()
            too_new += [each.detail for each in found if each.problem is Problem.TOO_NEW]
            if found:
                broken.append(f"{piece.topic} ({', '.join(f'{each.kind}: {each.detail}' for each in found)})")
        if too_new:
            raise FormatTooNewError("pieces are of a later format, and left as they are", pieces="; ".join(too_new[:1]))
        if broken:
            named = "; ".join(broken[:PIECES_NAMED_MAX])
            raise SegmentFormatError("pieces are damaged", count=len(broken), pieces=named)
        if spooled.crc32 != pack.crc32:
            raise SegmentFormatError("the object's checksum is another", expected=pack.crc32, found=spooled.crc32)


async def pack_lying_in(store: ObjectStore, key: str) -> str | None:
    """The key under which the pack at `key` was written, by its own footer; None when it is unreadable."""
    try:
        footer = await PackPieces(store).first_section(key)
    except FormatTooNewError:
        raise
    except CorruptDataError:
        return None
    return footer[0].log.key if footer else None


def check_places(pack: PackEntry, pieces: list[SegmentEntry]) -> None:
    """SegmentFormatError unless the parts are in this pack, end to end between its magic and its footer."""
    position = MAGIC_BYTES
    parts = itertools.chain((each.log for each in pieces), (each.cq for each in pieces), (each.idx for each in pieces))
    for part in parts:
        if (part.key, part.start) != (pack.key, position):
            raise SegmentFormatError("parts do not lie end to end", key=part.key, start=part.start, expected=position)
        position = part.end
    if position != pack.footer_start:
        raise SegmentFormatError("parts do not fill the pack", end=position, footer_start=pack.footer_start)


def check_extents(pack: PackEntry, pieces: list[SegmentEntry]) -> None:
    """SegmentFormatError unless footer and ledger describe the same records."""

    def comparable(extent: PieceExtent) -> tuple[object, ...]:
        return extent.incarnation, extent.raw_bytes, extent.stored_bytes, extent.queues

    for piece, extent in zip(pieces, pack.table().pieces(), strict=True):
        if comparable(extent_of(piece)) != comparable(extent):
            raise SegmentFormatError("pack and ledger speak of different records", key=pack.key, topic=piece.topic)
    sums = (
        sum(piece.record_count for piece in pieces),
        sum(piece.raw_bytes for piece in pieces),
        min(piece.min_store_ms for piece in pieces),
        max(piece.max_store_ms for piece in pieces),
        min(piece.min_physical_offset for piece in pieces),
        max(piece.end_physical_offset for piece in pieces),
    )
    stated = (
        pack.record_count,
        pack.raw_bytes,
        pack.min_store_ms,
        pack.max_store_ms,
        pack.min_physical_offset,
        pack.end_physical_offset,
    )
    if pack.logs:
        starts = piece_log_starts(pack.logs, len(pieces))
        if starts.tolist() != [*(each.log.start for each in pieces), pieces[-1].log.end]:
            raise SegmentFormatError("pack and ledger speak of different parts", key=pack.key)
    if pack.groups:
        for index, groups in piece_groups_of(pack.groups).rows().items():
            if index >= len(pieces) or frame_groups(pieces[index]) != groups:
                raise SegmentFormatError("pack and ledger speak of different frames", key=pack.key)
    if sums != stated:
        raise SegmentFormatError("the ledger's sums are not those of the pieces", key=pack.key)
