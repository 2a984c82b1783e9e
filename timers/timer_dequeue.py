"""Timer dequeue: opens one tick after the other and gives its messages when they are due.

    open    its slot's chain is walked, a slice at a time: markers' keys are collected, the rest sorted by time
    due     units whose moment has come become drafts; recalled ones, and those of topics that were deleted, do not
    closed  when the tick is over and everything that was given is confirmed; the next occupied tick follows

`slot_ms`, the open tick, is RocketMQ's read time: every tick before it is delivered. It never runs ahead of the clock
and moves through the past as fast as slices allow, so a late start delivers what fell due, in order. A unit for a tick
that is closed comes into the open one.

What is given is given again until it is confirmed. A record that cannot be read any more, or names no place to go, is
dropped with an error in the log: it would be no better the next time.
Owner: the loop thread.
Source: TimerMessageStore.java (dequeue, TimerDequeueGetMessageService), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName
from thermocline.store.message_store import MessageStore
from thermocline.timers.due_message import DueKind, DueMessage
from thermocline.timers.open_slot import OpenSlot, SlotProgress
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_log import NO_POSITION, TimerLog, TimerUnit
from thermocline.timers.timer_metrics import TimerMetrics
from thermocline.timers.timer_record import due_draft, marker_key, read_record, rolled_draft
from thermocline.timers.timer_wheel import SCAN_SLOTS, TimerWheel

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1 << 20
SCAN_SLOTS_MAX = 4 * SCAN_SLOTS
"""Slots looked at in one slice while the past is empty: a wheel's turn takes 150 slices."""


class _Given(msgspec.Struct, frozen=True, gc=False):
    message: DueMessage
    topic: str
    count: int
    """The change in the metrics when it is done. One that is rolled is counted again when it is enqueued."""
    progress: SlotProgress


