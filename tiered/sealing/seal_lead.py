"""SealLead: how much sooner than at its age a topic is sealed, so that long rounds commit it in time all the same.

    age            slack, a twentieth of it
    |--------------|--------|     what waits is sealed at the age, and committed within the slack
         |-------- a round ----|  rounds took longer lately: they begin earlier by what was too much

The longest of the last few rounds counts and a quarter of it, as the next may be longer; before the first one, a round
that fills the slack. However long they were, nothing is sealed before three quarters of the age: else a store that is
slow would be asked for more and more small packs. Pure bookkeeping.
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
        """A round that sealed something took so long, from the look at the clock to its last commit."""
        self._rounds_ms.append(round_ms)

    @property
    def lead_ms(self) -> int:
        """By how much topics are due before their age."""
        longest_ms = max(self._rounds_ms, default=self._slack_ms)
        return min(self._lead_ms_max, max(0, longest_ms + longest_ms // CARE_PART - self._slack_ms))
