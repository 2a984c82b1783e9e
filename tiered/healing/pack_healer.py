"""Pack healer: rewrites a broken pack from its recoverable pieces, and quarantines the rest.

    each piece     its entry in the pack's footer has the positions of its parts; its records are gathered as those of
                   any segment (`segment_recovery.py`): from the local log, else from readable frames
    unknown        pieces whose entries are unreadable: from the local log, or from any `.log` part of their topic found
                   in the pack; in quarantine, one entry for each topic under the pack's own id stands for all of them
    exchanged      a pack that is stored under the name of another broken one is read there

The gathered records become a new pack of the same class, level and range of topics; one ledger entry replaces the
broken one and lists the lost records. A pack without recoverable records is removed without a replacement.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.catalog import Catalog, DamagedPart, LedgerChanges, LostRange, Quarantine
from thermocline.tiered.findings import Finding, Outcome
from thermocline.tiered.healing.segment_recovery import SegmentRecovery
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import OBJECT_START, FormatTooNewError, SegmentFormatError, SegmentOffset
from thermocline.tiered.packs import (
    SECTION_PIECES,
    PackEntry,
    PackWriter,
    PieceExtent,
    decode_section,
    extent_of,
    live_topics,
)
from thermocline.tiered.segments import CoarseRows, FinishedSegment, PartLocator, QueueRun, RunRows, SegmentEntry
from thermocline.tiered.service import TierService
from thermocline.tiered.wrappers import SpooledObject

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Salvaged:
    """The result for a pack's pieces. `hot_count`: records from the local log."""

    quarantine: list[Quarantine] = field(default_factory=list)
    hot_count: int = 0


class PackHealer:
    """Belongs to the tier process's loop."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        service: TierService,
        recovery: SegmentRecovery,
        spool_folder: Path | None,
        clock_ms: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._service = service
        self._recovery = recovery
        self._spool_folder = spool_folder
        self._clock_ms = clock_ms

    async def heal(self, finding: Finding, *, found_at: Mapping[str, str]) -> Outcome | None:
        """Return None when the pack was removed from the catalog meanwhile. `found_at`: a pack's key -> its actual key.

        Raises:
            FencedError: A later writer has taken over.
            ObjectStoreUnavailableError: No answer; what was written has been given up.
            CorruptDataError: The gathered records differ from the sealed ones.
        """
        pack = self._writer.catalog.packs.get(finding.segment_id)
        if pack is None:
            return None
        writer = self._writer
        pack_id = writer.next_segment_id()
        key = writer.keys.pack(pack.ttl_class, pack_id)
        new = PackWriter(pack_id=pack_id, key=key, ttl_class=pack.ttl_class, folder=self._spool_folder)
        try:
            place = found_at.get(pack.key, "")
            async with await SpooledObject.fetch(
                writer.store, pack.key, folder=self._spool_folder, found_at=place
            ) as spooled:
                damage = DamagedPart(pack.key, finding.problem.value)
                salvaged = await self._gather(pack, spooled, damage, new)
            entry = await self._stored(new, pack)
            is_in = await self._service.amend(lambda newest: self._changes(newest, pack, entry, salvaged))
        except (MQError, OSError):
            writer.abandon(pack_id, (key,))
            raise
        finally:
            new.close()
        if not is_in or entry is None:
            writer.abandon(pack_id, (key,))
        if not is_in:
            return None
        logger.warning(
            "pack recovered pack_id=%s new=%s hot_records=%d quarantined=%d",
            pack.pack_id,
            entry.pack_id if entry is not None else "-",
            salvaged.hot_count,
            len(salvaged.quarantine),
        )
        return Outcome.QUARANTINED if salvaged.quarantine else Outcome.HEALED

    async def _stored(self, new: PackWriter, pack: PackEntry) -> PackEntry | None:
        """Upload the new pack and return its entry; None when it is empty."""
        if not new.piece_count:
            return None
        # Of a level that has been merged: its records have been committed before.
        entry, content = new.finish(level=max(1, pack.level), depth=pack.depth, created_ms=self._clock_ms())
        with content:
            await self._writer.store.put(new.key, content.data)
        return entry

    @staticmethod
    def _changes(
        catalog: Catalog, pack: PackEntry, entry: PackEntry | None, salvaged: _Salvaged
    ) -> LedgerChanges | None:
        if catalog.packs.get(pack.pack_id) != pack:
            return None
        living = set(live_topics(pack, catalog.packed))
        return LedgerChanges(
            packs_out=(pack.pack_id,),
            packs_in=(entry,) if entry is not None else (),
            quarantine=tuple(kept for kept in salvaged.quarantine if kept.segment.topic in living),
        )

    # -- gathering -----------------------------------------------------------------------------------------------------

    async def _gather(self, pack: PackEntry, spooled: SpooledObject, damage: DamagedPart, new: PackWriter) -> _Salvaged:
        """Add the recoverable records of the pack's live topics to `new`, in the order of a pack."""
        recovery = self._recovery.reading(spooled)
        entries, extents = await _entries(pack, spooled), pack.table().pieces()
        living = set(live_topics(pack, self._writer.catalog.packed))
        salvaged = _Salvaged()
        for topic, rows in itertools.groupby(range(len(pack.topics)), key=pack.topics.__getitem__):
            if topic not in living:
                continue
            incarnation = self._writer.catalog.packed[topic].incarnation
            indexes = [index for index in rows if extents[index].incarnation == incarnation]
            readable = [entry for index in indexes if (entry := entries.get(index)) is not None]
            unknown = [extents[index] for index in indexes if index not in entries]
            sources = [*readable, *([_unknown_pieces(pack, topic, unknown)] if unknown else [])]
            expected_bytes = sum(extents[index].raw_bytes for index in indexes)
            pieces: list[FinishedSegment] = []
            try:
                is_whole = True
                for source in sources:
                    wanted = _ranges(source, unknown if source not in readable else None)
                    await self._recover(recovery, source, wanted, damage, salvaged, pieces)
                    is_whole = is_whole and not any(kept.segment is source for kept in salvaged.quarantine)
                if is_whole and sum(piece.footer.raw_bytes for piece in pieces) != expected_bytes:
                    raise SegmentFormatError("the recovered records differ from the sealed ones", topic=topic)
                for piece in sorted(pieces, key=lambda each: min(run.min_physical_offset for run in each.footer.runs)):
                    new.add(piece, created_ms=self._clock_ms())
            finally:
                for piece in pieces:
                    piece.close()
        return salvaged

    async def _recover(
        self,
        recovery: SegmentRecovery,
        source: SegmentEntry,
        wanted: tuple[LostRange, ...],
        damage: DamagedPart,
        salvaged: _Salvaged,
        pieces: list[FinishedSegment],
    ) -> None:
        """Add the recoverable part of `wanted` to `pieces`, and the rest to the quarantine."""
        plan = await recovery.plan(source, wanted)
        salvaged.hot_count += plan.hot_count
        for island in plan.islands:
            # One by one: those that were written are closed when the next one fails.
            pieces.append(await recovery.write(plan, island, self._writer.next_piece_ids(1)[0]))  # noqa: PERF401
        if plan.lost:
            salvaged.quarantine.append(Quarantine(segment=source, damage=(damage,), lost=tuple(plan.lost)))


