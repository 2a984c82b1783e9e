"""PackSealer: what is due by age from small topics, as one uploaded pack for each TTL class.

    plans (seal_backlog) -> by TTL class, in the order of topics in a pack -> packs of at most `pack_bytes` -> objects

A pack is complete before the ledger names it; a topic whose local files have gone meanwhile is left out of it.
Reading, hashing and compressing run in a worker thread; the loop only uploads. Belongs to the tier process.

Bounded: a pack waits for its shares of the budgets (tier_budgets.py) before it is written. When the disk has no room
for it, it is kept in memory, in parts of half the budget: several packs instead of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from thermocline.remoting.errors import CorruptDataError, DiskFullError, ObjectNotFoundError
from thermocline.tiered.budgets import TierBudgets
from thermocline.tiered.indexes import READ_BYTES, FreshIndex, FreshRecords, part_bytes
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.packs import RECORD_MEMORY_BYTES, FinishedObject, PackEntry, PackWriter, PieceExtent, topic_key
from thermocline.tiered.sealing.seal_backlog import SealPlan
from thermocline.tiered.sealing.sealer import Sealer
from thermocline.tiered.segments import SegmentId

logger = logging.getLogger(__name__)

ENTRY_BYTES_MAX = 512 * 1024
"""About what one ledger entry may say of packs: names and ranges of their topics. What 10 000 topics of
eight queues get in a seal age at 1 MiB/s fits in."""
_RANGE_BYTES = 5
_PIECE_BYTES = 20


class SealedPack(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded pack, and the plans that went into it with what became of them."""

    pack: PackEntry
    pieces: tuple[tuple[SealPlan, PieceExtent], ...]


