"""Tier TTL: the tier process's answers about expired data: what a cut deletes, and a proof's evidence."""

from __future__ import annotations

from collections.abc import Sequence

from thermocline.broker.helpers import ExpiredParts, HiddenRow, NamedRow, TtlProofReply, TtlProofRequest
from thermocline.tiered.catalog import packed_expiry, report
from thermocline.tiered.garbage import bucket_evidence
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.packs import PackedTopic
from thermocline.tiered.reading import FrameCache
from thermocline.tiered.segments import SegmentEntry
from thermocline.tiered.service import TierService

HIDDEN_ROWS_MAX = 1_000


def expired_parts(
    service: TierService, topic: str, segments: Sequence[SegmentEntry], packed: PackedTopic | None, *, cut_ms: int
) -> ExpiredParts:
    """What a cut would delete of a topic's segments, and of its share of the packs."""
    expired = report(segments, visible_from_ms=cut_ms)
    going = packed_expiry(service.catalog, packed, {**service.cuts_ms(), topic: cut_ms})
    return ExpiredParts(
        segments=expired.segment_count,
        packs=going.pack_count,
        raw_bytes=expired.raw_bytes + going.raw_bytes,
        stored_bytes=expired.stored_bytes + going.stored_bytes,
        objects=expired.object_count + going.pack_count,
        partly_segments=expired.partly_segment_count,
        partly_stored_bytes=expired.partly_stored_bytes,
        partly_max_store_ms=expired.partly_max_store_ms,
        held_bytes=going.held_bytes,
    )


async def prove(
    service: TierService, writer: LedgerWriter, cache: FrameCache, request: TtlProofRequest
) -> TtlProofReply:
    """A topic's expired messages: named by the catalog, stored in the bucket, kept in memory.

    Raises:
        ObjectStoreUnavailableError: The bucket does not answer.
        LedgerCorruptError: A pin or a pack's table is damaged.
    """
    evidence = await bucket_evidence(
        writer,
        topic=request.topic,
        incarnation=request.incarnation,
        cuts_ms={**service.cuts_ms(), request.topic: request.cut_ms},
        ttl_ms=service.ttl_ms,
        sweeps=service.sweeps,
        now_ms=service.now_ms(),
    )
    swept = service.sweeps.segments
    progress = service.backlog.topics.get(request.topic)
    removed_keys = {key for removed in service.catalog.removed for key in removed.keys}
    return TtlProofReply(
        version=evidence.version,
        told_cut_ms=progress.cut_ms if progress is not None else 0,
        swept_ms=swept.last.at_ms if swept.last is not None else None,
        sweep_due_ms=swept.next_ms,
        named=[
            NamedRow(segment_id=each.segment_id, newest_ms=each.max_store_ms, is_overdue=each.is_overdue, why=each.why)
            for each in evidence.named
        ],
        hidden=[
            HiddenRow(
                segment_id=each.segment_id,
                state=each.state.value,
                keys=list(each.keys),
                bytes=each.size_bytes,
                due_ms=each.due_ms,
                why=each.why,
            )
            for each in evidence.hidden[:HIDDEN_ROWS_MAX]
        ],
        hidden_count=len(evidence.hidden),
        hidden_objects=sum(len(each.keys) for each in evidence.hidden),
        hidden_bytes=sum(each.size_bytes for each in evidence.hidden),
        visible_objects=evidence.visible_count,
        visible_bytes=evidence.visible_bytes,
        cached_bytes=cache.bytes_of(removed_keys),
    )
