"""Kept clock: keeps the store clock's time durably, so that expired messages stay expired over a restart.

File: thermocline/clock.json, {"storeMs": 1795275620696}

The log restores the clock to its last message's time. Without new messages the clock goes on and messages expire; if
the wall clock is set back before the next start, some of them would be visible again. So the time is saved now and
then, and the tier process receives no cut later than a saved time: data that it deletes for good has expired by the
clock of every later start.
Nothing is written while no topic has a time to live. Owner: the hot process's event loop.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.broker.state_files import ConfigPersister
from thermocline.remoting.errors import CorruptDataError
from thermocline.store.config import StoreClock

logger = logging.getLogger(__name__)

FILE_NAME = "clock"
AHEAD_MS_MAX = 60_000


class KeptClock:
    """`kept_ms` is durable; 0 before the first time."""

    def __init__(self, clock: StoreClock, persister: ConfigPersister) -> None:
        self.kept_ms = 0
        self._clock = clock
        self._persister = persister

    def load(self, data: bytes | None, *, wall_ms: int) -> None:
        """Go on from the time in a file of `encode`; None: there is none.

        Raises:
            CorruptDataError: It is no such file.
        """
        if data is None:
            return
        try:
            kept_ms = msgspec.json.decode(data, type=dict[str, int])["storeMs"]
        except (msgspec.MsgspecError, KeyError) as error:
            raise CorruptDataError("the kept clock cannot be read", file=FILE_NAME) from error
        if kept_ms - wall_ms > AHEAD_MS_MAX:
            logger.warning("the wall clock was set back; time stands still until it has caught up kept_ms=%d", kept_ms)
        self._clock.restore(kept_ms)
        self.kept_ms = kept_ms

    async def keep(self) -> None:
        """Make durable how far the clock has come by now.

        Raises:
            UnavailableError: The disk refused; what was kept before stands.
        """
        now_ms = self._clock.now_ms()
        if now_ms > self.kept_ms:
            await self._persister.save(FILE_NAME)
            self.kept_ms = max(self.kept_ms, now_ms)

    def encode(self) -> bytes:
        """The file's content."""
        return b'{"storeMs":%d}' % self._clock.now_ms()
