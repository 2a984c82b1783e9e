"""Followed table: one table of a slave that follows its master's."""

from __future__ import annotations

from typing import Protocol

from thermocline.broker.replicas.log_bound import LogBound
from thermocline.broker.replicas.master_metadata import MasterMetadata

PERIOD_MS = 10_000
"""How often a slave asks. RocketMQ's does so every 10 s with a controller, and every 60 s without one."""


class FollowedTable(Protocol):
    """See the module. On the loop, of which it takes no more than slices.py allows at a time."""

    name: str

    @property
    def bound(self) -> LogBound | None:
        """Of a table that counts when the log is as far as the master's."""
        ...

    @property
    def period_ms(self) -> int:
        """How often the master is asked."""
        ...

    async def follow(self, master: MasterMetadata) -> bool:
        """Take over what the master has, durably; False if nothing was new. One call at a time. Cancelling is safe.

        Raises:
            MQError: The master does not answer or its answer is refused, or the change cannot be written. The table is
                as before, or of several topics some are taken over.
        """
