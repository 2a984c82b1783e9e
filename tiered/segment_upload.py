"""Uploads a finished segment as three objects of its own. Its entry may be committed once this has returned."""

from __future__ import annotations

from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.parallel import run_all
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_writer import FinishedSegment

PUTS_PER_SEGMENT = 3


async def upload_segment(
    store: ObjectStore, keys: BrokerKeys, finished: FinishedSegment, *, created_ms: int
) -> SegmentEntry:
    """Put the three parts at once and return the entry to commit.

    When it raises or is cancelled, some parts may be there: the writer abandons the id (`LedgerWriter.abandon`).

    Raises:
        ObjectStoreUnavailableError: A part could not be stored.
    """
    log_key, cq_key, idx_key = keys.segment(finished.footer.topic, finished.footer.segment_id)
    parts = ((log_key, finished.log), (cq_key, finished.cq), (idx_key, finished.idx))
    await run_all([store.put(key, part) for key, part in parts])
    return finished.entry(log_key=log_key, cq_key=cq_key, idx_key=idx_key, created_ms=created_ms)
