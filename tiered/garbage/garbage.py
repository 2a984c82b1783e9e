"""Garbage: finds and deletes unreferenced objects of a broker's prefix. Planning deletes nothing.

    now ---- grace period ---- | versions before the checkpoint `readable_from` could be opened until now
                               v
    entries  [ deleted         ][ kept ..................................... head ]
    objects  named only there: deleted

What is deleted
  - Versions superseded for longer than the grace period, up to a checkpoint, and below every pinned version. First an
    entry raises `readable_from`, then their entries, checkpoints and the objects that only they name are deleted.
  - Orphans, found by listing (a sweep, `orphan_search.py`): objects of *earlier* epochs that no readable version names.
    A writer commits only objects of its own epoch, so no later version can name them: no clock is needed.
    State snapshots of earlier epochs are deleted too, except the newest two readable ones: a suspended writer may have
    written one after its successor's listing. Of this writer's own epoch, only snapshots that it wrote itself count:
    a foreign one is no reason to delete those that a recovery falls back to.
  - Objects that this writer discarded: dropped segments, abandoned ids. Other objects of its own epoch are kept, as
    their upload may be under way; objects of later epochs are never touched.

Order of deletion: checkpoint heads, then entries in ascending order, one after another, then everything else. The entry
of the oldest kept checkpoint and all later ones are kept, so always the newest two. A reader that still starts from a
deleted checkpoint finds its entry gone, and starts again.

Belongs to the writer's loop. After a crash the next sweep finds the rest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import msgspec

from thermocline.remoting.errors import FencedError, ObjectNotFoundError
from thermocline.tiered.catalog import Catalog, CheckpointMark, LedgerChanges, LiveNames
from thermocline.tiered.garbage.orphan_search import OrphanSearch
from thermocline.tiered.ledger import HeadHint, LedgerWriter, Pin, find_entry, list_pins, load_head, write_hint
from thermocline.tiered.objects import LedgerCorruptError
from thermocline.tiered.state import KEPT_COUNT, StateLog, StateName, find_superseded

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbagePlan:
    """The objects to delete. `objects` are parts and packs, key to size in bytes (0 where it is not known).

    `needs_checkpoint`: the version `readable_from` has no checkpoint yet; it is written first, and the ledger's own
    garbage is left to the next plan.
    """

    planned_at: int
    readable_from: int
    needs_checkpoint: bool = False
    objects: dict[str, int] = field(default_factory=dict)
    entries: tuple[int, ...] = ()
    checkpoint_heads: tuple[int, ...] = ()
    checkpoint_buckets: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()

    @property
    def object_count(self) -> int:
        """Objects of all kinds."""
        ledger_count = len(self.entries) + len(self.checkpoint_heads) + len(self.checkpoint_buckets)
        return len(self.objects) + ledger_count + len(self.pins)


class GarbageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted. `held_by_pin`: a pin appeared after planning, so nothing was deleted this time."""

    deleted_count: int = 0
    deleted_bytes: int = 0
    held_by_pin: bool = False


