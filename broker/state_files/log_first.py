"""Log first: state files whose numbers stand for records of the log are written once these records are durable.

A group's offset, the progress of a delay level and that of POP count messages as done because of records in the log: a
message that was sent back for a retry, the delivered copy of a delayed message, a check point. If a power cut took the
records and left the numbers, an acknowledged message would be lost.
"""

from __future__ import annotations

import asyncio

from thermocline.store.log import CommitLog


async def log_is_durable(log: CommitLog) -> None:
    """Return when the log is durable up to its end at the call: the `durable_first` of a state file.

    Raises:
        StoreClosedError: The flush failed, now or before.
    """
    if log.flush_offset < log.append_offset:
        await asyncio.to_thread(log.flush)
