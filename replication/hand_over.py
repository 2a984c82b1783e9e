"""Hand-over: a master lets other brokers have all of its log before one of them is elected.

    begin     what waits to be written is written (`write_last`): notes by which a broker of RocketMQ, too, finds what
              transactions have ended -> the log takes no writes -> the slaves report its end -> true: nothing that was
              acknowledged can be lost by an election among them
    later     pause_ms after the slaves have it the log takes writes again, unless the role has ended; the broker asks
              the controllers meanwhile (`is_under_way`), as their notice of the election may be lost

Without it a master acknowledges sends, by itself or with one slave, until it hears of the election; a broker that has
other messages there is the master already.
Owner: the event loop of the hot process. Bound: one hand-over at a time, of PAUSE_MS_MAX.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thermocline.remoting.errors import BrokerBusyError
from thermocline.replication.sync_state_set import SyncStateSet
from thermocline.store.log import CommitLog

HANDS_OVER = "the broker hands over to another master"
"""Why the log takes no writes."""
PAUSE_MS_MAX = 10_000
LOOK_S = 0.005


class HandOver:
    """Of one master, in one epoch."""

    def __init__(self, log: CommitLog, sync_state_set: SyncStateSet) -> None:
        self._log = log
        self._set = sync_state_set
        self._resumption: asyncio.TimerHandle | None = None
        self._is_waiting = False
        self.write_last: Callable[[], None] | None = None
        """Writes what waits to be written to the log."""

    @property
    def is_under_way(self) -> bool:
        """Whether the log takes no writes, as another master may be elected."""
        return self._is_waiting or self._resumption is not None

    async def begin(self, broker_id: int | None, *, pause_ms: int, resumes: bool = True) -> bool:
        """Take no writes, and return whether a broker has the whole log, or all of the SyncStateSet have, within
        `pause_ms`. Writes are taken again `pause_ms` after a yes, at once after a no; without `resumes` never.
        Cancelling is safe.

        Raises:
            BrokerBusyError: Another one is under way.
        """
        assert 0 < pause_ms <= PAUSE_MS_MAX
        if self._is_waiting:
            raise BrokerBusyError("another hand-over is under way")
        self._is_waiting, has_all = True, False
        self._stop_resumption()
        if self.write_last is not None:
            self.write_last()
        self._log.refuse_all(HANDS_OVER)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + pause_ms / 1_000
        try:
            while not (has_all := self._set.has_all(broker_id)) and loop.time() < end_s:  # noqa: ASYNC110 - bounded
                await asyncio.sleep(LOOK_S)
        finally:
            self._is_waiting = False
            if resumes and has_all:
                self._resumption = loop.call_later(pause_ms / 1_000, self._resume)
            elif resumes:
                self._resume()
        return has_all

    def close(self) -> None:
        """The role ends: the log is another's. Idempotent."""
        self._stop_resumption()

    def _resume(self) -> None:
        self._stop_resumption()
        self._log.refuse_no_more(HANDS_OVER)
        self._set.tell_enough()

    def _stop_resumption(self) -> None:
        if self._resumption is not None:
            self._resumption.cancel()
            self._resumption = None
