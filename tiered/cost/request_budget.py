"""RequestBudget: how many requests may still be made, so that no hour sees more than so many.

    burst      what may be made at once after a pause: an eighth of the budget, more of a small one
    refill     the rest of the budget, evenly over the hour

So any hour, wherever it begins, sees at most burst + refill = the budget, as long as nobody makes requests that are not
allowed. Those count all the same, and are made up for: what is left may fall below nothing. It is counted from what
the store was really asked, repetitions and all. Counted are requests that write or list, which cost most: reads are the
consumers' affair, deletes mostly cost nothing. Pure arithmetic on a clock; nothing waits here.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.cost.cost_meter import HOUR_MS
from thermocline.tiered.wrappers.metering import StoreCounters
from thermocline.tiered.wrappers.wrapping import Verb

REQUESTS_PER_HOUR_MIN = 120
_BURST_PART = 8
_BURST_MIN = 96
"""What a segment and its commit take when that writes a checkpoint of many topics, and some more."""
_COUNTED = (Verb.PUT, Verb.CREATE_IF_ABSENT, Verb.LIST, Verb.REMOVE_INCOMPLETE)


def counted_requests(counters: StoreCounters) -> int:
    """The requests that a budget is of."""
    return sum(counters.requests[verb] for verb in _COUNTED)


class RequestBudget:
    """See the module's header. `spent`: all requests so far; `clock`: milliseconds."""

    def __init__(self, *, requests_per_hour: int, spent: Callable[[], int], clock: Callable[[], int]) -> None:
        if requests_per_hour < REQUESTS_PER_HOUR_MIN:
            raise InvalidRequestError(
                "a request budget is too small to save anything by",
                requests_per_hour=requests_per_hour,
                minimum=REQUESTS_PER_HOUR_MIN,
            )
        self.requests_per_hour = requests_per_hour
        self.burst = max(requests_per_hour // _BURST_PART, min(requests_per_hour // 2, _BURST_MIN))
        self._per_ms = (requests_per_hour - self.burst) / HOUR_MS
        self._spent = spent
        self._clock = clock
        self._left = float(self.burst)
        self._counted = 0
        self._refilled_ms = clock()

    @property
    def left(self) -> float:
        """How many may be made now; negative when more were made than allowed."""
        now_ms, spent = self._clock(), self._spent()
        refill = self._per_ms * max(0, now_ms - self._refilled_ms)
        # What was made since the last look may have been made at its end, so it is taken off what there was then.
        self._left = min(float(self.burst), self._left + refill) - (spent - self._counted)
        self._refilled_ms, self._counted = max(now_ms, self._refilled_ms), spent
        return self._left

    def allows(self, count: int) -> bool:
        """Whether so many may be made now. More than a burst: when there is a whole burst left."""
        return self.left >= min(count, self.burst)
