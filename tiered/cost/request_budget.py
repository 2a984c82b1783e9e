"""RequestBudget: bounds the requests within any hour.

    burst      requests allowed at once after a pause: an eighth of the budget, more of a small one
    refill     the rest of the budget, evenly over the hour
    held       requests allowed to work still in progress: not available to others
    waiting    a refused user comes before later ones, as long as it keeps asking, so that frequent small users leave
               requests for larger ones
    state      requests of state snapshots, which do not ask: the refill is at least as large, and others leave one

So any hour has at most burst + refill = the budget, as long as all requests are allowed ones. Others count as well, and
are compensated: the remainder may become negative. It is computed from the requests actually sent, repetitions
included. Only requests that write or list count, as they cost most: consumers cause reads, and deletes are mostly free.
Pure arithmetic on a clock; no call waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.cost.cost_meter import HOUR_MS
from thermocline.tiered.wrappers import StoreCounters, Verb

REQUESTS_PER_HOUR_MIN = 40
"""The least remainder besides state snapshots."""
FORGOTTEN_MS = 60_000
"""A refused user that has not called `allows` for this time no longer waits."""
_BURST_PART = 8
_BURST_MIN = 96
"""The requests of a segment and its commit including a checkpoint of many topics, and some more."""
_COUNTED = (Verb.PUT, Verb.CREATE_IF_ABSENT, Verb.LIST, Verb.REMOVE_INCOMPLETE)


def counted_requests(counters: StoreCounters) -> int:
    """The requests that a budget counts."""
    return sum(counters.requests[verb] for verb in _COUNTED)


def state_requests_per_hour(state_interval_ms: int) -> int:
    """The most state snapshots in an hour, at this interval."""
    return -(-HOUR_MS // state_interval_ms)


def requests_per_hour_min(state_interval_ms: int) -> int:
    """The least budget: state snapshots are never held back by it."""
    return REQUESTS_PER_HOUR_MIN + state_requests_per_hour(state_interval_ms)


class _Waiting(msgspec.Struct, frozen=True):
    """A refused user: since when it waits, when it asked last, and for how many requests."""

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
        """`state_per_hour`: the requests of the budget reserved for state snapshots."""
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
        self._remaining = float(self.burst)
        self._counted = 0
        self._refilled_ms = clock()

    @property
    def spent(self) -> int:
        """All requests so far."""
        return self._spent()

    @property
    def available(self) -> float:
        """The requests available now; negative when more were sent than allowed."""
        now_ms, spent = self._clock(), self._spent()
        refill = self._per_ms * max(0, now_ms - self._refilled_ms)
        # Requests since the last call may have been sent at the end of that time, so subtract them after the refill.
        self._remaining = min(float(self.burst), self._remaining + refill) - (spent - self._counted)
        # If the clock was set back, the refill goes on from there: it is not to wait until the clock has caught up.
        self._refilled_ms, self._counted = now_ms, spent
        return self._remaining

    @property
    def free(self) -> float:
        """The requests that a caller may send now, without those held by others or kept for state snapshots."""
        return self.available - self._held - self._kept

    @property
    def most(self) -> int:
        """The value of `free` after a long pause."""
        return self.burst - self._kept

    @property
    def is_whole(self) -> bool:
        """Whether `free` is at its maximum."""
        return self.free >= self.most

    def allows(self, count: int, *, who: str = "") -> bool:
        """Whether `count` requests may be sent now. If not, user `who` waits before later ones; without a name there is
        no waiting. More than a whole burst is never allowed."""
        free, now_ms = self.free, self._clock()
        waiting = self._waiting.get(who)
        since_ms = waiting.since_ms if waiting is not None else now_ms + 1
        earlier = sum(
            other.count
            for name, other in self._waiting.items()
            if name != who and other.since_ms < since_ms and abs(now_ms - other.asked_ms) < FORGOTTEN_MS
        )
        if free >= count + (earlier if who else 0):
            self._waiting.pop(who, None)
            return True
        if who and count <= self.most:
            self._waiting[who] = _Waiting(waiting.since_ms if waiting is not None else now_ms, now_ms, count)
        return False

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Reserve `count` requests for the block. Those sent in it count twice until its end: others wait a little
        longer, but never send too many."""
        self._held += count
        try:
            yield
        finally:
            self._held -= count
