"""Segments without objects, and writers on a clock that tests move: what ledger tests need."""

from __future__ import annotations

from random import Random

from tests.clock import Clock
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, PartLocator, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import QueueRun, SegmentId

KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
IDENTITY = LedgerIdentity(store_uuid="store-1", cluster="DefaultCluster", broker_name="broker-a")


async def open_writer(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    seed: int = 1,
    identity: LedgerIdentity = IDENTITY,
    checkpoint_interval: int = 4,
    adopt: bool = False,
) -> LedgerWriter:
    """A writer; writers of one test need different seeds, as processes have."""
    return await LedgerWriter.open(
        store,
        KEYS,
        identity=identity,
        clock_ms=clock if clock is not None else Clock(),
        random=Random(seed),
        checkpoint_interval=checkpoint_interval,
        adopt=adopt,
    )


def make_entry(
    segment_id: SegmentId,
    *,
    topic: str = "orders",
    incarnation: int = 1,
    start: int = 0,
    count: int = 10,
    queue_id: int = 0,
    min_store_ms: int = 1000,
    max_store_ms: int = 2000,
) -> SegmentEntry:
    """An entry for objects that need not be there."""
    log_key, cq_key, idx_key = KEYS.segment(topic, segment_id)
    run = QueueRun(queue_id, start, start + count, min_store_ms, max_store_ms, 0, 1, start * 100, (start + count) * 100)
    return SegmentEntry(
        segment_id=str(segment_id),
        topic=topic,
        incarnation=incarnation,
        log=PartLocator(log_key, 0, 1000, 900, 1),
        cq=PartLocator(cq_key, 0, 100, 50, 2),
        idx=PartLocator(idx_key, 0, 100, 50, 3),
        runs=RunRows.of([run]),
        coarse=CoarseRows.of([CoarseFrame(0, start, 8, 0, min_store_ms)]),
        record_count=count,
        raw_bytes=count * 100,
        key_count=count,
        bloom_page_bytes=16,
        bloom_page_count=1,
        created_ms=2000,
    )


async def commit_segment(
    writer: LedgerWriter, *, topic: str = "orders", start: int = 0, count: int = 10, **fields: int
) -> SegmentEntry:
    """Store three small objects and commit them as a segment."""
    segment_id = writer.next_segment_id()
    entry = make_entry(segment_id, topic=topic, start=start, count=count, **fields)
    for key in entry.keys:
        await writer.store.put(key, b"part")
    await writer.commit(LedgerChanges(segments_in=(entry,)))
    return entry
