"""Catalog: the content of the cold tier at one version of the ledger; the sum of the ledger's entries.

Pure values: `apply` computes the next catalog from one entry and changes nothing in place, so a reader's catalog never
changes. `ledger_reader.py` reads catalogs, `ledger_writer.py` writes them.

Invariants
  - A topic's live segments all are of its incarnation; the runs of one queue do not overlap, whatever their order.
    Further segments of small topics are pieces of `packs`. The catalog has only their ranges (`packs/pack_entry.py`):
    `packed` names the packs that hold a topic, and the bounds of its offsets in them.
  - Data in quarantine is neither a segment nor a piece of a live pack: readers raise QuarantinedError for its `lost`
    offsets until they expire or are restored. No segment or pack holds any of them.
  - `expired_before_ms` of an incarnation never falls: an expired record does not come back.
  - `removed` names the segments that some readable version (`readable_from` or later) names and this one does not.
  - `indexes` find keys and places below `indexed_to`: they cover all unexpired records there, except in their `gaps`.
    Records behind it are only in the key indexes of segments. Index objects hold no records and are not needed to
    read any.
  - `state_version` is the newest entry that carries a state snapshot (`state/carried_state.py`); it may have been
    collected.
  - `checkpoints` are the kept ones that an entry names; versions below `readable_from` can no longer be opened.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.tiered.catalog.ledger_entry import (
    CatalogSettings,
    CheckpointMark,
    LedgerEntry,
    LostRange,
    Quarantine,
    QueueHole,
    RemovedSegment,
    TopicChange,
    TopicDelete,
)
from thermocline.tiered.catalog.queue_gaps import QueueGaps
from thermocline.tiered.index_format import IndexEntry
from thermocline.tiered.objects import LedgerCorruptError
from thermocline.tiered.packs import PackedChanges, PackedTopic, PackEntry
from thermocline.tiered.segments import NO_SEGMENTS, QueueRun, SegmentEntry, SegmentList

NEVER_EXPIRES = -1
"""As a topic's `ttl_ms`: keep for ever, whatever the broker's default is."""


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One topic under one incarnation. `ttl_ms` None: the broker's default. `deleted`: this is a tombstone."""

    topic: str
    incarnation: int
    deleted: bool = False
    ttl_ms: int | None = None
    expired_before_ms: int = 0
    holes: tuple[QueueHole, ...] = ()
    segments: SegmentList = NO_SEGMENTS
    quarantine: tuple[Quarantine, ...] = ()

    def queue_ends(self) -> dict[int, QueueOffset]:
        """The cold end of each queue: the offset after its last record, readable or lost."""
        return {queue_id: end for queue_id, (_, end) in self.queue_bounds().items()}

    def queue_bounds(self) -> dict[int, tuple[QueueOffset, QueueOffset]]:
        """Queue id -> [start, end) of the offsets held, readable or lost."""
        bounds = self.segments.queue_bounds()
        for kept in self.quarantine:
            for lost in kept.lost:
                start, end = bounds.get(lost.queue_id, (lost.start_offset, lost.end_offset))
                bounds[lost.queue_id] = min(start, lost.start_offset), max(end, lost.end_offset)
        return bounds

    def ranges(self) -> Iterator[QueueRun | LostRange]:
        """Every range of offsets held, readable or lost."""
        for segment in self.segments:
            yield from segment.runs
        for kept in self.quarantine:
            yield from kept.lost

    def segment(self, segment_id: str) -> SegmentEntry | None:
        """The segment of that id."""
        return self.segments.find(segment_id)


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """The catalog at one version. `only_topics`: the only topics that were loaded; None for all."""

    version: int
    nonce: str
    epoch: int
    store_uuid: str
    cluster: str
    broker_name: str
    committed_ms: int
    settings: CatalogSettings
    readable_from: int
    checkpoints: tuple[CheckpointMark, ...]
    topics: dict[str, TopicEntry]
    removed: tuple[RemovedSegment, ...]
    packs: dict[str, PackEntry] = {}
    packed: dict[str, PackedTopic] = {}
    indexes: dict[str, IndexEntry] = {}
    indexed_to: PhysicalOffset = LOG_START
    state_version: int = 0
    master_epoch: int = 0
    """The latest for which a controller has elected a writer; 0: none has."""
    only_topics: frozenset[str] | None = None

    @classmethod
    def empty(cls, *, only_topics: frozenset[str] | None = None) -> Catalog:
        """The catalog before the first entry."""
        return cls(
            version=0,
            nonce="",
            epoch=0,
            store_uuid="",
            cluster="",
            broker_name="",
            committed_ms=0,
            settings=CatalogSettings(),
            readable_from=1,
            checkpoints=(),
            topics={},
            removed=(),
            only_topics=only_topics,
        )

    @property
    def segment_count(self) -> int:
        """Live segments of all topics."""
        return sum(len(topic.segments) for topic in self.topics.values())

    @property
    def checkpoint_version(self) -> int:
        """The latest checkpoint that an entry names; 0 for none."""
        return self.checkpoints[-1].version if self.checkpoints else 0

    @property
    def end_physical_offset(self) -> PhysicalOffset:
        """The log offset behind every record held here, or formerly held and indexed; 0 without any. No new record may
        be added before it."""
        ends = (topic.segments.end_physical_offset for topic in self.topics.values())
        return max([self.indexed_to, *ends, *(pack.end_physical_offset for pack in self.packs.values())])

    @property
    def newest_store_ms(self) -> int:
        """The store time of the newest record held here; 0 without any."""
        times = (topic.segments.newest_store_ms for topic in self.topics.values())
        return max([*times, *(pack.max_store_ms for pack in self.packs.values())], default=0)

    def ttl_ms(self, topic: str) -> int | None:
        """The time to live in effect for a topic; None for ever."""
        entry = self.topics.get(topic)
        ttl_ms = self.settings.default_ttl_ms if entry is None or entry.ttl_ms is None else entry.ttl_ms
        return None if ttl_ms is None or ttl_ms < 0 else ttl_ms

    def live_keys(self) -> set[str]:
        """The objects of live segments, and those in quarantine."""
        live = {key for topic in self.topics.values() for segment in topic.segments for key in segment.keys}
        kept = {key for topic in self.topics.values() for each in topic.quarantine for key in each.segment.keys}
        shared = {pack.key for pack in self.packs.values()} | {index.key for index in self.indexes.values()}
        return live | kept | shared

    def queue_ends(self, topic: str) -> dict[int, QueueOffset]:
        """Queue id -> the offset after its last record, in segments and packs of the topic's present life."""
        entry, packed = self.topics.get(topic), self.packed.get(topic)
        ends = entry.queue_ends() if entry is not None else {}
        if packed is not None:
            for queue in packed.queues:
                ends[queue.queue_id] = max(queue.end_offset, ends.get(queue.queue_id, queue.end_offset))
        return ends

    def queue_bounds(self, topic: str) -> dict[int, tuple[QueueOffset, QueueOffset]]:
        """Queue id -> [start, end) of the offsets held, readable or lost, in segments and packs; the start may be too
        low."""
        entry, packed = self.topics.get(topic), self.packed.get(topic)
        bounds = entry.queue_bounds() if entry is not None else {}
        for queue in packed.queues if packed is not None else ():
            if queue.start_offset < queue.end_offset:
                start, end = bounds.get(queue.queue_id, (queue.start_offset, queue.end_offset))
                bounds[queue.queue_id] = min(queue.start_offset, start), max(queue.end_offset, end)
        return bounds

    def queue_gaps(self, topic: str) -> dict[int, QueueGaps]:
        """Queue id -> the declared holes of the topic's present life; queues without one are left out."""
        entry = self.topics.get(topic)
        spans: dict[int, list[tuple[QueueOffset, QueueOffset]]] = {}
        for hole in entry.holes if entry is not None else ():
            spans.setdefault(hole.queue_id, []).append((hole.start_offset, hole.end_offset))
        return {queue_id: QueueGaps.of(found) for queue_id, found in spans.items()}


