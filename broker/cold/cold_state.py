"""Cold state: whether history can be read and new segments committed, for health endpoints, status and metrics.

    none       there is no cold tier
    serving    cold reads are answered, segments are committed
    degraded   the object store gives no answer: hot messages are served, local files stay, cold reads are answered from
               the cache, else "try again"
    opening    the tier process is connected and has not opened the ledger yet
    away       the tier process is not connected; the broker starts it again

Sends and reads of hot messages do not depend on it. Acknowledged messages stay on local disk meanwhile.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ColdState(StrEnum):
    """See the module's header."""

    NONE = "none"
    SERVING = "serving"
    DEGRADED = "degraded"
    OPENING = "opening"
    AWAY = "away"


class ColdHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state, why, and since when (0: not known)."""

    state: ColdState
    reason: str = ""
    since_ms: int = 0

    @property
    def is_impaired(self) -> bool:
        """Whether the operator should check the cold tier."""
        return self.state in (ColdState.DEGRADED, ColdState.AWAY)

    def fields(self) -> dict[str, object]:
        """As JSON answers show it."""
        return {"state": self.state.value, "reason": self.reason, "sinceMs": self.since_ms}