class TimerDequeue:
    """The open tick."""

    def __init__(
        self,
        store: MessageStore,
        log: TimerLog,
        wheel: TimerWheel,
        metrics: TimerMetrics,
        config: TimerConfig,
        *,
        slot_ms: int,
        progress: SlotProgress,
    ) -> None:
        """`slot_ms`: the first tick that is not delivered, of which `progress` has gone out."""
        assert slot_ms % config.precision_ms == 0
        self.released_position = 0
        """Units below it are not needed: their messages were put into the timer topic again ahead of their time."""
        self._store = store
        self._log = log
        self._wheel = wheel
        self._metrics = metrics
        self._precision_ms = config.precision_ms
        self._slot = OpenSlot(slot_ms, precision_ms=config.precision_ms, progress=progress)
        self.progress = progress
        """The part of the open tick that is in the store."""
        self._next_older: int | None = None
        """Where the walk along the chain goes on; None before it has begun."""
        self._had_units = False
        self._recalled: set[tuple[str, str]] = set()
        self._marker_counts: dict[str, int] = {}
        self._batch: list[_Given] = []
        """Given and not confirmed."""
        self.delivered_ms = -1
        """The last tick that had units and is closed."""
        self.delivered_count = 0
        self.has_more = False
        """Whether more was due at the last look than it gave."""

    @property
    def slot_ms(self) -> int:
        """The open tick."""
        return self._slot.time_ms

    @property
    def earliest_ms(self) -> int:
        """The earliest time that a unit which is enqueued for the open tick now may have."""
        return self._slot.earliest_ms

    @property
    def next_ms(self) -> int:
        """Until then there is nothing to give, and no other tick to open; of the open one, once it is loaded."""
        return self._slot.next_ms

    @property
    def unconfirmed_count(self) -> int:
        """How many messages were given and not confirmed."""
        return len(self._batch)

    # -- opening and closing ---------------------------------------------------------------------------------------

    def advance(self, now_ms: int, *, units_max: int) -> bool:
        """Load a slice of the open tick, or open the next one; whether there is more to do at once.

        Raises:
            CorruptDataError: The timer log is damaged.
        """
        slot = self._slot
        if now_ms < slot.time_ms:
            return False  # the clock was set back, by little
        if not slot.is_loaded:
            self._load(units_max)
            return True
        if now_ms < slot.time_ms + self._precision_ms or self._batch or not slot.is_empty:
            return False
        self._close(now_ms)
        return True

    def arrived(self, unit: TimerUnit) -> None:
        """A unit was enqueued for the open tick."""
        if self._next_older is None:
            return  # the walk will meet it
        self._had_units = True
        if unit.is_marker and not unit.is_roll:
            self._take_marker(unit)
        else:
            self._slot.add(unit.position, unit.deliver_ms)

    def _load(self, units_max: int) -> None:
        slot, log = self._slot, self._log
        if self._next_older is None:
            found = self._wheel.slot(slot.time_ms)
            self._next_older = NO_POSITION if found is None else found.last_position
        for _ in range(units_max):
            # Below the released position, or in a file that has gone with it, all that follows is older.
            if self._next_older < max(self.released_position, log.start_position):
                slot.finish_loading()
                return
            unit = log.unit(self._next_older)
            self._had_units = True
            if unit.is_marker and not unit.is_roll:
                self._take_marker(unit)
            else:
                slot.add_older(unit.position, unit.deliver_ms)
            self._next_older = unit.previous_position

    def _take_marker(self, unit: TimerUnit) -> None:
        try:
            record = self._read(unit)
        except (CorruptDataError, OffsetOutOfRangeError) as error:
            logger.error("recall marker cannot be read physical_offset=%d error=%s", unit.physical_offset, error)
            topic, key = self._metrics.name_of(unit.topic_hash), None
        else:
            topic, key = record.property_text(PropertyName.REAL_TOPIC), marker_key(record)
        if key is not None:
            self._recalled.add(key)
        if topic is not None:
            self._marker_counts[topic] = self._marker_counts.get(topic, 0) + 1

    def _close(self, now_ms: int) -> None:
        if self._had_units:
            self.delivered_ms = self._slot.time_ms
            self._had_units = False
        for topic, count in self._marker_counts.items():
            self._metrics.add(topic, count, now_ms=now_ms)
        self._marker_counts.clear()
        self._recalled.clear()
        precision_ms = self._precision_ms
        slot_ms = self._wheel.next_occupied(
            self._slot.time_ms + precision_ms, now_ms // precision_ms * precision_ms, slots_max=SCAN_SLOTS_MAX
        )
        self.progress = SlotProgress()
        self._slot = OpenSlot(slot_ms, precision_ms=precision_ms, progress=self.progress)
        self._next_older = None

    def set_back(self, slot_ms: int) -> None:
        """The clock was set back, and what is pending has units for it (set_back.py): open this tick, as if new."""
        assert not self._batch
        self._slot = OpenSlot(slot_ms, precision_ms=self._precision_ms, progress=SlotProgress())
        self.progress = SlotProgress()
        self._next_older = None
        self._had_units = False
        self._recalled.clear()
        self._marker_counts.clear()
        self.delivered_ms = -1
        self.has_more = False

    # -- giving ----------------------------------------------------------------------------------------------------

    def due(self, now_ms: int, *, count_max: int) -> list[DueMessage]:
        """Messages that are to be put now: those that were given and not confirmed, else the next ones.

        Raises:
            CorruptDataError: The timer log is damaged.
        """
        if not self._batch:
            count = size_bytes = 0
            position = self._slot.take_due(now_ms)
            while position is not None:
                unit = self._log.unit(position)
                self._give(unit, self._slot.progress_at(position), now_ms)
                count += 1
                size_bytes += unit.record_bytes
                if count == count_max or size_bytes > BATCH_BYTES_MAX:
                    break
                position = self._slot.take_due(now_ms)
            self.has_more = position is not None
        return [given.message for given in self._batch]

    def confirm(self, count: int, *, now_ms: int) -> None:
        """The first messages given are in the store, or never will be."""
        assert count <= len(self._batch)
        for given in self._batch[:count]:
            self._metrics.add(given.topic, given.count, now_ms=now_ms)
            self.delivered_count += given.message.kind is DueKind.DELIVER
            self.progress = given.progress
        del self._batch[:count]

    def _give(self, unit: TimerUnit, progress: SlotProgress, now_ms: int) -> None:
        topic: str | None = None
        count = 1 if unit.is_marker else -1
        try:
            record = self._read(unit)
            topic = record.property_text(PropertyName.REAL_TOPIC)
            if topic is None:
                raise CorruptDataError("timed message without a topic", physical_offset=unit.physical_offset)
            if unit.is_roll:
                kind, draft = DueKind.ROLL, rolled_draft(record, enqueued_ms=unit.base_ms, now_ms=now_ms)
            else:
                kind, draft = DueKind.DELIVER, due_draft(record, enqueued_ms=unit.base_ms, now_ms=now_ms)
        except (CorruptDataError, OffsetOutOfRangeError) as error:
            logger.error("timed message dropped physical_offset=%d error=%s", unit.physical_offset, error)
            topic = topic or self._metrics.name_of(unit.topic_hash)
            self._drop(topic, count, progress, now_ms)
            return
        is_recalled = bool(self._recalled) and not unit.is_roll and (topic, record.unique_key) in self._recalled
        if is_recalled or not self._store.incarnations.is_live(topic, unit.physical_offset):
            logger.debug("timed message not delivered topic=%s recalled=%s", topic, is_recalled)
            self._drop(topic, count, progress, now_ms)
        else:
            message = DueMessage(kind=kind, draft=draft, physical_offset=unit.physical_offset)
            self._batch.append(_Given(message, topic, count, progress))

    def _drop(self, topic: str | None, count: int, progress: SlotProgress, now_ms: int) -> None:
        """A unit is done that gives nothing; with those before it, when these are confirmed."""
        if topic is not None:
            self._metrics.add(topic, count, now_ms=now_ms)
        if self._batch:
            self._batch[-1] = msgspec.structs.replace(self._batch[-1], progress=progress)
        else:
            self.progress = progress

    def _read(self, unit: TimerUnit) -> MessageRecord:
        return read_record(self._store.commit_log, unit.physical_offset, unit.record_bytes)
