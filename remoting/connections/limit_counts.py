"""Limit counts: how often each limit refused a request or closed a connection.

    refused("clientGroupsPerConnectionMax", address, detail) -> counted by the setting's name, and logged

An attack reaches a limit many thousand times a second, so the log has one line for each limit and period, with the
number of times since the last line. Shown as `thermocline_limit_refused_total` (broker/stats/metrics_page.py).
Owner: the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import msgspec

logger = logging.getLogger(__name__)

LOG_PERIOD_S = 10.0


class _Count(msgspec.Struct):
    total: int = 0
    logged_total: int = 0
    logged_s: float = float("-inf")


class LimitCounts:
    """The counts of one process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def refused(self, limit: str, *, address: str, detail: str) -> None:
        """Count one refusal by the limit of this setting. `detail`: what was refused, for the log."""
        count = self._counts.get(limit)
        if count is None:
            count = self._counts[limit] = _Count()
        count.total += 1
        now_s = self._clock()
        if now_s - count.logged_s >= LOG_PERIOD_S:
            logger.warning(
                "limit reached limit=%s remote=%s times=%d total=%d: %s",
                limit,
                address,
                count.total - count.logged_total,
                count.total,
                detail,
            )
            count.logged_s, count.logged_total = now_s, count.total

    @property
    def totals(self) -> Mapping[str, int]:
        """Refusals since the start, by the setting's name."""
        return {limit: count.total for limit, count in self._counts.items()}
