"""Set back: brings the open tick back to a clock that was set back behind it.

While the clock was ahead, all ticks up to its time were opened and closed. New messages come into the open tick if
their own is closed, so they would wait until the clock is there again: a year, after an error of a year.

What is pending gets new units behind the end of the timer log, oldest first, a slice at a time:

    in the tick of TIMER_OUT_MS     units of the tick that was open, as some may have come late into it
    as a ROLL, a roll window ahead  units beyond the wheel as it is from the new open tick on
    in the same tick                all others

Then the units before that end are not needed any more, and the open tick is that of the clock. What went out while the
clock was ahead does not come again: slots point to units before that end, where each walk along a chain stops.

Nothing is enqueued, delivered or made durable meanwhile: a crash leaves the state from before.
Owner: the loop thread.
Source: ours. RocketMQ delivers new messages at once until the clock is there again.
"""

from __future__ import annotations

import logging

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.store.log import CommitLog
from thermocline.timers.open_slot import OpenSlot, SlotProgress
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_log import DELAY_MS_MAX, MAGIC_ROLL, NO_POSITION, TimerLog, TimerUnit
from thermocline.timers.timer_record import read_timer_record
from thermocline.timers.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

SET_BACK_MS = 10_000
"""By how much the clock must be behind the open tick. Less is waited for."""


class SetBack:
    """One time that the clock was set back. Call `step` until it returns True; then `end_position` and `slot_ms` say
    where the timers go on."""

    def __init__(
        self,
        commit_log: CommitLog,
        log: TimerLog,
        wheel: TimerWheel,
        config: TimerConfig,
        *,
        now_ms: int,
        held_position: int,
        slot_ms: int,
        progress: SlotProgress,
    ) -> None:
        """`held_position`: units below it are not needed. `slot_ms`: the open tick, of which `progress` went out."""
        self.slot_ms = now_ms // config.precision_ms * config.precision_ms
        """The new open tick."""
        self.end_position = log.append_position
        """Units below it are not needed at the end."""
        self._commit_log = commit_log
        self._log = log
        self._wheel = wheel
        self._config = config
        self._before_ms = slot_ms
        self._slot = OpenSlot(slot_ms, precision_ms=config.precision_ms, progress=progress)
        self._position = max(held_position, log.start_position)
        self._carried_count = 0
        logger.warning("the clock was set back behind the timers read_time_ms=%d now_ms=%d", slot_ms, now_ms)

    def step(self, units_max: int) -> bool:
        """Carry a slice of units; whether all are.

        Raises:
            CorruptDataError: The timer log or the wheel is damaged.
        """
        for _ in range(units_max):
            if self._position >= self.end_position:
                logger.info("timers go on read_time_ms=%d pending=%d", self.slot_ms, self._carried_count)
                return True
            if not self._log.make_room():
                return False
            unit = self._log.unit(self._position)
            if self._is_pending(unit):
                self._carry(unit)
            self._position = self._log.next_position(self._position)
        return False

    def _is_pending(self, unit: TimerUnit) -> bool:
        if unit.slot_ms < self._before_ms:
            return False
        # A marker counts until its tick is closed.
        is_marker = unit.is_marker and not unit.is_roll
        return is_marker or not self._is_before_open(unit) or not self._slot.is_out(unit.position, unit.deliver_ms)

    def _is_before_open(self, unit: TimerUnit) -> bool:
        return unit.slot_ms < self._before_ms + self._config.precision_ms

    def _carry(self, unit: TimerUnit) -> None:
        magic, slot_ms, deliver_ms = unit.magic, unit.slot_ms, unit.deliver_ms
        if self._is_before_open(unit) and not unit.is_roll:
            slot_ms, deliver_ms = self._own_time(unit)
        if slot_ms - self.slot_ms >= self._config.wheel_span_ms:
            magic, slot_ms, deliver_ms = magic | MAGIC_ROLL, self._roll_ms(), 0
        slot = self._wheel.slot(slot_ms)
        if slot is not None and slot.last_position < self.end_position:
            slot = None
        position = self._log.append(
            previous_position=NO_POSITION if slot is None else slot.last_position,
            magic=magic,
            base_ms=unit.base_ms if 0 <= slot_ms - unit.base_ms <= DELAY_MS_MAX else slot_ms,
            slot_ms=slot_ms,
            physical_offset=unit.physical_offset,
            record_bytes=unit.record_bytes,
            topic_hash=unit.topic_hash,
            deliver_ms=deliver_ms,
        )
        count = -1 if unit.is_marker else 1
        if slot is None:
            self._wheel.put(slot_ms, first_position=position, last_position=position, count=count)
        else:
            self._wheel.add(slot_ms, position, count=count)
        self._carried_count += 1

    def _roll_ms(self) -> int:
        """The tick in which the next unit beyond the wheel is rolled; a burst of them is spread."""
        config = self._config
        spread_ms = self._carried_count % config.roll_spread_slots * config.precision_ms
        return self.slot_ms + config.roll_window_ms - spread_ms

    def _own_time(self, unit: TimerUnit) -> tuple[int, int]:
        """The tick of the message itself, at or behind the new open one, and its exact time or 0."""
        precision_ms = self._config.precision_ms
        try:
            record = read_timer_record(
                self._commit_log, unit.physical_offset, unit.record_bytes, precision_ms=precision_ms
            )
        except (CorruptDataError, OffsetOutOfRangeError):
            return self.slot_ms, 0  # reported when it is due
        slot_ms = record.out_ms // precision_ms * precision_ms
        return (self.slot_ms, 0) if slot_ms < self.slot_ms else (slot_ms, record.deliver_ms)
