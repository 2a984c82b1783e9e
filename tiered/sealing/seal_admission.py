"""SealAdmission: which due topics are sealed now, and how, and which wait for the request budget.

    paid for       the budget covers it: all due topics are sealed, full ones into segments of their own
    packed         it does not: full topics go into packs with all others, and all waiting records go along. Many
                   small segments then cost few requests
    in part        packs are too many as well: once a whole burst is saved up, as many packed topics as it pays for,
                   the longest waiting first
    must           local files must be deleted, or the oldest message has waited for `age_ms_max`: sealed, packed, even
                   beyond the budget. No message is refused or lost because of the budget

So the budget first widens seal ages and seal sizes as far as needed; only then is it exceeded. A longer wait means that
more messages are lost with a lost disk. One log line marks the start of widening, one its end; the same for exceeding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from thermocline.tiered.cost import RequestBudget

logger = logging.getLogger(__name__)

ENDED_AFTER_SEAL_AGES = 3
"""Widening ends after so many seal ages without a waiting topic: between two bursts no topic waits either."""

CostOf = Callable[[Sequence[str], bool], int]
"""Returns the most requests needed to seal topics in one round; True: full ones in packs."""


class DueTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is due; its oldest message was stored at `first_ms`. `must`: seal now, even beyond the budget."""

    topic: str
    first_ms: int
    must: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The topics to seal now. `is_packed`: full ones go into packs too. `is_all`: all due topics are admitted, so other
    waiting records may go along. `cost`: the most requests it takes; `yields`: more than the budget allows."""

    topics: list[str] = field(default_factory=list)
    is_packed: bool = False
    is_all: bool = True
    cost: int = 0
    yields: bool = False


class SealAdmission:
    """See the module's header. `age_ms`: the seal age that is widened."""

    def __init__(self, budget: RequestBudget, *, age_ms: int, age_ms_max: int) -> None:
        self.budget = budget
        self.yielded_requests = 0
        """Requests that were made beyond the budget because local files had to go."""
        self._age_ms = age_ms
        self._age_ms_max = age_ms_max
        self._held_ms: int | None = None
        self._yielded_ms: int | None = None
        self._waiting: frozenset[str] = frozenset()

    @property
    def is_widened(self) -> bool:
        """Whether seal ages are wider than configured, now or a short time ago."""
        return self._held_ms is not None

    @property
    def is_yielding(self) -> bool:
        """Whether the budget is exceeded because local files must be deleted, now or a short time ago."""
        return self._yielded_ms is not None

    @property
    def waiting(self) -> frozenset[str]:
        """Topics that are due and wait for the budget."""
        return self._waiting

    def is_over_age(self, first_ms: int, *, now_ms: int) -> bool:
        """Whether a topic has waited for the longest time allowed."""
        return now_ms - first_ms >= self._age_ms_max

    def admit(
        self,
        due: Sequence[DueTopic],
        cost_of: CostOf,
        *,
        now_ms: int,
        waiting: Sequence[str] = (),
        is_more: bool = False,
    ) -> Admitted:
        """What to seal now. `waiting`: all topics with waiting records, which go along when all are packed. `is_more`:
        the round continues; topics that waited for the budget before it still wait."""
        names = [each.topic for each in due]
        admitted = self._admit(due, names, cost_of, waiting) if due else Admitted()
        left_out = frozenset(names).difference(admitted.topics)
        self._waiting = self._waiting | left_out if is_more else left_out
        self._note(admitted, now_ms)
        return admitted

    @contextmanager
    def paying(self, admitted: Admitted) -> Iterator[None]:
        """Reserve the requests while the admitted topics are sealed; count those beyond the budget."""
        spent, free = self.budget.spent, max(0.0, self.budget.free)
        with self.budget.holding(admitted.cost):
            yield
        if admitted.yields:
            self.yielded_requests += max(0, int(self.budget.spent - spent - free))

    def _admit(self, due: Sequence[DueTopic], names: list[str], cost_of: CostOf, waiting: Sequence[str]) -> Admitted:
        cost = cost_of(names, False)
        if self.budget.allows(cost, who="seal"):
            return Admitted(topics=names, cost=cost)
        everything = list(dict.fromkeys((*names, *waiting)))
        cost = cost_of(everything, True)
        if self.budget.allows(cost, who="seal"):
            return Admitted(topics=names, is_packed=True, cost=cost)
        return self._admit_some(due, cost_of)

    def _admit_some(self, due: Sequence[DueTopic], cost_of: CostOf) -> Admitted:
        """Packed: the topics that must be sealed, and the longest waiting others if a whole burst pays for them."""
        ordered = sorted(due, key=lambda each: (not each.must, each.first_ms))
        names = [each.topic for each in ordered]
        count_min = sum(each.must for each in ordered)
        limit = self.budget.free if self.budget.is_whole else 0.0
        if count_min:
            # Further topics in the same packs cost no additional request.
            limit = max(limit, cost_of(names[:count_min], True))
        elif self.budget.is_whole:
            count_min = 1  # else a topic that costs more than a burst would never be sealed
        else:
            return Admitted(is_all=False)
        low, high = count_min, len(names)
        while low < high:
            middle = (low + high + 1) // 2
            if cost_of(names[:middle], True) <= limit:
                low = middle
            else:
                high = middle - 1
        topics = names[:low]
        cost = cost_of(topics, True)
        yields = ordered[0].must and not self.budget.allows(cost)
        return Admitted(topics=topics, is_packed=True, is_all=False, cost=cost, yields=yields)

    def _note(self, admitted: Admitted, now_ms: int) -> None:
        per_hour = self.budget.requests_per_hour
        if self._waiting or admitted.is_packed:
            if self._held_ms is None:
                logger.warning(
                    "request budget reached, seal ages are widened requests_per_hour=%d topics_waiting=%d",
                    per_hour,
                    len(self._waiting),
                )
            self._held_ms = now_ms
        elif self._held_ms is not None and self._is_over(self._held_ms, now_ms):
            self._held_ms = None
            logger.info("request budget suffices again, seal ages are as configured")
        if admitted.yields:
            if self._yielded_ms is None:
                logger.warning("request budget yields, local files have to go requests_per_hour=%d", per_hour)
            self._yielded_ms = now_ms
        elif self._yielded_ms is not None and self._is_over(self._yielded_ms, now_ms):
            self._yielded_ms = None
            logger.info("request budget is kept again requests_beyond=%d", self.yielded_requests)

    def _is_over(self, since_ms: int, now_ms: int) -> bool:
        return now_ms - since_ms > ENDED_AFTER_SEAL_AGES * self._age_ms