async def _entries(pack: PackEntry, spooled: SpooledObject) -> dict[int, SegmentEntry]:
    """Piece number -> its entry, of the readable sections that belong to this pack."""
    found: dict[int, SegmentEntry] = {}
    extents = pack.table().pieces()
    for number, (start, end) in enumerate(pack.sections()):
        try:
            section = decode_section(
                await spooled.get_range(pack.key, start=start, end=end), version=pack.format_version
            )
        except FormatTooNewError:
            raise
        except MQError as error:
            logger.info("a pack's section cannot be read key=%s section=%d: %s", pack.key, number, error)
            continue
        for index, entry in enumerate(section, start=number * SECTION_PIECES):
            is_ours = index < len(extents) and entry.log.key == pack.key and entry.topic == pack.topics[index]
            if is_ours and extent_of(entry).queues == extents[index].queues:
                found[index] = entry
    return found


def _ranges(entry: SegmentEntry, extents: Iterable[PieceExtent] | None) -> tuple[LostRange, ...]:
    """All ranges that a piece holds; of unknown pieces those of their extents."""
    if extents is None:
        return tuple(LostRange(run.queue_id, run.start_offset, run.end_offset) for run in entry.runs)
    queues = sorted(
        (queue for extent in extents for queue in extent.queues), key=lambda each: (each.queue_id, each.start_offset)
    )
    return tuple(LostRange(queue.queue_id, queue.start_offset, queue.end_offset) for queue in queues)


def _unknown_pieces(pack: PackEntry, topic: str, extents: list[PieceExtent]) -> SegmentEntry:
    """One entry for all of a topic's pieces of which only the offsets are known: it has no frames."""
    whole = PartLocator(pack.key, OBJECT_START, SegmentOffset(pack.object_bytes), pack.footer_start, pack.crc32)
    bounds: dict[int, tuple[QueueOffset, QueueOffset]] = {}
    for extent in extents:
        for queue in extent.queues:
            start, end = bounds.get(queue.queue_id, (queue.start_offset, queue.end_offset))
            bounds[queue.queue_id] = min(start, queue.start_offset), max(end, queue.end_offset)
    return SegmentEntry(
        segment_id=pack.pack_id,
        topic=topic,
        incarnation=extents[0].incarnation,
        log=whole,
        cq=whole,
        idx=whole,
        runs=RunRows.of(
            QueueRun(
                queue_id=queue_id,
                start_offset=start,
                end_offset=end,
                min_store_ms=pack.min_store_ms,
                max_store_ms=pack.max_store_ms,
                frame_start=0,
                frame_end=0,
                min_physical_offset=pack.min_physical_offset,
                end_physical_offset=pack.end_physical_offset,
            )
            for queue_id, (start, end) in sorted(bounds.items())
        ),
        coarse=CoarseRows(),
        record_count=sum(queue.end_offset - queue.start_offset for extent in extents for queue in extent.queues),
        raw_bytes=sum(extent.raw_bytes for extent in extents),
        key_count=0,
        bloom_page_bytes=0,
        bloom_page_count=0,
        created_ms=pack.created_ms,
    )
