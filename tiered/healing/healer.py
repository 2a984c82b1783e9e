"""Healer: repairs the damage that a scrub has found, as far as possible, and quarantines the rest.

    broken segment    its records are gathered (segment_recovery.py), written as a new segment under this writer's
                      epoch, uploaded, and then committed in its place by one ledger entry, like any segment
    not all found     the found records become new segments; the same entry quarantines the broken one with its lost
                      offsets: reads of those fail, all other records are read as before
    broken pack       pack_healer.py; its lost records are quarantined piece by piece
    broken index      index_healer.py, after the segments and packs that it is made from
    of a later format left as it is: it is not known to be damaged
    in quarantine     checked again: if its object has been restored, its records come back the same way
    ledger and pins   ledger_healer.py
    ballots           fencing_healer.py
    state             state_healer.py: the broker saves it again
    orphans           one more sweep of the garbage collector deletes them

The objects of a replaced segment are deleted after the grace period, like those of any removed segment; those of one in
quarantine stay until all of it has expired. Belongs to the tier process: it holds the epoch and the hot records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.tiered.catalog import (
    Catalog,
    DamagedPart,
    LedgerChanges,
    LostRange,
    Quarantine,
    SegmentOut,
    amend_or_give_up,
)
from thermocline.tiered.findings import Finding, ObjectKind, Outcome, Problem, ScrubReport
from thermocline.tiered.healing.fencing_healer import FENCING_KINDS, heal_fencing
from thermocline.tiered.healing.index_healer import IndexHealer
from thermocline.tiered.healing.ledger_healer import LEDGER_KINDS, LedgerHealer
from thermocline.tiered.healing.pack_healer import PackHealer
from thermocline.tiered.healing.segment_recovery import RecoveryPlan, SegmentRecovery, check_equal
from thermocline.tiered.healing.state_healer import StateHealer
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import FormatTooNewError
from thermocline.tiered.packs import upload_segment
from thermocline.tiered.scrub import Scrubber, ScrubOptions, pack_lying_in, quarantine_findings
from thermocline.tiered.segments import SegmentEntry, read_segment_id
from thermocline.tiered.service import TierService

logger = logging.getLogger(__name__)

LOOKS_MAX = 3
NOT_HEALED = frozenset({Problem.EXTRA, Problem.TOO_NEW})
"""Extra objects are left to garbage collection; objects of a later format are not known to be damaged."""
SEGMENT_KINDS = frozenset({ObjectKind.LOG, ObjectKind.COLUMNS, ObjectKind.KEY_INDEX})


class Healer:
    """Belongs to the tier process's loop. One scrub's report is healed at a time."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        service: TierService,
        recovery: SegmentRecovery,
        packs: PackHealer,
        indexes: IndexHealer,
        states: StateHealer,
        find_copy: Callable[[str], bytes | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._service = service
        self._recovery = recovery
        self._packs = packs
        self._indexes = indexes
        self._states = states
        self._find_copy = find_copy
        self._clock_ms = clock_ms

    async def heal(self, report: ScrubReport, *, look_again: Callable[[], Scrubber]) -> ScrubReport:
        """Return the report with the outcome of each finding; segments removed from the catalog meanwhile are omitted.

        Damage hides damage: a damaged checkpoint head hides its buckets. So after a repair of the ledger `look_again`
        makes a scrubber that searches for more.

        Raises:
            FencedError: A later writer has taken over.
            ObjectStoreUnavailableError: No answer; repairs made so far stay.
        """
        findings = list(report.findings)
        findings = await self._heal_ledger(findings)
        for _ in range(LOOKS_MAX):
            if not any(finding.kind in LEDGER_KINDS and finding.outcome is Outcome.HEALED for finding in findings):
                break
            reported = {finding.key for finding in findings}
            again = await look_again().run(ScrubOptions())
            more = [each for each in again.findings if each.kind in LEDGER_KINDS and each.key not in reported]
            if not more:
                break
            findings += await self._heal_ledger(more)
        findings = await self._heal_fencing(findings)
        findings = await self._heal_segments(findings)
        findings = await self._heal_packs(findings)
        findings = await self._heal_indexes(findings)
        whole = await self._states.heal(findings)
        findings = [_with(each, Outcome.HEALED) if _is_one_of(each, whole) else each for each in findings]
        is_swept = await self._sweep(findings, is_needed=bool(report.garbage_count))
        if is_swept:
            findings = [await self._collected(finding) for finding in findings]
            report = msgspec.structs.replace(report, garbage_count=0, garbage_bytes=0)
        return msgspec.structs.replace(report, findings=tuple(findings), finished_ms=self._clock_ms())

    async def _heal_ledger(self, findings: list[Finding]) -> list[Finding]:
        broken = [finding for finding in findings if finding.kind in LEDGER_KINDS]
        if not broken:
            return findings
        async with self._service.alone() as writer:
            healed = await LedgerHealer(writer, find_copy=self._find_copy, clock_ms=self._clock_ms).heal(broken)
        return [
            _with(finding, Outcome.HEALED) if finding.kind in LEDGER_KINDS and finding.key in healed else finding
            for finding in findings
        ]

    async def _heal_fencing(self, findings: list[Finding]) -> list[Finding]:
        broken = [finding for finding in findings if finding.kind in FENCING_KINDS]
        if not broken:
            return findings
        async with self._service.alone() as writer:
            healed = await heal_fencing(writer, broken)
        return [_with(each, Outcome.HEALED) if _is_one_of(each, healed) else each for each in findings]

    async def _sweep(self, findings: list[Finding], *, is_needed: bool) -> bool:
        """Let the collector delete orphans, if there may be any; returns whether it ran."""
        if not is_needed and all(finding.problem is not Problem.EXTRA for finding in findings):
            return False
        try:
            await self._service.sweep_orphans()
        except CorruptDataError as error:
            logger.warning("orphans are left alone: %s", error)
            return False
        return True

    async def _collected(self, finding: Finding) -> Finding:
        """An extra object is healed if the collector has deleted it."""
        if finding.problem is not Problem.EXTRA:
            return finding
        try:
            await self._writer.store.head(finding.key)
        except ObjectNotFoundError:
            return _with(finding, Outcome.HEALED)
        return finding

    # -- packs ---------------------------------------------------------------------------------------------------------

    async def _heal_packs(self, findings: list[Finding]) -> list[Finding]:
        """The outcome of each broken pack, and its new quarantine."""
        broken = [each for each in findings if each.kind is ObjectKind.PACK and each.problem not in NOT_HEALED]
        found_at: dict[str, str] = {}
        for finding in broken:
            try:
                owner = await pack_lying_in(self._writer.store, finding.key)
            except (ObjectNotFoundError, FormatTooNewError):
                continue
            if owner is not None and owner != finding.key:
                found_at[owner] = finding.key
        result: list[Finding] = []
        for finding in findings:
            if finding not in broken:
                result.append(finding)
                continue
            try:
                outcome = await self._packs.heal(finding, found_at=found_at)
            except CorruptDataError as error:
                logger.error("pack not healed key=%s: %s", finding.key, error)
                outcome = Outcome.FOUND
            if outcome is None:
                continue
            result.append(_with(finding, outcome))
            if outcome is Outcome.QUARANTINED:
                kept = quarantine_findings(self._writer.catalog)
                result += [each for each in kept if each.key == finding.key and each not in result]
        return result

    # -- index objects -------------------------------------------------------------------------------------------------

    async def _heal_indexes(self, findings: list[Finding]) -> list[Finding]:
        """The outcome of each broken index object."""
        result: list[Finding] = []
        for finding in findings:
            if finding.kind is not ObjectKind.INDEX or finding.problem in NOT_HEALED:
                result.append(finding)
                continue
            try:
                outcome = await self._indexes.heal(finding)
            except (CorruptDataError, ObjectNotFoundError) as error:
                logger.error("index object not healed key=%s: %s", finding.key, error)
                outcome = Outcome.FOUND
            if outcome is not None:
                result.append(_with(finding, outcome))
        return result

    # -- segments ------------------------------------------------------------------------------------------------------

    async def _heal_segments(self, findings: list[Finding]) -> list[Finding]:
        broken: dict[tuple[str, str], list[Finding]] = {}
        for finding in findings:
            if finding.kind in SEGMENT_KINDS and finding.problem is not Problem.EXTRA:
                broken.setdefault((finding.topic, finding.segment_id), []).append(finding)
        for name in [name for name, about in broken.items() if any(each.problem in NOT_HEALED for each in about)]:
            del broken[name]  # all of it stays as it is: the part of a later format defines the others
        if not broken:
            return findings
        elsewhere = await self._misplaced_logs(broken)
        outcomes: dict[tuple[str, str], Outcome | None] = {}
        for name, about in broken.items():
            try:
                outcomes[name] = await self._heal_segment(name, about, elsewhere.get(name[1], ()))
            except CorruptDataError as error:
                logger.error("segment not healed topic=%s segment_id=%s: %s", *name, error)
                outcomes[name] = Outcome.FOUND
        kept = {finding.segment_id: finding for finding in quarantine_findings(self._writer.catalog)}
        result: list[Finding] = []
        for finding in findings:
            name = (finding.topic, finding.segment_id)
            if finding.kind not in SEGMENT_KINDS or name not in outcomes:
                result.append(finding)
                continue
            outcome = outcomes[name]
            if outcome is None:
                continue
            lost = kept[finding.segment_id].lost if outcome is Outcome.QUARANTINED else ()
            result.append(msgspec.structs.replace(finding, outcome=outcome, lost=lost))
        return result

    async def _misplaced_logs(self, broken: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
        """Segment id -> objects that hold its records under the name of another broken one."""
        found: dict[str, list[str]] = {}
        for name in broken:
            segment = _find(self._writer.catalog, name)
            if segment is None:
                continue
            try:
                segment_id = await read_segment_id(self._writer.store, segment.log.key)
            except (CorruptDataError, ObjectNotFoundError):
                continue
            if segment_id != segment.segment_id:
                found.setdefault(segment_id, []).append(segment.log.key)
        return found

    async def _heal_segment(
        self, name: tuple[str, str], findings: list[Finding], other_keys: Iterable[str]
    ) -> Outcome | None:
        """Heal one segment; None when it was removed from the catalog meanwhile."""
        catalog = self._writer.catalog
        kept = _find_quarantine(catalog, name)
        segment = kept.segment if kept is not None else _find(catalog, name)
        if segment is None:
            return None
        wanted = (
            kept.lost
            if kept is not None
            else tuple(LostRange(run.queue_id, run.start_offset, run.end_offset) for run in segment.runs)
        )
        plan = await self._recovery.plan(segment, wanted, other_keys=tuple(other_keys))
        if kept is not None and not plan.islands:
            return Outcome.QUARANTINED
        damage = kept.damage if kept is not None else _damage(findings)
        segments = await self._write_all(plan)
        recovered_count = sum(each.record_count for each in segments)
        assert recovered_count + _count(plan.lost) == _count(wanted), "each record is recovered or declared lost"
        if kept is None and not plan.lost:
            try:
                check_equal(segment, segments[0])
            except CorruptDataError:
                self._abandon(segments)
                raise

        def change(newest: Catalog) -> LedgerChanges | None:
            is_same = _find_quarantine(newest, name) == kept if kept is not None else _find(newest, name) == segment
            if not is_same:
                return None
            out = (SegmentOut(segment.topic, segment.segment_id),)
            if plan.lost:
                remainder = Quarantine(segment=segment, damage=damage, lost=tuple(plan.lost))
                return LedgerChanges(segments_in=tuple(segments), quarantine=(remainder,))
            if kept is not None:
                return LedgerChanges(segments_in=tuple(segments), quarantine_out=out)
            return LedgerChanges(segments_in=tuple(segments), segments_out=out)

        if not await amend_or_give_up(self._service.amend, change, give_up=lambda: self._abandon(segments)):
            return None
        logger.warning(
            "segment recovered topic=%s segment_id=%s new=%s hot_records=%d lost_ranges=%d",
            segment.topic,
            segment.segment_id,
            ",".join(each.segment_id for each in segments) or "-",
            plan.hot_count,
            len(plan.lost),
        )
        return Outcome.QUARANTINED if plan.lost else Outcome.HEALED

    async def _write_all(self, plan: RecoveryPlan) -> list[SegmentEntry]:
        """Write and upload one segment for each island; all or none are kept."""
        written: list[SegmentEntry] = []
        writer = self._writer
        try:
            for island in plan.islands:
                segment_id = writer.next_segment_id()
                try:
                    with await self._recovery.write(plan, island, segment_id) as finished:
                        written.append(
                            await upload_segment(writer.store, writer.keys, finished, created_ms=self._clock_ms())
                        )
                except BaseException:
                    writer.abandon(segment_id, writer.keys.segment(plan.segment.topic, segment_id))
                    raise
        except BaseException:
            self._abandon(written)
            raise
        return written

    def _abandon(self, segments: Iterable[SegmentEntry]) -> None:
        for segment in segments:
            if self._writer.is_under_way(segment.id):
                self._writer.abandon(segment.id, segment.keys)


def _with(finding: Finding, outcome: Outcome) -> Finding:
    return msgspec.structs.replace(finding, outcome=outcome)


def _is_one_of(finding: Finding, keys: set[str]) -> bool:
    """Whether the finding is about one of these objects, and not about an extra one."""
    return finding.key in keys and finding.problem is not Problem.EXTRA


def _damage(findings: list[Finding]) -> tuple[DamagedPart, ...]:
    return tuple(DamagedPart(finding.key, finding.problem.value) for finding in findings)


def _find(catalog: Catalog, name: tuple[str, str]) -> SegmentEntry | None:
    entry = catalog.topics.get(name[0])
    return entry.segment(name[1]) if entry is not None else None


def _find_quarantine(catalog: Catalog, name: tuple[str, str]) -> Quarantine | None:
    entry = catalog.topics.get(name[0])
    kept = entry.quarantine if entry is not None else ()
    return next((each for each in kept if each.segment.segment_id == name[1]), None)


def _count(ranges: Iterable[LostRange]) -> int:
    """How many offsets the ranges have."""
    return sum(each.end_offset - each.start_offset for each in ranges)
