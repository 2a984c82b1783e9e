"""Log bound: how far a master has come counts at its slave once the slave's log has all that the master's had then.

Progress of delay levels, of timers and of groups stands for records: the master has put a message into its topic, or
one back into a queue, and counts what it was made from as done. A slave that took the progress over and never received
the record would, as the next master, do neither again: an acknowledged message would be lost.

An answer is fetched first, then the end of the master's log, which only grows: the slave waits for that end. Where its
log is not so far within `wait_ms`, the answer is kept; the table is due again when it is, and the answer counts then,
unless the log has what a newer one stands for as well.

A slave reports to its master where its log ends, from which it is in sync, when it has followed all tables. Meanwhile a
log that is behind does not move, since the master sends nothing before a report: so `is_behind` allows it to report,
as no such report can bring it in sync. RocketMQ's slaves take all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset

WAIT_MS = 100
STEP_MS = 10


class _Answer(msgspec.Struct, frozen=True):
    master: str
    body: bytes
    asked_at: PhysicalOffset
    """Where the log here ended when the master was asked."""
    log_end: PhysicalOffset
    """Where the master's ended after the answer."""


class LogBound:
    """The answers to one question. One call at a time, which may be cancelled. Owner: the hot process's loop."""

    def __init__(self, log_end: Callable[[], PhysicalOffset], *, period_ms: int, wait_ms: int = WAIT_MS) -> None:
        """`log_end`: of this broker's log. `period_ms`: how often the master is asked. `wait_ms`: how long a call
        waits for the log."""
        self._log_end = log_end
        self._period_ms = period_ms
        self._wait_ms = wait_ms
        self.on_behind: Callable[[], None] | None = None
        """Called when an answer begins to wait for the log."""
        self.asked_offset = LOG_START
        """Where the log here ended when `newest` requested its last result from the master."""
        self._taken: _Answer | None = None
        self._waiting: _Answer | None = None

    @property
    def is_behind(self) -> bool:
        """Whether an answer waits for a part of the log that is not here."""
        return self._waiting is not None and self._log_end() < self._waiting.log_end

    @property
    def period_ms(self) -> int:
        """How often the master is to be asked: at once when an answer waits for the log no longer."""
        return self._period_ms if self._waiting is None or self.is_behind else 0

    def master_changed(self) -> None:
        """No answer of the master before waits any more."""
        self._waiting = None

    async def newest(self, master: MasterMetadata, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """What the master answers to `ask`, or has answered the time before; the log here has all that it stands for.

        Raises:
            UnavailableError: No answer; or the log here is behind.
            ResponseError, InvalidRequestError: As of `ask` and `MasterMetadata.log_end`.
        """
        asked_at = self._log_end()
        body, taken = await ask(), self._taken
        is_same = taken is not None and (taken.master, taken.body) == (master.address, body)
        if taken is not None and is_same and self._log_end() >= taken.log_end:  # else the log was cut since
            self._waiting, self.asked_offset = None, asked_at
            return body
        answer = _Answer(master.address, body, asked_at, await master.log_end())
        before, self._waiting = self._waiting, answer
        if self.on_behind is not None and self.is_behind:
            self.on_behind()
        if await self._reaches(answer.log_end):
            self._waiting = None
        elif before is not None and before.master == master.address and self._log_end() >= before.log_end:
            answer = before
        else:
            raise UnavailableError("the log is behind its master's")  # no offsets: it is logged when the text changes
        self._taken, self.asked_offset = answer, answer.asked_at
        return answer.body

    async def _reaches(self, end: PhysicalOffset) -> bool:
        for _ in range(self._wait_ms // STEP_MS):
            if self._log_end() >= end:
                return True
            await asyncio.sleep(STEP_MS / 1_000)
        return self._log_end() >= end
