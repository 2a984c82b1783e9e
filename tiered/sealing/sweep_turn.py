"""Sweep turns: when expired segments and packs leave the catalog next, and what the last sweep went by: for a proof.

A sweep is due each interval, and may wait: for a commit that is made anyway, and for the request budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One sweep that is committed: when it looked, and what each topic's cut was."""

    at_ms: int
    cuts_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepState:
    """The last sweep, None before the first; when the next one is at the latest, and how long it is at most between two
    while none waits for the request budget."""

    last: Sweep | None
    started_ms: int
    next_ms: int
    interval_ms: int
    waits_for_budget: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """Those of segments, and those of packs."""

    segments: SweepState
    packs: SweepState


class SweepTurn:
    """One kind of sweep. Its owner says when it has looked, and when what came of that is committed."""

    def __init__(self, *, interval_ms: int, waited_max_ms: int, now_ms: int) -> None:
        """`waited_max_ms`: how long one that is due waits for a commit that is made anyway."""
        self._interval_ms = interval_ms
        self._waited_max_ms = waited_max_ms
        self._due_ms = 0
        self._is_owed = False
        self._waits_for_budget = False
        self._started_ms = now_ms
        self._looked: Sweep | None = None
        self._last: Sweep | None = None

    def hasten(self) -> None:
        """The next one is due at once."""
        self._due_ms = -self._waited_max_ms

    def is_on(self, *, now_ms: int, is_made: bool, can_pay: Callable[[], bool]) -> bool:
        """Whether to look now. `is_made`: a commit is made anyway; `can_pay`: whether there may be one more."""
        if now_ms >= self._due_ms + (0 if is_made else self._waited_max_ms):
            self._due_ms, self._is_owed = now_ms + self._interval_ms, True
        self._waits_for_budget = self._is_owed and not is_made and not can_pay()
        is_on = self._is_owed and not self._waits_for_budget
        self._is_owed = self._waits_for_budget
        return is_on

    def look(self, cuts_ms: Mapping[str, int], *, now_ms: int) -> None:
        """It goes by these cuts; it counts when it is `committed`."""
        self._looked = Sweep(at_ms=now_ms, cuts_ms=cuts_ms)

    def committed(self) -> None:
        """What came of the last look is in the catalog."""
        self._last = self._looked

    @property
    def state(self) -> SweepState:
        """As a proof needs it."""
        return SweepState(
            last=self._last,
            started_ms=self._started_ms,
            next_ms=self._due_ms + self._waited_max_ms,
            interval_ms=self._interval_ms + self._waited_max_ms,
            waits_for_budget=self._waits_for_budget,
        )
