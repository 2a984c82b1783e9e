"""Sweep turns: when expired segments and packs are next removed from the catalog, and the cuts of the last sweep
(for the TTL proof).

A sweep is due each interval, and may wait for a commit made for another reason, and for the request budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A committed sweep: when it read the catalog, and each topic's cut."""

    at_ms: int
    cuts_ms: Mapping[str, int]


class SweepState(msgspec.Struct, frozen=True, kw_only=True):
    """The last sweep (None before the first), the latest time of the next one, and the longest interval between two
    unless one waits for the request budget."""

    last: Sweep | None
    started_ms: int
    next_ms: int
    interval_ms: int
    waits_for_budget: bool = False


class Sweeps(msgspec.Struct, frozen=True, kw_only=True):
    """The sweeps of segments, and those of packs."""

    segments: SweepState
    packs: SweepState


class SweepTurn:
    """One kind of sweep. The caller reports the start of each sweep (`begin`) and its commit (`committed`)."""

    def __init__(self, *, interval_ms: int, waited_max_ms: int, now_ms: int) -> None:
        """`waited_max_ms`: how long a due sweep waits for a commit made for another reason."""
        self._interval_ms = interval_ms
        self._waited_max_ms = waited_max_ms
        self._due_ms = 0
        self._is_owed = False
        self._waits_for_budget = False
        self._started_ms = now_ms
        self._begun: Sweep | None = None
        self._last: Sweep | None = None

    def hasten(self) -> None:
        """Make the next sweep due at once."""
        self._due_ms = -self._waited_max_ms

    def is_on(self, *, now_ms: int, is_made: bool, can_pay: Callable[[], bool]) -> bool:
        """Whether to sweep now. `is_made`: a commit is made anyway; `can_pay`: whether the budget allows another."""
        was_set_back = self._due_ms > now_ms + self._interval_ms  # the clock
        if now_ms >= self._due_ms + (0 if is_made else self._waited_max_ms) or was_set_back:
            self._due_ms, self._is_owed = now_ms + self._interval_ms, True
        self._waits_for_budget = self._is_owed and not is_made and not can_pay()
        is_on = self._is_owed and not self._waits_for_budget
        self._is_owed = self._waits_for_budget
        return is_on

    def begin(self, cuts_ms: Mapping[str, int], *, now_ms: int) -> None:
        """Remember the cuts of this sweep until `committed()`."""
        self._begun = Sweep(at_ms=now_ms, cuts_ms=cuts_ms)

    def committed(self) -> None:
        """The last sweep's changes are in the catalog."""
        self._last = self._begun

    @property
    def state(self) -> SweepState:
        """The state for the TTL proof."""
        return SweepState(
            last=self._last,
            started_ms=self._started_ms,
            next_ms=self._due_ms + self._waited_max_ms,
            interval_ms=self._interval_ms + self._waited_max_ms,
            waits_for_budget=self._waits_for_budget,
        )
