"""Verdicts: a benchmark's measured values beside the wanted ones, one line each, and an exit status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """One clause. `at_least`: less than `wanted` misses it; else more does."""

    clause: str
    measured: float
    wanted: float
    unit: str = ""
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the measured value meets the wanted one."""
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        unit = f" {self.unit}" if self.unit else ""
        state = "ok" if self.is_met else "MISSED"
        return f"{state:>8}  {self.clause}: {self.measured:.6g}{unit}, wanted {bound} {self.wanted:.6g}{unit}"


def missed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that are not met."""
    return [verdict for verdict in verdicts if not verdict.is_met]


def show_verdicts(verdicts: Iterable[Verdict]) -> int:
    """Print them; the exit status: 1 when one is missed."""
    status = 0
    for verdict in verdicts:
        print(verdict, flush=True)
        status = status if verdict.is_met else 1
    return status
