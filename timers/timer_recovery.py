"""Timer recovery: bring wheel, timer log and queue offset to one state, however they were left.

Ours, when the checkpoint's own part counts:
  1. The checkpoint is written again, since a process that died may have left one that never reached the disk.
  2. The timer log ends at the checkpoint's position; later units are cut off. Units carry no checksum.
  3. Units between the checkpoint's wheel position and that end are put into the wheel, those of delivered ticks left
     out. A slot that has them already is written anew all the same.
  4. Enqueueing goes on at the checkpoint's queue offset.
  A wheel that is gone is made from all units from the held position on.
RocketMQ's, when it has written last:
  1. The timer log ends at the first position without a unit, or behind the checkpoint at the first whose record is no
     timed message of that size.
  2. The wheel is made anew from all units that are not delivered: whatever state its own was left in.
  3. Enqueueing goes on behind the last unit's message.
Neither: there is no checkpoint, or files of the timer log are gone. The queue is enqueued again from its start.
Messages that the checkpoint counts as delivered are left out, and those that are in their real queues
(delivered_copies.py); rolled ones may come twice.
What another broker has delivered in this one's place (`TakenBackTimers`) counts as delivered. Messages that it never
had, and that were due meanwhile, go into the tick at its read time.
Source: TimerMessageStore.java (recover, reviseQueueOffset), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import msgspec

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.timers.delivered_copies import DeliveredCopies
from thermocline.timers.open_slot import OpenSlot, SlotProgress
from thermocline.timers.sync_site import TimerSyncSite
from thermocline.timers.taken_back import DELIVERED_MARGIN_MS, TakenBackTimers
from thermocline.timers.timer_checkpoint import OwnPart, TimerCheckpoint
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_enqueue import DeliveredBefore
from thermocline.timers.timer_log import DELAY_MS_MAX, NO_POSITION, TimerLog, TimerUnit
from thermocline.timers.timer_record import read_record
from thermocline.timers.timer_request import TIMER_QUEUE_ID
from thermocline.timers.timer_wheel import TimerWheel, usable

logger = logging.getLogger(__name__)


class RecoveredTimers(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything goes on."""

    log: TimerLog
    wheel: TimerWheel
    read_time_ms: int
    progress: SlotProgress
    """The delivered part of the tick at the read time."""
    queue_offset: QueueOffset
    held_position: int
    wheel_position: int
    """Units below it are in the wheel's file; those behind it only in memory yet."""
    checkpoint: TimerCheckpoint | None
    """The durable one, when it is ours and tells about these files; None: the first round has to come at once."""
    delivered_before: DeliveredBefore
    replayed_count: int
    """Units that were put into the wheel."""

    def is_out(self, precision_ms: int) -> Callable[[TimerUnit], bool]:
        """Tells whether a unit had gone out before."""
        read_time_ms = self.read_time_ms
        slot = OpenSlot(read_time_ms, precision_ms=precision_ms, progress=self.progress)

        def is_out(unit: TimerUnit) -> bool:
            if unit.slot_ms < read_time_ms:
                return True
            # A marker counts until its tick is closed.
            is_open = unit.slot_ms < read_time_ms + precision_ms and (unit.is_roll or not unit.is_marker)
            return is_open and slot.is_out(unit.position, unit.deliver_ms)

        return is_out


