"""Hot records: the records of a cold segment that the local log still holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.sealing import UNIT, LocalLog, LocalQueues, SealBacklog, Units
from thermocline.tiered.segments import SegmentEntry


class HotRecords:
    """Belongs to the tier process. Files deleted meanwhile are no error: their records are no longer hot."""

    def __init__(
        self, *, backlog: SealBacklog, queues: LocalQueues, log: LocalLog, log_min_offset: Callable[[], PhysicalOffset]
    ) -> None:
        self._backlog = backlog
        self._queues = queues
        self._log = log
        self._log_min_offset = log_min_offset

    def find(
        self, segment: SegmentEntry, queue_id: int, *, start_offset: QueueOffset, end_offset: QueueOffset
    ) -> tuple[QueueOffset, Units]:
        """The last records of [start_offset, end_offset) that the local log holds intact: first offset and units.

        Without any: `end_offset` and no unit. Each record is checked, with its body's checksum.
        """
        nothing = end_offset, np.empty(0, UNIT)
        progress = self._backlog.topics.get(segment.topic)
        run = segment.run(queue_id)
        if progress is None or progress.incarnation != segment.incarnation or run is None:
            return nothing
        try:
            start, units = self._units(segment.topic, queue_id, start_offset, end_offset)
        except (ObjectNotFoundError, CorruptDataError):
            return nothing
        low = np.searchsorted(units["physical_offset"], max(self._log_min_offset(), run.min_physical_offset))
        start, units = start + int(low), units[int(low) :]
        # From the end on: a damaged or missing record excludes all records before it.
        for index in range(len(units) - 1, -1, -1):
            if not self._is_whole(segment, queue_id, start + index, units[index]):
                return start + index + 1, units[index + 1 :]
        return start, units

    def records(self, units: Units) -> list[memoryview]:
        """The records of units that `find` gave. ObjectNotFoundError when their file has gone since."""
        places = zip(units["physical_offset"].tolist(), units["size_bytes"].tolist(), strict=True)
        return [self._log.record(physical_offset, size_bytes) for physical_offset, size_bytes in places]

    def _units(self, topic: str, queue_id: int, start: QueueOffset, end: QueueOffset) -> tuple[QueueOffset, Units]:
        try:
            return start, self._queues.units(topic, queue_id, start=start, end=end)
        except ObjectNotFoundError:
            first_offset = self._queues.first_offset(topic, queue_id)
            if first_offset is None or not start < first_offset < end:
                raise
            return first_offset, self._queues.units(topic, queue_id, start=first_offset, end=end)

    def _is_whole(self, segment: SegmentEntry, queue_id: int, queue_offset: QueueOffset, unit: np.void) -> bool:
        physical_offset, size_bytes = PhysicalOffset(unit["physical_offset"]), int(unit["size_bytes"])
        try:
            record = decode_record(self._log.record(physical_offset, size_bytes), check_crc=True)
        except (ObjectNotFoundError, CorruptDataError):
            return False
        found = record.topic, record.queue_id, record.queue_offset, record.physical_offset, record.size_bytes
        return found == (segment.topic, queue_id, queue_offset, physical_offset, size_bytes)
