"""Refusals of an unfit store, by the last line of a broker's log.

s3s-fs looks for the object before it writes: two racing writers both win only if their requests overlap there. A round
of the check may pass by chance; such a start is refused too, since s3s-fs does not answer each range.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

WOULD_LET_TWO_COMMIT = "thermocline: this store would let two brokers commit at once with coldFencing=conditional"
UNFIT = "thermocline: this store is unfit for the cold tier (it gives a whole object, and no answer to some range of it"
STARTS_MAX = 12


async def refusal_for_a_race(start: Callable[[], Awaitable[str]]) -> str:
    """Start brokers until one sees two writers win; return its last line. Every start has to be refused."""
    for _ in range(STARTS_MAX):
        last_line = await start()
        if last_line.startswith(WOULD_LET_TWO_COMMIT):
            return last_line
        assert last_line.startswith(UNFIT), last_line
    raise AssertionError(f"none of {STARTS_MAX} starts saw two writers win")
