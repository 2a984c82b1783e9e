"""RecoveryPlan: the initial state of a broker that recovers from its bucket. Pure arithmetic on snapshot and catalog.

    queue     ends in the catalog at `hole_start`     continues at `next_offset`   between the two: a hole, declared
    log       continues behind all reserved offsets, at a file's start

`next_offset` is the highest of: what the queue can have reached since the snapshot (StateSnapshot.queue_ceiling), the
cold end, any group's offset, and the holes declared before. It is a queue file's first offset, so that the new queue
needs no filler. Clients may commit any offset, up to 2^63 - 1: one that is more than GROUP_AHEAD_MAX ahead of all else
does not count, as no queue could go on behind it.

Incarnation of a topic: the later one of snapshot and catalog. A topic that is only in the catalog was created after the
snapshot; only its queues are known. A topic that is deleted in either stays deleted. The broker's own unfinished
work (`is_internal`) was stored only on the lost disk: those topics start empty.

Times to live are the snapshot's, or the ledger's if that was written later. Messages that had expired by the ledger at
its last write before the recovery's claim stay hidden: some may have been deleted, while those in packs may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.tiered.catalog import Catalog, LedgerChanges, QueueHole, TopicChange
from thermocline.tiered.packs import packed_record_counts
from thermocline.tiered.segments import NO_SEGMENTS
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, StateSnapshot, TopicState

INCARNATIONS_SKIPPED = 1_000_000
"""More topics than are created between two snapshots: their incarnations are not used again either."""
HOLES_PER_ENTRY = 2_000
GROUP_AHEAD_MAX = 1 << 40
"""More messages than 90 TiB of log hold."""


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. `known_lost_count`: messages that the snapshot counted and the catalog does not hold."""

    queue_id: int
    cold_end: QueueOffset
    hole_start: QueueOffset
    next_offset: QueueOffset
    known_lost_count: int


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. `is_known`: it is in the snapshot; else only in the catalog. `quarantined_count`: committed messages
    that cannot be read from any source."""

    topic: str
    incarnation: int
    start_offset: PhysicalOffset
    deleted: bool
    expired_before_ms: int
    ttl_ms: int | None
    is_known: bool
    committed_count: int
    quarantined_count: int
    queues: tuple[QueuePlan, ...]

    @property
    def known_lost_count(self) -> int:
        """Messages of all queues that the snapshot counted and the catalog does not hold."""
        return sum(queue.known_lost_count for queue in self.queues)


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """See the module's header. `log_offset`: where the new log begins."""

    log_offset: PhysicalOffset
    new_queue_offset: QueueOffset
    last_incarnation: int
    topics: tuple[TopicPlan, ...]

    def changes(self, catalog: Catalog) -> list[LedgerChanges]:
        """The commits that declare the holes, each of a bounded size."""
        commits: list[LedgerChanges] = []
        batch: list[TopicChange] = []
        count = 0
        for topic in self.topics:
            if topic.deleted or not topic.queues:
                continue
            entry = catalog.topics.get(topic.topic)
            is_same = entry is not None and entry.incarnation == topic.incarnation
            if entry is not None and not is_same and (entry.segments or topic.topic in catalog.packed):
                continue  # an earlier life, which the broker ends in the ledger when it runs
            for queue in topic.queues:
                assert queue.cold_end <= queue.hole_start <= queue.next_offset, "a queue goes on behind its hole"
            batch.append(
                TopicChange(
                    topic=topic.topic,
                    incarnation=topic.incarnation,
                    ttl_ms=topic.ttl_ms,
                    expired_before_ms=topic.expired_before_ms,
                    holes=tuple(
                        QueueHole(queue.queue_id, queue.hole_start, queue.next_offset) for queue in topic.queues
                    ),
                )
            )
            count += len(topic.queues)
            if count >= HOLES_PER_ENTRY:
                commits.append(LedgerChanges(topics=tuple(batch)))
                batch, count = [], 0
        if batch:
            commits.append(LedgerChanges(topics=tuple(batch)))
        return commits


def plan_recovery(
    snapshot: StateSnapshot,
    catalog: Catalog,
    *,
    written_ms: int,
    is_internal: Callable[[str], bool],
    units_per_file: int,
    log_file_bytes: int,
) -> RecoveryPlan:
    """What to begin with. `written_ms`: when the ledger was last written to, before it was claimed for this;
    `units_per_file`: messages of a queue in one of its files."""
    group_ends = _group_ends(snapshot.documents.get(CONSUMER_OFFSETS, {}))
    states = {state.topic: state for state in snapshot.topics}
    new_queue_offset = QueueOffset(_round_up(snapshot.queue_ceiling(snapshot.new_queue_offset), units_per_file))
    packed_counts = packed_record_counts(catalog.packs.values(), catalog.packed)
    topics = [
        _plan_topic(
            topic,
            states.get(topic),
            catalog,
            snapshot,
            packed_counts.get(topic, 0),
            group_ends.get(topic, {}),
            written_ms=written_ms,
            new_queue_offset=new_queue_offset,
            units_per_file=units_per_file,
        )
        for topic in sorted(states.keys() | catalog.topics.keys())
        if not is_internal(topic)
    ]
    incarnations = [snapshot.last_incarnation, *(topic.incarnation for topic in topics)]
    return RecoveryPlan(
        log_offset=PhysicalOffset(_round_up(max(snapshot.log_ceiling, catalog.end_physical_offset), log_file_bytes)),
        new_queue_offset=new_queue_offset,
        last_incarnation=max(incarnations) + INCARNATIONS_SKIPPED,
        topics=tuple(topics),
    )


