"""Unit placement: puts the queue units of records that are in the log already at their queue offsets.

For recovery, and for a log that is copied from another broker: there the record names its queue offset, where a put
makes it.

    offset below the queue's end     the queue has the unit: nothing to do
    at its end                       appended
    behind it                        the queue goes on there; between the two is no message. At a slave with a cold
                                     tier there are some in the ledger, behind which its master has continued: so the
                                     queue begins anew there, and all before is read from the ledger
"""

from __future__ import annotations

from thermocline.remoting.offsets import QueueOffset
from thermocline.store.config import StoreConfig
from thermocline.store.dispatch import unit_tags_code
from thermocline.store.log import ScannedRecord
from thermocline.store.queues import ConsumeQueue, ConsumeQueueTable


class UnitPlacement:
    """Belongs to the thread that owns the queues."""

    def __init__(self, queues: ConsumeQueueTable, config: StoreConfig) -> None:
        self._queues = queues
        self._delay_levels_ms = config.delay_levels_ms
        self._gaps_are_elsewhere = config.gaps_are_elsewhere

    def place(self, queue: ConsumeQueue, record: ScannedRecord) -> bool:
        """Put the unit of a record into its queue; False if the queue has it.

        Raises:
            OSError, DiskFullError: The queue goes on at a later offset, and its files cannot be written.
        """
        if record.queue_offset < queue.next_offset:
            return False
        if record.queue_offset > queue.next_offset:
            self._jump(queue, record.queue_offset)
        tags_code = unit_tags_code(
            record.topic,
            record.properties_text,
            store_timestamp_ms=record.store_timestamp_ms,
            delay_levels_ms=self._delay_levels_ms,
        )
        assert record.queue_offset == queue.next_offset, "a unit is at its record's queue offset"
        queue.append_unit(record.physical_offset, record.size_bytes, tags_code)
        return True

    def write_tail(self, queue: ConsumeQueue) -> None:
        """Write one queue's tail out of its turn. Raises as `ConsumeQueue.write_tail`."""
        if queue.tail:
            queue.write_tail()
            self._queues.dirty.discard(queue)

    def _jump(self, queue: ConsumeQueue, queue_offset: QueueOffset) -> None:
        self.write_tail(queue)
        if self._queues.files.base_positions(queue.topic, queue.queue_id):
            self._queues.files.fill(queue, queue.next_offset, queue_offset)
            queue.restart_at(queue_offset, min_offset=queue_offset if self._gaps_are_elsewhere else None)
        else:
            queue.restart_at(queue_offset, min_offset=queue_offset)
