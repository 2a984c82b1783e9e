"""RequestBudget: how many requests may still be made, so that no hour sees more than so many.

    burst      what may be made at once after a pause: an eighth of the budget, more of a small one
    refill     the rest of the budget, evenly over the hour
    held       what was allowed to somebody who is at it still: nobody else is allowed the same
    waiting    who was refused comes before whoever asks later, so that what is small and comes often leaves something
               for what takes more; for as long as he goes on asking
    state      requests of state snapshots, which do not ask: the refill is as much at least, and others leave one

So any hour, wherever it begins, sees at most burst + refill = the budget, as long as nobody makes requests that are not
allowed. Those count all the same, and are made up for: what is left may fall below nothing. It is counted from what
the store was really asked, repetitions and all. Counted are requests that write or list, which cost most: reads are the
consumers' affair, deletes mostly cost nothing. Pure arithmetic on a clock; nothing waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.cost.cost_meter import HOUR_MS
from thermocline.tiered.wrappers import StoreCounters, Verb

REQUESTS_PER_HOUR_MIN = 40
"""What is left beside state snapshots at least."""
FORGOTTEN_MS = 60_000
"""Who has not asked for so long waits no more."""
_BURST_PART = 8
_BURST_MIN = 96
"""What a segment and its commit take when that writes a checkpoint of many topics, and some more."""
_COUNTED = (Verb.PUT, Verb.CREATE_IF_ABSENT, Verb.LIST, Verb.REMOVE_INCOMPLETE)


def counted_requests(counters: StoreCounters) -> int:
    """The requests that a budget is of."""
    return sum(counters.requests[verb] for verb in _COUNTED)


def state_requests_per_hour(state_interval_ms: int) -> int:
    """How many state snapshots an hour may see, so far apart at least."""
    return -(-HOUR_MS // state_interval_ms)


def requests_per_hour_min(state_interval_ms: int) -> int:
    """The least budget: state snapshots are never held back by it."""
    return REQUESTS_PER_HOUR_MIN + state_requests_per_hour(state_interval_ms)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Somebody who was refused: since when, when he asked last, and for how many."""

    since_ms: int
    asked_ms: int
    count: int


class RequestBudget:
    """See the module's header. `spent`: all requests so far; `clock`: milliseconds."""

    def __init__(
        self,
        *,
        requests_per_hour: int,
        spent: Callable[[], int],
        clock: Callable[[], int],
        state_per_hour: int = 0,
    ) -> None:
        """`state_per_hour`: how many requests of the budget are state snapshots' if they want them."""
        if requests_per_hour < REQUESTS_PER_HOUR_MIN + state_per_hour:
            raise InvalidRequestError(
                "a request budget is too small to save anything by",
                requests_per_hour=requests_per_hour,
                minimum=REQUESTS_PER_HOUR_MIN + state_per_hour,
            )
        self.requests_per_hour = requests_per_hour
        others = requests_per_hour - state_per_hour
        self.burst = min(others, max(requests_per_hour // _BURST_PART, min(others // 2, _BURST_MIN)))
        self._per_ms = (requests_per_hour - self.burst) / HOUR_MS
        self._kept = 1 if state_per_hour else 0
        self._held = 0
        self._waiting: dict[str, _Waiting] = {}
        self._spent = spent
        self._clock = clock
        self._left = float(self.burst)
        self._counted = 0
        self._refilled_ms = clock()

    @property
    def spent(self) -> int:
        """All requests so far."""
        return self._spent()

    @property
    def left(self) -> float:
        """How many may be made now; negative when more were made than allowed."""
        now_ms, spent = self._clock(), self._spent()
        refill = self._per_ms * max(0, now_ms - self._refilled_ms)
        # What was made since the last look may have been made at its end, so it is taken off what there was then.
        self._left = min(float(self.burst), self._left + refill) - (spent - self._counted)
        self._refilled_ms, self._counted = max(now_ms, self._refilled_ms), spent
        return self._left

    @property
    def free(self) -> float:
        """How many whoever asks may make now: not what others were allowed, nor what is kept for state snapshots."""
        return self.left - self._held - self._kept

    @property
    def most(self) -> int:
        """What `free` is when nothing was made for long."""
        return self.burst - self._kept

    @property
    def is_whole(self) -> bool:
        """Whether waiting longer would not allow any more."""
        return self.free >= self.most

    def allows(self, count: int, *, who: str = "") -> bool:
        """Whether so many may be made now. `who` is refused has them before others that ask later; without a name
        nobody waits. More than a whole burst is never allowed."""
        free, now_ms = self.free, self._clock()
        known = self._waiting.get(who)
        since_ms = known.since_ms if known is not None else now_ms + 1
        earlier = sum(
            other.count
            for name, other in self._waiting.items()
            if name != who and other.since_ms < since_ms and now_ms - other.asked_ms < FORGOTTEN_MS
        )
        if free >= count + (earlier if who else 0):
            self._waiting.pop(who, None)
            return True
        if who and count <= self.most:
            self._waiting[who] = _Waiting(known.since_ms if known is not None else now_ms, now_ms, count)
        return False

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Whatever is made meanwhile, up to `count`, is nobody else's. What of it has been made counts twice until the
        end: others wait a little longer, and never make too many."""
        self._held += count
        try:
            yield
        finally:
            self._held -= count
