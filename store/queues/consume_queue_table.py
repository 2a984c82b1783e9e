"""Consume queue table: every queue of every topic, and the rounds in which their units reach the disk.

    append -> tail in memory -> file (`write_dirty`, each tick) -> durable (`derived_sync.py`)

`written_offset` is how far that has come: every unit of a record below it is in its file's page cache, where other
processes find it. Queues are written in the order in which they got their first unwritten unit, so the mark rises even
while every queue is busy and a tick writes only some of them.
Owner: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from thermocline.remoting.errors import DiskFullError
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.store.log import CommitLog
from thermocline.store.queues.consume_queue import ConsumeQueue
from thermocline.store.queues.consume_queue_files import ConsumeQueueFiles

logger = logging.getLogger(__name__)

NO_ROOM_FOR_UNITS = "no room for queue units"


class ConsumeQueueTable:
    """topic -> queue id -> queue. The inner dictionaries are live: who holds one sees queues come and go."""

    def __init__(self, files: ConsumeQueueFiles, log: CommitLog) -> None:
        self.files = files
        self.dirty = files.dirty
        self.on_written: Callable[[ConsumeQueue], None] = _nobody_follows
        """Called with each queue after `write_dirty` has written its units: other processes find them in its file."""
        self.first_offset: Callable[[str], QueueOffset] = _at_zero
        """Where a queue of a topic begins that has none of this id yet."""
        self.unplaced_count = 0
        """Records that a slave has copied without a unit for them: of a topic that its master has deleted, or has made
        again."""
        self._log = log
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return (queue for queues in self._topics.values() for queue in queues.values())

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    @property
    def name_count(self) -> int:
        """How many topics ever had a queue here, or were looked up: it rises with each new topic."""
        return len(self._topics)

    @property
    def topics(self) -> list[str]:
        """Topics that have a queue."""
        return [topic for topic, queues in self._topics.items() if queues]

    def of_topic(self, topic: str) -> dict[int, ConsumeQueue]:
        """The topic's queues by id, the live dictionary; made empty for a topic without queues."""
        queues = self._topics.get(topic)
        if queues is None:
            queues = self._topics[topic] = {}
        return queues

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """One queue; None when nothing was ever put into it."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """One queue, made empty when there is none."""
        queues = self.of_topic(topic)
        queue = queues.get(queue_id)
        if queue is None:
            start = self.first_offset(topic)
            queue = self.create(topic, queue_id, next_offset=start, min_offset=start)
            assert queue.min_offset == start  # asked while nothing is in it, so that no file is looked into later
        return queue

    def create(
        self,
        topic: str,
        queue_id: int,
        *,
        next_offset: QueueOffset = QUEUE_START,
        min_offset: QueueOffset = QUEUE_START,
    ) -> ConsumeQueue:
        """Make a queue that is not there yet, with its end where it is known to be."""
        queues = self.of_topic(topic)
        assert queue_id not in queues
        queue = ConsumeQueue(topic, queue_id, self.files, next_offset=next_offset, min_offset=min_offset)
        queues[queue_id] = queue
        return queue

    def remove_topic(self, topic: str) -> list[ConsumeQueue]:
        """Forget a topic's queues; holders of its dictionary find it empty. The files stay."""
        queues = self._topics.pop(topic, {})
        removed = list(queues.values())
        queues.clear()
        for queue in removed:
            self.files.forget(queue)
        return removed

    def remove_queue(self, queue: ConsumeQueue) -> None:
        """Forget one queue. The files stay."""
        del self._topics[queue.topic][queue.queue_id]
        self.files.forget(queue)

    @property
    def written_offset(self) -> PhysicalOffset:
        """Every unit of a record below this physical offset is in its file."""
        first = self.dirty.first()
        return self._log.append_offset if first is None else first.unit(first.tail_offset).physical_offset

    def write_dirty(self, count_max: int | None = None) -> int:
        """Write the tails of the queues that have waited longest, at most `count_max`; the number written.

        No room pauses the log, until a later call finds room.
        """
        dirty = self.dirty
        count = min(len(dirty), count_max if count_max is not None else len(dirty))
        for written in range(count):
            queue = dirty.first()
            assert queue is not None
            assert queue.tail_log_end <= self._log.append_offset, "the log is written before the units"
            try:
                queue.write_tail()
            except DiskFullError:
                self._log.pause(NO_ROOM_FOR_UNITS)
                logger.error("queue units not written topic=%s queue_id=%d", queue.topic, queue.queue_id)
                return written
            except OSError as error:
                self._log.fail(f"queue file not written: {error}")
                return written
            dirty.take_first()
            self.on_written(queue)
        if count and self._log.refusal == NO_ROOM_FOR_UNITS:
            self._log.resume()
        return count


def _nobody_follows(queue: ConsumeQueue) -> None:
    """What a table without other processes does with the news."""


def _at_zero(topic: str) -> QueueOffset:
    """Where queues begin in a store that began empty."""
    return QUEUE_START
