"""Scrubber: one scrub of one broker's cold tier. It reads, and changes nothing.

    list everything -> newest catalog -> ledger, checkpoints, hint, pins, state, ballots -> names and sizes
    -> (deep) every byte
    -> suspects are checked once more, by a catalog that is newer than the first inspection -> report

Why the second check: while a scrub reads, the broker seals, expires and collects. It removes an object from the catalog
before it deletes it. So if a catalog that is read later still names an absent object, the object is missing; if not, it
was collected. The same holds in reverse for objects that exist and are not named.

A deep scrub with a budget stops before the segment that would exceed the budget, but reads at least one, and reports
where it stopped (`cursor`); the next one continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.findings import Finding, ObjectKind, Outcome, Problem, ScrubReport
from thermocline.tiered.index_format import IndexEntry
from thermocline.tiered.objects import ObjectStore, run_all
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.scrub.fencing_check import FencingCheck, FencingState
from thermocline.tiered.scrub.index_check import IndexCheck
from thermocline.tiered.scrub.ledger_check import LedgerCheck, LedgerState, rescue_catalog
from thermocline.tiered.scrub.listing_check import ListingState, check_listing
from thermocline.tiered.scrub.pack_check import PackCheck
from thermocline.tiered.scrub.segment_check import SegmentCheck
from thermocline.tiered.scrub.state_check import StateState, check_states, list_states
from thermocline.tiered.scrub.view import ScrubView
from thermocline.tiered.segments import BrokerKeys, SegmentEntry

SegmentName = tuple[str, str]
"""Topic and segment id: the order in which segments are read; packs and index objects come last, as if of topics
`PACKS` and `INDEXES`."""

PACKS = "~"
INDEXES = "~~"

START: SegmentName = ("", "")

Item: TypeAlias = SegmentEntry | PackEntry | IndexEntry


class ScrubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`deep`: read every byte of every segment, pack and index object. `budget_bytes`: the most bytes read by that,
    None for all. `cursor`: where an earlier scrub stopped."""

    deep: bool = False
    budget_bytes: int | None = None
    cursor: str = ""


class _Inspection(msgspec.Struct, kw_only=True):
    """The result of one check of everything except the segments' bytes."""

    catalog: Catalog
    is_rescued: bool
    ledger: LedgerState
    listing: ListingState
    states: StateState
    fencing: FencingState

    @property
    def findings(self) -> list[Finding]:
        return [
            *self.ledger.findings,
            *self.listing.findings,
            *self.states.findings,
            *self.fencing.findings,
        ]

    @property
    def garbage(self) -> dict[str, int]:
        return self.listing.garbage | self.states.garbage | self.fencing.garbage


class ScrubProgress(msgspec.Struct):
    """The progress of a scrub, for display; packs and index objects count as segments."""

    segment_count: int = 0
    deep_segment_count: int = 0
    deep_bytes: int = 0
    read_bytes: int = 0
    suspect_count: int = 0


