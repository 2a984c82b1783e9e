"""Local records: one record of the local log by its place, if a client may see it.

A record is not shown when nothing sound starts at the place, when it belongs to an earlier incarnation of its topic
(store/state/incarnation.py), when it has expired, or when it is not flushed yet where sends wait for the flush.
Belongs to the hot process's loop thread.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.store.message_store import MessageStore


class LocalRecords:
    """Visible records of the local log."""

    def __init__(self, store: MessageStore, *, expired_before_ms: Callable[[str], int]) -> None:
        self._store = store
        self._expired_before_ms = expired_before_ms

    def holds(self, physical_offset: PhysicalOffset) -> bool:
        """Whether the place is in the local log, so that the cold tier need not be asked. An empty one has no places:
        a broker that only serves another's history never has any."""
        log = self._store.commit_log
        return log.min_offset <= physical_offset and log.min_offset < log.append_offset

    def find(self, physical_offset: PhysicalOffset) -> MessageRecord | None:
        """The record that starts at a place; None when there is none to be seen."""
        store = self._store
        try:
            record = store.read_record(physical_offset)
        except (OffsetOutOfRangeError, CorruptDataError):
            return None
        if (
            record.end_offset > store.confirm_offset
            or not store.incarnations.is_live(record.topic, physical_offset)
            or record.store_timestamp_ms < self._expired_before_ms(record.topic)
        ):
            return None
        return record

    def bytes_of(self, record: MessageRecord) -> bytes:
        """The record as it is stored in the log."""
        return bytes(self._store.commit_log.record_view(record.physical_offset, record.size_bytes))
