"""Applies one ledger entry to the packs of a catalog. Pure functions; `catalog.apply` calls them.

A pack is live as long as it holds a live topic; then it is removed automatically, and listed as removed until no
readable version names it. A piece of an ended or superseded incarnation is not live, even when it is committed later: a
topic may be deleted while a merge is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from thermocline.tiered.packs.pack_entry import PackedTopic, PackEntry, QueueBounds
from thermocline.tiered.packs.piece_table import PieceExtent


@dataclass(slots=True)
class PackedChanges:
    """The packs of a catalog while an entry is applied. `gone`: removed packs."""

    packs: dict[str, PackEntry]
    packed: dict[str, PackedTopic]
    gone: list[PackEntry] = field(default_factory=list)

    @classmethod
    def of(cls, packs: Mapping[str, PackEntry], packed: Mapping[str, PackedTopic]) -> PackedChanges:
        """A copy to change."""
        return cls(dict(packs), dict(packed))

    def delete_topic(self, topic: str, incarnation: int) -> None:
        """End the topic's incarnations up to this one."""
        packed = self.packed.get(topic)
        if packed is not None and packed.incarnation <= incarnation:
            del self.packed[topic]
            self._drop_unused(packed.packs)

    def remove(self, pack_id: str) -> bool:
        """Remove a pack, with every topic in it; False when it does not exist."""
        pack = self.packs.get(pack_id)
        if pack is None:
            return False
        by_topic: dict[str, list[PieceExtent]] = {}
        for topic, piece in zip(pack.topics, pack.table().pieces(), strict=True):
            packed = self.packed.get(topic)
            if packed is not None and pack_id in packed.packs:
                by_topic.setdefault(topic, []).append(piece)
        for topic, pieces in by_topic.items():
            self._set(topic, _without(self.packed[topic], pack_id, pieces))
        self._drop(pack_id)
        return True

    def add(self, pack: PackEntry, *, live: Mapping[str, int], only: frozenset[str] | None) -> None:
        """Add a pack; `live`: the incarnation of each of its live topics."""
        is_used = False
        by_topic: dict[str, list[PieceExtent]] = {}
        for topic, piece in zip(pack.topics, pack.table().pieces(), strict=True):
            if (only is None or topic in only) and live.get(topic) == piece.incarnation:
                by_topic.setdefault(topic, []).append(piece)
        for topic, pieces in by_topic.items():
            is_used = True
            self.packed[topic] = _with(self.packed.get(topic), topic, pack.pack_id, pieces)
        if is_used:
            self.packs[pack.pack_id] = pack
        elif only is None:
            self.gone.append(pack)

    def _set(self, topic: str, packed: PackedTopic) -> None:
        if packed.packs:
            self.packed[topic] = packed
        else:
            del self.packed[topic]

    def _drop_unused(self, pack_ids: Iterable[str]) -> None:
        for pack_id in pack_ids:
            if not is_used(self.packs[pack_id], self.packed):
                self._drop(pack_id)

    def _drop(self, pack_id: str) -> None:
        self.gone.append(self.packs.pop(pack_id))


def is_used(pack: PackEntry, packed: Mapping[str, PackedTopic]) -> bool:
    """Whether the pack holds a live topic."""
    return any((found := packed.get(topic)) is not None and pack.pack_id in found.packs for topic in pack.topics)


def live_topics(pack: PackEntry, packed: Mapping[str, PackedTopic]) -> list[str]:
    """The live topics of the pack, each once."""
    return [
        topic
        for topic in dict.fromkeys(pack.topics)
        if (found := packed.get(topic)) is not None and pack.pack_id in found.packs
    ]


def packed_record_counts(packs: Iterable[PackEntry], packed: Mapping[str, PackedTopic]) -> dict[str, int]:
    """How many records of each topic are in packs, expired ones included."""
    counts: dict[str, int] = {}
    for pack in packs:
        table = pack.table()
        for index, (topic, count) in enumerate(zip(pack.topics, table.record_counts(), strict=True)):
            found = packed.get(topic)
            if found is not None and pack.pack_id in found.packs and found.incarnation == table.incarnation(index):
                counts[topic] = counts.get(topic, 0) + count
    return counts


def _with(packed: PackedTopic | None, topic: str, pack_id: str, pieces: list[PieceExtent]) -> PackedTopic:
    """The topic with pieces of one more pack."""
    incarnation = pieces[0].incarnation
    if packed is None or packed.incarnation != incarnation:
        packed = PackedTopic(topic=topic, incarnation=incarnation, packs=(), queues=(), raw_bytes=0, stored_bytes=0)
    queues = {queue.queue_id: queue for queue in packed.queues}
    for piece in pieces:
        for came in piece.queues:
            bounds = queues.get(came.queue_id)
            start = came.start_offset if bounds is None else min(bounds.start_offset, came.start_offset)
            end = came.end_offset if bounds is None else max(bounds.end_offset, came.end_offset)
            queues[came.queue_id] = QueueBounds(came.queue_id, start, end)
    return msgspec.structs.replace(
        packed,
        packs=(*packed.packs, pack_id),
        queues=tuple(queues.values()),
        raw_bytes=packed.raw_bytes + sum(piece.raw_bytes for piece in pieces),
        stored_bytes=packed.stored_bytes + sum(piece.stored_bytes for piece in pieces),
    )


def _without(packed: PackedTopic, pack_id: str, pieces: list[PieceExtent]) -> PackedTopic:
    """The topic without its pieces of one pack. If they were first in a queue, its start moves up."""
    queues = {queue.queue_id: queue for queue in packed.queues}
    for piece in sorted(pieces, key=lambda each: min(queue.start_offset for queue in each.queues)):
        for went in piece.queues:
            bounds = queues[went.queue_id]
            if went.start_offset <= bounds.start_offset:
                start = max(bounds.start_offset, min(went.end_offset, bounds.end_offset))
                queues[went.queue_id] = QueueBounds(bounds.queue_id, start, bounds.end_offset)
    return msgspec.structs.replace(
        packed,
        packs=tuple(each for each in packed.packs if each != pack_id),
        queues=tuple(queues.values()),
        raw_bytes=packed.raw_bytes - sum(piece.raw_bytes for piece in pieces),
        stored_bytes=packed.stored_bytes - sum(piece.stored_bytes for piece in pieces),
    )
