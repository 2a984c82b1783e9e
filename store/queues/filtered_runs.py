"""Filtered runs: from queue units to slices of the log, for a reader who chooses messages by their properties.

A tag is hashed into the queue's unit; properties lie in the record. So each record on the way is looked into, and a
condition asked about its property text. That takes microseconds a message, so the search can pause between any two and
go on later; what it has found by then is kept.

Rules
  - Limits are those of message_runs.py, and they are judged by messages that match: at most `count_max` and
    `bytes_max`, the first one is always returned, and lower limits hold when it is far back.
  - It ends at `end`, when a limit is reached, or when the log has lost the place at which it would go on: what was
    found until then stays readable.
Belongs to the loop thread, as the queue does.
Source: DefaultMessageStore.java (getMessage), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import read_properties_text
from thermocline.store.log import CommitLog
from thermocline.store.queues.consume_queue import FILLER_SIZE_BYTES, UNIT, ConsumeQueue
from thermocline.store.queues.message_runs import RunLimits

UNITS_READ = 64
"""Units taken out of the queue at a time; a search that pauses among them takes the rest again."""

iterate_units = UNIT.iter_unpack


class FilteredRuns:
    """A search in queue offsets [start, end) of one queue, and what it has found."""

    __slots__ = (
        "_buffers",
        "_bytes_max",
        "_count_max",
        "_end",
        "_far_limits",
        "_far_offset",
        "_file_end",
        "_file_start",
        "_log",
        "_matches",
        "_run_end",
        "_run_start",
        "_view",
        "message_count",
        "next_offset",
        "queue",
        "size_bytes",
    )

    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        *,
        matches: Callable[[bytes], bool],
        start: QueueOffset,
        end: QueueOffset,
        count_max: int,
        bytes_max: int,
        far_offset: PhysicalOffset = LOG_START,
        far_limits: RunLimits | None = None,
    ) -> None:
        """`matches(property text)` says whether a message is wanted; it must not raise."""
        assert start <= end
        assert count_max > 0
        self.queue = queue
        self.next_offset = start
        """Everything in front of it has been looked at."""
        self.message_count = 0
        self.size_bytes = 0
        self._log = log
        self._matches = matches
        self._end = end
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._far_offset = far_offset
        self._far_limits = far_limits
        self._buffers: list[memoryview] = []
        # The file that was read last, and the newest run, which is in it.
        self._view = memoryview(b"")
        self._file_start = self._file_end = 0
        self._run_start = self._run_end = -1

    def go_on(self, is_time_up: Callable[[], bool]) -> bool:
        """Look at messages, at least at one, until the search has ended (True) or `is_time_up()` (False).

        Once it has ended it is not to be asked again.

        Raises:
            CorruptDataError: A record is damaged; the search is of no more use.
        """
        while self.queue.min_offset <= self.next_offset < self._end:
            count = min(UNITS_READ, self._end - self.next_offset)
            for physical_offset, record_bytes, _tags_code in iterate_units(self.queue.units(self.next_offset, count)):
                is_wanted = record_bytes != FILLER_SIZE_BYTES and self._is_wanted(physical_offset)
                if is_wanted and not self._add_record(physical_offset, record_bytes):
                    return True
                self.next_offset += 1
                if self.message_count >= self._count_max:
                    return True
                if is_time_up():
                    return self.next_offset >= self._end
        return True

    def buffers(self) -> list[memoryview]:
        """The records found so far: runs, in order."""
        self._end_run()
        return self._buffers

    def _is_wanted(self, physical_offset: PhysicalOffset) -> bool:
        if not self._file_start <= physical_offset < self._file_end:
            self._end_run()
            file = self._log.files.find(physical_offset)
            self._view, self._file_start, self._file_end = file.view, file.base_offset, file.end_offset
        return self._matches(read_properties_text(self._view, physical_offset - self._file_start))

    def _add_record(self, physical_offset: PhysicalOffset, record_bytes: int) -> bool:
        """Add a record to the runs; False when there is no room for it."""
        if not self.message_count:
            if self._far_limits is not None and physical_offset < self._far_offset:
                self._count_max = min(self._count_max, self._far_limits.count_max)
                self._bytes_max = min(self._bytes_max, self._far_limits.bytes_max)
        elif self.size_bytes + record_bytes > self._bytes_max:
            return False
        if physical_offset != self._run_end:
            self._end_run()
            self._run_start = physical_offset
        self._run_end = physical_offset + record_bytes
        self.message_count += 1
        self.size_bytes += record_bytes
        return True

    def _end_run(self) -> None:
        if self._run_start >= 0:
            self._buffers.append(self._view[self._run_start - self._file_start : self._run_end - self._file_start])
            self._run_start = self._run_end = -1
