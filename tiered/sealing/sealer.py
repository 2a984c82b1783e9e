"""Sealer: writes a plan's records into a cold segment and uploads its parts. The ledger commits it.

    plan (seal_backlog) -> records from the local log -> three parts (segment_writer) -> three objects -> SegmentEntry
                                                                                      or one object

Bounded: segments wait for their shares of the budgets (tier_budgets.py) before they are written. When
the disk has no room for the spool, `.log` is kept in memory too: only uploading frees disk space.

Objects are complete before the ledger names them: a crash in between leaves orphans, which `garbage.py` removes, never
half a segment. Reading, hashing and compressing run in a worker thread; the loop only uploads.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from thermocline.remoting.errors import DiskFullError
from thermocline.tiered.budgets import TierBudgets
from thermocline.tiered.indexes import FreshIndex, part_bytes
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.packs import upload_joined, upload_segment
from thermocline.tiered.sealing.local_files import LocalLog
from thermocline.tiered.sealing.seal_backlog import SealPlan, SealRun
from thermocline.tiered.segments import (
    BrokerKeys,
    FinishedSegment,
    SegmentEntry,
    SegmentId,
    SegmentOptions,
    SegmentWriter,
)

logger = logging.getLogger(__name__)

RECORD_MEMORY_BYTES = 120
"""Memory of a record besides `.log`: its columns, and its keys while they are collected, sorted and written."""
FRAMES_IN_MEMORY = 4
"""A frame's records, joined, compressed, and being uploaded."""


class Sealer:
    """Turns plans into uploaded segments. Belongs to the tier process."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        keys: BrokerKeys,
        log: LocalLog,
        spool_folder: Path | None,
        options: SegmentOptions,
        clock: Callable[[], int],
        budgets: TierBudgets | None = None,
        fresh: FreshIndex | None = None,
    ) -> None:
        """`fresh`: receives the index entries of sealed records, for lookups."""
        self._store = store
        self._fresh = fresh
        self._keys = keys
        self._log = log
        self._spool_folder = spool_folder
        self._options = options
        self._clock = clock
        self._budgets = budgets if budgets is not None else TierBudgets()
        self._had_room = True

    async def seal(self, plan: SealPlan, segment_id: SegmentId, *, is_joined: bool = False) -> SegmentEntry:
        """Write and upload one segment, its three parts as objects of their own or, `is_joined`, as one.

        Raises:
            ObjectStoreUnavailableError: A part could not be stored; the caller abandons the id.
            ObjectNotFoundError: A local file is gone, because the topic was deleted meanwhile.
            CorruptDataError: The local log does not hold what its queue says.
        """
        assert plan.runs
        memory_bytes = self.memory_bytes(plan)
        spooled_bytes = (1 + is_joined) * plan.raw_bytes  # `.log`, and a second time in the joined object
        if self._spool_folder is not None:
            try:
                async with self._budgets.spool.hold(spooled_bytes), self._budgets.uploads.hold(memory_bytes):
                    entry = await self._write_and_upload(plan, segment_id, self._spool_folder, is_joined=is_joined)
            except DiskFullError as error:
                if self._had_room:
                    logger.warning("segments are kept in memory until they are uploaded: %s", error)
                self._had_room = False
            else:
                self._had_room = True
                return entry
            is_joined = False  # it would be in memory twice
        async with self._budgets.uploads.hold(memory_bytes + (1 + is_joined) * plan.raw_bytes):
            return await self._write_and_upload(plan, segment_id, None, is_joined=is_joined)

    def memory_bytes(self, plan: SealPlan) -> int:
        """The approximate memory for writing the plan, besides `.log`."""
        return plan.record_count * RECORD_MEMORY_BYTES + FRAMES_IN_MEMORY * self._options.frame_bytes

    async def _write_and_upload(
        self, plan: SealPlan, segment_id: SegmentId, folder: Path | None, *, is_joined: bool
    ) -> SegmentEntry:
        with await asyncio.to_thread(self.write, plan, segment_id, folder=folder) as finished:
            created_ms = self._clock()
            if is_joined:
                entry = await upload_joined(self._store, self._keys, finished, created_ms=created_ms, folder=folder)
            else:
                entry = await upload_segment(self._store, self._keys, finished, created_ms=created_ms)
            if self._fresh is not None:
                stored = part_bytes([(entry, finished.cq, finished.idx)])
                self._fresh.add(entry, await asyncio.to_thread(self._fresh.read, entry, stored))
            return entry

    def write(self, plan: SealPlan, segment_id: SegmentId, *, folder: Path | None) -> FinishedSegment:
        """Write the plan as a segment, without uploading it; blocks. Raises as `seal`, except errors of the store."""
        writer = SegmentWriter(
            segment_id=segment_id,
            topic=plan.topic,
            incarnation=plan.incarnation,
            folder=folder,
            options=self._options,
        )
        try:
            for run in plan.runs:
                writer.append(run.queue_id, run.start_offset, self._records(run), run.units["tags_code"].tolist())
            return writer.finish()
        except BaseException:
            writer.close()
            raise

    def _records(self, run: SealRun) -> Iterator[memoryview]:
        record = self._log.record
        offsets, sizes = run.units["physical_offset"].tolist(), run.units["size_bytes"].tolist()
        for physical_offset, size_bytes in zip(offsets, sizes, strict=True):
            yield record(physical_offset, size_bytes)
