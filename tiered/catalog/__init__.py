"""Catalog: what the bucket holds, as one version of the ledger says, and questions about it."""

from thermocline.tiered.catalog.amending import Amend, amend_or_give_up
from thermocline.tiered.catalog.catalog import NEVER_EXPIRES, Catalog, TopicEntry, apply
from thermocline.tiered.catalog.ledger_entry import (
    LEDGER_FORMAT,
    CatalogSettings,
    CheckpointMark,
    DamagedPart,
    LedgerChanges,
    LedgerEntry,
    LostRange,
    Quarantine,
    QueueHole,
    RemovedSegment,
    SegmentOut,
    TopicChange,
    TopicDelete,
    decode_entry,
    encode_entry,
    format_of,
)
from thermocline.tiered.catalog.live_names import LiveNames
from thermocline.tiered.catalog.pack_check import check_follows
from thermocline.tiered.catalog.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.catalog.pack_search import find_in_pack
from thermocline.tiered.catalog.pack_ttl import HeldBytes, expired_packs, packed_expiry, packs_holding
from thermocline.tiered.catalog.queue_gaps import NO_GAPS, QueueGaps
from thermocline.tiered.catalog.stored_bytes import stored_by_topic
from thermocline.tiered.catalog.topic_index import PackedSpan, QueueIndex, QueueSpan, TopicIndex
from thermocline.tiered.catalog.ttl import report, sweep, topic_visible_from_ms

__all__ = [
    "LEDGER_FORMAT",
    "NEVER_EXPIRES",
    "NO_GAPS",
    "Amend",
    "Catalog",
    "CatalogSettings",
    "CheckpointMark",
    "DamagedPart",
    "HeldBytes",
    "LedgerChanges",
    "LedgerEntry",
    "LiveNames",
    "LostRange",
    "PackPieces",
    "PackedSpan",
    "Quarantine",
    "QueueGaps",
    "QueueHole",
    "QueueIndex",
    "QueueSpan",
    "RemovedSegment",
    "SegmentOut",
    "TopicChange",
    "TopicDelete",
    "TopicEntry",
    "TopicIndex",
    "amend_or_give_up",
    "apply",
    "check_follows",
    "decode_entry",
    "encode_entry",
    "expired_packs",
    "find_in_pack",
    "format_of",
    "packed_expiry",
    "packs_holding",
    "report",
    "stored_by_topic",
    "sweep",
    "topic_visible_from_ms",
    "with_pieces",
]
