"""Sealer: writes a plan's records into a cold segment and uploads its parts. Committing it is the ledger's.

    plan (seal_backlog) -> records from the local log -> three parts (segment_writer) -> three objects -> SegmentEntry

Objects are complete before the ledger names them: a crash on the way leaves orphans, which `garbage.py` removes, never
half a segment. Reading, hashing and compressing run in a worker thread; the loop only uploads.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from thermocline.tiered.local_files import LocalLog
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.seal_backlog import SealPlan, SealRun
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_format import SegmentId
from thermocline.tiered.segment_upload import upload_segment
from thermocline.tiered.segment_writer import FinishedSegment, SegmentOptions, SegmentWriter


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
    ) -> None:
        self._store = store
        self._keys = keys
        self._log = log
        self._spool_folder = spool_folder
        self._options = options
        self._clock = clock

    async def seal(self, plan: SealPlan, segment_id: SegmentId) -> SegmentEntry:
        """Write and upload one segment.

        Raises:
            ObjectStoreUnavailableError: A part could not be stored; its id is to be abandoned.
            ObjectNotFoundError: A local file is gone, because the topic was deleted meanwhile.
            CorruptDataError: The local log does not hold what its queue says.
        """
        assert plan.runs
        with await asyncio.to_thread(self.write, plan, segment_id, folder=self._spool_folder) as finished:
            return await upload_segment(self._store, self._keys, finished, created_ms=self._clock())

    def write(self, plan: SealPlan, segment_id: SegmentId, *, folder: Path | None) -> FinishedSegment:
        """The plan as a segment; uploads nothing, and blocks. Raises as `seal`, but for the store."""
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
