"""State rounds: has the state saved in the bucket when it has changed, `coldStateIntervalMs` apart at least.

    every interval          what changed? -> a snapshot; nothing: no request
    a round's entry         from half an interval on behind the last snapshot it carries the state, at no request
                            (carried_state.py); the next snapshot is an object again, one interval later
    half the reserve used   a snapshot at once, so that the log's ceiling moves on (log_reservation.py)
    one of two is no good   as many snapshots as it takes until both that are kept reserve the same (state_log.py)

The first round of a tier process looks at what is in the bucket, so a restart alone saves nothing anew; unless neither
snapshot there can be read, or more than EPOCHS_BACK_MAX writers have come since: it takes 16 requests for each to see
that it has saved nothing (newest_state.py). Failures are retried, with pauses that double; one line tells of the first,
unless it is the store that is away.
Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from thermocline.broker.state import PoppedOffsets, hold_back
from thermocline.broker.tier_process.state_capture import Captured, QueueEnds, StateCapture
from thermocline.remoting.errors import CorruptDataError, ObjectStoreUnavailableError, UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.records.message_record import RECORD_BYTES_MIN
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import StateCorruptError, StateTooNewError
from thermocline.tiered.state import (
    CARRIED_BYTES_MAX,
    STATE_FORMAT,
    CarriedState,
    StateLog,
    StateSnapshot,
    encode_carried,
)

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""How often the log's growth is looked at: one word in shared memory."""
RETRY_DELAY_MS = 2_000
RETRY_DELAY_MS_MAX = 30_000
EPOCHS_BACK_MAX = 16


