"""TTL proof: what of a topic has expired and is named still, and what hidden bytes the bucket holds, till when and why.

    expires -> hidden at once -> out of the catalog with the next sweep -> deleted in the bucket after the grace period

A segment that has expired as a whole may be named until the next sweep. One that an earlier sweep should have dropped,
or that nobody drops because sweeps have stopped, is `overdue`: then what has expired is referenced.

What lies in the bucket is listed, not concluded: one listing of the topic's objects.
Belongs to the tier process's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger_entry import CheckpointMark, Quarantine
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.object_keys import escape_name, segment_id_of
from thermocline.tiered.pins import Pin, list_pins
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_format import SegmentId

NEVER_VISIBLE_MS = 1 << 62
SWEEP_LATE_MS_MAX = 30_000
"""A sweep waits for the seals and uploads of its round; so much later than it was due it has stopped."""


class HiddenState(StrEnum):
    """Why bytes that nobody may see lie in the bucket."""

    PARTLY = "partly expired"
    NAMED = "expired, still named"
    REMOVED = "out of the catalog"
    DISCARDED = "given up"
    ORPHAN = "left by an earlier writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One sweep that is committed: when it looked, and what each topic's cut was."""

    at_ms: int
    cuts_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepState:
    """The last sweep, None before the first; when the next one is due, and how often they are."""

    last: Sweep | None
    started_ms: int
    next_ms: int
    interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSegment:
    """A segment that has expired as a whole and that the catalog names. `is_overdue`: it should not any more."""

    segment_id: str
    max_store_ms: int
    is_overdue: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenObjects:
    """Objects of one segment, or of what might have become one, with hidden bytes. `due_ms`: when they are deleted from
    the bucket at the latest if nothing changes; None: when is not known."""

    segment_id: str
    state: HiddenState
    keys: tuple[str, ...]
    size_bytes: int
    due_ms: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketEvidence:
    """What the cold tier says. `visible_*`: objects of the topic in which nothing has expired."""

    version: int
    named: tuple[NamedSegment, ...]
    hidden: tuple[HiddenObjects, ...]
    visible_count: int
    visible_bytes: int


async def bucket_evidence(
    writer: LedgerWriter,
    *,
    topic: str,
    incarnation: int,
    cut_ms: int,
    ttl_ms: int | None,
    sweeps: SweepState,
    now_ms: int,
) -> BucketEvidence:
    """Look at the newest catalog, the pins, and the topic's objects.

    `cut_ms`: the serving broker's cut; `ttl_ms`: the time to live that it comes from, None for ever.

    Raises:
        ObjectStoreUnavailableError: No answer.
        LedgerCorruptError: A pin is damaged.
    """
    catalog = writer.catalog
    listed = {
        info.key: info.size_bytes
        async for info in writer.store.list(f"{writer.keys.topics_prefix}{escape_name(topic)}/")
    }
    pins = [pin for pin in await list_pins(writer.store, writer.keys) if pin.until_ms > now_ms]
    entry = catalog.topics.get(topic)
    if entry is not None and entry.incarnation != incarnation:
        cut_ms = NEVER_VISIBLE_MS  # an earlier life: all of it is hidden, and goes with the commit that ends it
    found = _Found(listed)
    grace_ms = catalog.settings.grace_ms
    segments = entry.segments if entry is not None else ()
    kept = entry.quarantine if entry is not None else ()
    for segment in (*segments, *(each.segment for each in kept)):
        if segment.min_store_ms >= cut_ms:
            found.take_visible(segment.keys)
        elif segment.max_store_ms >= cut_ms:
            gone_ms = None if ttl_ms is None else segment.max_store_ms + ttl_ms + sweeps.interval_ms + grace_ms
            why = "its newest message is visible; then a sweep, and the grace period"
            if ttl_ms is None:
                why = "its newest message is kept for ever"
            found.take(segment.segment_id, HiddenState.PARTLY, segment.keys, gone_ms, why)
        else:
            due_ms = max(now_ms, sweeps.next_ms) + grace_ms
            found.take(segment.segment_id, HiddenState.NAMED, segment.keys, due_ms, "a sweep, and the grace period")
    for removed in catalog.removed:
        keys = tuple(key for key in removed.keys if key in found.left)
        if keys:
            due_ms, why = _removal(catalog, writer, removed.removed_in, pins, now_ms=now_ms)
            found.take(removed.segment_id, HiddenState.REMOVED, keys, due_ms, why)
    _take_the_rest(found, writer, now_ms=now_ms)
    return BucketEvidence(
        version=catalog.version,
        named=tuple(_named(topic, segments, kept, cut_ms=cut_ms, sweeps=sweeps, now_ms=now_ms)),
        hidden=tuple(found.hidden),
        visible_count=found.visible_count,
        visible_bytes=found.visible_bytes,
    )


