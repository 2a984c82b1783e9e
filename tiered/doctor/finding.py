"""The findings of a store doctor, and their consequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from thermocline.tiered.ledger import FencingMode

ALL_MODES = frozenset(FencingMode)


class Verdict(StrEnum):
    """How bad it is. NOTE: other than AWS S3, and nothing here depends on it. DEFECT: no broker must be run on it."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    DEFECT = "defect"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried. `text` is a sentence without a full stop; `rules_out` says for which ways of fencing a
    defect counts."""

    name: str
    verdict: Verdict
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)
    rules_out: frozenset[FencingMode] = frozenset()

    def __post_init__(self) -> None:
        assert bool(self.rules_out) == (self.verdict is Verdict.DEFECT)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings on one store. `url` has no options: they may hold secrets."""

    url: str
    findings: tuple[Finding, ...]

    @property
    def fencing(self) -> FencingMode | None:
        """The way of fencing that the doctor chooses: the first that nothing rules out. None: the store is unfit."""
        return next((mode for mode in FencingMode if self.is_fit_for(mode)), None)

    def is_fit_for(self, mode: FencingMode) -> bool:
        """Whether a broker may be run on the store with this way of fencing."""
        return not any(mode in finding.rules_out for finding in self.findings)

    def finding(self, name: str) -> Finding:
        """The finding of that name; KeyError when it was not made."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)


def passed(name: str, text: str, **figures: float) -> Finding:
    """A finding that all is well."""
    return Finding(name=name, verdict=Verdict.OK, text=text, figures=figures)


def noted(name: str, text: str, **figures: float) -> Finding:
    """A finding that nothing here depends on."""
    return Finding(name=name, verdict=Verdict.NOTE, text=text, figures=figures)


def warned(name: str, text: str, **figures: float) -> Finding:
    """A finding that costs something, but neither messages nor order."""
    return Finding(name=name, verdict=Verdict.WARNING, text=text, figures=figures)


def skipped(name: str, text: str) -> Finding:
    """What could not be tried, and why."""
    return Finding(name=name, verdict=Verdict.SKIPPED, text=text)


def failed(name: str, text: str, *, rules_out: frozenset[FencingMode] = ALL_MODES, **figures: float) -> Finding:
    """A defect; by default it rules out every mode."""
    return Finding(name=name, verdict=Verdict.DEFECT, text=text, figures=figures, rules_out=rules_out)
