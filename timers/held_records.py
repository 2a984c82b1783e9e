"""Held records: which part of the log pending messages still need, and how a part of it is given back.

The timer log is in log order. One cursor in it stands at the first unit that is still needed: units before it were
delivered (their slot is closed), or released. Where a checkpoint has left it, its record, or when all units were done
the record of the first entry without a unit, is where retention has to stop; the log's end, when there is neither.

Release: what is pending below a physical offset is put into the timer topic again at once, with a new unit in the same
slot, and the cursor passes the old one, which then counts no more. Units of the open slot are not released: they are
about to go by themselves.
  - Pace: copies are records too, and may have to be released again. So a request counts up to the log's end at that
    time; beyond that it counts once other writers have appended as much as the release. However full the disk is, and
    however much waits, releases write no more than all other writers together.
Owner: the loop thread.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.records.properties import PropertyName
from thermocline.store.message_store import MessageStore
from thermocline.timers.due_message import DueKind, DueMessage
from thermocline.timers.timer_checkpoint import TimerCheckpoint
from thermocline.timers.timer_dequeue import TimerDequeue
from thermocline.timers.timer_enqueue import TimerEnqueue
from thermocline.timers.timer_log import TimerLog, TimerUnit
from thermocline.timers.timer_metrics import TimerMetrics
from thermocline.timers.timer_record import read_record, rolled_draft

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1 << 20


class _Given(msgspec.Struct, frozen=True, gc=False):
    message: DueMessage
    unit: TimerUnit
    topic: str


class HeldRecords:
    """The cursor."""

    def __init__(
        self,
        store: MessageStore,
        log: TimerLog,
        metrics: TimerMetrics,
        enqueue: TimerEnqueue,
        dequeue: TimerDequeue,
        *,
        position: int,
        precision_ms: int,
    ) -> None:
        """`position`: units below it are not needed."""
        self.position = position
        self.has_more = False
        """Whether the last slice has left something to do."""
        self._store = store
        self._log = log
        self._metrics = metrics
        self._enqueue = enqueue
        self._dequeue = dequeue
        self._precision_ms = precision_ms
        self.wanted_offset = LOG_START
        """Below which offset the log is wanted back."""
        self._release_offset = LOG_START
        """How far of that the release may go now."""
        self._pace_offset = LOG_START
        """The log's end when the release was last let go on."""
        self._released_bytes = 0
        """Bytes put by releases since."""
        self._batch: list[_Given] = []
        dequeue.released_position = position

    @property
    def unconfirmed_count(self) -> int:
        """How many messages were given and not confirmed."""
        return len(self._batch)

    def offset_after(self, durable: TimerCheckpoint) -> PhysicalOffset:
        """The first physical offset that is needed by what this checkpoint leaves to be done; the log's end for none.

        Raises:
            CorruptDataError: The timer log is damaged.
        """
        if durable.own is None:
            return LOG_START
        position = max(durable.own.held_position, self._log.start_position)
        if position < durable.log_position:
            return self._log.unit(position).physical_offset
        queue = self._enqueue.queue
        if queue is not None:
            entry = queue.skip_empty(max(durable.queue_offset, queue.min_offset))
            if entry < queue.next_offset:
                return queue.unit(entry).physical_offset
        return self._store.commit_log.append_offset

    def release_below(self, physical_offset: PhysicalOffset) -> None:
        """Give back the log below this offset, in slices and as far as the pace allows; to be called again."""
        self.wanted_offset = max(self.wanted_offset, physical_offset)
        log_end = self._store.commit_log.append_offset
        if self.wanted_offset > self._pace_offset and 2 * self._released_bytes <= log_end - self._pace_offset:
            self._pace_offset, self._released_bytes = log_end, 0
        self._release_offset = min(self.wanted_offset, self._pace_offset)

    def step(self, now_ms: int, *, units_max: int, count_max: int) -> list[DueMessage]:
        """Pass units that are done; messages to put in order to pass others, or those given and not confirmed.

        Raises:
            CorruptDataError: The timer log is damaged.
        """
        if self._batch:
            return [given.message for given in self._batch]
        self.has_more = False
        size_bytes = 0
        position = self.position
        for _ in range(units_max):
            if position >= self._log.append_position:
                break
            unit = self._log.unit(position)
            if self._is_pending(unit):
                if unit.physical_offset >= self._release_offset or self._is_open(unit):
                    break
                if len(self._batch) == count_max or size_bytes > BATCH_BYTES_MAX:
                    self.has_more = True
                    break
                self._give(unit, now_ms)
                size_bytes += unit.record_bytes
            position = self._log.next_position(position)
            if not self._batch:
                self._pass(position)
        else:
            self.has_more = True
        return [given.message for given in self._batch]

    def confirm(self, count: int, *, now_ms: int) -> None:
        """The first messages given are in the store."""
        assert count <= len(self._batch)
        for given in self._batch[:count]:
            self._metrics.add(given.topic, _leaving(given.unit), now_ms=now_ms)
            self._released_bytes += given.unit.record_bytes
            self._pass(self._log.next_position(given.unit.position))
        del self._batch[:count]
        self.has_more = True

    def pass_to(self, position: int) -> None:
        """No unit below this position is needed any more."""
        assert not self._batch
        self._pass(position)

    def _pass(self, position: int) -> None:
        self.position = self._dequeue.released_position = position

    def _is_pending(self, unit: TimerUnit) -> bool:
        return unit.slot_ms >= self._dequeue.slot_ms

    def _is_open(self, unit: TimerUnit) -> bool:
        return unit.slot_ms < self._dequeue.slot_ms + self._precision_ms

    def _give(self, unit: TimerUnit, now_ms: int) -> None:
        topic = self._metrics.name_of(unit.topic_hash)
        try:
            record = read_record(self._store.commit_log, unit.physical_offset, unit.record_bytes)
        except (CorruptDataError, OffsetOutOfRangeError) as error:
            logger.error("timed message dropped physical_offset=%d error=%s", unit.physical_offset, error)
        else:
            topic = record.property_text(PropertyName.REAL_TOPIC) or ""
            # A copy would belong to the topic's current incarnation; the record may be of an earlier one.
            if self._store.incarnations.is_live(topic, unit.physical_offset):
                draft = rolled_draft(record, enqueued_ms=unit.base_ms, now_ms=now_ms)
                message = DueMessage(kind=DueKind.RELEASE, draft=draft, physical_offset=unit.physical_offset)
                self._batch.append(_Given(message, unit, topic))
                return
        if topic is not None:
            self._metrics.add(topic, _leaving(unit), now_ms=now_ms)


def _leaving(unit: TimerUnit) -> int:
    """The change in the metrics when a unit is done."""
    return 1 if unit.is_marker else -1
