"""SealLead: how long before its seal age a topic is sealed, so that it is committed in time even by a long round.

    age            slack, a twentieth of it
    |--------------|--------|     what waits is sealed at the age, and committed within the slack
         |-------- a round ----|  recent rounds exceeded the slack: they begin earlier by the excess

The expected length is that of the longest recent round plus a quarter, as the next may be longer; before the first
round, a length that fills the slack. No topic is sealed before three quarters of the age: otherwise a slow store would
receive more and more small packs. Pure bookkeeping.
"""

from __future__ import annotations

from collections import deque

SLACK_PART = 20
LEAD_PART = 4
CARE_PART = 4
ROUNDS_COUNTED = 8


class SealLead:
    """Belongs to the tier service."""

    def __init__(self, *, age_ms: int) -> None:
        self._slack_ms = age_ms // SLACK_PART
        self._lead_ms_max = age_ms // LEAD_PART
        self._rounds_ms: deque[int] = deque(maxlen=ROUNDS_COUNTED)

    def note(self, round_ms: int) -> None:
        """Note the length of a round that sealed something, from reading the clock to its last commit."""
        self._rounds_ms.append(round_ms)

    @property
    def lead_ms(self) -> int:
        """How long before their seal age topics are due."""
        longest_ms = max(self._rounds_ms, default=self._slack_ms)
        return min(self._lead_ms_max, max(0, longest_ms + longest_ms // CARE_PART - self._slack_ms))
