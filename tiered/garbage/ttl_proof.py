"""TTL proof: a topic's expired segments still in the catalog, its hidden bytes in the bucket, until when and why.

    expires -> hidden at once -> out of the catalog with the next sweep -> deleted in the bucket after the grace period

A segment or pack that has expired as a whole may stay in the catalog until the next sweep. One that an earlier sweep
should have dropped, or that stays because sweeps have stopped, is `overdue`: the catalog references expired data.
The topic's expired records in a pack stay until the newest message of any topic in the pack has expired.

The content of the bucket is listed, not derived: one listing of the topic's objects, and one of all packs. Packs that
the catalog does not name are inspected: two requests each, for `LOOKED_INTO_MAX` of them.
Belongs to the tier process's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.tiered.catalog import Catalog, CheckpointMark, HeldBytes, PackPieces, packs_holding
from thermocline.tiered.ledger import LedgerWriter, Pin, list_pins
from thermocline.tiered.sealing import Sweeps, SweepState
from thermocline.tiered.segments import SegmentEntry, SegmentId, escape_name, is_pack_key, segment_id_of

NEVER_VISIBLE_MS = 1 << 62
LOOKED_INTO_MAX = 256
SWEEP_LATE_MS_MAX = 30_000
"""A sweep waits for the seals and uploads of its round; so much later than it was due it has stopped."""


class HiddenState(StrEnum):
    """Why invisible bytes are still in the bucket."""

    PARTLY = "partly expired"
    HELD = "in a pack that stays"
    NAMED = "expired, still named"
    REMOVED = "out of the catalog"
    DISCARDED = "given up"
    ORPHAN = "left by an earlier writer"


class NamedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A wholly expired segment or pack that the catalog still names. `is_overdue`: a sweep should have dropped it."""

    segment_id: str
    max_store_ms: int
    is_overdue: bool
    why: str


class HiddenObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects with hidden bytes, of one segment or pack, committed or not. Of a pack, `size_bytes` are the topic's
    alone, where that is known. `due_ms`: the latest time of their deletion from the bucket if nothing changes; None:
    not known."""

    segment_id: str
    state: HiddenState
    keys: tuple[str, ...]
    size_bytes: int
    due_ms: int | None
    why: str


class BucketEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The cold tier's part of the proof. `visible_*`: objects of the topic without expired records."""

    version: int
    named: tuple[NamedPart, ...]
    hidden: tuple[HiddenObjects, ...]
    visible_count: int
    visible_bytes: int


async def bucket_evidence(
    writer: LedgerWriter,
    *,
    topic: str,
    incarnation: int,
    cuts_ms: Mapping[str, int],
    ttl_ms: Callable[[str], int | None],
    sweeps: Sweeps,
    now_ms: int,
) -> BucketEvidence:
    """Inspect the newest catalog, the pins, the topic's objects, and all packs.

    `cuts_ms`: the serving broker's cuts; `ttl_ms` returns a topic's time to live, None for ever.

    Raises:
        ObjectStoreUnavailableError: No answer.
        LedgerCorruptError: A pin or a pack's table is damaged.
    """
    catalog = writer.catalog
    found = _Found()
    for prefix in (f"{writer.keys.topics_prefix}{escape_name(topic)}/", writer.keys.packs_prefix):
        async for info in writer.store.list(prefix):
            found.uncounted[info.key] = info.size_bytes
    pins = [pin for pin in await list_pins(writer.store, writer.keys) if pin.until_ms > now_ms]
    entry = catalog.topics.get(topic)
    if entry is not None and entry.incarnation != incarnation:
        # An earlier incarnation: all of it is hidden, and removed with the commit that ends it.
        cuts_ms = {**cuts_ms, topic: NEVER_VISIBLE_MS}
    segments = entry.segments if entry is not None else ()
    kept = [each.segment for each in entry.quarantine] if entry is not None else []
    judge = _Judge(catalog=catalog, topic=topic, cuts_ms=cuts_ms, ttl_ms=ttl_ms, sweeps=sweeps, now_ms=now_ms)
    for segment in (*segments, *(each for each in kept if not is_pack_key(each.log.key))):
        judge.take_segment(found, segment)
    held = packs_holding(catalog, topic, cuts_ms=cuts_ms, ttl_ms=ttl_ms, now_ms=now_ms)
    unknown = await judge.inspect_unnamed(found, PackPieces(writer.store), incarnation=incarnation)
    judge.take_packs(found, held)
    for removed in catalog.removed:
        keys = tuple(key for key in removed.keys if key in found.uncounted)
        if keys:
            due_ms, why = _removal(catalog, writer, removed.removed_in, pins, now_ms=now_ms)
            if keys[0] in unknown:
                why += "; whose messages it holds is not known"
            found.count_hidden(removed.segment_id, HiddenState.REMOVED, keys, due_ms, why)
    _take_the_rest(found, writer, now_ms=now_ms)
    return BucketEvidence(
        version=catalog.version,
        named=(*judge.named_segments((*segments, *kept)), *judge.named_packs(held)),
        hidden=tuple(found.hidden),
        visible_count=found.visible_count,
        visible_bytes=found.visible_bytes,
    )