def first_place(catalog: Catalog, topic: str) -> PhysicalOffset | None:
    """A log offset that is not above that of the topic's first record in the bucket; None if it has none there."""
    entry, packed = catalog.topics[topic], catalog.packed.get(topic)
    places = [kept.segment.min_physical_offset for kept in entry.quarantine]
    if entry.segments.min_physical_offset is not None:
        places.append(entry.segments.min_physical_offset)
    places += [catalog.packs[pack_id].min_physical_offset for pack_id in (packed.packs if packed is not None else ())]
    return min(places, default=None)


def _plan_topic(
    topic: str,
    state: TopicState | None,
    catalog: Catalog,
    snapshot: StateSnapshot,
    packed_count: int,
    group_ends: Mapping[int, Sequence[QueueOffset]],
    *,
    written_ms: int,
    new_queue_offset: QueueOffset,
    units_per_file: int,
) -> TopicPlan:
    entry = catalog.topics.get(topic)
    incarnation = max(each.incarnation for each in (state, entry) if each is not None)
    if state is not None and state.incarnation != incarnation:
        state = None  # of an earlier life
    if entry is not None and entry.incarnation != incarnation:
        entry = None
    deleted = any(each is not None and each.deleted for each in (state, entry))
    segments = entry.segments if entry is not None else NO_SEGMENTS
    quarantine = entry.quarantine if entry is not None else ()
    first = first_place(catalog, topic) if entry is not None else None
    start_offset = snapshot.log_offset if first is None else first
    ends = {end.queue_id: end.end_offset for end in state.ends} if state is not None else {}
    cold_ends = catalog.queue_ends(topic) if entry is not None else {}
    hole_ends: dict[int, list[QueueOffset]] = {}
    for hole in entry.holes if entry is not None else ():
        hole_ends.setdefault(hole.queue_id, []).append(hole.end_offset)
    queues: list[QueuePlan] = []
    nothing = QUEUE_START
    for queue_id in sorted(ends.keys() | cold_ends.keys() | hole_ends.keys() | group_ends.keys()):
        end, cold_end = ends.get(queue_id), cold_ends.get(queue_id, nothing)
        hole_start = max([cold_end, *hole_ends.get(queue_id, ())])
        reached = max(hole_start, new_queue_offset)
        if end is not None:
            reached = max(reached, snapshot.queue_ceiling(end))
        ahead = [offset for offset in group_ends.get(queue_id, ()) if offset <= reached + GROUP_AHEAD_MAX]
        reached = max([reached, *ahead])
        lost_count = 0
        if end is not None:
            # A hole that ends behind it was declared after the snapshot, by an earlier attempt of this recovery: its
            # losses have not been reported yet.
            declared_ends = (hole_end for hole_end in hole_ends.get(queue_id, ()) if hole_end <= end)
            lost_count = max(0, end - max([cold_end, 0 if cold_end else snapshot.new_queue_offset, *declared_ends]))
        queues.append(
            QueuePlan(
                queue_id=queue_id,
                cold_end=cold_end,
                hole_start=hole_start,
                next_offset=QueueOffset(_round_up(reached, units_per_file)),
                known_lost_count=lost_count,
            )
        )
    cuts = [each.expired_before_ms for each in (state, entry) if each is not None]
    ttl_ms = catalog.ttl_ms(topic) if entry is not None else None
    if ttl_ms is not None:
        cuts.append(written_ms - ttl_ms)
    return TopicPlan(
        topic=topic,
        incarnation=incarnation,
        start_offset=state.start_offset if state is not None else start_offset,
        deleted=deleted,
        expired_before_ms=max(cuts),
        ttl_ms=entry.ttl_ms if entry is not None else None,
        is_known=state is not None,
        committed_count=segments.record_count + (packed_count if entry is not None else 0),
        quarantined_count=sum(lost.end_offset - lost.start_offset for kept in quarantine for lost in kept.lost),
        queues=() if deleted else tuple(queues),
    )


def _group_ends(offsets: Mapping[str, Any]) -> dict[str, dict[int, list[QueueOffset]]]:
    """Topic -> queue id -> the offsets of all groups."""
    found: dict[str, dict[int, list[QueueOffset]]] = {}
    for name, queues in offsets.get("offsetTable", {}).items():
        ends = found.setdefault(name.partition("@")[0], {})
        for queue_id, offset in queues.items():
            ends.setdefault(int(queue_id), []).append(QueueOffset(int(offset)))
    return found


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
