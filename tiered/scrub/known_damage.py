"""Known damage: unresolved findings, accumulated over scrubs that do not read everything.

Every scrub checks names and sizes, the ledger and the state. Only a deep one reads bytes, and with a budget only from
its cursor on: damage found in bytes by an earlier scrub counts until a scrub has read these bytes again, or until the
object is removed from the catalog (healed, merged, expired).
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.tiered.catalog import Catalog, LiveNames
from thermocline.tiered.findings import Finding, ObjectKind, Outcome, Problem, ScrubReport
from thermocline.tiered.scrub.scrubber import SegmentName, name_in, parse_cursor

OBJECT_KINDS = frozenset({ObjectKind.LOG, ObjectKind.COLUMNS, ObjectKind.KEY_INDEX, ObjectKind.PACK, ObjectKind.INDEX})
_SEEN_IN_BYTES = frozenset({Problem.DAMAGED, Problem.MISPLACED, Problem.CONTRADICTORY})


def damage_after(earlier: Iterable[Finding], report: ScrubReport, *, cursor: str) -> tuple[Finding, ...]:
    """The damage after a scrub that began at `cursor`, by its report and the `earlier` damage."""
    start, end = parse_cursor(cursor), parse_cursor(report.cursor)
    reported = {finding.key for finding in report.findings}

    def was_read(finding: Finding) -> bool:
        name = name_in(finding)
        return report.deep and start < name and (report.is_complete or name <= end)

    kept = [
        finding
        for finding in earlier
        if finding.kind in OBJECT_KINDS
        and finding.problem in _SEEN_IN_BYTES
        and finding.key not in reported
        and not was_read(finding)
    ]
    return (*(finding for finding in report.findings if finding.outcome is not Outcome.HEALED), *kept)


def damage_after_reading(
    earlier: Iterable[Finding], name: SegmentName, findings: Iterable[Finding]
) -> tuple[Finding, ...]:
    """The damage after the object of one name was read completely, with `findings`."""
    others = (finding for finding in earlier if finding.kind not in OBJECT_KINDS or name_in(finding) != name)
    return (*findings, *others)


def broken_now(earlier: Iterable[Finding], catalog: Catalog) -> list[Finding]:
    """The `earlier` damage that is still in the current catalog."""
    earlier = list(earlier)
    if not earlier:
        return []
    lost = {kept.segment.log.key for topic in catalog.topics.values() for kept in topic.quarantine}
    named = LiveNames(catalog)
    return [
        finding
        for finding in earlier
        if finding.kind not in OBJECT_KINDS
        or finding.problem is Problem.EXTRA
        or finding.key in (lost if finding.problem is Problem.LOST else named)
    ]
