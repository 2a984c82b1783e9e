"""State rounds: has the state saved in the bucket when it has changed, `coldStateIntervalMs` apart at least.

    every interval          what changed? -> a snapshot; nothing: no request
    half the reserve used   a snapshot at once, so that the log's ceiling moves on (log_reservation.py)
    one of two is no good   as many snapshots as it takes until both that are kept reserve the same (state_log.py)

The first round of a tier process looks at what is in the bucket, so a restart alone saves nothing anew; unless neither
snapshot there can be read. Failures are retried, with pauses that double; one line tells of the first, unless it is the
store that is away.
Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from thermocline.broker.state import PoppedOffsets
from thermocline.broker.tier_process.state_capture import Captured, QueueEnds, StateCapture
from thermocline.remoting.errors import CorruptDataError, ObjectStoreUnavailableError, UnavailableError
from thermocline.remoting.message_record import RECORD_BYTES_MIN
from thermocline.tiered.errors import StateCorruptError, StateTooNewError
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.state.snapshot import STATE_FORMAT, StateSnapshot
from thermocline.tiered.state.state_log import StateLog

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""How often the log's growth is looked at: one word in shared memory."""
RETRY_DELAY_MS = 2_000
RETRY_DELAY_MS_MAX = 30_000


class StateRounds:
    """See the module's header. `run` is its task."""

    def __init__(
        self,
        writer: LedgerWriter,
        log: StateLog,
        capture: StateCapture,
        *,
        ends: Callable[[], QueueEnds],
        reported_offset: Callable[[], int],
        popped: Callable[[], Awaitable[PoppedOffsets]],
        append_offset: Callable[[], int],
        saved: Callable[[int], None],
        reserve_bytes: int,
        interval_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """`reported_offset`: that of the ends, when they are not wanted yet. `popped()` asks the hot process;
        `saved(log_ceiling)` tells it."""
        self._writer = writer
        self._log = log
        self._capture = capture
        self._ends = ends
        self._reported_offset = reported_offset
        self._popped = popped
        self._append_offset = append_offset
        self._saved = saved
        self._reserve_bytes = reserve_bytes
        self._interval_ms = interval_ms
        self._clock = clock
        self._newest: StateSnapshot | None = None
        self._saving = asyncio.Lock()
        self._has_looked = False
        self._next_ms = 0
        self._retry_ms = RETRY_DELAY_MS
        self._last_error = ""

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            FencedError: Another writer has taken over this ledger.
        """
        pause_s = min(LOOK_INTERVAL_S, self._interval_ms / 1_000)
        while True:
            if self._is_due():
                await self._try()
            await asyncio.sleep(pause_s)

    async def renew(self) -> None:
        """Save the state, changed or not. Raises as `save`, and UnavailableError before the hot process has told it."""
        if not self._is_told:
            raise UnavailableError("the hot process has not told of its queues yet")
        await self.save(is_forced=True)

    async def save(self, *, is_forced: bool = False) -> bool:
        """Save the state if it has changed, or has to reserve more; whether that was so. One at a time.

        Raises:
            FencedError: Another writer has taken over this ledger.
            ObjectStoreUnavailableError, UnavailableError: The bucket or the hot process did not answer.
            CorruptDataError: A state file cannot be read, or a later version has written the state in the bucket.
        """
        async with self._saving:
            return await self._save(is_forced=is_forced)

    async def _save(self, *, is_forced: bool) -> bool:
        if not self._has_looked:
            self._newest = await self._last_saved()
            self._has_looked = True
        popped = await self._popped()
        captured = await asyncio.to_thread(self._capture.capture, self._ends(), popped=popped)
        snapshot = self._snapshot(captured)
        newest = self._newest
        is_news = newest is None or newest.log_ceiling != snapshot.log_ceiling or not snapshot.says_the_same(newest)
        is_due = is_forced or is_news
        while is_due or self._log.reserved_ceiling < snapshot.log_ceiling:
            is_due, is_news = False, True
            snapshot = msgspec.structs.replace(snapshot, sequence=self._log.next_name().sequence)
            await self._log.write(snapshot)
            self._newest = snapshot
        self._saved(snapshot.log_ceiling)
        return is_news

    async def _last_saved(self) -> StateSnapshot | None:
        """What the bucket says; None when neither of the two can be read: what the broker is stands on its own disk."""
        try:
            return (await self._log.newest()).snapshot
        except StateTooNewError:
            raise
        except StateCorruptError as error:
            logger.warning("state saved anew: %s", error)
            return None

    def _is_due(self) -> bool:
        if self._clock() >= self._next_ms:
            return self._is_told
        return self._newest is not None and not self._last_error and self._is_half_used(self._newest)

    @property
    def _is_told(self) -> bool:
        """Nothing is complete before the hot process has told of every queue once."""
        return self._reported_offset() > 0 or self._append_offset() == 0

    def _is_half_used(self, snapshot: StateSnapshot) -> bool:
        return snapshot.log_ceiling - self._append_offset() < self._reserve_bytes // 2

    async def _try(self) -> None:
        try:
            await self.save()
        except (ObjectStoreUnavailableError, UnavailableError, CorruptDataError) as error:
            if not self._last_error and not isinstance(error, ObjectStoreUnavailableError):
                logger.warning("state not saved: %s", error)  # an outage of the store is told of by itself
            self._last_error = str(error)
            self._next_ms = self._clock() + self._retry_ms
            self._retry_ms = min(self._retry_ms * 2, RETRY_DELAY_MS_MAX)
            return
        self._last_error, self._retry_ms = "", RETRY_DELAY_MS
        self._next_ms = self._clock() + self._interval_ms

    def _snapshot(self, captured: Captured) -> StateSnapshot:
        catalog, name = self._writer.catalog, self._log.next_name()
        ceiling = self._newest.log_ceiling if self._newest is not None else 0
        if self._newest is None or self._is_half_used(self._newest):
            ceiling = max(ceiling, self._append_offset() + self._reserve_bytes)
        return StateSnapshot(
            format=STATE_FORMAT,
            epoch=name.epoch,
            sequence=name.sequence,
            store_uuid=catalog.store_uuid,
            cluster=catalog.cluster,
            broker_name=catalog.broker_name,
            captured_ms=self._clock(),
            log_offset=captured.log_offset,
            log_ceiling=ceiling,
            record_bytes_min=RECORD_BYTES_MIN,
            new_queue_offset=captured.new_queue_offset,
            last_incarnation=captured.last_incarnation,
            topics=captured.topics,
            documents=captured.documents,
        )