def apply(catalog: Catalog, entry: LedgerEntry) -> Catalog:
    """The catalog after `entry`. Order: topics end; segments and packs are removed (for good, or out of or into
    quarantine); topics change; segments and packs are added.

    Raises:
        LedgerCorruptError: The entry does not follow the catalog.
    """
    if entry.version != catalog.version + 1 or entry.previous_nonce != catalog.nonce:
        raise LedgerCorruptError("the entry follows another version", version=entry.version, after=catalog.version)
    if entry.epoch < catalog.epoch or (entry.claim and entry.epoch == catalog.epoch):
        raise LedgerCorruptError("the entry's epoch is not later", version=entry.version, epoch=entry.epoch)
    topics = dict(catalog.topics)
    removed = list(catalog.removed)
    packs = PackedChanges.of(catalog.packs, catalog.packed)
    only = catalog.only_topics
    for delete in entry.topics_deleted:
        if only is None or delete.topic in only:
            _delete_topic(topics, removed, delete, version=entry.version)
            packs.delete_topic(delete.topic, delete.incarnation)
    _remove_segments(topics, removed, entry, only)
    _remove_packs(packs, entry, only)
    _change_quarantine(topics, removed, entry, only, leaving_packs={pack.key for pack in packs.gone})
    for change in entry.topics:
        if only is None or change.topic in only:
            topics[change.topic] = _changed_topic(topics.get(change.topic), change)
    _add_segments(topics, entry, only)
    for name in {change.topic for change in entry.topics} | {segment.topic for segment in entry.segments_in}:
        if name in topics:
            packs.delete_topic(name, topics[name].incarnation - 1)  # pieces of an earlier life
    for pack in entry.packs_in:
        packs.add(pack, live=_live_incarnations(topics, pack, only), only=only)
    if only is None:
        removed.extend(RemovedSegment.of_pack(pack, removed_in=entry.version) for pack in packs.gone)
    indexes = _changed_indexes(catalog.indexes, removed, entry, only)
    # In the order of a checkpoint's list, so that a catalog is equal whether applied or loaded.
    known_count = len(catalog.removed)
    removed[known_count:] = sorted(removed[known_count:], key=lambda segment: segment.segment_id)
    marks = catalog.checkpoints
    if entry.checkpoint is not None and entry.checkpoint.version > catalog.checkpoint_version:
        marks = (*marks, entry.checkpoint)
    readable_from = max(catalog.readable_from, entry.readable_from)
    if readable_from > catalog.readable_from:
        marks = tuple(mark for mark in marks if mark.version >= readable_from)
        removed = [segment for segment in removed if segment.removed_in > readable_from]
    return Catalog(
        version=entry.version,
        nonce=entry.nonce,
        epoch=entry.epoch,
        store_uuid=entry.store_uuid,
        cluster=entry.cluster,
        broker_name=entry.broker_name,
        committed_ms=max(catalog.committed_ms, entry.committed_ms),
        settings=entry.settings if entry.settings is not None else catalog.settings,
        readable_from=readable_from,
        checkpoints=marks,
        topics=topics,
        removed=tuple(removed),
        packs=packs.packs,
        packed=packs.packed,
        indexes=indexes,
        indexed_to=max(catalog.indexed_to, entry.indexed_to),
        state_version=entry.version if entry.state else catalog.state_version,
        master_epoch=max(catalog.master_epoch, entry.master_epoch),
        only_topics=only,
    )