class _Found:
    """The objects of a listing, each counted once."""

    def __init__(self, listed: Mapping[str, int]) -> None:
        self.left = dict(listed)
        self.hidden: list[HiddenObjects] = []
        self.visible_count = 0
        self.visible_bytes = 0

    def take_visible(self, keys: Sequence[str]) -> None:
        """Objects in which nothing has expired."""
        for key in keys:
            if key in self.left:
                self.visible_count += 1
                self.visible_bytes += self.left.pop(key)

    def take(self, segment_id: str, state: HiddenState, keys: Sequence[str], due_ms: int | None, why: str) -> None:
        """Objects with hidden bytes; those that are not there are left out."""
        there = tuple(key for key in keys if key in self.left)
        if there:
            size_bytes = sum(self.left.pop(key) for key in there)
            self.hidden.append(
                HiddenObjects(
                    segment_id=segment_id, state=state, keys=there, size_bytes=size_bytes, due_ms=due_ms, why=why
                )
            )


def _named(
    topic: str,
    segments: Sequence[SegmentEntry],
    kept: Sequence[Quarantine],
    *,
    cut_ms: int,
    sweeps: SweepState,
    now_ms: int,
) -> list[NamedSegment]:
    """Segments that hold nothing visible, and whether a sweep has passed them by."""
    since_ms = sweeps.last.at_ms if sweeps.last is not None else sweeps.started_ms
    has_stopped = now_ms - since_ms > sweeps.interval_ms + SWEEP_LATE_MS_MAX
    swept_cut_ms = sweeps.last.cuts_ms.get(topic, 0) if sweeps.last is not None else 0
    # What was committed around the last sweep or after it, perhaps long after it was made, is the next one's.
    made_before_ms = since_ms - 2 * sweeps.interval_ms
    named: list[NamedSegment] = []
    for segment in (*segments, *(each.segment for each in kept)):
        if segment.max_store_ms >= cut_ms:
            continue
        was_passed_by = segment.max_store_ms < swept_cut_ms and segment.created_ms < made_before_ms
        why = "the next sweep drops it"
        if was_passed_by:
            why = "the last sweep should have dropped it"
        elif has_stopped:
            why = "sweeps have stopped"
        named.append(
            NamedSegment(
                segment_id=segment.segment_id,
                max_store_ms=segment.max_store_ms,
                is_overdue=was_passed_by or has_stopped,
                why=why,
            )
        )
    return named


def _removal(
    catalog: Catalog, writer: LedgerWriter, removed_in: int, pins: Sequence[Pin], *, now_ms: int
) -> tuple[int, str]:
    """When the collector deletes what a version was the first not to name (garbage.py), and what it waits for."""
    marks = [*catalog.checkpoints, CheckpointMark(catalog.version, catalog.committed_ms)]
    if writer.checkpoint is not None:
        marks.append(writer.checkpoint.mark)
    over_ms = min(mark.committed_ms for mark in marks if mark.version >= removed_in) + catalog.settings.grace_ms
    holding = [pin for pin in pins if pin.version < removed_in]
    if not holding:
        return max(now_ms, over_ms), "the grace period, for readers of older versions"
    last = max(holding, key=lambda pin: pin.until_ms)
    return max(now_ms, over_ms, last.until_ms), f"pin {last.pin_id} of {last.owner or 'somebody'}"


def _take_the_rest(found: _Found, writer: LedgerWriter, *, now_ms: int) -> None:
    """What nobody names. Objects of this writer that are neither committed nor given up are on their way."""
    by_id: dict[SegmentId, list[str]] = {}
    for key in found.left:
        segment_id = segment_id_of(key)
        if segment_id is not None:
            by_id.setdefault(segment_id, []).append(key)
    for segment_id, keys in sorted(by_id.items()):
        if any(key in writer.discarded for key in keys):
            found.take(str(segment_id), HiddenState.DISCARDED, keys, now_ms, "the next collection")
        elif segment_id.epoch < writer.epoch:
            found.take(str(segment_id), HiddenState.ORPHAN, keys, None, "the collection that follows a start")
