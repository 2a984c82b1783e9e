"""Queue records: the records that half and op queue point at, as far as they can be read, and those that others name.

A queue points at what is there: a record that cannot be read is worth a line. A producer that decides once more, or a
consumer's retry of a committed message, may name any place: nothing readable there is an answer and no trouble.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset, offset_range
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

logger = logging.getLogger(__name__)


def record_at(store: MessageStore, queue: ConsumeQueue, queue_offset: QueueOffset) -> MessageRecord | None:
    """The record of a queue offset below the queue's end; None when there is no readable one."""
    if queue_offset < queue.min_offset:
        return None
    unit = queue.unit(queue_offset)
    return None if unit.is_empty else read_record(store, unit.physical_offset)


def records_from(store: MessageStore, queue: ConsumeQueue, start: QueueOffset) -> Iterator[MessageRecord]:
    """The readable records from a queue offset on, at or behind the queue's minimum."""
    for queue_offset in offset_range(start, queue.next_offset):
        record = record_at(store, queue, queue_offset)
        if record is not None:
            yield record


def read_record(store: MessageStore, physical_offset: PhysicalOffset) -> MessageRecord | None:
    """The record at a place in the log that we know of; None when there is no readable one."""
    try:
        return store.read_record(physical_offset)
    except (OffsetOutOfRangeError, CorruptDataError) as error:
        logger.warning("record cannot be read physical_offset=%d error=%s", physical_offset, error)
        return None


def find_record(store: MessageStore, physical_offset: PhysicalOffset) -> MessageRecord | None:
    """The record at a place in the log that the caller names; None when there is none."""
    try:
        return store.read_record(physical_offset)
    except (OffsetOutOfRangeError, CorruptDataError) as error:
        logger.debug("no record there physical_offset=%d error=%s", physical_offset, error)
        return None
