"""Taken back: what another broker has delivered of this one's timed messages while this one was away.

Entries of the timer topic below `queue_offset` that were due before `read_time_ms` have gone out there. Those behind it
were not there, nor those whose records are before `log_start`.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.timers.timer_checkpoint import SHARED

DELIVERED_MARGIN_MS = 60_000
"""How much older than the read time an entry must be to count as delivered where the timer log is not at hand: one that
was late when it was enqueued waits in a later tick than its own."""


class TakenBackTimers(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    queue_offset: QueueOffset
    read_time_ms: int
    log_start: PhysicalOffset

    @classmethod
    def of_checkpoint(cls, data: bytes, *, is_at_rest: bool, log_start: PhysicalOffset) -> TakenBackTimers:
        """From the checkpoint of that broker, as it answers to GET_TIMER_CHECK_POINT.

        `is_at_rest`: all that was due had gone out; otherwise an entry that was late when it got its slot may wait.
        Raises ValueError if it is no checkpoint.
        """
        if len(data) < SHARED.size:
            raise ValueError("a timer checkpoint has 56 bytes")
        read_time_ms, _, queue_offset, master_offset, _, _, _ = SHARED.unpack_from(data)
        return cls(
            queue_offset=QueueOffset(min(queue_offset, master_offset)),
            read_time_ms=max(0, read_time_ms - (0 if is_at_rest else DELIVERED_MARGIN_MS)),
            log_start=log_start,
        )
