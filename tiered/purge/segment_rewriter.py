"""SegmentRewriter: writes a segment of a topic's own anew, without what has expired of it. Commits nothing.

    three objects, or one -> spooled, checked -> what was stored at or after the cut, byte for byte -> one object

The new segment is complete in the bucket, under an id of this writer, before it is returned; the caller commits it in
place of the old one, or gives it up. The indexes that lie in it are made from the records that are left. It takes the
segment as stored three times on disk (fetched, written, put together), or in memory without a folder, and otherwise
what sealing takes: it waits for its shares of the budgets (tier_budgets.py). Belongs to the tier process's loop;
decompressing and compressing run in a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from thermocline.tiered.budgets import TierBudgets
from thermocline.tiered.indexes import FreshIndex, part_bytes
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import SegmentFormatError, Spool
from thermocline.tiered.packs import PieceBytes, join_parts, rewrite
from thermocline.tiered.sealing import FRAMES_IN_MEMORY, RECORD_MEMORY_BYTES
from thermocline.tiered.segments import FinishedSegment, PartLocator, SegmentEntry, SegmentId, SegmentOptions

FETCH_BYTES = 8 * 1024 * 1024
COPIES = 3
"""As often a segment is spooled at a time, at most."""


class SegmentRewriter:
    """See the module's header."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        options: SegmentOptions,
        spool_folder: Path | None,
        clock: Callable[[], int],
        budgets: TierBudgets | None = None,
        fresh: FreshIndex | None = None,
    ) -> None:
        """`fresh`: receives the index entries of records that no index object covers yet, for lookups."""
        self._writer = writer
        self._options = options
        self._spool_folder = spool_folder
        self._clock = clock
        self._budgets = budgets if budgets is not None else TierBudgets()
        self._fresh = fresh

    async def rewrite(self, segment: SegmentEntry, *, cut_ms: int) -> SegmentEntry:
        """Write and upload what of a segment was stored at or after `cut_ms`, which is at least one record.

        Raises:
            ObjectStoreUnavailableError: No answer; what was written has been given up.
            ObjectNotFoundError: The segment has been collected meanwhile.
            CorruptDataError: It is damaged, and stays as it is.
            DiskFullError: There is no room to write it.
        """
        assert segment.min_store_ms < cut_ms <= segment.max_store_ms
        folder, copies_bytes = self._spool_folder, COPIES * segment.stored_bytes
        memory_bytes = segment.record_count * RECORD_MEMORY_BYTES + FRAMES_IN_MEMORY * self._options.frame_bytes
        memory_bytes += min(FETCH_BYTES, segment.stored_bytes)
        spooled_bytes = copies_bytes if folder is not None else 0
        async with (
            self._budgets.spool.hold(spooled_bytes),
            self._budgets.uploads.hold(memory_bytes + copies_bytes - spooled_bytes),
            self._fetched(segment.log) as log,
            self._fetched(segment.cq) as cq,
        ):
            segment_id = self._writer.next_segment_id()
            try:
                finished = await asyncio.to_thread(
                    rewrite,
                    [PieceBytes(segment, log, cq)],
                    segment_id=segment_id,
                    options=self._options,
                    folder=folder,
                    cut_ms=cut_ms,
                )
                with finished:
                    return await self._upload(finished, segment_id)
            except BaseException:
                self._writer.abandon(segment_id, (self._key(segment.topic, segment_id),))
                raise

    def give_up(self, segment: SegmentEntry) -> None:
        """What `rewrite` has returned will not be committed."""
        self._writer.abandon(segment.id, segment.keys)

    async def _upload(self, finished: FinishedSegment, segment_id: SegmentId) -> SegmentEntry:
        joined = await asyncio.to_thread(
            join_parts,
            finished,
            key=self._key(finished.footer.topic, segment_id),
            created_ms=self._clock(),
            folder=self._spool_folder,
        )
        with joined.object:
            await self._writer.store.put(joined.key, joined.object.data)
        entry = joined.entry
        if self._fresh is not None:
            stored = part_bytes([(entry, finished.cq, finished.idx)])
            self._fresh.add(entry, await asyncio.to_thread(self._fresh.read, entry, stored))
        return entry

    def _key(self, topic: str, segment_id: SegmentId) -> str:
        return self._writer.keys.merged_segment(topic, segment_id)

    @asynccontextmanager
    async def _fetched(self, part: PartLocator) -> AsyncIterator[memoryview]:
        """A part, front to back, as the ledger says it is."""
        spool = Spool(self._spool_folder)
        try:
            while spool.size_bytes < part.size_bytes:
                start = part.start + spool.size_bytes
                end = min(part.end, start + FETCH_BYTES)
                data = await self._writer.store.get_range(part.key, start=start, end=end)
                await asyncio.to_thread(spool.write, data)
            if spool.crc32 != part.crc32:
                raise SegmentFormatError("a part is not what was stored", key=part.key, start=part.start, end=part.end)
            yield spool.finish()
        finally:
            spool.close()