@dataclass(slots=True, eq=False)
class Scrubber:
    """See the module's header. Belongs to one event loop; `run` is called once."""

    store: ObjectStore
    keys: BrokerKeys
    view: ScrubView
    clock_ms: Callable[[], int]
    progress: ScrubProgress = field(default_factory=ScrubProgress)
    spool_folder: Path | None = None

    async def run(self, options: ScrubOptions) -> ScrubReport:
        """Check everything, or as much as the budget allows.

        Raises:
            ObjectStoreUnavailableError: No answer; no result.
        """
        started_ms = self.clock_ms()
        listed = await self._list()
        inspection = await self._inspect(listed)
        catalog = inspection.catalog
        self.progress.segment_count = catalog.segment_count + len(catalog.packs) + len(catalog.indexes)
        self.progress.suspect_count = len(inspection.findings)
        deep, cursor = (await self._read_segments(inspection.catalog, options)) if options.deep else ([], "")
        confirmed = await self._confirmed(listed, inspection.findings, deep)
        notes: list[str] = []
        if inspection.is_rescued:
            notes.append(
                f"the ledger cannot be followed to its end: entries behind version"
                f" {inspection.catalog.version} were not checked, and unreferenced objects were not searched"
            )
        return ScrubReport(
            root=self.keys.root,
            version=inspection.catalog.version,
            deep=options.deep,
            started_ms=started_ms,
            finished_ms=self.clock_ms(),
            findings=(*confirmed, *quarantine_findings(inspection.catalog)),
            notes=tuple(notes),
            object_count=len(listed),
            entry_count=inspection.ledger.entry_count,
            checkpoint_count=inspection.ledger.checkpoint_count,
            segment_count=inspection.catalog.segment_count,
            pack_count=len(inspection.catalog.packs),
            index_count=len(inspection.catalog.indexes),
            deep_segment_count=self.progress.deep_segment_count,
            read_bytes=self.progress.read_bytes,
            unread_count=self.progress.segment_count - self.progress.deep_segment_count,
            unread_bytes=sum(size for _, size in named_sizes(catalog)) - self.progress.deep_bytes,
            missing_old_count=await self._count_missing_old(inspection.listing.missing_old),
            garbage_count=len(inspection.garbage),
            garbage_bytes=sum(inspection.garbage.values()),
            is_complete=not cursor,
            cursor=cursor,
        )

    async def read_one(self, name: SegmentName) -> list[Finding]:
        """Check every byte of one segment, pack or index object; no findings when the newest catalog does not name it.
        If there are findings, it is read once more.

        Raises:
            ObjectStoreUnavailableError: No answer; no result.
        """
        item = _item(await self.view.newest(), name)
        findings = await self._read(item) if item is not None else []
        if not findings:
            return []
        again = _item(await self.view.newest(), name)
        confirmed = {finding.key for finding in await self._read(again)} if again is not None else set()
        return [finding for finding in findings if finding.key in confirmed]

    # -- an inspection -------------------------------------------------------------------------------------------------

    async def _list(self) -> dict[str, int]:
        return {info.key: info.size_bytes async for info in self.store.list(f"{self.keys.root}/")}

    async def _inspect(self, listed: dict[str, int]) -> _Inspection:
        """Check everything except the segments' bytes, by the current newest catalog."""
        is_rescued, why = False, ""
        listed_states = await list_states(self.store, self.keys, self.view)
        try:
            catalog = await self.view.newest()
        except CorruptDataError as error:
            is_rescued, why = True, str(error)
            catalog = await rescue_catalog(self.store, self.keys, listed) or Catalog.empty()
        checkpoints = self.view.checkpoint_versions()
        if is_rescued:
            parts = map(self.keys.checkpoint_part, listed)
            checkpoints |= {part[0] for part in parts if part is not None and part[1] is None}
        check = LedgerCheck(
            self.store,
            self.keys,
            catalog,
            listed=listed,
            checkpoints=checkpoints,
            knows_head=self.view.is_writer,
        )
        ledger = await check.run()
        listing = check_listing(listed, catalog=catalog, keys=self.keys, ledger_named=ledger.named, view=self.view)
        states = await check_states(
            self.store, self.keys, listed_states, catalog=catalog, view=self.view, is_rescued=is_rescued
        )
        fencing = await FencingCheck(self.store, self.keys, listed=listed, catalog=catalog, view=self.view).run()
        if is_rescued:
            for part in (listing, states, fencing):
                part.findings = [finding for finding in part.findings if finding.problem is not Problem.EXTRA]
                part.garbage.clear()
            if not ledger.findings:
                ledger.findings.append(
                    Finding(
                        kind=ObjectKind.LEDGER_ENTRY,
                        problem=Problem.CONTRADICTORY,
                        key=self.keys.ledger_prefix,
                        detail=why,
                    )
                )
        self.progress.read_bytes += ledger.read_bytes + states.read_bytes + fencing.read_bytes
        return _Inspection(
            catalog=catalog, is_rescued=is_rescued, ledger=ledger, listing=listing, states=states, fencing=fencing
        )

    async def _read_segments(self, catalog: Catalog, options: ScrubOptions) -> tuple[list[Finding], str]:
        """The findings in segments and packs behind the cursor, and the next cursor; empty at the end."""
        start = parse_cursor(options.cursor)
        findings: list[Finding] = []
        spent_bytes, cursor = 0, ""
        for name, size_bytes in sorted(each for each in named_sizes(catalog) if each[0] > start):
            is_bounded = cursor and options.budget_bytes is not None
            if is_bounded and spent_bytes + size_bytes > (options.budget_bytes or 0):
                return findings, cursor
            item = _item(catalog, name)
            assert item is not None
            found = await self._read(item)
            self.progress.deep_segment_count += 1
            self.progress.deep_bytes += size_bytes
            self.progress.suspect_count += len(found)
            findings += found
            spent_bytes += size_bytes
            cursor = "\t".join(name)
        return findings, ""

    async def _read(self, item: Item) -> list[Finding]:
        """Check every byte of a segment, a pack or an index object."""
        check: SegmentCheck | PackCheck | IndexCheck
        if isinstance(item, PackEntry):
            check = PackCheck(self.store, item, self.spool_folder)
        elif isinstance(item, IndexEntry):
            check = IndexCheck(self.store, item, self.spool_folder)
        else:
            check = SegmentCheck(self.store, item)
        findings = await check.run()
        self.progress.read_bytes += check.read_bytes
        return findings

    # -- the second check ----------------------------------------------------------------------------------------------

    async def _confirmed(self, listed: dict[str, int], first: list[Finding], deep: list[Finding]) -> list[Finding]:
        """The findings that a second check confirms, each object once."""
        if not first and not deep:
            return []
        again = dict(listed)
        sizes = await run_all([self._size(finding.key) for finding in first])
        for finding, size_bytes in zip(first, sizes, strict=True):
            again.pop(finding.key, None)
            if size_bytes is not None:
                again[finding.key] = size_bytes
        inspection = await self._inspect(again)
        names = {finding.name for finding in inspection.findings}
        confirmed = [finding for finding in first if finding.name in names]
        for name in dict.fromkeys(map(name_in, deep)):
            item = _item(inspection.catalog, name)
            if item is None:
                continue
            found = {finding.key for finding in await self._read(item)}
            confirmed += [finding for finding in deep if name_in(finding) == name and finding.key in found]
        return list({finding.key: finding for finding in reversed(confirmed)}.values())[::-1]

    async def _count_missing_old(self, missing: list[str]) -> int:
        """How many of them are still named; the others were collected meanwhile."""
        if not missing:
            return 0
        try:
            catalog = await self.view.newest()
        except CorruptDataError:
            return len(missing)
        named = {key for gone in catalog.removed if gone.removed_in > catalog.readable_from for key in gone.keys}
        return len(named.intersection(missing))

    async def _size(self, key: str) -> int | None:
        try:
            return (await self.store.head(key)).size_bytes
        except ObjectNotFoundError:
            return None


