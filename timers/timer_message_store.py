"""TimerMessageStore: messages that wait for their time.

    schedule    a sender's request -> the message to store instead                 timer_request.py
    step        queue -> units and slots; due ticks -> messages to put             timer_enqueue.py, timer_dequeue.py
    confirm     they are in the store
    rounds      progress made durable                                              timer_round.py

Its owner is the loop thread of the process that owns the store. A driver looks like this:

    while True:
        count = 0
        for message in timers.step():
            put message.draft; stop at the first that the store does not take now
            count += 1
        timers.confirm(count)                 # what is not confirmed comes again
        go on if has_more, else rest for idle_ms, or until on_scheduled

and beside it, every `round_interval_ms`: `begin_round`, `advance` until done, `commit` in a helper thread, `end_round`.
Every call does a slice of work: a few ms at most, whatever waits.

What is promised
  - A message that was stored in the timer topic is put at least once, after its time. Twice only when the process died
    in between, and only what was put since the last round. A clean stop repeats nothing.
  - A message is late by at most ten seconds because the clock was set back: see set_back.py.
  - Retention that stops at `held_offset` deletes no record that a pending message needs; `release_below` raises it.
After a failed sync there are no rounds: messages go out as before, nothing is let go of, and the next start repeats
what was delivered since.
Source: TimerMessageStore.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

import msgspec

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.handles import RecallHandle
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.socket_address import Host
from thermocline.store.files import Disk
from thermocline.store.log import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.timers.due_message import DueMessage
from thermocline.timers.errors import TimerCongestedError
from thermocline.timers.held_records import HeldRecords
from thermocline.timers.open_slot import SlotProgress
from thermocline.timers.recall import recall_marker
from thermocline.timers.set_back import SET_BACK_MS, SetBack
from thermocline.timers.taken_back import TakenBackTimers
from thermocline.timers.timer_checkpoint import OwnPart, TimerCheckpoint
from thermocline.timers.timer_config import COUNT_MAX, TimerConfig
from thermocline.timers.timer_dequeue import TimerDequeue
from thermocline.timers.timer_enqueue import TimerEnqueue
from thermocline.timers.timer_log import TimerUnit
from thermocline.timers.timer_metrics import PendingCount, TimerMetrics
from thermocline.timers.timer_record import read_record
from thermocline.timers.timer_recovery import RecoveredTimers, TimerRecovery
from thermocline.timers.timer_request import due_tick_ms, requested_ms, timed_draft
from thermocline.timers.timer_round import TimerRound

logger = logging.getLogger(__name__)

ENQUEUE_SLICE = 150
LOAD_SLICE = 500
DUE_SLICE = 64
PASS_SLICE = 500
COUNT_SLICE = 500
RELEASE_TURN = 4
"""Every so many steps a release goes before what is due, so that the disk gets room however much is due."""
WAIT_STEPS_MAX = 10
"""How long a backlog of entries without a slot may hold up the opening of ticks, in steps."""
CATCH_UP_STEPS_MAX = 100_000
"""The same after a start: 15 million entries."""
METRICS_INTERVAL_MS = 10_000


class TimerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where the timers are, for runtime information."""

    read_behind_ms: int = 0
    """How far the open tick is behind the clock."""
    queue_behind_count: int = 0
    """Messages that have no slot yet."""
    pending_count: int = 0
    """Messages that wait in slots."""
    enqueued_count: int = 0
    """Since the start."""
    delivered_count: int = 0
    """Since the start; rolls not included."""


def _nobody_waits() -> None:
    """The default of `on_scheduled`."""


