"""Purger: deletes a topic's expired data, or all data of a deleted topic, from the bucket now and not in due time.

    1. Uploads under way are completed; segments and packs that have expired as a whole are removed from the catalog.
    2. Packs with other expired bytes, and the topic's partly expired segments, are rewritten without them, one after
       another, and replaced by a commit.
    3. Every removed object is deleted at once: the grace period ends for all versions before this one. Pins hold.
    4. The report lists the remaining data: in quarantine, kept by a pin, or changed during the purge.

A purge covers the data expired at its start. Index objects stay as they are: they hold hashes of keys and offsets,
no message content. One purge at a time; WAITING_MAX wait for it, further ones are refused. Belongs to the tier
process's loop. After a crash, time to live and garbage collection remove the rest in due time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import msgspec

from thermocline.remoting.errors import BrokerBusyError, ObjectNotFoundError
from thermocline.tiered.catalog import (
    Catalog,
    HeldBytes,
    LedgerChanges,
    PackPieces,
    SegmentOut,
    amend_or_give_up,
    packs_holding,
)
from thermocline.tiered.merging import MergePlan, Merging
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.purge.segment_rewriter import SegmentRewriter
from thermocline.tiered.segments import SegmentEntry
from thermocline.tiered.service import TierService

logger = logging.getLogger(__name__)

ALL_EXPIRED_MS = 1 << 62
ATTEMPTS_MAX = 4
WAITING_MAX = 16


class PurgeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a purge. `remaining`: packs that still hold hidden bytes, and removed objects that a pin keeps;
    `left_segments`: the topic's own segments that hold such bytes."""

    packs_rewritten: int
    segments_rewritten: int
    written_bytes: int
    deleted_objects: int
    deleted_bytes: int
    is_held_by_pin: bool
    remaining: tuple[HeldBytes, ...]
    left_segments: tuple[str, ...]


class _Rewritten(msgspec.Struct):
    packs: int = 0
    segments: int = 0
    written_bytes: int = 0


