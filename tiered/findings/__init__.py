"""Findings: what a scrub reports."""

from thermocline.tiered.findings.findings import Finding, ObjectKind, Outcome, Problem, ScrubReport

__all__ = ["Finding", "ObjectKind", "Outcome", "Problem", "ScrubReport"]
