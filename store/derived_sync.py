"""Derived sync: make queues durable up to an offset, then write down that they are.

    loop thread    advance() until it says done: writes the queues' tails, reads their ends, a slice at a time
    helper thread  commit(): sync log, queue files, then queue ends, then checkpoint

The order is the point: queue ends promise what the steps before made true (queue_ends.py). A commit that fails leaves
the old promise standing; what was to be synced is given back for the next one. But when queue files could not be synced
there is no next one: the kernel may have dropped their pages, and would report the next sync as good. The log fails,
and the next start makes the units anew, from the last promise on.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk
from thermocline.store.log import CommitLog
from thermocline.store.queues import ConsumeQueueTable, TopicEnds, UnsyncedFiles, encode_queue_ends, save_queue_ends
from thermocline.store.state import StoreCheckpoint, TopicIncarnations

QUEUES_PER_SLICE = 500
WRITES_PER_READ = 25
"""How much dearer it is to write a queue's tail than to read its end."""


class DerivedRounds(msgspec.Struct, kw_only=True):
    """Which rounds there have been, and what the last that was committed promises."""

    recovery_offset: PhysicalOffset
    """Everything derived from records below it is durable."""
    begun: int = 0
    is_over: bool = False
    """Whether queue files could not be synced, or cut: nothing is promised until the store is opened again."""
    committed: int = 0
    """The number of the last round that was committed: what was so before it began is durable."""


class DerivedSync:
    """One round. Made, advanced and finished by the loop thread; committed by a helper thread in between."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        *,
        log: CommitLog,
        queues: ConsumeQueueTable,
        incarnations: TopicIncarnations,
        store_timestamp_ms: int,
        index_timestamp_ms: int,
        number: int,
        confirm_offset: PhysicalOffset = LOG_START,
        queues_per_slice: int = QUEUES_PER_SLICE,
    ) -> None:
        """`store_timestamp_ms`: the clock's last, so no record in the log so far is later. `confirm_offset`:
        the log below it is on all brokers of the SyncStateSet."""
        self.number = number
        self.recovery_offset = log.append_offset
        self.has_doubts = False
        """Whether queue files could not be synced."""
        self._disk = disk
        self._config = config
        self._log = log
        self._queues = queues
        self._incarnations = incarnations
        self._store_timestamp_ms = store_timestamp_ms
        self._index_timestamp_ms = index_timestamp_ms
        self._confirm_offset = confirm_offset
        self._queues_per_slice = queues_per_slice
        self._capture_offset = self.recovery_offset
        self._topics: list[bytes] = []
        self._unsynced: UnsyncedFiles | None = None
        self._slices = self._capture()

    def advance(self) -> bool:
        """Do one slice of the loop thread's part; whether it is done."""
        return next(self._slices, None) is None

    def commit(self) -> None:
        """Make it durable. Helper thread.

        Raises:
            StoreClosedError: The log's flush failed.
            OSError, DiskFullError: Queue files or queue ends could not be synced or written. If it was queue files, the
                log has failed.
        """
        assert self._unsynced is not None
        flush_offset = self._log.flush()
        assert flush_offset >= self._capture_offset
        try:
            self._unsynced.sync()
        except OSError as error:
            self.has_doubts = True
            self._log.fail(f"queue files not synced: {error}")
            raise
        data = encode_queue_ends(
            self._topics,
            recovery_offset=self.recovery_offset,
            capture_offset=self._capture_offset,
            store_timestamp_ms=self._store_timestamp_ms,
        )
        save_queue_ends(self._disk, self._config.queue_ends_path, data)
        checkpoint = StoreCheckpoint(
            log_timestamp_ms=self._store_timestamp_ms,
            queue_timestamp_ms=self._store_timestamp_ms,
            index_timestamp_ms=self._index_timestamp_ms,
            confirm_offset=self._confirm_offset,
        )
        checkpoint.save(self._disk, self._config.checkpoint_path)
        self._unsynced = None

    def abandon(self) -> None:
        """Give back what a failed commit has not made durable. Loop thread."""
        if self._unsynced is not None:
            self._queues.files.give_back(self._unsynced)
            self._unsynced = None

    def _capture(self) -> Iterator[bool]:
        """Write tails until none holds a unit below the recovery offset, then read all ends."""
        while self._queues.written_offset < self.recovery_offset:
            if self._queues.write_dirty(-(-self._queues_per_slice // WRITES_PER_READ)) == 0:
                # No room: what is written is the most that can be promised.
                self.recovery_offset = min(self.recovery_offset, self._queues.written_offset)
            yield True
        count = 0
        for topic in self._queues.topics:
            ends = ends_of_topic(topic, self._queues, self._incarnations)
            self._topics.append(ends.encode())
            count += len(ends.queues)
            if count >= self._queues_per_slice:
                count = 0
                yield True
        self._capture_offset = self._log.append_offset
        self._unsynced = self._queues.files.take_unsynced()


def ends_of_topic(topic: str, queues: ConsumeQueueTable, incarnations: TopicIncarnations) -> TopicEnds:
    """Where the queues of a topic end now."""
    return TopicEnds(
        topic=topic,
        incarnation_id=incarnations.recorded_id(topic),
        expired_before_ms=incarnations.find(topic).expired_before_ms,
        queues=tuple(
            (queue.queue_id, queue.next_offset, queue.tail_offset, queue.known_min_offset)
            for queue in queues.of_topic(topic).values()
        ),
    )
