"""Queue file maker: makes the files of new queues in a helper thread, before the loop writes their first units.

    order (loop)   which of the queues that have waited longest to be written have no file yet
    make (thread)  folder, file, full length
    take (loop)    the open file, for the write that follows

A folder, a name and a length are some 250 us of system calls, a write to an open file 10: sends would wait for the
former when many queues are new at once.

Rules
  - Whatever is not made here is made by the write, with the same steps: two that make one file at the same time write
    the same bytes. An error here is left for that write to meet.
  - No file is made for a queue that the table has forgotten: `files.removal` is held by who removes a topic's files.
  - A write that comes between `make` and `take` has the folder synced as well (`ConsumeQueueFiles.write`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thermocline.remoting.errors import DiskFullError
from thermocline.store.files import Disk, DiskFile
from thermocline.store.queues.consume_queue import ConsumeQueue
from thermocline.store.queues.consume_queue_files import ConsumeQueueFiles, make_queue_file
from thermocline.store.queues.consume_queue_table import ConsumeQueueTable


class UnmadeFile(msgspec.Struct):
    """The file of a queue's next unit; `first_position`: that unit's place in it, in bytes."""

    queue: ConsumeQueue
    base_position: int
    first_position: int
    file: DiskFile | None = None


class QueueFileMaker:
    """See the module's header."""

    def __init__(self, disk: Disk, table: ConsumeQueueTable) -> None:
        self._disk = disk
        self._table = table
        self._files: ConsumeQueueFiles = table.files

    def order(self, count_max: int) -> list[UnmadeFile]:
        """The files that the first `count_max` dirty queues lack; each is to be given to `take` afterwards."""
        orders = []
        for queue in self._files.dirty.firsts(count_max):
            place = self._files.unmade_place(queue)
            if place is not None:
                orders.append(UnmadeFile(queue, *place))
                self._files.begin_making(queue, place[0])
        return orders

    def make(self, orders: Sequence[UnmadeFile]) -> None:
        """Make them. Helper thread."""
        for order in orders:
            queue = order.queue
            try:
                with self._files.removal:
                    if self._table.find(queue.topic, queue.queue_id) is queue:
                        order.file, _ = make_queue_file(
                            self._disk,
                            self._files.path_of(queue),
                            order.base_position,
                            first_position=order.first_position,
                            file_bytes=self._files.file_bytes,
                        )
            except (OSError, DiskFullError):
                return  # the write meets it too, and the log is paused or fails by it

    def take_orders(self, orders: Sequence[UnmadeFile]) -> None:
        """What was made is open; whatever became of `make`."""
        for order in orders:
            queue = order.queue
            is_live = self._table.find(queue.topic, queue.queue_id) is queue
            self._files.end_making(queue, order.base_position, order.file, is_live=is_live)
