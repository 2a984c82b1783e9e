"""TTL of packs: which have expired as a whole, and which hold expired bytes still, until when. Pure arithmetic.

A pack goes when the newest message in it has expired for every topic that lives in it; then the object is deleted whole
after the grace period. Nothing is rewritten for that. What has expired is visible nowhere long before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.object_keys import is_pack_key, segment_id_of
from thermocline.tiered.packs.packed_catalog import live_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes:
    """A pack that holds bytes of a topic, some of which have expired.

    `due_ms`: when the catalog lets go of it if nothing changes; None never, as another topic in it is kept for ever, or
    it is removed already. `deletable_ms`: for what is removed already, when its object may be deleted.
    """

    pack_id: str
    key: str
    topic: str
    stored_bytes: int
    min_store_ms: int
    max_store_ms: int
    is_live: bool
    due_ms: int | None
    deletable_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedExpiry:
    """Packs that go as a whole, with all that is in them; and what of a topic has expired in others, at least, and
    stays until they go."""

    pack_count: int
    stored_bytes: int
    held_bytes: int


def expired_packs(catalog: Catalog, cuts_ms: Mapping[str, int]) -> tuple[str, ...]:
    """The packs of which every message was stored before the cut of its topic, as the serving broker has said it."""
    oldest_cut_ms = max(cuts_ms.values(), default=0)
    return tuple(
        pack.pack_id
        for pack in catalog.packs.values()
        if pack.max_store_ms < oldest_cut_ms
        and all(pack.max_store_ms < cuts_ms.get(topic, 0) for topic in live_topics(pack, catalog.packed))
    )


def packed_expiry(catalog: Catalog, topic: str, cuts_ms: Mapping[str, int]) -> PackedExpiry:
    """What the cuts take of the packs that a topic lives in: for a dry run."""
    packed = catalog.packed.get(topic)
    gone = set(expired_packs(catalog, cuts_ms))
    pack_count = stored_bytes = held_bytes = 0
    for pack_id in packed.packs if packed is not None else ():
        pack = catalog.packs[pack_id]
        if pack_id in gone:
            pack_count += 1
            stored_bytes += pack.object_bytes
        elif pack.max_store_ms < cuts_ms.get(topic, 0):
            table = pack.table()
            held_bytes += sum(table.piece(index).stored_bytes for index in pack.indexes_of(topic))
    return PackedExpiry(pack_count=pack_count, stored_bytes=stored_bytes, held_bytes=held_bytes)


def packs_holding(catalog: Catalog, topic: str, *, cut_ms: int, now_ms: int) -> list[HeldBytes]:
    """Packs in which bytes of the topic may lie that were stored before `cut_ms`: live ones, then removed ones.

    Of a removed pack nobody remembers the topics: it counts if it was removed within the grace period and may hold any.
    So does one that was broken, and is kept because of a piece that is in quarantine.
    """
    found: list[HeldBytes] = []
    for pack in catalog.packs.values():
        indexes = pack.indexes_of(topic)
        if not indexes:
            continue
        packed = catalog.packed.get(topic)
        lives_here = packed is not None and pack.pack_id in packed.packs
        if lives_here and pack.min_store_ms >= cut_ms:
            continue
        table = pack.table()
        times = [catalog.ttl_ms(other) for other in live_topics(pack, catalog.packed)]
        longest_ms = None if any(ttl_ms is None for ttl_ms in times) else max(filter(None, times), default=0)
        found.append(
            HeldBytes(
                pack_id=pack.pack_id,
                key=pack.key,
                topic=topic,
                stored_bytes=sum(table.piece(index).stored_bytes for index in indexes),
                min_store_ms=pack.min_store_ms,
                max_store_ms=pack.max_store_ms,
                is_live=lives_here,
                due_ms=None if longest_ms is None else max(now_ms, pack.max_store_ms + longest_ms),
                deletable_ms=None,
            )
        )
    grace_ms = catalog.settings.grace_ms
    found.extend(
        HeldBytes(
            pack_id=removed.segment_id,
            key=removed.keys[0],
            topic=topic,
            stored_bytes=removed.stored_bytes,
            min_store_ms=0,
            max_store_ms=0,
            is_live=False,
            due_ms=None,
            deletable_ms=now_ms + grace_ms,
        )
        for removed in catalog.removed
        if removed.topic == topic or (not removed.topic and is_pack_key(removed.keys[0]))
    )
    broken = {kept.segment.log.key: kept.segment for each in catalog.topics.values() for kept in each.quarantine}
    removed_keys = {held.key for held in found}
    found.extend(
        HeldBytes(
            pack_id=str(segment_id_of(key)),
            key=key,
            topic=topic,
            stored_bytes=0,
            min_store_ms=segment.min_store_ms,
            max_store_ms=segment.max_store_ms,
            is_live=False,
            due_ms=None,
            deletable_ms=None,
        )
        for key, segment in broken.items()
        if is_pack_key(key) and key not in removed_keys
    )
    return found
