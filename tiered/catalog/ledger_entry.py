"""LedgerEntry: one commit, as `ledger/{version:020}.json` holds it; and the values inside it.

JSON objects by the names below; fields at their default may be missing, unknown fields are ignored. The small types are
arrays in the order of their fields. Specification: docs/cold-format.md.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.tiered.index_format import IndexEntry
from thermocline.tiered.objects import LedgerCorruptError, check_json, dec_hook, enc_hook, seal_json
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.segments import SegmentEntry

LEDGER_FORMAT = 2
FORMAT_WITHOUT_PACKS = 1
"""The format of a ledger without packs, so that older readers can read it."""
GRACE_MS = 24 * 3_600_000


class CatalogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the whole cold tier: the broker's default time to live (None: for ever) and the grace period."""

    default_ttl_ms: int | None = None
    grace_ms: int = GRACE_MS


class CheckpointMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """There is a checkpoint of `version`, which was committed at `committed_ms`."""

    version: int
    committed_ms: int


class QueueHole(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start_offset, end_offset) that no tier holds and that a reader skips."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset


class SegmentOut(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment that is removed from the catalog."""

    topic: str
    segment_id: str


class TopicChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic's settings from now on; `expired_before_ms` only ever rises, `holes` are added."""

    topic: str
    incarnation: int
    ttl_ms: int | None = None
    expired_before_ms: int = 0
    holes: tuple[QueueHole, ...] = ()


class TopicDelete(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a topic's incarnations up to and with this one."""

    topic: str
    incarnation: int


class RemovedSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A removed segment and its objects; `removed_in` is the first version that does not name it."""

    topic: str
    segment_id: str
    removed_in: int
    keys: tuple[str, ...]
    stored_bytes: int

    @classmethod
    def of(cls, segment: SegmentEntry, *, removed_in: int) -> RemovedSegment:
        """The removed form of `segment`."""
        return cls(segment.topic, segment.segment_id, removed_in, segment.keys, segment.stored_bytes)

    @classmethod
    def of_pack(cls, pack: PackEntry, *, removed_in: int) -> RemovedSegment:
        """The removed form of a pack, which belongs to no single topic."""
        return cls("", pack.pack_id, removed_in, (pack.key,), pack.object_bytes)

    @classmethod
    def of_index(cls, index: IndexEntry, *, removed_in: int) -> RemovedSegment:
        """The removed form of an index object, which belongs to no single topic."""
        return cls("", index.index_id, removed_in, (index.key,), index.object_bytes)


class LostRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start_offset, end_offset) that no source could supply; `frame_index` -1 when no frame is known."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    frame_index: int = -1


class DamagedPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part's object, and what is wrong with it, for people."""

    key: str
    problem: str


class Quarantine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A broken segment that readers no longer open, kept for its `lost` records; other segments hold the rest.

    Its objects are kept, as the operator may restore them.
    """

    segment: SegmentEntry
    damage: tuple[DamagedPart, ...]
    lost: tuple[LostRange, ...]


class LedgerChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one commit; at least one field is set. Applied in the order that `catalog.apply` states."""

    segments_in: tuple[SegmentEntry, ...] = ()
    segments_out: tuple[SegmentOut, ...] = ()
    topics: tuple[TopicChange, ...] = ()
    topics_deleted: tuple[TopicDelete, ...] = ()
    settings: CatalogSettings | None = None
    readable_from: int = 0
    packs_out: tuple[str, ...] = ()
    packs_in: tuple[PackEntry, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    quarantine_out: tuple[SegmentOut, ...] = ()
    indexes_out: tuple[str, ...] = ()
    indexes_in: tuple[IndexEntry, ...] = ()
    indexed_to: PhysicalOffset = LOG_START
    state: bytes = b""

    @property
    def is_empty(self) -> bool:
        """True when nothing would change."""
        return self == LedgerChanges()


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One numbered entry. `claim`: its writer began with it. `master_epoch`: of a claim under a controller, the epoch
    for which that has elected the writer's broker. `checkpoint`: the latest one complete before it. `state`: see
    state/carried_state.py."""

    format: int
    version: int
    epoch: int
    nonce: str
    previous_nonce: str
    store_uuid: str
    cluster: str
    broker_name: str
    committed_ms: int
    claim: bool = False
    master_epoch: int = 0
    checkpoint: CheckpointMark | None = None
    readable_from: int = 0
    settings: CatalogSettings | None = None
    topics_deleted: tuple[TopicDelete, ...] = ()
    segments_out: tuple[SegmentOut, ...] = ()
    topics: tuple[TopicChange, ...] = ()
    segments_in: tuple[SegmentEntry, ...] = ()
    packs_out: tuple[str, ...] = ()
    packs_in: tuple[PackEntry, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    quarantine_out: tuple[SegmentOut, ...] = ()
    indexes_out: tuple[str, ...] = ()
    indexes_in: tuple[IndexEntry, ...] = ()
    indexed_to: PhysicalOffset = LOG_START
    state: bytes = b""


_encoder = msgspec.json.Encoder(enc_hook=enc_hook)
_decoder = msgspec.json.Decoder(LedgerEntry, dec_hook=dec_hook)


def format_of(*, with_packs: bool) -> int:
    """The format of an entry or a checkpoint."""
    return LEDGER_FORMAT if with_packs else FORMAT_WITHOUT_PACKS


def encode_entry(entry: LedgerEntry) -> bytes:
    """The entry as it is stored."""
    return seal_json(_encoder.encode(entry))


def decode_entry(data: bytes, *, version: int) -> LedgerEntry:
    """The entry that was stored as `version`. LedgerCorruptError when it is none, damaged, or of a later format."""
    check_json(data, key=f"ledger entry {version}")
    try:
        entry = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise LedgerCorruptError("a ledger entry cannot be decoded", version=version) from error
    if entry.format > LEDGER_FORMAT or entry.version != version:
        raise LedgerCorruptError(
            "a ledger entry of a later format or another version", version=version, found=entry.version
        )
    return entry