class GarbageCollector:
    """Plans and deletes for one writer."""

    def __init__(self, writer: LedgerWriter, states: StateLog | None = None) -> None:
        """`states`: None when the writer's own snapshots are not known; then none of its epoch count."""
        self._writer = writer
        self._states = states
        self._swept_to: int | None = None
        """Entries below this are deleted; None when only a listing can tell."""
        self._unfinished = False

    def is_due(self, *, now_ms: int) -> bool:
        """Whether a plan without a sweep would find anything, by the state in memory; sends no request."""
        catalog = self._writer.catalog
        due = self._unfinished or bool(self._writer.discarded)
        return due or self._grace_limit(catalog, now_ms) > catalog.readable_from

    async def plan(
        self,
        *,
        now_ms: int,
        sweep: bool = False,
        orphans: OrphanSearch | None = None,
        grace_ms: int | None = None,
    ) -> GarbagePlan:
        """What could be deleted now. `sweep` adds what listings tell, and is needed once in a writer's life. `orphans`:
        a search that has come to its end; without it a sweep makes one, in which no commit may be made.

        `grace_ms` replaces the ledger's grace period; with 0, readers of an older version without a pin may fail.

        Raises:
            ObjectStoreUnavailableError: No answer.
            CorruptDataError: The ledger or a pin is damaged or inconsistent: nothing may be deleted.
        """
        writer = self._writer
        catalog = await writer.settle()
        pins = await list_pins(writer.store, writer.keys)
        live_pins = [pin for pin in pins if pin.until_ms > now_ms]
        readable_from = self._held_by_pins(catalog, self._grace_limit(catalog, now_ms, grace_ms), live_pins)
        needs_checkpoint = readable_from > max(catalog.readable_from, self._checkpoint_version)
        live, kept = LiveNames(catalog), set[str]()
        objects = dict(writer.discarded)
        for segment in catalog.removed:
            if segment.removed_in > readable_from:
                kept.update(segment.keys)
            else:
                objects.update(dict.fromkeys(segment.keys, segment.stored_bytes // len(segment.keys)))
        if sweep:
            search = orphans if orphans is not None else OrphanSearch(writer)
            await search.go_on()
            objects |= search.found
            objects |= await self._old_states()
        entries, heads, buckets = await self._ledger_garbage(
            catalog, catalog.readable_from if needs_checkpoint else readable_from, sweep=sweep
        )
        return GarbagePlan(
            planned_at=catalog.version,
            readable_from=readable_from,
            needs_checkpoint=needs_checkpoint,
            objects={key: objects[key] for key in sorted(objects) if key not in kept and key not in live},
            entries=entries,
            checkpoint_heads=heads,
            checkpoint_buckets=buckets,
            pins=tuple(pin.pin_id for pin in pins if pin.until_ms <= now_ms and pin.version < readable_from),
        )

    async def execute(self, plan: GarbagePlan, *, now_ms: int) -> GarbageReport:
        """Carry out a plan of this collector; safe to repeat, and to interrupt anywhere.

        Raises:
            FencedError: A later writer has taken over; the objects deleted so far were garbage for it, too.
            ObjectStoreUnavailableError: No answer; the rest stays for the next plan.
        """
        writer, store, keys = self._writer, self._writer.store, self._writer.keys
        if plan.object_count == 0 and plan.readable_from <= writer.catalog.readable_from:
            return GarbageReport()
        self._swept_to, self._unfinished = None, True
        if plan.needs_checkpoint:
            await writer.write_checkpoint()
            if self._checkpoint_version != plan.readable_from:
                return GarbageReport()  # commits came between: the next plan sees them
        if plan.readable_from > writer.catalog.readable_from:
            await writer.commit(LedgerChanges(readable_from=plan.readable_from))
        pins = await list_pins(store, keys)
        if any(pin.until_ms > now_ms and pin.version < plan.readable_from for pin in pins):
            logger.info("garbage held by a pin readable_from=%d", plan.readable_from)
            return GarbageReport(held_by_pin=True)
        later = await find_entry(store, keys, writer.version + 1)
        if later is not None:
            raise FencedError(
                "a later writer has taken over", root=keys.root, epoch=writer.epoch, later_epoch=later.epoch
            )
        if plan.checkpoint_heads or plan.entries:
            assert writer.checkpoint is not None
            assert plan.readable_from <= writer.checkpoint.version <= writer.version
            assert max(plan.entries, default=0) < min(plan.readable_from, writer.version - 1)
            # Readers that open the ledger from now on must not start from a checkpoint about to be deleted.
            await write_hint(store, keys, HeadHint(version=writer.version, checkpoint=writer.checkpoint.version))
        live = LiveNames(writer.catalog)
        assert not any(key in live for key in plan.objects), "what the ledger names is not deleted"
        for version in plan.checkpoint_heads:
            await store.delete(keys.checkpoint_head(version))
        for version in plan.entries:
            await store.delete(keys.ledger_entry(version))
        await store.delete_many(plan.checkpoint_buckets)
        await store.delete_many(plan.objects)
        await store.delete_many([keys.pin(pin.pin_id) for pin in pins if self._has_ended(pin, now_ms)])
        for key in plan.objects:
            writer.discarded.pop(key, None)
        if not plan.needs_checkpoint:
            self._swept_to, self._unfinished = plan.readable_from, False
        report = GarbageReport(deleted_count=plan.object_count, deleted_bytes=sum(plan.objects.values()))
        logger.info(
            "garbage deleted objects=%d entries=%d bytes=%d", len(plan.objects), len(plan.entries), report.deleted_bytes
        )
        return report

    def _has_ended(self, pin: Pin, now_ms: int) -> bool:
        """Whether a pin has run out for good. While its version is readable, a pin may be renewed at any moment."""
        return pin.until_ms <= now_ms and pin.version < self._writer.catalog.readable_from

    async def _old_states(self) -> dict[str, int]:
        """Superseded state snapshots of earlier epochs. StateLog deletes those of this writer's epoch."""
        writer = self._writer
        found = {}
        async for info in writer.store.list(writer.keys.state_prefix):
            place = writer.keys.state_of(info.key)
            if place is not None and self._may_be_ours(StateName(*place)):
                found[StateName(*place)] = info
        if all(name.epoch == writer.epoch for name in sorted(found)[:-KEPT_COUNT]):
            return {}
        superseded = await find_superseded(writer.store, writer.keys, found)
        return {found[name].key: found[name].size_bytes for name in superseded if name.epoch < writer.epoch}

    def _may_be_ours(self, name: StateName) -> bool:
        """Whether this writer or an earlier one can have put a state snapshot of that name."""
        return self._states.may_have_made(name) if self._states is not None else name.epoch < self._writer.epoch

    async def _ledger_garbage(
        self, catalog: Catalog, readable_from: int, *, sweep: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        """Entries, checkpoint heads (both ascending) and buckets that only versions below `readable_from` need."""
        writer, store, keys = self._writer, self._writer.store, self._writer.keys
        latest = writer.checkpoint
        if latest is None:
            return (), (), ()
        kept = {mark.version for mark in catalog.checkpoints if mark.version >= readable_from} | {latest.version}
        if not sweep and self._swept_to is not None:
            heads = tuple(mark.version for mark in catalog.checkpoints if mark.version < readable_from)
            named = await self._kept_buckets(kept)
            buckets = set() if named is None else await self._buckets_of(heads) - named
            return tuple(range(self._swept_to, readable_from)), heads, tuple(sorted(buckets))
        entries: list[int] = []
        async for info in store.list(keys.ledger_prefix):
            version = keys.ledger_version(info.key)
            if version is not None and version < readable_from:
                entries.append(version)
        # A checkpoint newer than `latest` is being written; no entry names an older one that is not kept.
        named = await self._kept_buckets(kept)
        gone_heads: list[int] = []
        gone_buckets: list[str] = []
        async for info in store.list(keys.checkpoints_prefix):
            part = keys.checkpoint_part(info.key)
            if part is None or part[0] > latest.version:
                continue
            version, epoch = part
            if epoch is None:
                if version not in kept:
                    gone_heads.append(version)
            elif named is not None and info.key not in named and epoch <= writer.epoch:
                gone_buckets.append(info.key)
        return tuple(sorted(entries)), tuple(sorted(gone_heads)), tuple(sorted(gone_buckets))

    async def _kept_buckets(self, versions: set[int]) -> set[str] | None:
        """The buckets that kept checkpoints name; None when one of them is damaged, so no bucket may be deleted."""
        try:
            return await self._buckets_of(versions, are_kept=True)
        except LedgerCorruptError as error:
            logger.warning("checkpoint buckets are left alone: %s", error)
            return None

    async def _buckets_of(self, versions: set[int] | tuple[int, ...], *, are_kept: bool = False) -> set[str]:
        """The buckets that these checkpoints name; missing ones, and damaged ones to be deleted, are skipped.

        Raises:
            LedgerCorruptError: A kept checkpoint is damaged.
        """
        named: set[str] = set()
        for version in sorted(versions):
            try:
                head = await load_head(self._writer.store, self._writer.keys, version)
            except ObjectNotFoundError:
                continue
            except LedgerCorruptError:
                if are_kept:
                    raise
                continue
            named.update(head.object_keys)
        return named

    @property
    def _checkpoint_version(self) -> int:
        checkpoint = self._writer.checkpoint
        return checkpoint.version if checkpoint is not None else 0

    def _grace_limit(self, catalog: Catalog, now_ms: int, grace_ms: int | None = None) -> int:
        """The newest version before which every version has been superseded for the grace period.

        Only versions with a checkpoint count, and, when segments wait for it, the newest one: otherwise an idle ledger
        would keep its last garbage for ever.
        """
        latest = self._writer.checkpoint
        marks = [*catalog.checkpoints, *([latest.mark] if latest is not None else [])]
        if catalog.removed:
            marks.append(CheckpointMark(catalog.version, catalog.committed_ms))
        grace_ms = catalog.settings.grace_ms if grace_ms is None else grace_ms
        # Without a grace period all of them are over, also after the clock was set back.
        over = [mark.version for mark in marks if not grace_ms or mark.committed_ms + grace_ms <= now_ms]
        return max([catalog.readable_from, *over])

    def _held_by_pins(self, catalog: Catalog, limit: int, pins: list[Pin]) -> int:
        """`limit`, or with pins the newest checkpoint before it that keeps every pinned version readable."""
        pinned = min((pin.version for pin in pins), default=limit)
        if pinned >= limit:
            return limit
        candidates = [mark.version for mark in catalog.checkpoints if mark.version <= pinned]
        return max([catalog.readable_from, *candidates])