class TimerMessageStore:
    """Open timers. `open` and `close` frame their life, within that of the store."""

    def __init__(
        self,
        store: MessageStore,
        disk: Disk,
        config: TimerConfig,
        recovered: RecoveredTimers,
        *,
        clock: Callable[[], int],
        random: Callable[[], float],
    ) -> None:
        """Use `open`."""
        self.config = config
        """The settings of the limits; see `follow`."""
        self.metrics = TimerMetrics.load(disk, config.metrics_path)
        self.has_more = True
        """Whether the last step has left work that can be done at once."""
        self.on_scheduled: Callable[[], None] = _nobody_waits
        """Called when a message is about to be stored that has to get its slot. For the driver to set."""
        self._store = store
        self._disk = disk
        self._clock = clock
        self._random = random
        self._log = recovered.log
        self._wheel = recovered.wheel
        self._dequeue = TimerDequeue(
            store,
            self._log,
            self._wheel,
            self.metrics,
            config,
            slot_ms=recovered.read_time_ms,
            progress=recovered.progress,
        )
        self._enqueue = TimerEnqueue(
            store,
            self._log,
            self._wheel,
            self.metrics,
            self._dequeue,
            config,
            queue_offset=recovered.queue_offset,
            delivered_before=recovered.delivered_before,
        )
        self._held = HeldRecords(
            store,
            self._log,
            self.metrics,
            self._enqueue,
            self._dequeue,
            position=recovered.held_position,
            precision_ms=config.precision_ms,
        )
        self._pending_count = PendingCount(
            self.metrics,
            self._log,
            start=recovered.held_position,
            end=self._log.append_position,
            is_out=recovered.is_out(config.precision_ms),
            topic_of=self._topic_of,
        )
        self._durable = recovered.checkpoint or TimerCheckpoint()
        self._wheel_position = recovered.wheel_position
        self._is_covered = False
        self._failure: str | None = None
        self._steps = 0
        self._waited_steps = -CATCH_UP_STEPS_MAX
        self._set_back: SetBack | None = None
        self._metrics_due_ms = 0
        self._is_closed = False

    @classmethod
    def open(
        cls,
        store: MessageStore,
        config: TimerConfig,
        *,
        disk: Disk,
        clock: Callable[[], int],
        random: Callable[[], float],
        taken_back: TakenBackTimers | None = None,
    ) -> TimerMessageStore:
        """Open the timers of an open store, recovering whatever state they were left in.

        `clock`: milliseconds since 1970; it may be set back. `random`: [0, 1), for refusals under congestion.
        `taken_back`: what another broker has delivered in this one's place.

        Raises:
            CorruptDataError: The timer log is damaged. Without its folder the topic's queue is enqueued again.
            DiskFullError, OSError: A file cannot be written.
        """
        with ExitStack() as resources:
            recovered = TimerRecovery(store, disk, config, now_ms=clock(), taken_back=taken_back).run()
            resources.callback(recovered.log.close)
            resources.callback(recovered.wheel.close)
            timers = cls(store, disk, config, recovered, clock=clock, random=random)
            if recovered.checkpoint is None:
                # From here on our own rules of recovery apply.
                timers.run_round(is_forced=True)
            resources.pop_all()
        logger.info(
            "timers open read_time_ms=%d queue_offset=%d log_position=%d replayed=%d",
            recovered.read_time_ms,
            recovered.queue_offset,
            recovered.log.append_position,
            recovered.replayed_count,
        )
        return timers

    def close(self) -> None:
        """Make everything durable and close; before the store is closed. Idempotent.

        Raises:
            StoreClosedError, OSError, DiskFullError: Something could not be made durable; all is closed all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._metrics_due_ms = 0
            with suppress(CorruptDataError):  # then the next start finds the state from before
                while self._set_back is not None and self._step_set_back(self._set_back):
                    continue
            while self.run_round():
                continue
        finally:
            self._log.close()
            self._wheel.close()

    def follow(self, config: TimerConfig) -> None:
        """Refuse by these limits from now on; precision, files and rounds stay as they were opened."""
        self.config = replace(
            self.config,
            delay_ms_max=config.delay_ms_max,
            slot_count_max=config.slot_count_max,
            topic_in_delete_key=config.topic_in_delete_key,
        )

    # -- scheduling ------------------------------------------------------------------------------------------------

    def schedule(self, draft: MessageDraft, properties: Mapping[str, str]) -> MessageDraft | None:
        """The draft to store for a message that asks for a time (`is_timer_request`); None: store it as it is, now.

        Raises:
            MessageIllegalError: The time is no number or too far away, or a recall marker's time has come.
            TimerCongestedError: Too many messages are due in its tick.
        """
        now_ms = self._clock()
        timed = timed_draft(draft, properties, self.config, now_ms=now_ms)
        has_limit = self.config.slot_count_max < COUNT_MAX
        if has_limit and timed is not None and PropertyName.TIMER_DELETE_UNIQUE_KEY not in properties:
            deliver_ms = requested_ms(properties, now_ms=now_ms, delay_ms_max=self.config.delay_ms_max)
            self._check_room(due_tick_ms(deliver_ms, self.config.precision_ms))
        if timed is not None:
            self.on_scheduled()
        return timed

    def recall(
        self, handle: RecallHandle, *, topic: str, broker_name: str, producer_group: str | None, born_host: Host
    ) -> MessageDraft:
        """The marker to store for a recall. Raises as `recall_marker`."""
        marker = recall_marker(
            handle,
            self.config,
            topic=topic,
            broker_name=broker_name,
            producer_group=producer_group,
            born_host=born_host,
            now_ms=self._clock(),
        )
        self.on_scheduled()
        return marker

    def _check_room(self, tick_ms: int) -> None:
        limit = self.config.slot_count_max
        slot = self._wheel.slot(tick_ms)
        count = 0 if slot is None else slot.count
        if count > limit and (count >= 2 * limit or self._random() * limit < count - limit):
            raise TimerCongestedError(
                f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater "
                f"than {limit} and less than {2 * limit}, trigger random flow control"
            )

    # -- stepping --------------------------------------------------------------------------------------------------

    def step(self) -> list[DueMessage]:
        """Do a slice of everything; the messages to put now, in this order. Those not confirmed are given again.

        Raises:
            CorruptDataError: Timer log or wheel are damaged. Nothing is lost: see `open`.
        """
        now_ms = self._clock()
        self._steps += 1
        enqueue, dequeue, held = self._enqueue, self._dequeue, self._held
        is_waiting = dequeue.unconfirmed_count or held.unconfirmed_count
        if self._set_back is None and not is_waiting and now_ms < dequeue.slot_ms - SET_BACK_MS:
            self._set_back = self._begin_set_back(now_ms)
        if self._set_back is not None:
            self.has_more = self._step_set_back(self._set_back)
            return []
        enqueue.step(now_ms, count_max=ENQUEUE_SLICE)
        has_opened = False
        if not is_waiting and self._may_advance():
            has_opened = dequeue.advance(now_ms, units_max=LOAD_SLICE)
        due: list[DueMessage] = []
        if not dequeue.unconfirmed_count and (held.unconfirmed_count or self._steps % RELEASE_TURN == 0):
            due = held.step(now_ms, units_max=PASS_SLICE, count_max=DUE_SLICE)
        if not due:
            due = dequeue.due(now_ms, count_max=DUE_SLICE)
        if not due:
            due = held.step(now_ms, units_max=PASS_SLICE, count_max=DUE_SLICE)
        if not due and not self._pending_count.is_done:
            self._pending_count.step(COUNT_SLICE, now_ms=now_ms)
        self.has_more = bool(
            due
            or has_opened
            or enqueue.has_more
            or dequeue.has_more
            or held.has_more
            or not self._pending_count.is_done
        )
        return due

    def _begin_set_back(self, now_ms: int) -> SetBack:
        return SetBack(
            self._store.commit_log,
            self._log,
            self._wheel,
            self.config,
            now_ms=now_ms,
            held_position=self._held.position,
            slot_ms=self._dequeue.slot_ms,
            progress=self._dequeue.progress,
        )

    def _step_set_back(self, set_back: SetBack) -> bool:
        """Go on with a clock that was set back; False if there is no room for that now."""
        if not self._log.make_room():
            return False
        if set_back.step(LOAD_SLICE):
            self._held.pass_to(set_back.end_position)
            self._dequeue.set_back(set_back.slot_ms)
            self._enqueue.set_back(set_back.slot_ms)
            self._set_back = None
        return True

    def _may_advance(self) -> bool:
        """Whether a tick may be opened or closed: when what was sent before has its slot, so that a message and its
        recall marker meet. After the start that is waited for; later a backlog holds ticks up for a while only."""
        if not self._enqueue.has_more:
            self._waited_steps = 0
        elif self._waited_steps < WAIT_STEPS_MAX:
            self._waited_steps += 1
            return False
        return True

    @property
    def idle_ms(self) -> int:
        """How long there is nothing to do when the last step has left nothing, and nothing is stored meanwhile."""
        return max(0, self._dequeue.next_ms - self._clock())

    @property
    def is_between_ticks(self) -> bool:
        """Whether nothing of the open tick has gone out yet: then the read time says all about what has."""
        return self._dequeue.progress == SlotProgress()

    def confirm(self, count: int) -> None:
        """The first `count` messages of the last step are in the store, or can never be."""
        now_ms = self._clock()
        if self._held.unconfirmed_count:
            self._held.confirm(count, now_ms=now_ms)
        else:
            self._dequeue.confirm(count, now_ms=now_ms)

    # -- the log that is held --------------------------------------------------------------------------------------

    @property
    def held_offset(self) -> PhysicalOffset:
        """The physical offset below which no message needs the log, whatever happens to this process.

        Raises:
            CorruptDataError: The timer log is damaged.
        """
        return self._held.offset_after(self._durable)

    def release_below(self, physical_offset: PhysicalOffset) -> None:
        """Put what is pending below this offset into the log again, so that `held_offset` rises to it: in slices, and
        not faster than the log grows by other messages. To be called again for as long as it is wanted."""
        self._held.release_below(physical_offset)

    @property
    def is_release_wanted(self) -> bool:
        """Whether messages still hold log files that `release_below` has requested: then every put helps to make room.

        Raises:
            CorruptDataError: The timer log is damaged.
        """
        return self.held_offset < self._held.wanted_offset

    # -- rounds ----------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why nothing is made durable any more; None while it is."""
        return self._failure

    def begin_round(self, *, is_forced: bool = False) -> TimerRound | None:
        """A round, when there is something to make durable: `advance` it, `commit` it in a helper thread, then
        `end_round`, whatever came of it. One at a time.

        Raises:
            DiskFullError: There is no room for the timer log; the same call may work later.
        """
        if self._failure is not None or self._set_back is not None or not (is_forced or self._has_progress()):
            return None
        now_ms = self._clock()
        log_position = self._log.write()
        if self._is_covered:
            self._wheel_position = self._durable.log_position
        self._wheel.begin_round(was_covered=self._is_covered)
        self._is_covered = False
        metrics = None
        if self._pending_count.is_done:
            if self._durable.own is not None:
                self._log.forget_before(self._durable.own.held_position)
            if now_ms >= self._metrics_due_ms:
                metrics = self.metrics.take_unsaved()
                self._metrics_due_ms = now_ms + METRICS_INTERVAL_MS
        return TimerRound(
            self._disk,
            self.config,
            commit_log=self._store.commit_log,
            log=self._log,
            wheel=self._wheel,
            checkpoint=TimerCheckpoint(
                read_time_ms=self._dequeue.slot_ms,
                log_position=log_position,
                queue_offset=self._enqueue.queue_offset,
                timestamp_ms=now_ms,
                number=self._durable.number + 1,
                own=OwnPart(
                    wheel_position=self._wheel_position,
                    held_position=self._held.position,
                    progress=self._dequeue.progress,
                    precision_ms=self.config.precision_ms,
                ),
            ),
            metrics=metrics,
        )

    def end_round(self, ended: TimerRound, *, committed: bool) -> None:
        """Take notice of a round's end."""
        if committed:
            self._wheel.end_round()
            self._durable = ended.checkpoint
            self._is_covered = True
        elif ended.is_committing:
            self._failure = "the disk failed"
            logger.error("timers make nothing durable until restart; deliveries since will repeat then")

    def run_round(self, *, is_forced: bool = False) -> bool:
        """A whole round in the calling thread; whether there was something to do. Raises as its parts."""
        timer_round = self.begin_round(is_forced=is_forced)
        if timer_round is None:
            return False
        committed = False
        try:
            while not timer_round.advance():
                continue
            timer_round.commit()
            committed = True
        finally:
            self.end_round(timer_round, committed=committed)
        return True

    def _has_progress(self) -> bool:
        """Whether a crash would repeat work, or the wheel's file lacks something."""
        durable, own, dequeue = self._durable, self._durable.own, self._dequeue
        return (
            own is None
            or durable.queue_offset != self._enqueue.queue_offset
            or durable.log_position != self._log.append_position
            or own.held_position != self._held.position
            or durable.read_time_ms <= dequeue.delivered_ms
            or (dequeue.progress != SlotProgress() and own.progress != dequeue.progress)
            or self._wheel.is_dirty
        )

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """The durable progress."""
        return self._durable

    def status(self) -> TimerStatus:
        """Where the timers are."""
        return TimerStatus(
            read_behind_ms=max(0, self._clock() - self._dequeue.slot_ms),
            queue_behind_count=self._enqueue.behind_count,
            pending_count=max(0, self.metrics.total),
            enqueued_count=self._enqueue.enqueued_count,
            delivered_count=self._dequeue.delivered_count,
        )

    def _topic_of(self, unit: TimerUnit) -> str | None:
        try:
            record = read_record(self._store.commit_log, unit.physical_offset, unit.record_bytes)
        except (CorruptDataError, OffsetOutOfRangeError):
            return None  # its slot will say so
        return record.property_text(PropertyName.REAL_TOPIC)
