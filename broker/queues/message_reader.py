"""Message reader: one message by its topic, queue and offset, hot or cold.

An expired message is not found, nor is one whose record was dropped with its log file.
Belongs to the hot process's loop thread.
"""

from __future__ import annotations

import logging

from thermocline.broker.cold import ColdReads, pull_one, record_at
from thermocline.broker.queues.visible_queues import VisibleQueues
from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError, UnavailableError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

logger = logging.getLogger(__name__)


class MessageReader:
    """Reads single messages of all queues."""

    def __init__(self, store: MessageStore, visible: VisibleQueues, cold: ColdReads) -> None:
        self._store = store
        self._visible = visible
        self._cold = cold

    def is_cold(self, topic: str, queue_id: int, offset: QueueOffset) -> bool:
        """Whether `read` has to ask the cold tier."""
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or not 0 <= offset < queue.min_offset:
            return False
        cold_start = self._visible.cold_start(queue)
        return cold_start is not None and cold_start <= offset

    async def read(self, topic: str, queue_id: int, offset: QueueOffset, *, group: str) -> MessageRecord | None:
        """The message; None when it is not there (any more). Of the local log it is read without waiting.

        Raises:
            UnavailableError: The cold tier has it, and cannot be asked now.
        """
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or not 0 <= offset < queue.next_offset:
            return None
        if offset >= queue.min_offset:
            return self._local(queue, offset)
        cold_start = self._visible.cold_start(queue)
        if cold_start is None:
            raise UnavailableError("the cold tier has not reported yet", topic=topic, queue_id=queue_id)
        if offset < cold_start or cold_start == queue.min_offset:
            return None
        expired_before_ms = self._visible.expired_before_ms(topic)
        result = await pull_one(self._cold, topic, queue_id, offset, expired_before_ms=expired_before_ms, group=group)
        if result.next_offset <= offset:
            raise UnavailableError("the cold tier does not hold what it said it holds", topic=topic, queue_id=queue_id)
        record = record_at(result, offset)
        return record if record is not None and self._is_visible(record) else None

    def _local(self, queue: ConsumeQueue, offset: QueueOffset) -> MessageRecord | None:
        unit = queue.unit(offset)
        if unit.is_empty:
            return None
        try:
            record = self._store.read_record(unit.physical_offset)
        except OffsetOutOfRangeError:
            return None
        except CorruptDataError as error:
            logger.error(
                "message passed over topic=%s queue_id=%d offset=%d error=%s",
                queue.topic,
                queue.queue_id,
                offset,
                error,
            )
            return None
        return record if self._is_visible(record) else None

    def _is_visible(self, record: MessageRecord) -> bool:
        return record.store_timestamp_ms >= self._visible.expired_before_ms(record.topic)
