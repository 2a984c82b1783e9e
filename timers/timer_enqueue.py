"""Timer enqueue: follows the timer topic's queue and gives each message its unit and its slot.

    due within the roll window   into the slot of TIMER_OUT_MS
    due later                    a ROLL unit, one window ahead; half a window, when less than a third of one would be
                                 left then. Spread over the ticks before, so that a burst does not come back as one
    due in a tick that is closed into the open one

Rules
  - A unit whose slot is still in use for a turn of the wheel earlier waits, and everything behind it: it is as safe in
    the queue. That only happens to a broker that was away for a week.
  - What does not say when it is due is dropped with an error in the log.
  - A slice appends to memory alone; `TimerLog.write` and the rounds make it last.
  - After a timer log was lost, the queue is read again from its start; `delivered_before` then keeps what was delivered
    from coming again.
Owner: the loop thread.
Source: TimerMessageStore.java (enqueue, doEnqueue), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from functools import lru_cache

import msgspec

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.remoting.string_hash import java_string_hash
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import FILLER_SIZE_BYTES, UNIT, ConsumeQueue
from thermocline.timers.delivered_copies import DeliveredCopies
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_dequeue import TimerDequeue
from thermocline.timers.timer_log import DELAY_MS_MAX, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, NO_POSITION, TimerLog
from thermocline.timers.timer_metrics import TimerMetrics
from thermocline.timers.timer_record import TimerRecord, read_record, read_timer_record
from thermocline.timers.timer_request import TIMER_QUEUE_ID
from thermocline.timers.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

topic_hash = lru_cache(maxsize=4096)(java_string_hash)


class DeliveredBefore(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of [first, queue_offset) that were due before a time are known to be delivered. `copies`: of others that
    were due until now, and are below `end_offset`, those in their real queues are."""

    first: QueueOffset = QUEUE_START
    queue_offset: QueueOffset = QUEUE_START
    time_ms: int = 0
    copies: DeliveredCopies | None = None
    end_offset: QueueOffset = QUEUE_START
    until_ms: int = 0


