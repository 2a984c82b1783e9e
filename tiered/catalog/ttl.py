"""TTL in the cold tier: which segments hold no visible message any more. Arithmetic on the catalog; pure functions.

The rule itself, hot and cold: store/config/ttl.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from thermocline.store.config import visible_from_ms
from thermocline.tiered.catalog.catalog import Catalog, TopicEntry
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.segments import SegmentEntry


class ExpiredReport(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a cut: whole expired segments, and at most so much expired in segments that stay. These stay until
    the newest message in any of them, stored at `partly_max_store_ms`, has expired too."""

    segment_count: int
    record_count: int
    raw_bytes: int
    stored_bytes: int
    object_count: int
    partly_segment_count: int
    partly_stored_bytes: int
    partly_max_store_ms: int | None


def topic_visible_from_ms(catalog: Catalog, topic: str, *, now_ms: int) -> int:
    """The store time from which on a topic's messages are visible, by the catalog."""
    entry = catalog.topics.get(topic)
    return visible_from_ms(
        ttl_ms=catalog.ttl_ms(topic), expired_before_ms=entry.expired_before_ms if entry else 0, now_ms=now_ms
    )


def expired_segments(entry: TopicEntry, *, visible_from_ms: int) -> tuple[SegmentEntry, ...]:
    """The segments of which every message was stored before a cut."""
    return tuple(entry.segments.stored_before(visible_from_ms))


def sweep(catalog: Catalog, cuts_ms: Mapping[str, int]) -> LedgerChanges:
    """The commit that drops every segment wholly before its topic's cut, in quarantine or not; may be empty.

    The serving broker reports `cuts_ms`. They are not computed here from the catalog's time to live: that may change,
    and records that it had not expired must stay.
    """
    gone = [
        SegmentOut(topic.topic, segment_id)
        for topic in catalog.topics.values()
        for segment_id in topic.segments.ids_stored_before(cuts_ms.get(topic.topic, 0))
    ]
    lost = [
        SegmentOut(topic.topic, kept.segment.segment_id)
        for topic in catalog.topics.values()
        for kept in topic.quarantine
        if kept.segment.max_store_ms < cuts_ms.get(topic.topic, 0)
    ]
    return LedgerChanges(segments_out=tuple(gone), quarantine_out=tuple(lost))


def report(segments: Sequence[SegmentEntry], *, visible_from_ms: int) -> ExpiredReport:
    """What a cut at `visible_from_ms` would remove of a topic's segments: for a dry run."""
    gone = [segment for segment in segments if segment.max_store_ms < visible_from_ms]
    partly = [segment for segment in segments if segment.min_store_ms < visible_from_ms <= segment.max_store_ms]
    return ExpiredReport(
        segment_count=len(gone),
        record_count=sum(segment.record_count for segment in gone),
        raw_bytes=sum(segment.raw_bytes for segment in gone),
        stored_bytes=sum(segment.stored_bytes for segment in gone),
        object_count=len({key for segment in gone for key in segment.keys}),
        partly_segment_count=len(partly),
        partly_stored_bytes=sum(segment.stored_bytes for segment in partly),
        partly_max_store_ms=max((segment.max_store_ms for segment in partly), default=None),
    )