def _delete_topic(
    topics: dict[str, TopicEntry], removed: list[RemovedSegment], delete: TopicDelete, *, version: int
) -> None:
    """End a topic's incarnations up to the given one; a later one stays."""
    topic = topics.get(delete.topic)
    if topic is not None and topic.incarnation > delete.incarnation:
        return
    if topic is not None:
        removed.extend(RemovedSegment.of(segment, removed_in=version) for segment in topic.segments)
        removed.extend(RemovedSegment.of(kept.segment, removed_in=version) for kept in topic.quarantine)
    topics[delete.topic] = TopicEntry(topic=delete.topic, incarnation=delete.incarnation, deleted=True)


def _remove_segments(
    topics: dict[str, TopicEntry], removed: list[RemovedSegment], entry: LedgerEntry, only: frozenset[str] | None
) -> None:
    gone: dict[str, set[str]] = {}
    for segment in entry.segments_out:
        if only is None or segment.topic in only:
            gone.setdefault(segment.topic, set()).add(segment.segment_id)
    for name, segment_ids in gone.items():
        topic = topics.get(name)
        staying, leaving = topic.segments.without(segment_ids) if topic else (NO_SEGMENTS, [])
        if topic is None or len(leaving) != len(segment_ids):
            raise LedgerCorruptError("a segment goes that is not there", version=entry.version, topic=name)
        removed.extend(RemovedSegment.of(segment, removed_in=entry.version) for segment in leaving)
        topics[name] = msgspec.structs.replace(topic, segments=staying)


