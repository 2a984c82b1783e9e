"""TTL of packs: which have expired as a whole, and which hold expired bytes still, until when. Pure arithmetic.

A pack is removed when the newest message of each live topic in it has expired, by the times of pieces if the ledger has
them, else by the pack's; the object is deleted after the grace period. Packs are not rewritten for expiry.
Expired messages are invisible long before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import msgspec

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.packs import PackedTopic, PackEntry, PieceTable, live_topics
from thermocline.tiered.segments import is_pack_key, segment_id_of

NEVER_MS = 1 << 62


class HeldBytes(msgspec.Struct, frozen=True, kw_only=True):
    """A pack that holds bytes of a topic, some of which have expired.

    `stored_bytes`: of the topic's pieces with expired bytes, 0 if no longer known. `is_live`: the pack holds the
    topic's present life. `kept_for`: the topic whose messages keep the pack longest, None without one. `due_ms`: the
    latest time at which the catalog drops it if nothing changes; None if never or unknown. `removed_in`: the first
    version that does not name it.
    """

    pack_id: str
    key: str
    stored_bytes: int
    is_live: bool
    kept_for: str | None = None
    due_ms: int | None = None
    removed_in: int | None = None


class PackedExpiry(msgspec.Struct, frozen=True, kw_only=True):
    """Packs that are removed as a whole, with `raw_bytes` of the topic; and the topic's expired bytes, at least, in
    packs that stay."""

    pack_count: int
    raw_bytes: int
    stored_bytes: int
    held_bytes: int


def expired_packs(catalog: Catalog, cuts_ms: Mapping[str, int], *, ending: Set[str] = frozenset()) -> tuple[str, ...]:
    """The packs in which every message was stored before its topic's cut, as the serving broker reported it.

    Topics that are `ending` in the same commit keep no pack; packs that hold only these are removed with them, and are
    not returned."""
    newest_cut_ms = max(cuts_ms.values(), default=0)
    return tuple(
        pack.pack_id
        for pack in catalog.packs.values()
        if pack.min_store_ms < newest_cut_ms
        and _keepers(catalog, pack, cuts_ms).keys() <= ending
        and not (ending and ending >= set(live_topics(pack, catalog.packed)))
    )


def packed_expiry(catalog: Catalog, packed: PackedTopic | None, cuts_ms: Mapping[str, int]) -> PackedExpiry:
    """What the cuts would remove of the packs that hold a topic: for a dry run."""
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
    """Packs that may hold bytes of the topic stored before its cut: those the catalog names, then removed
    ones. `ttl_ms` returns the time to live of a topic, None for ever.

    The topics of a removed pack are not recorded: it counts if it was removed within the grace period and may hold any.
    So does a broken pack that is kept because of a piece in quarantine.
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
    named = {held.key for held in found} | {pack.key for pack in catalog.packs.values()}
    broken = {kept.segment.log.key for each in catalog.topics.values() for kept in each.quarantine}
    found.extend(
        HeldBytes(pack_id=str(segment_id_of(key)), key=key, stored_bytes=0, is_live=False)
        for key in sorted(broken - named)
        if is_pack_key(key)
    )
    return found


def _keepers(catalog: Catalog, pack: PackEntry, cuts_ms: Mapping[str, int]) -> dict[str, int]:
    """The topics that keep a pack because it may hold unexpired messages of theirs, and the store time of the newest
    one."""
    keepers = {
        topic: pack.max_store_ms
        for topic in live_topics(pack, catalog.packed)
        if pack.max_store_ms >= cuts_ms.get(topic, 0)
    }
    # Times of pieces are read only where they may differ from those of the pack.
    times = pack.piece_times() if any(cuts_ms.get(topic, 0) > pack.min_store_ms for topic in keepers) else None
    if times is None:
        return keepers
    newest = {topic: max(times.of(index)[1] for index in pack.indexes_of(topic)) for topic in keepers}
    return {topic: newest_ms for topic, newest_ms in newest.items() if newest_ms >= cuts_ms.get(topic, 0)}


def _times(pack: PackEntry, table: PieceTable, index: int) -> tuple[int, int]:
    """Bounds of a piece's store times, from the ledger."""
    return table.times.of(index) if table.times is not None else (pack.min_store_ms, pack.max_store_ms)


def _end_ms(newest_ms: int, ttl_ms: int | None) -> int:
    return NEVER_MS if ttl_ms is None else newest_ms + ttl_ms
