"""SealAdmission: which of the topics that are due are sealed now, and which wait for the request budget.

    must        local files have to go, a segment is full, or the oldest message has waited for `age_ms_max`: sealed
                whatever the budget says; nothing is refused and nothing is lost for it
    by age      sealed when all that are due can be paid for; else they wait, and more topics and more messages share
                what the next round costs. With a whole burst saved up, as many as that pays, the longest waiting first

So the budget widens the seal age, by as much as it has to, before it is passed. Messages that wait longer are what a
lost disk costs. One line says when this begins, one when it has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thermocline.tiered.cost.request_budget import RequestBudget

logger = logging.getLogger(__name__)

ENDED_AFTER_SEAL_AGES = 3
"""So many seal ages without anybody waiting end it: between two bursts nobody waits either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTopic:
    """A topic that is due; its oldest message was stored at `first_ms`. `must`: now, whatever it costs."""

    topic: str
    first_ms: int
    must: bool


class SealAdmission:
    """See the module's header. `age_ms`: the seal age that is widened."""

    def __init__(self, budget: RequestBudget, *, age_ms: int, age_ms_max: int) -> None:
        self.budget = budget
        self._age_ms = age_ms
        self._age_ms_max = age_ms_max
        self._held_ms: int | None = None
        self._waiting: frozenset[str] = frozenset()

    @property
    def is_widened(self) -> bool:
        """Whether seal ages are wider than configured, now or a short time ago."""
        return self._held_ms is not None

    @property
    def waiting(self) -> frozenset[str]:
        """Topics that are due and wait for the budget."""
        return self._waiting

    def is_over_age(self, first_ms: int, *, now_ms: int) -> bool:
        """Whether a topic has waited as long as it ever may."""
        return now_ms - first_ms >= self._age_ms_max

    def admit(self, due: Sequence[DueTopic], cost_of: Callable[[Sequence[str]], int], *, now_ms: int) -> list[str]:
        """The topics to seal now. `cost_of`: how many requests it takes at most to seal topics in one round."""
        names = [each.topic for each in due]
        by_age = [each for each in due if not each.must]
        self._waiting = frozenset()
        if by_age and not self._pays(cost_of(names)):
            admitted = self._admit_some(due, cost_of)
            self._waiting = frozenset(names) - set(admitted)
            names = admitted
        self._note(now_ms)
        return names

    def _pays(self, cost: int) -> bool:
        return self.budget.left >= cost

    def _admit_some(self, due: Sequence[DueTopic], cost_of: Callable[[Sequence[str]], int]) -> list[str]:
        names = [each.topic for each in due if each.must]
        if self.budget.left < self.budget.burst:
            return names
        for each in sorted((each for each in due if not each.must), key=lambda each: each.first_ms):
            # One at least: else a topic that costs more than a burst would never be sealed.
            if names and not self._pays(cost_of([*names, each.topic])):
                break
            names.append(each.topic)
        return names

    def _note(self, now_ms: int) -> None:
        if self._waiting:
            if self._held_ms is None:
                logger.warning(
                    "request budget reached, seal ages are widened requests_per_hour=%d topics_waiting=%d",
                    self.budget.requests_per_hour,
                    len(self._waiting),
                )
            self._held_ms = now_ms
        elif self._held_ms is not None and now_ms - self._held_ms > ENDED_AFTER_SEAL_AGES * self._age_ms:
            self._held_ms = None
            logger.info("request budget suffices again, seal ages are as configured")