class Purger:
    """See the module's header."""

    def __init__(
        self, *, service: TierService, merging: Merging, pieces: PackPieces, rewriter: SegmentRewriter
    ) -> None:
        self._service = service
        self._merging = merging
        self._pieces = pieces
        self._rewriter = rewriter
        self._lock = asyncio.Lock()
        self._count = 0

    async def purge(self, topic: str) -> PurgeReport:
        """Purge a topic, which may have been deleted.

        Raises:
            ObjectStoreUnavailableError: No answer; repeat the purge for the rest.
            CorruptDataError: A pack or a segment is damaged.
            DiskFullError: There is no room to rewrite one.
            FencedError: Another writer has taken over.
            BrokerBusyError: Too many purges wait.
        """
        if self._count > WAITING_MAX:
            raise BrokerBusyError("too many purges wait", count_max=WAITING_MAX)
        self._count += 1
        try:
            async with self._lock:
                return await self._purge(topic)
        finally:
            self._count -= 1

    async def _purge(self, topic: str) -> PurgeReport:
        await self._service.after_this_round()
        await self._service.sweep_now()
        asked_ms, done = self._cut_ms(topic), _Rewritten()
        for _ in range(ATTEMPTS_MAX):
            cut_ms = min(asked_ms, self._cut_ms(topic))
            packs = [pack for pack in self._service.catalog.packs.values() if await self._holds(pack, topic, cut_ms)]
            segments = list(_partly_expired(self._service.catalog, topic, cut_ms))
            if not packs and not segments:
                break
            for pack in packs:
                await self._rewrite_pack(pack, done)
            for segment in segments:
                await self._rewrite_segment(segment, cut_ms, done)
        removed_by = self._service.catalog.version
        report = await self._service.collect_now()
        catalog, cut_ms = self._service.catalog, min(asked_ms, self._cut_ms(topic))
        remaining: list[HeldBytes] = [
            held
            for held in packs_holding(
                catalog,
                topic,
                cuts_ms={**self._service.cuts_ms(), topic: cut_ms},
                ttl_ms=self._service.ttl_ms,
                now_ms=self._service.now_ms(),
            )
            if not held.is_live or await self._holds(catalog.packs[held.pack_id], topic, cut_ms)
        ]
        entry = catalog.topics.get(topic)
        kept = [each.segment for each in entry.quarantine] if entry is not None else []
        hidden = [segment for segment in kept if segment.min_store_ms < cut_ms]
        hidden += _partly_expired(catalog, topic, cut_ms)
        remaining_keys = {held.key for held in remaining}
        return PurgeReport(
            packs_rewritten=done.packs,
            segments_rewritten=done.segments,
            written_bytes=done.written_bytes,
            deleted_objects=report.deleted_count,
            deleted_bytes=report.deleted_bytes,
            # A pin keeps every removed object that was not collected now.
            is_held_by_pin=report.held_by_pin or any(gone.removed_in <= removed_by for gone in catalog.removed),
            remaining=tuple(remaining),
            left_segments=tuple(segment.log.key for segment in hidden if segment.log.key not in remaining_keys),
        )

    async def _rewrite_pack(self, pack: PackEntry, done: _Rewritten) -> None:
        plan = MergePlan(packs=(pack,), level=max(1, pack.level), depth=pack.depth)
        outcome = await self._merging.rewrite(plan)
        if outcome is not None:
            done.packs += 1
            done.written_bytes += outcome.written_bytes

    async def _rewrite_segment(self, segment: SegmentEntry, cut_ms: int, done: _Rewritten) -> None:
        try:
            coming = await self._rewriter.rewrite(segment, cut_ms=cut_ms)
        except ObjectNotFoundError as error:
            logger.info("a segment went while it was rewritten: %s", error)
            return
        self._merging.charge(coming.stored_bytes)
        is_in = await amend_or_give_up(
            self._service.amend,
            lambda catalog: in_its_place(catalog, segment, coming),
            give_up=lambda: self._rewriter.give_up(coming),
        )
        if not is_in:
            logger.info("rewriting overtaken topic=%s segment_id=%s", segment.topic, segment.segment_id)
            return
        done.segments += 1
        done.written_bytes += coming.stored_bytes
        logger.info(
            "segment rewritten topic=%s segment_id=%s as=%s messages=%d of=%d bytes=%d",
            segment.topic,
            segment.segment_id,
            coming.segment_id,
            coming.record_count,
            segment.record_count,
            coming.stored_bytes,
        )

    def _cut_ms(self, topic: str) -> int:
        entry = self._service.catalog.topics.get(topic)
        if entry is None or entry.deleted:
            return ALL_EXPIRED_MS
        return self._service.cuts_ms().get(topic, 0)

    async def _holds(self, pack: PackEntry, topic: str, cut_ms: int) -> bool:
        """Whether the pack holds invisible bytes of the topic."""
        if not pack.indexes_of(topic):
            return False
        packed = self._service.catalog.packed.get(topic)
        if packed is None or pack.pack_id not in packed.packs:
            return True
        if pack.min_store_ms >= cut_ms:
            return False
        return any(piece.min_store_ms < cut_ms for piece in await self._pieces.of_topic(pack, topic))


def in_its_place(catalog: Catalog, segment: SegmentEntry, coming: SegmentEntry) -> LedgerChanges | None:
    """The change that replaces a segment by its rewritten one; None when it or its topic's incarnation is gone."""
    topic = catalog.topics.get(segment.topic)
    if topic is None or topic.deleted or topic.incarnation != segment.incarnation:
        return None
    if topic.segment(segment.segment_id) is None:
        return None
    return LedgerChanges(
        segments_out=(SegmentOut(topic=segment.topic, segment_id=segment.segment_id),), segments_in=(coming,)
    )


def _partly_expired(catalog: Catalog, topic: str, cut_ms: int) -> Iterator[SegmentEntry]:
    """The topic's own segments that hold records from before and after the cut."""
    entry = catalog.topics.get(topic)
    return entry.segments.stored_around(cut_ms) if entry is not None else iter(())
