"""Queue lookup: offsets and times of queues as administration asks for them, hot and cold together.

    minimum, end            the visible range (visible_queues.py)
    offset_at(time)         the first visible message stored at or after a time
    last_until(time)        the last visible message stored at or before a time
    earliest_time_ms        when the first visible message was stored
    message_time(offset)    when one message was stored

A queue that never had a message has minimum and end 0 and no times. Values from the cold tier may take a while or be
unavailable; the call then raises an error, as a wrong offset would make a group skip or repeat messages.
Belongs to the hot process's loop thread.
"""

from thermocline.broker.cold import Boundary, ColdReads, ColdTimeSearch, pull_one, record_at
from thermocline.broker.queues.visible_queues import VisibleQueues
from thermocline.remoting.errors import OffsetOutOfRangeError, UnavailableError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.store.log import TimeBoundary
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

LOOKUP_GROUP = "TOOLS_CONSUMER"
"""The group whose limits cold reads for tools count against."""


class QueueLookup:
    """Offsets and times of all queues."""

    def __init__(self, store: MessageStore, visible: VisibleQueues, cold: ColdReads) -> None:
        self._store = store
        self._visible = visible
        self._cold = cold

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None when nothing was ever put into it."""
        return self._store.queues.find(topic, queue_id)

    def end(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset behind the last visible message."""
        queue = self.find(topic, queue_id)
        return QUEUE_START if queue is None else self._visible.end(queue)

    async def minimum(self, topic: str, queue_id: int) -> QueueOffset:
        """The first visible offset; the end when nothing is visible.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        queue = self.find(topic, queue_id)
        return QUEUE_START if queue is None else await self._visible.minimum(queue)

    async def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        """The first visible offset stored at or after a time; the end when all are older.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            return QUEUE_START
        hot_start, end = self._visible.hot_start(queue), self._visible.end(queue)
        local = self._store.offset_by_time(topic, queue_id, timestamp_ms, TimeBoundary.LOWER)
        local = min(max(local, hot_start), end)
        if local > hot_start or hot_start > queue.min_offset:
            return local  # a visible local message is older, or everything in the cold tier has expired
        cold_start = self._visible.cold_start(queue)
        if cold_start is None:
            raise UnavailableError("the cold tier has not reported yet", topic=topic, queue_id=queue_id)
        if cold_start < queue.min_offset:
            found = await self._cold.offset_by_time(
                ColdTimeSearch(
                    topic=topic,
                    queue_id=queue_id,
                    timestamp_ms=timestamp_ms,
                    boundary=Boundary.LOWER,
                    expired_before_ms=self._visible.expired_before_ms(topic),
                )
            )
            if found is not None and found < local:
                return found
        return local

    async def last_until(self, topic: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        """The last visible offset stored at or before a time; the minimum when all are newer.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        visible = self._visible
        queue = self.find(topic, queue_id)
        if queue is None:
            return QUEUE_START
        start = visible.hot_start(queue)
        if start < visible.end(queue) and self._store.message_time(topic, queue_id, start) <= timestamp_ms:
            return max(start, self._store.offset_by_time(topic, queue_id, timestamp_ms, TimeBoundary.UPPER))
        if self._may_be_cold(queue, start):
            found = await self._cold.offset_by_time(
                ColdTimeSearch(
                    topic=topic,
                    queue_id=queue_id,
                    timestamp_ms=timestamp_ms,
                    boundary=Boundary.UPPER,
                    expired_before_ms=visible.expired_before_ms(topic),
                )
            )
            if found is not None:
                return found
        return await visible.minimum(queue)

    async def earliest_time_ms(self, topic: str, queue_id: int) -> int | None:
        """When the first visible message was stored, ms; None without one.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        visible = self._visible
        queue = self.find(topic, queue_id)
        if queue is None:
            return None
        start = visible.hot_start(queue)
        if self._may_be_cold(queue, start):
            found = await self._cold.earliest_time_ms(
                topic, queue_id, expired_before_ms=visible.expired_before_ms(topic)
            )
            if found is not None:
                return found
        return self._store.message_time(topic, queue_id, start) if start < visible.end(queue) else None

    async def message_time(self, topic: str, queue_id: int, offset: QueueOffset) -> int | None:
        """When the message at an offset was stored, ms; None when there is none.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        queue = self.find(topic, queue_id)
        if queue is None or not 0 <= offset < self._visible.end(queue):
            return None
        if offset >= queue.min_offset:
            try:
                return self._store.message_time(topic, queue_id, offset)
            except OffsetOutOfRangeError:
                return None
        result = await pull_one(self._cold, topic, queue_id, offset, expired_before_ms=0, group=LOOKUP_GROUP)
        record = record_at(result, offset, check_crc=False)
        return None if record is None else record.store_timestamp_ms

    def _may_be_cold(self, queue: ConsumeQueue, start: QueueOffset) -> bool:
        """Whether the cold tier may hold visible messages in front of the local ones.

        Raises:
            UnavailableError: That is not known.
        """
        if start > queue.min_offset:
            return False  # even a local message has expired, and with it whatever is older
        cold_start = self._visible.cold_start(queue)
        if cold_start is None:
            raise UnavailableError("the cold tier has not reported yet", topic=queue.topic, queue_id=queue.queue_id)
        return cold_start < queue.min_offset