class PackSealer:
    """See the module's header."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        sealer: Sealer,
        spool_folder: Path | None,
        pack_bytes: int,
        clock: Callable[[], int],
        budgets: TierBudgets | None = None,
        fresh: FreshIndex | None = None,
    ) -> None:
        """`fresh`: receives the index entries of sealed records, for lookups."""
        self._writer = writer
        self._fresh = fresh
        self._sealer = sealer
        self._spool_folder = spool_folder
        self._pack_bytes = pack_bytes
        self._clock = clock
        self._budgets = budgets if budgets is not None else TierBudgets()
        self._had_room = True

    async def seal(
        self, plans: Iterable[SealPlan], *, class_of: Callable[[str], str]
    ) -> AsyncGenerator[SealedPack, None]:
        """Write and upload packs, one after another; topics that cannot be read are left out.

        Raises:
            ObjectStoreUnavailableError: One could not be stored; its id has been given up. Those before it count.
        """
        for ttl_class, group in self._divide(plans, class_of=class_of, bytes_max=self._pack_bytes):
            if self._spool_folder is not None:
                try:
                    sealed = await self._seal(ttl_class, group, self._spool_folder)
                except DiskFullError as error:
                    if self._had_room:
                        logger.warning("packs are kept in memory until they are uploaded: %s", error)
                    self._had_room = False
                else:
                    self._had_room = True
                    if sealed is not None:
                        yield sealed
                    continue
            bytes_max = min(self._pack_bytes, self._budgets.uploads.bytes_max // 2)
            for _, part in self._divide(group, class_of=class_of, bytes_max=bytes_max):
                sealed = await self._seal(ttl_class, part, None)
                if sealed is not None:
                    yield sealed

    @staticmethod
    def _divide(
        plans: Iterable[SealPlan], *, class_of: Callable[[str], str], bytes_max: int
    ) -> Iterator[tuple[str, list[SealPlan]]]:
        """TTL class and plans of each pack, none larger than it may be unless it is one topic's."""
        by_class: dict[str, list[SealPlan]] = {}
        for plan in plans:
            by_class.setdefault(class_of(plan.topic), []).append(plan)
        for ttl_class, members in sorted(by_class.items()):
            group: list[SealPlan] = []
            raw_bytes = entry_bytes = 0
            for plan in sorted(members, key=lambda each: topic_key(each.topic)):
                plan_bytes = said_bytes(plan.topic, len(plan.runs))
                if group and (raw_bytes + plan.raw_bytes > bytes_max or entry_bytes + plan_bytes > ENTRY_BYTES_MAX):
                    yield ttl_class, group
                    group, raw_bytes, entry_bytes = [], 0, 0
                group.append(plan)
                raw_bytes += plan.raw_bytes
                entry_bytes += plan_bytes
            if group:
                yield ttl_class, group

    async def _seal(self, ttl_class: str, plans: Sequence[SealPlan], folder: Path | None) -> SealedPack | None:
        """Write and upload one pack; None when none of the topics could be read. One that fails gives its id up."""
        raw_bytes = sum(plan.raw_bytes for plan in plans)
        # One topic's piece is in memory at a time, and of those before it what goes behind the records.
        memory_bytes = max(self._sealer.memory_bytes(plan) + plan.raw_bytes for plan in plans)
        record_count = sum(plan.record_count for plan in plans)
        if self._fresh is not None:
            memory_bytes = max(memory_bytes, READ_BYTES * record_count)
        memory_bytes += RECORD_MEMORY_BYTES * record_count
        async with contextlib.AsyncExitStack() as shares:
            if folder is not None:
                await shares.enter_async_context(self._budgets.spool.hold(raw_bytes))
            else:
                memory_bytes += raw_bytes
            await shares.enter_async_context(self._budgets.uploads.hold(memory_bytes))
            return await self._write_and_upload(ttl_class, plans, folder)

    async def _write_and_upload(
        self, ttl_class: str, plans: Sequence[SealPlan], folder: Path | None
    ) -> SealedPack | None:
        pack_id = self._writer.next_segment_id()
        key = self._writer.keys.pack(ttl_class, pack_id)
        ids = self._writer.next_piece_ids(len(plans))
        try:
            written = await asyncio.to_thread(self._write, pack_id, key, ttl_class, plans, ids, folder)
            if written is None:
                self._writer.abandon(pack_id, ())
                return None
            sealed, content, fresh = written
            with content:
                await self._writer.store.put(key, content.data)
        except BaseException:
            self._writer.abandon(pack_id, (key,))
            raise
        if self._fresh is not None:
            self._fresh.add(sealed.pack, fresh)
        return sealed

    def _write(
        self,
        pack_id: SegmentId,
        key: str,
        ttl_class: str,
        plans: Sequence[SealPlan],
        ids: Sequence[SegmentId],
        folder: Path | None,
    ) -> tuple[SealedPack, FinishedObject, FreshRecords | None] | None:
        writer = PackWriter(pack_id=pack_id, key=key, ttl_class=ttl_class, folder=folder)
        now_ms = self._clock()
        written: list[SealPlan] = []
        try:
            for plan, segment_id in zip(plans, ids, strict=True):
                try:
                    finished = self._sealer.write(plan, segment_id, folder=None)
                except (ObjectNotFoundError, CorruptDataError) as error:
                    logger.error("topic not sealed topic=%s: %s", plan.topic, error)
                    continue
                with finished:
                    writer.add(finished, created_ms=now_ms)
                written.append(plan)
            if not written:
                writer.close()
                return None
            pack, content = writer.finish(level=0, depth=0, created_ms=now_ms)
        except BaseException:
            writer.close()
            raise
        table = pack.table()
        pieces = tuple((plan, table.piece(index)) for index, plan in enumerate(written))
        fresh = self._fresh.read(pack, part_bytes(writer.columns())) if self._fresh is not None else None
        return SealedPack(pack=pack, pieces=pieces), content, fresh


def said_bytes(topic: str, queue_count: int) -> int:
    """About what a ledger entry says of a topic in a pack."""
    return len(topic.encode()) + _PIECE_BYTES + _RANGE_BYTES * queue_count