class StateRounds:
    """See the module's header. `run` is its task."""

    def __init__(
        self,
        writer: LedgerWriter,
        log: StateLog,
        capture: StateCapture,
        *,
        ends: Callable[[], QueueEnds],
        reported_offset: Callable[[], PhysicalOffset],
        popped: Callable[[], Awaitable[PoppedOffsets]],
        append_offset: Callable[[], PhysicalOffset],
        saved: Callable[[PhysicalOffset], None],
        reserve_bytes: int,
        interval_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """`reported_offset`: that of the ends, when they are not wanted yet. `popped()` asks the hot process, which
        writes its files before it answers; `saved(log_ceiling)` tells it."""
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
        self._saved_ms: int | None = None
        """When the newest state was captured; None before this process has saved any."""
        self._is_carried = False
        """Whether a ledger entry has the newest state, so that an object is to follow."""
        self._retry_ms = RETRY_DELAY_MS
        self._last_error = ""

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            FencedError: Another writer has taken over this ledger.
        """
        pause_s = min(LOOK_INTERVAL_S, self._interval_ms / 1_000)
        while True:
            await self.save_due()
            left_s = (self._next_ms - self._clock()) / 1_000
            await asyncio.sleep(left_s if 0 < left_s < pause_s else pause_s)

    async def save_due(self) -> None:
        """Save the state if it is time to. Raises as `run`; other failures are retried by a later call."""
        if self._is_due():
            await self._try()

    async def carry(self) -> CarriedState | None:
        """The state for a ledger entry that is committed next; None when an object is to hold it, or it was saved a
        short time ago."""
        if self._saving.locked() or not self._may_carry():
            return None
        async with self._saving:
            newest, captured_ms = self._newest, self._clock()
            assert newest is not None
            try:
                captured = await self._capture_now()
            except (UnavailableError, CorruptDataError) as error:
                logger.debug("the ledger carries no state: %s", error)  # the next snapshot tells, if that goes on
                return None
            if self._is_half_used(newest):
                return None  # an object is due, which reserves more
            name = self._log.last_name
            snapshot = msgspec.structs.replace(
                self._snapshot(captured), epoch=name.epoch, sequence=name.sequence, captured_ms=captured_ms
            )
            assert snapshot.log_ceiling == newest.log_ceiling
            data = await asyncio.to_thread(encode_carried, snapshot)
        if len(data) > CARRIED_BYTES_MAX:
            return None

        def committed() -> None:
            if self._log.last_name != name:
                return  # an object that was captured later is there
            self._newest, self._is_carried = snapshot, True
            self._saved_ms, self._next_ms = captured_ms, captured_ms + self._interval_ms
            logger.info("state carried by the ledger bytes=%d log_offset=%d", len(data), snapshot.log_offset)

        return CarriedState(data=data, committed=committed)

    def _may_carry(self) -> bool:
        newest = self._newest
        if newest is None or self._saved_ms is None or self._is_carried or self._last_error or not self._is_reported:
            return False
        if self._clock() < self._saved_ms + self._interval_ms // 2:
            return False
        return self._log.reserved_ceiling >= newest.log_ceiling and not self._is_half_used(newest)

    async def renew(self) -> None:
        """Save the state, changed or not. Raises as `save`, and UnavailableError before all queues were reported."""
        if not self._is_reported:
            raise UnavailableError("the hot process has not reported its queues yet")
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
        captured_ms = self._clock()
        captured = await self._capture_now()
        snapshot = self._snapshot(captured)
        newest = self._newest
        is_news = newest is None or newest.log_ceiling != snapshot.log_ceiling or not snapshot.says_the_same(newest)
        is_far_back = newest is not None and self._writer.epoch - newest.epoch > EPOCHS_BACK_MAX
        is_due = is_forced or is_news or is_far_back or self._is_carried
        while is_due or self._log.reserved_ceiling < snapshot.log_ceiling:
            is_due, is_news = False, True
            snapshot = msgspec.structs.replace(snapshot, sequence=self._log.next_name().sequence)
            await self._log.write(snapshot)
            self._newest, self._is_carried = snapshot, False
        self._saved_ms = captured_ms
        self._saved(snapshot.log_ceiling)
        return is_news

    async def _capture_now(self) -> Captured:
        popped = await self._popped()
        captured = await asyncio.to_thread(self._capture.capture, self._ends(), popped=popped)
        # The file of offsets may have been written since the answer: behind messages that were popped since.
        later = hold_back(captured.documents, await self._popped())
        return msgspec.structs.replace(captured, documents=later)

    async def _last_saved(self) -> StateSnapshot | None:
        """The newest state in the bucket; None when neither snapshot can be read: the disk has the state then."""
        try:
            found = await self._log.newest()
            self._is_carried = found.is_carried
            return found.snapshot
        except StateTooNewError:
            raise
        except StateCorruptError as error:
            logger.warning("state saved anew: %s", error)
            return None

    def _is_due(self) -> bool:
        left_ms = self._next_ms - self._clock()
        # No wait is that long: the clock was set back, and it may take hours until it has caught up.
        was_set_back = left_ms > max(self._interval_ms, RETRY_DELAY_MS_MAX)
        if left_ms <= 0 or was_set_back:
            return self._is_reported
        return self._newest is not None and not self._last_error and self._is_half_used(self._newest)

    @property
    def _is_reported(self) -> bool:
        """Whether the hot process has reported every queue once; the state is incomplete before."""
        return self._reported_offset() > 0 or self._append_offset() == 0

    def _is_half_used(self, snapshot: StateSnapshot) -> bool:
        return snapshot.log_ceiling - self._append_offset() < self._reserve_bytes // 2

    async def _try(self) -> None:
        begun_ms = self._clock()
        try:
            await self.save()
        except (ObjectStoreUnavailableError, UnavailableError, CorruptDataError) as error:
            if not self._last_error and not isinstance(error, ObjectStoreUnavailableError):
                logger.warning("state not saved: %s", error)  # an outage of the store is logged separately
            self._last_error = str(error)
            self._next_ms = self._clock() + self._retry_ms
            self._retry_ms = min(self._retry_ms * 2, RETRY_DELAY_MS_MAX)
            return
        self._last_error, self._retry_ms = "", RETRY_DELAY_MS
        self._next_ms = begun_ms + self._interval_ms  # counted from when it was captured: so old it is then

    def _snapshot(self, captured: Captured) -> StateSnapshot:
        catalog, name = self._writer.catalog, self._log.next_name()
        ceiling = self._newest.log_ceiling if self._newest is not None else LOG_START
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
