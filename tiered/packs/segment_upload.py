"""Uploads a finished segment as objects of its own: three, or one of all three parts. Its entry may be committed once
this has returned.

When it raises or is cancelled, some of it may be there: the writer abandons the id (`LedgerWriter.abandon`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from thermocline.tiered.objects import ObjectStore, run_all
from thermocline.tiered.packs.pack_writer import join_parts
from thermocline.tiered.segments import BrokerKeys, FinishedSegment, SegmentEntry

PUTS_PER_SEGMENT = 3


async def upload_segment(
    store: ObjectStore, keys: BrokerKeys, finished: FinishedSegment, *, created_ms: int
) -> SegmentEntry:
    """Put the three parts at once and return the entry to commit.

    Raises:
        ObjectStoreUnavailableError: A part could not be stored.
    """
    log_key, cq_key, idx_key = keys.segment(finished.footer.topic, finished.footer.segment_id)
    parts = ((log_key, finished.log), (cq_key, finished.cq), (idx_key, finished.idx))
    await run_all([store.put(key, part) for key, part in parts])
    return finished.entry(log_key=log_key, cq_key=cq_key, idx_key=idx_key, created_ms=created_ms)


async def upload_joined(
    store: ObjectStore, keys: BrokerKeys, finished: FinishedSegment, *, created_ms: int, folder: Path | None
) -> SegmentEntry:
    """Put the parts as one object, which is spooled in `folder`, and return the entry to commit.

    Raises:
        ObjectStoreUnavailableError: It could not be stored.
        DiskFullError: There is no room for it.
    """
    key = keys.merged_segment(finished.footer.topic, finished.footer.segment_id)
    joined = await asyncio.to_thread(join_parts, finished, key=key, created_ms=created_ms, folder=folder)
    with joined.object:
        await store.put(key, joined.object.data)
    return joined.entry