class _Judge(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs for judging a topic's segments and packs."""

    catalog: Catalog
    topic: str
    cuts_ms: Mapping[str, int]
    ttl_ms: Callable[[str], int | None]
    sweeps: Sweeps
    now_ms: int

    def take_segment(self, found: _Found, segment: SegmentEntry) -> None:
        """Count one of the topic's own segments."""
        cut_ms, ttl_ms = self.cuts_ms.get(self.topic, 0), self.ttl_ms(self.topic)
        if segment.min_store_ms >= cut_ms:
            found.take_visible(segment.keys)
        elif segment.max_store_ms >= cut_ms:
            gone_ms, why = None, "its newest message is kept for ever"
            if ttl_ms is not None:
                gone_ms = segment.max_store_ms + ttl_ms + self.sweeps.segments.interval_ms + self._grace_ms
                why = "its newest message is visible; then a sweep, and the grace period"
            found.count_hidden(segment.segment_id, HiddenState.PARTLY, segment.keys, gone_ms, why)
        else:
            due_ms, why = self._swept(self.sweeps.segments)
            found.count_hidden(segment.segment_id, HiddenState.NAMED, segment.keys, due_ms, why)

    async def inspect_unnamed(self, found: _Found, pieces: PackPieces, *, incarnation: int) -> set[str]:
        """Of the packs that the catalog does not name, skip those without expired records of the topic, and count only
        the topic's bytes in the others. Returns the packs whose content is not known; they are counted whole.
        """
        named = {pack.key for pack in self.catalog.packs.values()}
        keys = [key for key in found.uncounted if is_pack_key(key) and key not in named]
        unknown = set(keys[LOOKED_INTO_MAX:])
        for key in keys[:LOOKED_INTO_MAX]:
            try:
                entries = await pieces.of_topic_at(key, self.topic)
            except ObjectNotFoundError:
                del found.uncounted[key]  # deleted since it was listed
                continue
            except CorruptDataError:
                unknown.add(key)
                continue
            cut_ms = self.cuts_ms.get(self.topic, 0)
            hidden = [each for each in entries if each.incarnation != incarnation or each.min_store_ms < cut_ms]
            if hidden:
                found.uncounted[key] = sum(each.stored_bytes for each in hidden)
            else:
                del found.uncounted[key]
        return unknown

    def take_packs(self, found: _Found, held: Sequence[HeldBytes]) -> None:
        """Count packs that the catalog names, and broken ones; bytes of other topics are not counted."""
        by_id = {each.pack_id: each for each in held if each.removed_in is None}
        packed = self.catalog.packed.get(self.topic)
        for pack_id in packed.packs if packed is not None else ():
            if pack_id not in by_id:
                pack = self.catalog.packs[pack_id]
                table = pack.table()
                found.count(pack.key, sum(table.piece(index).stored_bytes for index in pack.indexes_of(self.topic)))
                found.take_visible((pack.key,))
        for each in by_id.values():
            state, due_ms = HiddenState.HELD, None
            if each.pack_id in self.catalog.packs:
                found.count(each.key, each.stored_bytes)
            if each.pack_id not in self.catalog.packs:
                why = "it is damaged, and kept for what may be restored of it"
            elif each.kept_for is None:
                state = HiddenState.NAMED
                due_ms, why = self._swept(self.sweeps.packs)
            elif each.due_ms is None:
                why = f"messages of {each.kept_for} in it are kept for ever"
            else:
                due_ms = each.due_ms + self.sweeps.packs.interval_ms + self._grace_ms
                why = f"messages of {each.kept_for} in it are visible; then a sweep, and the grace period"
            found.count_hidden(each.pack_id, state, (each.key,), due_ms, why)
        for pack in self.catalog.packs.values():
            found.uncounted.pop(pack.key, None)  # other topics'

    def named_segments(self, segments: Sequence[SegmentEntry]) -> list[NamedPart]:
        """Segments without visible records."""
        last, cut_ms = self.sweeps.segments.last, self.cuts_ms.get(self.topic, 0)
        swept_cut_ms = last.cuts_ms.get(self.topic, 0) if last is not None else 0
        return [
            self._named(
                self.sweeps.segments,
                segment.segment_id,
                max_store_ms=segment.max_store_ms,
                created_ms=segment.created_ms,
                had_expired=segment.max_store_ms < swept_cut_ms,
            )
            for segment in segments
            if segment.max_store_ms < cut_ms
        ]

    def named_packs(self, held: Sequence[HeldBytes]) -> list[NamedPart]:
        """Packs without visible records of any topic."""
        last = self.sweeps.packs.last
        swept_cuts_ms = last.cuts_ms if last is not None else {}
        packs = [self.catalog.packs[each.pack_id] for each in held if each.is_live and each.kept_for is None]
        return [
            self._named(
                self.sweeps.packs,
                pack.pack_id,
                max_store_ms=pack.max_store_ms,
                created_ms=pack.created_ms,
                # A topic that had no cut then has ended since.
                had_expired=all(pack.max_store_ms < swept_cuts_ms.get(topic, 0) for topic in pack.topics),
            )
            for pack in packs
        ]

    def _named(
        self, sweep: SweepState, segment_id: str, *, max_store_ms: int, created_ms: int, had_expired: bool
    ) -> NamedPart:
        """Whether a sweep has missed it. `had_expired`: by the cuts of the last sweep."""
        since_ms = sweep.last.at_ms if sweep.last is not None else sweep.started_ms
        has_stopped = self.now_ms - since_ms > sweep.interval_ms + SWEEP_LATE_MS_MAX
        # Data committed during or after the last sweep, even if written long before, is left to the next one.
        was_passed_by = had_expired and created_ms < since_ms - 2 * sweep.interval_ms
        why = "the next sweep drops it"
        if was_passed_by:
            why = "the last sweep should have dropped it"
        elif sweep.waits_for_budget:
            why = "the next sweep drops it, which waits for the request budget"
        elif has_stopped:
            why = "sweeps have stopped"
        return NamedPart(
            segment_id=segment_id, max_store_ms=max_store_ms, is_overdue=was_passed_by or has_stopped, why=why
        )

    def _swept(self, sweep: SweepState) -> tuple[int | None, str]:
        """When the objects dropped by the next sweep are deleted, and the reason for the wait."""
        if sweep.waits_for_budget:
            return None, "a sweep, which waits for the request budget, and the grace period"
        return max(self.now_ms, sweep.next_ms) + self._grace_ms, "a sweep, and the grace period"

    @property
    def _grace_ms(self) -> int:
        return self.catalog.settings.grace_ms


class _Found:
    """The objects of a listing, each counted once, with the topic's bytes in them."""

    def __init__(self) -> None:
        self.uncounted: dict[str, int] = {}
        self.hidden: list[HiddenObjects] = []
        self.visible_count = 0
        self.visible_bytes = 0

    def count(self, key: str, size_bytes: int) -> None:
        """Set the topic's bytes in an object."""
        if key in self.uncounted:
            self.uncounted[key] = size_bytes

    def take_visible(self, keys: Sequence[str]) -> None:
        """Count objects without expired records of the topic."""
        for key in keys:
            if key in self.uncounted:
                self.visible_count += 1
                self.visible_bytes += self.uncounted.pop(key)

    def count_hidden(
        self, segment_id: str, state: HiddenState, keys: Sequence[str], due_ms: int | None, why: str
    ) -> None:
        """Count objects with hidden bytes; missing ones are skipped."""
        there = tuple(key for key in keys if key in self.uncounted)
        if there:
            size_bytes = sum(self.uncounted.pop(key) for key in there)
            self.hidden.append(
                HiddenObjects(
                    segment_id=segment_id,
                    state=state,
                    keys=there,
                    size_bytes=size_bytes,
                    due_ms=due_ms,
                    why=why,
                )
            )


def _removal(
    catalog: Catalog, writer: LedgerWriter, removed_in: int, pins: Sequence[Pin], *, now_ms: int
) -> tuple[int, str]:
    """When the collector deletes objects that a version dropped (garbage.py), and the reason for the wait."""
    marks = [*catalog.checkpoints, CheckpointMark(catalog.version, catalog.committed_ms)]
    if writer.checkpoint is not None:
        marks.append(writer.checkpoint.mark)
    over_ms = min(mark.committed_ms for mark in marks if mark.version >= removed_in) + catalog.settings.grace_ms
    holding = [pin for pin in pins if pin.version < removed_in]
    if not holding:
        return max(now_ms, over_ms), "the grace period, for readers of older versions"
    last = max(holding, key=lambda pin: pin.until_ms)
    return max(now_ms, over_ms, last.until_ms), f"pin {last.pin_id} of {last.owner or 'an unnamed reader'}"


def _take_the_rest(found: _Found, writer: LedgerWriter, *, now_ms: int) -> None:
    """Count unreferenced objects. This writer's objects that are neither committed nor given up are being uploaded."""
    by_id: dict[SegmentId, list[str]] = {}
    for key in found.uncounted:
        segment_id = segment_id_of(key)
        if segment_id is not None:
            by_id.setdefault(segment_id, []).append(key)
    for segment_id, keys in sorted(by_id.items()):
        if any(key in writer.discarded for key in keys):
            found.count_hidden(str(segment_id), HiddenState.DISCARDED, keys, now_ms, "the next collection")
        elif segment_id.epoch < writer.epoch:
            found.count_hidden(str(segment_id), HiddenState.ORPHAN, keys, None, "the collection that follows a start")
