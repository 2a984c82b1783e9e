"""Known damage: what scrubs have found broken and nothing has settled since, over scrubs that do not read everything.

Every scrub looks at names and sizes, the ledger and the state. Bytes are read by a deep one alone, and with a budget by
that only from its cursor on: what an earlier one has found in bytes stays broken until a scrub has read them again, or
until the object has left the catalog (healed, merged, expired).
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.tiered.catalog import Catalog, LiveNames
from thermocline.tiered.findings import Finding, ObjectKind, Outcome, Problem, ScrubReport
from thermocline.tiered.scrub.scrubber import SegmentName, name_in, parse_cursor

OBJECT_KINDS = frozenset({ObjectKind.LOG, ObjectKind.COLUMNS, ObjectKind.KEY_INDEX, ObjectKind.PACK, ObjectKind.INDEX})
_SEEN_IN_BYTES = frozenset({Problem.DAMAGED, Problem.MISPLACED, Problem.CONTRADICTORY})


def damage_after(known: Iterable[Finding], report: ScrubReport, *, cursor: str) -> tuple[Finding, ...]:
    """What is broken by the report of a scrub that began at `cursor`, and by what was known before."""
    start, end = parse_cursor(cursor), parse_cursor(report.cursor)
    told = {finding.key for finding in report.findings}

    def was_read(finding: Finding) -> bool:
        name = name_in(finding)
        return report.deep and start < name and (report.is_complete or name <= end)

    kept = [
        finding
        for finding in known
        if finding.kind in OBJECT_KINDS
        and finding.problem in _SEEN_IN_BYTES
        and finding.key not in told
        and not was_read(finding)
    ]
    return (*(finding for finding in report.findings if finding.outcome is not Outcome.HEALED), *kept)


def damage_after_reading(
    known: Iterable[Finding], name: SegmentName, findings: Iterable[Finding]
) -> tuple[Finding, ...]:
    """What is broken after everything by one name was read, in which `findings` were found."""
    others = (finding for finding in known if finding.kind not in OBJECT_KINDS or name_in(finding) != name)
    return (*findings, *others)


def broken_now(known: Iterable[Finding], catalog: Catalog) -> list[Finding]:
    """Those of them that are broken still, by a catalog of now."""
    known = list(known)
    if not known:
        return []
    lost = {kept.segment.log.key for topic in catalog.topics.values() for kept in topic.quarantine}
    named = LiveNames(catalog)
    return [
        finding
        for finding in known
        if finding.kind not in OBJECT_KINDS
        or finding.problem is Problem.EXTRA
        or finding.key in (lost if finding.problem is Problem.LOST else named)
    ]
