"""Findings: what a scrub has to say, as values that travel to the command line as they are."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ObjectKind(StrEnum):
    """Which kind of object a finding is about."""

    LEDGER_ENTRY = "ledger entry"
    CHECKPOINT_HEAD = "checkpoint head"
    CHECKPOINT_BUCKET = "checkpoint bucket"
    HEAD_HINT = "head hint"
    PIN = "pin"
    STATE = "state snapshot"
    BALLOT = "ballot"
    PROPOSAL = "proposal"
    LOG = "records"
    COLUMNS = "columns"
    KEY_INDEX = "key index"
    PACK = "pack"
    INDEX = "index object"
    OTHER = "unknown object"


class Problem(StrEnum):
    """What is wrong with an object."""

    MISSING = "missing"
    SIZE = "of another size"
    DAMAGED = "damaged"
    TOO_NEW = "of a later format"
    MISPLACED = "holds another object"
    CONTRADICTORY = "contradicts the rest"
    EXTRA = "named by no ledger entry"
    LOST = "records lost"


class Outcome(StrEnum):
    """What became of a finding."""

    FOUND = "found"
    HEALED = "healed"
    QUARANTINED = "quarantined"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One object, and what is wrong with it. `detail` is for people; `lost` names offsets, `queue:[start, end)`."""

    kind: ObjectKind
    problem: Problem
    key: str
    detail: str = ""
    topic: str = ""
    segment_id: str = ""
    version: int = 0
    outcome: Outcome = Outcome.FOUND
    lost: tuple[str, ...] = ()

    @property
    def name(self) -> tuple[str, Problem, str]:
        """By which a second look finds it again. What contradicts must do so in the same way."""
        return self.key, self.problem, self.detail if self.problem is Problem.CONTRADICTORY else ""


class ScrubReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one scrub has done and found.

    `missing_old_count`: missing objects that only versions before the newest name: readers of these versions (a Spark
    job, within the grace period) may fail. `deep_segment_count`: segments, packs and index objects that were read;
    `read_bytes` counts all bytes read. `is_complete`: every object was checked at the requested depth; if the budget
    ended before that, the next scrub continues at `cursor`. `unread_*`:
    segments, packs and index objects of which only name and size were checked. `garbage_*`: objects that no
    version names and that the broker's collector takes by itself.
    """

    root: str
    version: int
    deep: bool
    started_ms: int
    finished_ms: int
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    object_count: int = 0
    entry_count: int = 0
    checkpoint_count: int = 0
    segment_count: int = 0
    pack_count: int = 0
    index_count: int = 0
    deep_segment_count: int = 0
    read_bytes: int = 0
    unread_count: int = 0
    unread_bytes: int = 0
    missing_old_count: int = 0
    garbage_count: int = 0
    garbage_bytes: int = 0
    is_complete: bool = True
    cursor: str = ""

    @property
    def broken_count(self) -> int:
        """Findings that are not healed."""
        return sum(finding.outcome is not Outcome.HEALED for finding in self.findings)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is broken any more."""
        return self.broken_count == 0

    def summary(self) -> str:
        """One sentence: checked and unchecked objects, and the damage."""
        healed = len(self.findings) - self.broken_count
        unread = f", {self.unread_count} of them by name and size alone" if self.unread_count else ", every byte read"
        return (
            f"{self.root}: {self.object_count} objects, {self.segment_count} segments, {self.pack_count} packs"
            f" and {self.index_count} index objects checked{unread}:"
            f" {self.broken_count} broken{f', {healed} healed' if healed else ''}"
        )