def _change_quarantine(
    topics: dict[str, TopicEntry],
    removed: list[RemovedSegment],
    entry: LedgerEntry,
    only: frozenset[str] | None,
    *,
    leaving_packs: set[str],
) -> None:
    """Remove segments from quarantine for good; add others, or reduce their lost ranges. A piece is added when its
    pack is removed."""
    for gone in entry.quarantine_out:
        if only is not None and gone.topic not in only:
            continue
        topic = topics.get(gone.topic)
        leaving = [kept for kept in topic.quarantine if kept.segment.segment_id == gone.segment_id] if topic else []
        if topic is None or not leaving:
            raise LedgerCorruptError("a segment leaves quarantine that is not there", version=entry.version)
        removed.extend(RemovedSegment.of(kept.segment, removed_in=entry.version) for kept in leaving)
        staying = tuple(kept for kept in topic.quarantine if kept not in leaving)
        topics[gone.topic] = msgspec.structs.replace(topic, quarantine=staying)
    for coming in entry.quarantine:
        segment = coming.segment
        if only is not None and segment.topic not in only:
            continue
        topic = topics.get(segment.topic)
        if topic is None or topic.incarnation != segment.incarnation or topic.deleted:
            raise LedgerCorruptError("a segment of another life goes into quarantine", version=entry.version)
        others = tuple(kept for kept in topic.quarantine if kept.segment.segment_id != segment.segment_id)
        segments, _ = topic.segments.without((segment.segment_id,))
        is_known = len(others) < len(topic.quarantine) or len(segments) < len(topic.segments)
        if not is_known and segment.log.key not in leaving_packs:
            raise LedgerCorruptError("a segment goes into quarantine that is not there", version=entry.version)
        topics[segment.topic] = msgspec.structs.replace(topic, segments=segments, quarantine=(*others, coming))


def _changed_topic(topic: TopicEntry | None, change: TopicChange) -> TopicEntry:
    """The topic after a change of its settings; a new incarnation starts afresh."""
    entry = _incarnation(topic, change.topic, change.incarnation)
    return msgspec.structs.replace(
        entry,
        ttl_ms=change.ttl_ms,
        expired_before_ms=max(entry.expired_before_ms, change.expired_before_ms),
        holes=tuple(dict.fromkeys((*entry.holes, *change.holes))),
    )


def _add_segments(topics: dict[str, TopicEntry], entry: LedgerEntry, only: frozenset[str] | None) -> None:
    coming: dict[str, list[SegmentEntry]] = {}
    for segment in entry.segments_in:
        if only is None or segment.topic in only:
            coming.setdefault(segment.topic, []).append(segment)
    for name, segments in coming.items():
        for segment in segments:
            topics[name] = _incarnation(topics.get(name), name, segment.incarnation)
        topic = topics[name]
        ids = {segment.segment_id for segment in segments}
        if len(ids) != len(segments) or any(map(topic.segments.has, ids)):
            raise LedgerCorruptError("a segment comes twice", version=entry.version, topic=name)
        topics[name] = msgspec.structs.replace(topic, segments=topic.segments.with_more(segments))


def _remove_packs(packs: PackedChanges, entry: LedgerEntry, only: frozenset[str] | None) -> None:
    for pack_id in entry.packs_out:
        if not packs.remove(pack_id) and only is None:
            raise LedgerCorruptError("a pack goes that is not there", version=entry.version, pack_id=pack_id)


def _changed_indexes(
    before: dict[str, IndexEntry], removed: list[RemovedSegment], entry: LedgerEntry, only: frozenset[str] | None
) -> dict[str, IndexEntry]:
    if not entry.indexes_out and not entry.indexes_in:
        return before
    indexes = dict(before)
    for index_id in entry.indexes_out:
        gone = indexes.pop(index_id, None)
        if gone is None:
            raise LedgerCorruptError("an index object goes that is not there", version=entry.version, index_id=index_id)
        if only is None:
            removed.append(RemovedSegment.of_index(gone, removed_in=entry.version))
    for index in entry.indexes_in:
        if index.index_id in indexes:
            raise LedgerCorruptError("an index object comes twice", version=entry.version, index_id=index.index_id)
        indexes[index.index_id] = index
    return indexes


def _live_incarnations(topics: dict[str, TopicEntry], pack: PackEntry, only: frozenset[str] | None) -> dict[str, int]:
    """The pack's live topics, with their incarnation; a topic's first piece adds the topic to the catalog."""
    table, live = pack.table(), dict[str, int]()
    for index, name in enumerate(pack.topics):
        if only is not None and name not in only:
            continue
        topic, incarnation = topics.get(name), table.incarnation(index)
        if topic is None or topic.incarnation < incarnation:
            topics[name] = topic = _incarnation(topic, name, incarnation)
        if not topic.deleted:
            live[name] = topic.incarnation
    return live


def _incarnation(topic: TopicEntry | None, name: str, incarnation: int) -> TopicEntry:
    """The topic's entry for `incarnation`, made when it is a new one. LedgerCorruptError when it has ended."""
    if topic is None:
        return TopicEntry(topic=name, incarnation=incarnation)
    if topic.incarnation == incarnation and not topic.deleted:
        return topic
    if topic.incarnation < incarnation and not topic.segments and not topic.quarantine:
        return TopicEntry(topic=name, incarnation=incarnation)
    raise LedgerCorruptError(
        "the topic is at another incarnation", topic=name, incarnation=incarnation, current=topic.incarnation
    )