class TimerRecovery:
    """One recovery. `run` once, before anything else touches the files."""

    def __init__(
        self,
        store: MessageStore,
        disk: Disk,
        config: TimerConfig,
        *,
        now_ms: int,
        taken_back: TakenBackTimers | None = None,
    ) -> None:
        """`taken_back`: what another broker has delivered in this one's place."""
        self._taken_back = taken_back
        self._store = store
        self._disk = disk
        self._config = config
        self._now_ms = now_ms
        self._replayed_count = 0

    def run(self) -> RecoveredTimers:
        """Recover; the timer log can be appended to, the wheel holds every unit that is pending.

        Raises:
            CorruptDataError: A unit that should be there is none, a file of the timer log is missing in the middle, or
                messages wait that were enqueued with another precision or file length.
            OSError: A file cannot be written.
        """
        disk, config = self._disk, self._config
        disk.make_directory(config.log_path)
        # At every start: one before this may have died between making the folder and syncing its name.
        disk.sync_directory(config.root_path, site=TimerSyncSite.ROOT_DIRECTORY)
        checkpoint = TimerCheckpoint.load(disk, config.checkpoint_path)
        own = None if checkpoint is None else checkpoint.own
        log = TimerLog.open(
            disk,
            config.log_path,
            file_bytes=config.log_file_bytes,
            start=own.held_position if own is not None else 0,
            end=checkpoint.log_position if checkpoint is not None and own is not None else None,
        )
        try:
            recovered = self._run(log, checkpoint)
            return recovered if self._taken_back is None else self._take_back(recovered, self._taken_back)
        except BaseException:
            log.close()
            raise

    def _run(self, log: TimerLog, checkpoint: TimerCheckpoint | None) -> RecoveredTimers:
        if checkpoint is None:
            return self._begin_anew(log, None)
        own = checkpoint.own
        if own is None:
            if log.files_end < checkpoint.log_position:
                return self._begin_anew(log, checkpoint)
            return self._take_over(log, checkpoint)
        is_lost = log.files_end < checkpoint.log_position or log.start_position > own.held_position or log.has_gap
        if own.held_position < checkpoint.log_position:
            if own.precision_ms != self._config.precision_ms:
                raise CorruptDataError(
                    "messages wait in a timer wheel of another precision",
                    precision_ms=own.precision_ms,
                    configured_ms=self._config.precision_ms,
                )
            if is_lost:
                return self._begin_anew(log, checkpoint)
        return self._go_on(log, checkpoint, own, is_lost=is_lost)

    def _go_on(self, log: TimerLog, checkpoint: TimerCheckpoint, own: OwnPart, *, is_lost: bool) -> RecoveredTimers:
        config = self._config
        if not usable(self._disk, config.wheel_path, slot_count=config.wheel_slots):
            # Before there is an empty wheel that looks like a good one.
            logger.warning("timer wheel is made anew held_position=%d", own.held_position)
            own = replace(own, wheel_position=own.held_position)
            checkpoint = replace(checkpoint, own=own)
        checkpoint.save(self._disk, config.checkpoint_path)
        if is_lost:  # and nothing in it was pending
            log.clear(checkpoint.log_position)
        else:
            log.start(checkpoint.log_position)
        wheel = self._open_wheel()
        held_position = min(max(own.held_position, log.start_position), log.append_position)
        wheel_position = max(own.wheel_position, held_position)
        read_time_ms = self._tick_of(checkpoint.read_time_ms)
        self._replay(log, wheel, wheel_position, read_time_ms)
        return RecoveredTimers(
            log=log,
            wheel=wheel,
            read_time_ms=read_time_ms,
            queue_offset=self._within_queue(checkpoint.queue_offset),
            held_position=held_position,
            wheel_position=wheel_position,
            progress=SlotProgress() if is_lost or own.precision_ms != config.precision_ms else own.progress,
            checkpoint=None if is_lost else checkpoint,
            delivered_before=DeliveredBefore(),
            replayed_count=self._replayed_count,
        )

    def _take_over(self, log: TimerLog, checkpoint: TimerCheckpoint) -> RecoveredTimers:
        logger.info("timers taken over from Apache RocketMQ read_time_ms=%d", checkpoint.read_time_ms)
        read_time_ms = self._tick_of(checkpoint.read_time_ms)
        queue_offset = checkpoint.queue_offset
        end = log.first_impossible(log.start_position)
        log.start(end)
        position = log.start_position
        while position < log.append_position:
            unit = log.unit(position)
            if position >= checkpoint.log_position:
                try:
                    record = read_record(self._store.commit_log, unit.physical_offset, unit.record_bytes)
                except (CorruptDataError, OffsetOutOfRangeError) as error:
                    logger.warning("timer log cut position=%d end=%d error=%s", position, end, error)
                    log.start(position)
                    break
                queue_offset = max(queue_offset, record.queue_offset + 1)
            position = log.next_position(position)
        wheel = self._open_wheel()
        wheel.clear()
        self._replay(log, wheel, log.start_position, read_time_ms)
        return RecoveredTimers(
            log=log,
            wheel=wheel,
            read_time_ms=read_time_ms,
            queue_offset=self._within_queue(queue_offset),
            held_position=log.start_position,
            wheel_position=log.start_position,
            progress=SlotProgress(),
            checkpoint=None,
            delivered_before=DeliveredBefore(),
            replayed_count=self._replayed_count,
        )

    def _begin_anew(self, log: TimerLog, checkpoint: TimerCheckpoint | None) -> RecoveredTimers:
        queue = self._store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)
        min_offset = QUEUE_START if queue is None else queue.min_offset
        if queue is not None and queue.next_offset > min_offset:
            logger.warning("timers are enqueued again from_offset=%d end_offset=%d", min_offset, queue.next_offset)
        start = checkpoint or TimerCheckpoint()
        log.clear(start.log_position)
        wheel = self._open_wheel()
        wheel.clear()
        return RecoveredTimers(
            log=log,
            wheel=wheel,
            # Without a checkpoint nothing is known to be delivered: what was due comes into the first tick.
            read_time_ms=self._tick_of(start.read_time_ms or self._now_ms),
            queue_offset=min_offset,
            held_position=log.append_position,
            wheel_position=log.append_position,
            progress=SlotProgress(),
            checkpoint=None,
            delivered_before=self._delivered_before(checkpoint),
            replayed_count=0,
        )

    def _delivered_before(self, checkpoint: TimerCheckpoint | None) -> DeliveredBefore:
        """What is known of messages that are enqueued again."""
        if checkpoint is None:
            return DeliveredBefore()
        time_ms = max(0, checkpoint.read_time_ms - DELIVERED_MARGIN_MS)
        queue = self._store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)
        return DeliveredBefore(
            queue_offset=checkpoint.queue_offset,
            time_ms=time_ms,
            copies=DeliveredCopies(self._store, since_ms=time_ms),
            end_offset=QUEUE_START if queue is None else queue.next_offset,
            # The clock of the broker that delivered may have been ahead.
            until_ms=max(self._now_ms, self._store.clock.last_ms),
        )

    def _take_back(self, recovered: RecoveredTimers, taken: TakenBackTimers) -> RecoveredTimers:
        read_time_ms = self._tick_of(taken.read_time_ms)
        if read_time_ms <= recovered.read_time_ms:
            return recovered
        log, wheel = recovered.log, recovered.wheel
        queue = self._store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)
        first = QUEUE_START if queue is None else queue.first_at_or_behind(taken.log_start, start=queue.min_offset)
        # Records before the start of the other broker's log were not there, nor those from `unknown_offset` on.
        unknown_offset = self._store.commit_log.append_offset
        if queue is not None and taken.queue_offset < queue.next_offset:
            unknown_offset = queue.unit(max(taken.queue_offset, queue.min_offset)).physical_offset
        is_out = recovered.is_out(self._config.precision_ms)
        carried = [
            unit
            for unit in log.units(recovered.held_position, log.append_position)
            if not taken.log_start <= unit.physical_offset < unknown_offset
            and unit.slot_ms < read_time_ms
            and not is_out(unit)
        ]
        for unit in carried:
            slot = wheel.slot(read_time_ms)
            position = log.append(
                previous_position=NO_POSITION if slot is None else slot.last_position,
                magic=unit.magic,
                base_ms=unit.base_ms if 0 <= read_time_ms - unit.base_ms <= DELAY_MS_MAX else read_time_ms,
                slot_ms=read_time_ms,
                physical_offset=unit.physical_offset,
                record_bytes=unit.record_bytes,
                topic_hash=unit.topic_hash,
                deliver_ms=0,
            )
            wheel.add(read_time_ms, position, count=-1 if unit.is_marker else 1)
        logger.info(
            "timed messages were delivered elsewhere from_ms=%d to_ms=%d not_there=%d",
            recovered.read_time_ms,
            read_time_ms,
            len(carried),
        )
        return msgspec.structs.replace(
            recovered,
            read_time_ms=read_time_ms,
            progress=SlotProgress(),
            checkpoint=None,
            delivered_before=msgspec.structs.replace(
                recovered.delivered_before, first=first, queue_offset=taken.queue_offset, time_ms=read_time_ms
            ),
            replayed_count=recovered.replayed_count + len(carried),
        )

    def _open_wheel(self) -> TimerWheel:
        config = self._config
        return TimerWheel.open(
            self._disk, config.wheel_path, slot_count=config.wheel_slots, precision_ms=config.precision_ms
        )

    def _replay(self, log: TimerLog, wheel: TimerWheel, start: int, read_time_ms: int) -> None:
        for unit in log.units(start, log.append_position):
            if unit.slot_ms >= read_time_ms:
                wheel.add_again(unit.slot_ms, unit.position, count=-1 if unit.is_marker else 1)
                self._replayed_count += 1

    def _within_queue(self, queue_offset: QueueOffset) -> QueueOffset:
        queue = self._store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)
        if queue is None:
            return QUEUE_START
        corrected = min(max(queue_offset, queue.min_offset), queue.next_offset)
        if corrected != queue_offset:
            logger.error("timer queue offset corrected from=%d to=%d", queue_offset, corrected)
        return corrected

    def _tick_of(self, time_ms: int) -> int:
        return time_ms // self._config.precision_ms * self._config.precision_ms
