"""Purge: what has expired of a topic, or is left of one that was deleted, leaves the bucket now and not in due time.

    1. Packs that hold such bytes are rewritten without them, one after another, and committed in their place.
    2. Every removed object is deleted at once: the grace period ends for all versions before this one. A pin holds.
    3. What is left is said: segments of the topic's own that have expired in part, and go when they have as a whole.

Belongs to the tier process's loop. A crash leaves what time to live and garbage collection remove in due time.
"""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.tiered.packs.merge_policy import MergePlan
from thermocline.tiered.packs.merging import Merging
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.pack_pieces import PackPieces
from thermocline.tiered.packs.pack_ttl import HeldBytes, packs_holding
from thermocline.tiered.tier_service import TierService

ALL_EXPIRED_MS = 1 << 62
ATTEMPTS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was done. `left`: packs that hold bytes still; `own_segments`: how many own segments expired in part."""

    packs_rewritten: int
    written_bytes: int
    deleted_objects: int
    deleted_bytes: int
    is_held_by_pin: bool
    left: tuple[HeldBytes, ...]
    own_segments: int


class Purger:
    """See the module's header."""

    def __init__(self, *, service: TierService, merging: Merging, pieces: PackPieces) -> None:
        self._service = service
        self._merging = merging
        self._pieces = pieces

    async def purge(self, topic: str) -> PurgeReport:
        """Purge a topic, which may have been deleted.

        Raises:
            ObjectStoreUnavailableError: No answer; the same again does what is left.
            CorruptDataError: A pack is damaged.
            FencedError: Another writer has taken over.
        """
        rewritten = written_bytes = 0
        await self._service.sweep_now()
        for _ in range(ATTEMPTS_MAX):
            packs = [pack for pack in self._service.catalog.packs.values() if await self._holds_hidden(pack, topic)]
            if not packs:
                break
            for pack in packs:
                plan = MergePlan(packs=(pack,), level=max(1, pack.level), depth=pack.depth)
                outcome = await self._merging.rewrite(plan)
                if outcome is not None:
                    rewritten += 1
                    written_bytes += outcome.written_bytes
        report = await self._service.collect_now()
        catalog, cut_ms = self._service.catalog, self._cut_ms(topic)
        entry = catalog.topics.get(topic)
        left: list[HeldBytes] = [
            held
            for held in packs_holding(
                catalog,
                topic,
                cuts_ms={**self._service.cuts_ms(), topic: cut_ms},
                ttl_ms=self._service.ttl_ms,
                now_ms=self._service.now_ms(),
            )
            if not held.is_live or await self._holds_hidden(catalog.packs[held.pack_id], topic)
        ]
        return PurgeReport(
            packs_rewritten=rewritten,
            written_bytes=written_bytes,
            deleted_objects=report.deleted_count,
            deleted_bytes=report.deleted_bytes,
            is_held_by_pin=report.held_by_pin,
            left=tuple(left),
            own_segments=sum(segment.min_store_ms < cut_ms for segment in entry.segments) if entry is not None else 0,
        )

    def _cut_ms(self, topic: str) -> int:
        entry = self._service.catalog.topics.get(topic)
        if entry is None or entry.deleted:
            return ALL_EXPIRED_MS
        return self._service.cuts_ms().get(topic, 0)

    async def _holds_hidden(self, pack: PackEntry, topic: str) -> bool:
        """Whether bytes of the topic lie in the pack that nobody can see any more."""
        if not pack.indexes_of(topic):
            return False
        packed = self._service.catalog.packed.get(topic)
        if packed is None or pack.pack_id not in packed.packs:
            return True
        cut_ms = self._cut_ms(topic)
        if pack.min_store_ms >= cut_ms:
            return False
        return any(piece.min_store_ms < cut_ms for piece in await self._pieces.of_topic(pack, topic))
