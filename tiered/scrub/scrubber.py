"""Scrubber: one scrub of one broker's cold tier. It reads, and changes nothing.

    list everything -> newest catalog -> ledger, checkpoints, hint, pins, state, ballots -> names and sizes
    -> (deep) every byte
    -> what looks wrong is looked at once more, by a catalog that is newer than the first look -> report

Why the second look: while a scrub reads, the broker seals, expires and collects. Whatever it takes away it takes out of
the catalog first; so an object that was gone and is still named by a catalog that was read afterwards is missing, and
one that is not named any more was collected. The same holds the other way for what is there and not named.

A deep scrub with a budget stops before the segment with which it would be spent, at the earliest after one, and says
where (`cursor`); the next goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubOptions:
    """`deep`: every byte of every segment, pack and index object. `budget_bytes`: how many of these at most, None for
    all. `cursor`: where an earlier scrub stopped."""

    deep: bool = False
    budget_bytes: int | None = None
    cursor: str = ""


@dataclass(slots=True, kw_only=True)
class _Look:
    """What one look at everything but the segments' bytes has found."""

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


@dataclass(slots=True)
class ScrubProgress:
    """How far a scrub has come, packs and index objects counted as segments; read by whoever wants to show it."""

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
        """Look at everything, or at as much as the budget allows.

        Raises:
            ObjectStoreUnavailableError: No answer; nothing can be said.
        """
        started_ms = self.clock_ms()
        listed = await self._list()
        look = await self._look(listed)
        catalog = look.catalog
        self.progress.segment_count = catalog.segment_count + len(catalog.packs) + len(catalog.indexes)
        self.progress.suspect_count = len(look.findings)
        deep, cursor = (await self._read_segments(look.catalog, options)) if options.deep else ([], "")
        confirmed = await self._confirmed(listed, look.findings, deep)
        notes: list[str] = []
        if look.is_rescued:
            notes.append(
                f"the ledger cannot be followed to its end: what lies behind version {look.catalog.version} was not"
                " looked at, and what nobody names was not looked for"
            )
        return ScrubReport(
            root=self.keys.root,
            version=look.catalog.version,
            deep=options.deep,
            started_ms=started_ms,
            finished_ms=self.clock_ms(),
            findings=(*confirmed, *quarantine_findings(look.catalog)),
            notes=tuple(notes),
            object_count=len(listed),
            entry_count=look.ledger.entry_count,
            checkpoint_count=look.ledger.checkpoint_count,
            segment_count=look.catalog.segment_count,
            pack_count=len(look.catalog.packs),
            index_count=len(look.catalog.indexes),
            deep_segment_count=self.progress.deep_segment_count,
            read_bytes=self.progress.read_bytes,
            unread_count=self.progress.segment_count - self.progress.deep_segment_count,
            unread_bytes=sum(size for _, size in named_sizes(catalog)) - self.progress.deep_bytes,
            missing_old_count=await self._count_missing_old(look.listing.missing_old),
            garbage_count=len(look.garbage),
            garbage_bytes=sum(look.garbage.values()),
            is_complete=not cursor,
            cursor=cursor,
        )

    async def read_one(self, name: SegmentName) -> list[Finding]:
        """What is wrong with every byte of one segment, pack or index object; nothing when the newest catalog does not
        name it. What looks wrong is read once more.

        Raises:
            ObjectStoreUnavailableError: No answer; nothing can be said.
        """
        item = _item(await self.view.newest(), name)
        findings = await self._read(item) if item is not None else []
        if not findings:
            return []
        again = _item(await self.view.newest(), name)
        confirmed = {finding.key for finding in await self._read(again)} if again is not None else set()
        return [finding for finding in findings if finding.key in confirmed]

    # -- a look --------------------------------------------------------------------------------------------------------

    async def _list(self) -> dict[str, int]:
        return {info.key: info.size_bytes async for info in self.store.list(f"{self.keys.root}/")}

    async def _look(self, listed: dict[str, int]) -> _Look:
        """By the newest catalog there is now."""
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
        return _Look(
            catalog=catalog, is_rescued=is_rescued, ledger=ledger, listing=listing, states=states, fencing=fencing
        )

    async def _read_segments(self, catalog: Catalog, options: ScrubOptions) -> tuple[list[Finding], str]:
        """What is wrong with the segments and packs behind the cursor, and where to go on; empty at the end."""
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
        """Every byte of a segment, a pack or an index object."""
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

    # -- the second look -----------------------------------------------------------------------------------------------

    async def _confirmed(self, listed: dict[str, int], first: list[Finding], deep: list[Finding]) -> list[Finding]:
        """Those findings that a second look finds again, each object once."""
        if not first and not deep:
            return []
        again = dict(listed)
        sizes = await run_all([self._size(finding.key) for finding in first])
        for finding, size_bytes in zip(first, sizes, strict=True):
            again.pop(finding.key, None)
            if size_bytes is not None:
                again[finding.key] = size_bytes
        look = await self._look(again)
        names = {finding.name for finding in look.findings}
        confirmed = [finding for finding in first if finding.name in names]
        for name in dict.fromkeys(map(name_in, deep)):
            item = _item(look.catalog, name)
            if item is None:
                continue
            found = {finding.key for finding in await self._read(item)}
            confirmed += [finding for finding in deep if name_in(finding) == name and finding.key in found]
        return list({finding.key: finding for finding in reversed(confirmed)}.values())[::-1]

    async def _count_missing_old(self, missing: list[str]) -> int:
        """How many of them are named still: others have been collected meanwhile."""
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
    """What is in quarantine: broken, and known to be."""
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
    """Everything that can be read, in any order, with its bytes in the store."""
    for topic in catalog.topics.values():
        for segment_id, size_bytes in topic.segments.sizes():
            yield (topic.topic, segment_id), size_bytes
    for pack in catalog.packs.values():
        yield (PACKS, pack.pack_id), _size_bytes(pack)
    for index in catalog.indexes.values():
        yield (INDEXES, index.index_id), _size_bytes(index)


def _item(catalog: Catalog, name: SegmentName) -> Item | None:
    """What the catalog has by this name."""
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
    """What is read by this name holds the object that a finding is about."""
    folders = {ObjectKind.PACK: PACKS, ObjectKind.INDEX: INDEXES}
    return folders.get(finding.kind, finding.topic), finding.segment_id


def parse_cursor(cursor: str) -> SegmentName:
    """The name of what was read last; START when nothing was."""
    topic, tab, segment_id = cursor.rpartition("\t")
    return (topic, segment_id) if tab else START