def quarantine_findings(catalog: Catalog) -> list[Finding]:
    """Findings for everything in quarantine."""
    return [
        Finding(
            kind=ObjectKind.LOG,
            problem=Problem.LOST,
            key=kept.segment.log.key,
            detail=", ".join(f"{part.key} {part.problem}" for part in kept.damage),
            topic=kept.segment.topic,
            segment_id=kept.segment.segment_id,
            outcome=Outcome.QUARANTINED,
            lost=tuple(f"{lost.queue_id}:[{lost.start_offset}, {lost.end_offset})" for lost in kept.lost),
        )
        for topic in catalog.topics.values()
        for kept in topic.quarantine
    ]


def named_sizes(catalog: Catalog) -> Iterator[tuple[SegmentName, int]]:
    """Every readable segment, pack and index object, in any order, with its size in the store."""
    for topic in catalog.topics.values():
        for segment_id, size_bytes in topic.segments.sizes():
            yield (topic.topic, segment_id), size_bytes
    for pack in catalog.packs.values():
        yield (PACKS, pack.pack_id), _size_bytes(pack)
    for index in catalog.indexes.values():
        yield (INDEXES, index.index_id), _size_bytes(index)


def _item(catalog: Catalog, name: SegmentName) -> Item | None:
    """The catalog's segment, pack or index object of this name."""
    folder, item_id = name
    if folder == PACKS:
        return catalog.packs.get(item_id)
    if folder == INDEXES:
        return catalog.indexes.get(item_id)
    topic = catalog.topics.get(folder)
    return topic.segments.find(item_id) if topic is not None else None


def _size_bytes(item: Item) -> int:
    return item.stored_bytes if isinstance(item, SegmentEntry) else item.object_bytes


def name_in(finding: Finding) -> SegmentName:
    """The name of the segment, pack or index object that contains the finding's object."""
    folders = {ObjectKind.PACK: PACKS, ObjectKind.INDEX: INDEXES}
    return folders.get(finding.kind, finding.topic), finding.segment_id


def parse_cursor(cursor: str) -> SegmentName:
    """The name of the last object read; START if there was none."""
    topic, tab, segment_id = cursor.rpartition("\t")
    return (topic, segment_id) if tab else START
