"""TTL of packs: which have expired as a whole, and which hold expired bytes still, until when. Pure arithmetic.

A pack goes when of every topic that lives in it the newest message has expired, as far as the ledger knows the times of
pieces, else that of the pack; then the object is deleted whole after the grace period. Nothing is rewritten for that.
What has expired is visible nowhere long before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.packs import PackedTopic, PackEntry, PieceTable, live_topics
from thermocline.tiered.segments import is_pack_key, segment_id_of

NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes:
    """A pack that holds bytes of a topic, some of which have expired.

    `stored_bytes`: of pieces of the topic with such bytes, 0 where that is not known any more. `is_live`: the topic
    lives in the pack. `kept_for`: whose messages keep it the longest, None when nobody's do. `due_ms`: when the catalog
    lets go of it at the latest if nothing changes; None never, or when is not known. `removed_in`: the version that was
    the first not to name it.
    """

    pack_id: str
    key: str
    stored_bytes: int
    is_live: bool
    kept_for: str | None = None
    due_ms: int | None = None
    removed_in: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedExpiry:
    """Packs that go as a whole, with all that is in them, `raw_bytes` of the topic's; and what of the topic has expired
    in others, at least, and stays until they go."""

    pack_count: int
    raw_bytes: int
    stored_bytes: int
    held_bytes: int


def expired_packs(catalog: Catalog, cuts_ms: Mapping[str, int], *, ending: Set[str] = frozenset()) -> tuple[str, ...]:
    """The packs of which every message was stored before the cut of its topic, as the serving broker has said it.

    Topics that are `ending` in the same commit keep none; what holds theirs alone goes with them, and is not given."""
    newest_cut_ms = max(cuts_ms.values(), default=0)
    return tuple(
        pack.pack_id
        for pack in catalog.packs.values()
        if pack.min_store_ms < newest_cut_ms
        and _keepers(catalog, pack, cuts_ms).keys() <= ending
        and not (ending and ending >= set(live_topics(pack, catalog.packed)))
    )


def packed_expiry(catalog: Catalog, packed: PackedTopic | None, cuts_ms: Mapping[str, int]) -> PackedExpiry:
    """What the cuts take of the packs that a topic lives in: for a dry run."""
    gone = set(expired_packs(catalog, cuts_ms))
    pack_count = raw_bytes = stored_bytes = held_bytes = 0
    for pack in [catalog.packs[pack_id] for pack_id in packed.packs] if packed is not None else []:
        assert packed is not None
        cut_ms = cuts_ms.get(packed.topic, 0)
        if pack.min_store_ms >= cut_ms:
            continue
        table = pack.table()
        for index in pack.indexes_of(packed.topic):
            if pack.pack_id in gone:
                raw_bytes += table.piece(index).raw_bytes
            elif _times(pack, table, index)[1] < cut_ms:
                held_bytes += table.piece(index).stored_bytes
        if pack.pack_id in gone:
            pack_count += 1
            stored_bytes += pack.object_bytes
    return PackedExpiry(pack_count=pack_count, raw_bytes=raw_bytes, stored_bytes=stored_bytes, held_bytes=held_bytes)


def packs_holding(
    catalog: Catalog, topic: str, *, cuts_ms: Mapping[str, int], ttl_ms: Callable[[str], int | None], now_ms: int
) -> list[HeldBytes]:
    """Packs in which bytes of the topic may lie that were stored before its cut: those the catalog names, then removed
    ones. `ttl_ms` gives the time to live of every topic, None for ever.

    Of a removed pack nobody remembers the topics: it counts if it was removed within the grace period and may hold any.
    So does one that was broken, and is kept because of a piece that is in quarantine.
    """
    found: list[HeldBytes] = []
    cut_ms, packed = cuts_ms.get(topic, 0), catalog.packed.get(topic)
    for pack in catalog.packs.values():
        indexes = pack.indexes_of(topic)
        is_live = packed is not None and pack.pack_id in packed.packs
        if not indexes or (is_live and pack.min_store_ms >= cut_ms):
            continue
        table = pack.table()
        held = [index for index in indexes if not is_live or _times(pack, table, index)[0] < cut_ms]
        if not held:
            continue
        ends = {
            other: _end_ms(newest_ms, ttl_ms(other)) for other, newest_ms in _keepers(catalog, pack, cuts_ms).items()
        }
        last = max(ends, key=lambda other: ends[other], default=None)
        end_ms = ends[last] if last is not None else now_ms
        found.append(
            HeldBytes(
                pack_id=pack.pack_id,
                key=pack.key,
                stored_bytes=sum(table.piece(index).stored_bytes for index in held),
                is_live=is_live,
                kept_for=last,
                due_ms=max(now_ms, end_ms) if end_ms < NEVER_MS else None,
            )
        )
    found.extend(
        HeldBytes(
            pack_id=removed.segment_id,
            key=removed.keys[0],
            stored_bytes=removed.stored_bytes,
            is_live=False,
            removed_in=removed.removed_in,
        )
        for removed in catalog.removed
        if removed.topic == topic or (not removed.topic and is_pack_key(removed.keys[0]))
    )
    known = {held.key for held in found} | {pack.key for pack in catalog.packs.values()}
    broken = {kept.segment.log.key for each in catalog.topics.values() for kept in each.quarantine}
    found.extend(
        HeldBytes(pack_id=str(segment_id_of(key)), key=key, stored_bytes=0, is_live=False)
        for key in sorted(broken - known)
        if is_pack_key(key)
    )
    return found


def _keepers(catalog: Catalog, pack: PackEntry, cuts_ms: Mapping[str, int]) -> dict[str, int]:
    """The topics that keep a pack, as it may hold messages of theirs that have not expired, and when the newest of
    these was stored."""
    keepers = {
        topic: pack.max_store_ms
        for topic in live_topics(pack, catalog.packed)
        if pack.max_store_ms >= cuts_ms.get(topic, 0)
    }
    # Times of pieces are looked at only where they may say something else than those of the pack.
    times = pack.piece_times() if any(cuts_ms.get(topic, 0) > pack.min_store_ms for topic in keepers) else None
    if times is None:
        return keepers
    newest = {topic: max(times.of(index)[1] for index in pack.indexes_of(topic)) for topic in keepers}
    return {topic: newest_ms for topic, newest_ms in newest.items() if newest_ms >= cuts_ms.get(topic, 0)}


def _times(pack: PackEntry, table: PieceTable, index: int) -> tuple[int, int]:
    """Between which store times a piece lies, as far as the ledger knows."""
    return table.times.of(index) if table.times is not None else (pack.min_store_ms, pack.max_store_ms)


def _end_ms(newest_ms: int, ttl_ms: int | None) -> int:
    return NEVER_MS if ttl_ms is None else newest_ms + ttl_ms
