"""Delivered copies: timed messages that are in their real queues already, though no checkpoint says so.

A slave takes its master's checkpoint over every few seconds, and no timer log. When it becomes the master, the messages
that were due shortly before that checkpoint, or since, may have been delivered or not. A delivered message keeps its
unique key and TIMER_OUT_MS, so the ends of the real queues are read back: a message that is there is not put again.
Bound: RECORDS_MAX of a queue are read, once; with more, what was delivered before them may come again. So may messages
without a unique key.
"""

from __future__ import annotations

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

RECORDS_MAX = 20_000

Copy = tuple[str, str]
"""Unique key and TIMER_OUT_MS."""


class DeliveredCopies:
    """Of one store, as it was recovered. Owner: the loop thread."""

    def __init__(self, store: MessageStore, *, since_ms: int) -> None:
        """`since_ms`: what was delivered before that store time is not searched."""
        self._store = store
        self._since_ms = since_ms
        self._found: dict[tuple[str, int], frozenset[Copy]] = {}

    def has(self, record: MessageRecord) -> bool:
        """Whether a message of the timer topic is in its real queue."""
        properties = record.properties
        queue_id = properties.get(PropertyName.REAL_QUEUE_ID, "")
        copy = _copy_of(record)
        if copy is None or not queue_id.isdecimal():
            return False
        key = properties.get(PropertyName.REAL_TOPIC, ""), int(queue_id)
        found = self._found.get(key)
        if found is None:
            queue = self._store.queues.find(*key)
            found = self._found[key] = frozenset() if queue is None else self._read(queue)
        return copy in found

    def _read(self, queue: ConsumeQueue) -> frozenset[Copy]:
        found: set[Copy] = set()
        first = max(queue.min_offset, queue.next_offset - RECORDS_MAX)
        for queue_offset in range(queue.next_offset - 1, first - 1, -1):
            unit = queue.unit(QueueOffset(queue_offset))
            if unit.is_empty:
                continue
            try:
                record = self._store.read_record(unit.physical_offset)
            except (CorruptDataError, OffsetOutOfRangeError):
                break
            if record.store_timestamp_ms < self._since_ms:
                break
            copy = _copy_of(record)
            if copy is not None:
                found.add(copy)
        return frozenset(found)


def _copy_of(record: MessageRecord) -> Copy | None:
    properties = record.properties
    unique_key, out_ms = properties.get(PropertyName.UNIQUE_KEY), properties.get(PropertyName.TIMER_OUT_MS)
    return (unique_key, out_ms) if unique_key and out_ms else None