class TimerEnqueue:
    """The way from queue to wheel."""

    def __init__(
        self,
        store: MessageStore,
        log: TimerLog,
        wheel: TimerWheel,
        metrics: TimerMetrics,
        dequeue: TimerDequeue,
        config: TimerConfig,
        *,
        queue_offset: QueueOffset,
        delivered_before: DeliveredBefore,
    ) -> None:
        """`queue_offset`: the first entry without a unit."""
        self.queue_offset = queue_offset
        self.enqueued_count = 0
        self.has_more = False
        """Whether the last slice has left something that can be enqueued now."""
        self._store = store
        self._log = log
        self._wheel = wheel
        self._metrics = metrics
        self._dequeue = dequeue
        self._config = config
        self._delivered_before = delivered_before
        self._tick_ms = 0

    @property
    def queue(self) -> ConsumeQueue | None:
        """The timer topic's queue; None before its first message."""
        return self._store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)

    def set_back(self, tick_ms: int) -> None:
        """The clock was set back to this tick."""
        self._tick_ms = tick_ms

    @property
    def behind_count(self) -> int:
        """Entries that have no unit yet."""
        queue = self.queue
        return 0 if queue is None else queue.next_offset - self.queue_offset

    def step(self, now_ms: int, *, count_max: int) -> None:
        """Enqueue a slice.

        Raises:
            CorruptDataError: The wheel or the timer log is damaged.
        """
        self.has_more = False
        queue = self.queue
        if queue is None or self.queue_offset >= queue.next_offset or not self._log.make_room():
            return
        if self.queue_offset < queue.min_offset:
            logger.error("timer queue offset corrected from=%d to=%d", self.queue_offset, queue.min_offset)
            self.queue_offset = queue.min_offset
        precision_ms = self._config.precision_ms
        self._tick_ms = max(self._tick_ms, now_ms // precision_ms * precision_ms)
        for physical_offset, size_bytes, _tags_code in UNIT.iter_unpack(queue.units(self.queue_offset, count_max)):
            if 0 < size_bytes != FILLER_SIZE_BYTES and not self._enqueue(physical_offset, size_bytes, now_ms):
                return
            self.queue_offset += 1
        self.has_more = self.queue_offset < queue.next_offset

    def _enqueue(self, physical_offset: PhysicalOffset, size_bytes: int, now_ms: int) -> bool:
        """Give one message its unit; False when it has to wait."""
        config = self._config
        try:
            record = read_timer_record(
                self._store.commit_log, physical_offset, size_bytes, precision_ms=config.precision_ms
            )
        except (CorruptDataError, OffsetOutOfRangeError) as error:
            logger.error("timed message dropped physical_offset=%d error=%s", physical_offset, error)
            return True
        delivered = self._delivered_before
        is_known = delivered.first <= self.queue_offset < delivered.queue_offset
        if is_known and record.out_ms < delivered.time_ms:
            return True
        if self._is_copied(record, physical_offset, size_bytes):
            return True
        open_ms = self._dequeue.slot_ms
        is_roll = record.out_ms - self._tick_ms >= config.roll_window_ms
        slot_ms = max(open_ms, self._roll_ms(record) if is_roll else self._tick_of(record.out_ms))
        if slot_ms - open_ms >= config.wheel_span_ms:
            return False
        deliver_ms = 0 if is_roll else record.deliver_ms
        if slot_ms == open_ms and (record.out_ms < open_ms or 0 < deliver_ms < self._dequeue.earliest_ms):
            deliver_ms = self._dequeue.earliest_ms
        slot = self._wheel.slot(slot_ms)
        magic = MAGIC_DEFAULT | (MAGIC_ROLL if is_roll else 0) | (MAGIC_DELETE if record.is_marker else 0)
        position = self._log.append(
            previous_position=NO_POSITION if slot is None else slot.last_position,
            magic=magic,
            base_ms=self._tick_ms if 0 <= slot_ms - self._tick_ms <= DELAY_MS_MAX else slot_ms,
            slot_ms=slot_ms,
            physical_offset=physical_offset,
            record_bytes=size_bytes,
            topic_hash=topic_hash(record.real_topic),
            deliver_ms=deliver_ms,
        )
        self.enqueued_count += 1
        count = -1 if record.is_marker else 1
        if slot is None:
            self._wheel.put(slot_ms, first_position=position, last_position=position, count=count)
        else:
            self._wheel.put(
                slot_ms, first_position=slot.first_position, last_position=position, count=slot.count + count
            )
        self._metrics.add(record.real_topic, count, now_ms=now_ms)
        if slot_ms == open_ms:
            self._dequeue.arrived(self._log.unit(position))
        return True

    def _is_copied(self, record: TimerRecord, physical_offset: PhysicalOffset, size_bytes: int) -> bool:
        """Whether a message was delivered by a master before this one."""
        delivered = self._delivered_before
        if delivered.copies is None or self.queue_offset >= delivered.end_offset:
            return False
        if record.is_marker or record.out_ms > delivered.until_ms:
            return False
        try:
            return delivered.copies.has(read_record(self._store.commit_log, physical_offset, size_bytes))
        except CorruptDataError:
            return False  # reported when it is due

    def _tick_of(self, time_ms: int) -> int:
        return time_ms // self._config.precision_ms * self._config.precision_ms

    def _roll_ms(self, record: TimerRecord) -> int:
        """The tick in which a message that is due beyond the window is rolled."""
        config = self._config
        window_ms = config.roll_window_ms
        left_ms = record.out_ms - self._tick_ms - window_ms
        ahead_ms = window_ms // 2 if left_ms < window_ms // 3 else window_ms
        spread_ms = self.queue_offset % config.roll_spread_slots * config.precision_ms
        return self._tick_of(self._tick_ms + ahead_ms - spread_ms)
