"""Visible queues: which offsets of a queue a reader may see now, hot and cold together.

    cold start ...... hot start ............................... end
    |  cold tier      |  local log                              |  not flushed yet (SYNC_FLUSH)

Rules
  - A message is visible exactly while its store time is not before its topic's cut (`expired_before_ms`). Store
    times rise with the offset, so what is visible of a queue is one range, and its start follows the cut without a
    scan.
  - A queue's minimum is that of the cold tier when the tier holds messages in front of the local ones. While the
    tier has not reported, the minimum is unknown, and `minimum` raises an error instead of returning the local one.
Belongs to the hot process's loop thread.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.cold import ColdReads
from thermocline.remoting.errors import OffsetOutOfRangeError, UnavailableError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import FILLER, FILLER_SIZE_BYTES, UNIT, ConsumeQueue

STARTS_KEPT_MAX = 100_000
SCAN_UNITS = 4_096
UNIT_BYTES = UNIT.size


class VisibleQueues:
    """The visible range of every queue."""

    def __init__(
        self,
        store: MessageStore,
        cold: ColdReads,
        *,
        expired_before_ms: Callable[[str], int],
    ) -> None:
        """`expired_before_ms(topic)` is the topic's cut now, 0 for one that keeps everything."""
        self._store = store
        self._log = store.commit_log
        self._cold = cold
        self.expired_before_ms = expired_before_ms
        # Where each queue's visible part began when it was last looked at. It only moves forward.
        self._starts: dict[ConsumeQueue, QueueOffset] = {}

    def end(self, queue: ConsumeQueue) -> QueueOffset:
        """The offset behind the last visible message."""
        return self._store.max_offset(queue)

    def hot_start(self, queue: ConsumeQueue) -> QueueOffset:
        """The first local offset whose message has not expired; the queue's end when all have."""
        cut_ms = self.expired_before_ms(queue.topic)
        start = queue.min_offset
        if cut_ms <= 0 or start >= queue.next_offset:
            return start
        kept = self._starts.get(queue, QUEUE_START)
        if kept > start:
            start = kept
        # Mostly nothing has expired since the last look, or one message after the other.
        if not self._is_expired(queue, start, cut_ms):
            return start
        start = self._first_visible(queue, start + 1, cut_ms)
        if len(self._starts) >= STARTS_KEPT_MAX:
            self._starts.clear()
        self._starts[queue] = start
        return start

    def cold_start(self, queue: ConsumeQueue) -> QueueOffset | None:
        """The first offset that the cold tier holds in front of the local ones, its cut not applied.

        The queue's local minimum when it holds nothing there; None while the tier has not reported.
        """
        start = queue.min_offset
        if start == 0:
            return start  # nothing can be before it, whether or not the tier has reported
        bounds = self._cold.bounds(queue.topic, queue.queue_id)
        if bounds is None:
            return None
        return min(bounds.min_offset, start) if bounds.min_offset < bounds.end_offset else start

    async def minimum(self, queue: ConsumeQueue) -> QueueOffset:
        """The first visible offset; the queue's end when nothing is visible.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        cold_start = self.cold_start(queue)
        if cold_start is None:
            raise UnavailableError("the cold tier has not reported yet", topic=queue.topic, queue_id=queue.queue_id)
        cut_ms = self.expired_before_ms(queue.topic)
        # When the oldest local message has expired, so has everything before it.
        if cold_start < queue.min_offset and not self._is_cold_expired(queue, cut_ms):
            offset = await self._cold.min_offset(queue.topic, queue.queue_id, expired_before_ms=cut_ms)
            if offset is not None:
                return min(offset, self.hot_start(queue))
        return self.hot_start(queue)

    def near_minimum(self, queue: ConsumeQueue) -> QueueOffset:
        """The first visible offset by this process's state, for the header of an answer to a pull."""
        cold_start = self.cold_start(queue)
        if cold_start is None or cold_start >= queue.min_offset:
            return self.hot_start(queue)
        return (
            self.hot_start(queue) if self._is_cold_expired(queue, self.expired_before_ms(queue.topic)) else cold_start
        )

    def forget(self, queue: ConsumeQueue) -> None:
        """The queue is gone with its topic."""
        self._starts.pop(queue, None)

    def _is_cold_expired(self, queue: ConsumeQueue, cut_ms: int) -> bool:
        start = queue.min_offset
        return cut_ms > 0 and start < queue.next_offset and self._is_expired(queue, start, cut_ms)

    def _first_visible(self, queue: ConsumeQueue, low: QueueOffset, cut_ms: int) -> QueueOffset:
        """Gallop, then halve: the cut moves on by few messages at a time."""
        end = queue.next_offset
        step = 1
        high = low
        while high < end and self._is_expired(queue, high, cut_ms):
            low = high + 1
            high += step
            step *= 2
        high = min(high, end)
        while low < high:
            middle = low + (high - low) // 2
            if self._is_expired(queue, middle, cut_ms):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_expired(self, queue: ConsumeQueue, offset: QueueOffset, cut_ms: int) -> bool:
        """Whether the message at `offset` is older than the cut; one that does not exist is as old as its successor."""
        while offset < queue.next_offset:
            units = queue.units(offset, 1)
            physical_offset, size_bytes, _ = UNIT.unpack(units)
            if size_bytes != FILLER_SIZE_BYTES:
                try:
                    return self._log.store_timestamp_ms(physical_offset) < cut_ms
                except OffsetOutOfRangeError:
                    return True  # its log file went a moment ago
            offset = _behind_fillers(queue, offset)
        return False


def _behind_fillers(queue: ConsumeQueue, offset: QueueOffset) -> QueueOffset:
    """The first offset from `offset` on that is not a filler; the queue's end when there is none."""
    while offset < queue.next_offset:
        units = queue.units(offset, SCAN_UNITS)
        count = len(units) // UNIT_BYTES
        if units != FILLER * count:
            for index in range(count):
                if units[index * UNIT_BYTES : (index + 1) * UNIT_BYTES] != FILLER:
                    return offset + index
        offset += count
    return offset
