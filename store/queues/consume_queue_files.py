"""Consume queue files: how units of all queues reach the disk, and come back.

One write per queue and tick, through descriptors of which the last used few hundred stay open; a map or descriptor per
queue would cost more than the queues. Files have their full length from the start, as Apache RocketMQ wants it, but
only blocks that were written to.

Rules
  - A file whose first units are not the queue's own is filled up to them with filler units, so that a scan from its
    start (Apache RocketMQ's recovery) does not take the queue for empty. It gets its full length last: a file of
    another length was not finished, and is made anew.
  - What was written since the last sync is remembered by queue and file; `take_unsynced` hands it to a helper thread.
Owner: the loop thread; `UnsyncedFiles.sync` runs in a helper thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice

from thermocline.remoting.errors import CorruptDataError, DiskFullError
from thermocline.remoting.offsets import LOG_START, QueueOffset
from thermocline.store.files import Disk, DiskFile, SyncSite, base_offset_of, file_name, parent_of
from thermocline.store.queues.consume_queue import FILLER, UNIT, ConsumeQueue

SYNC_EACH_MAX = 64
"""Above this many files one sync of their whole file system is cheaper than one each."""

FileKey = tuple[ConsumeQueue, int]
"""A queue and the byte position at which one of its files starts."""


class DirtyQueues:
    """Queues whose tail holds units, in the order in which they got their first one.

    A queue is on exactly while its tail holds something; who makes that so calls `add`, `discard` or `take_first`.
    """

    __slots__ = ("_discarded", "_queues", "add")

    def __init__(self) -> None:
        self._queues: deque[ConsumeQueue] = deque()
        self._discarded: dict[ConsumeQueue, int] = {}
        """Queues that were taken off out of their turn: how many of their places, the first ones, stand empty."""
        self.add = self._queues.append
        """Put on one queue that is not on. It is called for every message when there are as many queues."""

    def __len__(self) -> int:
        return len(self._queues) - sum(self._discarded.values())

    def discard(self, queue: ConsumeQueue) -> None:
        """Take off one that is on."""
        self._discarded[queue] = self._discarded.get(queue, 0) + 1

    def first(self) -> ConsumeQueue | None:
        """The queue that has waited longest."""
        queues, discarded = self._queues, self._discarded
        while discarded and (count := discarded.pop(queues[0], 0)):
            queue = queues.popleft()
            if count > 1:
                discarded[queue] = count - 1
        return queues[0] if queues else None

    def firsts(self, count_max: int) -> list[ConsumeQueue]:
        """The queues that have waited longest, at most so many; fewer where some were taken off out of their turn."""
        if self.first() is None:
            return []
        return [queue for queue in islice(self._queues, count_max) if queue not in self._discarded]

    def take_first(self) -> None:
        """Take off the queue that `first` has just given."""
        self._queues.popleft()


class UnsyncedFiles:
    """Queue files and folders that changed since they were last synced."""

    def __init__(self, disk: Disk, directory: str) -> None:
        # In order of their first change, so that a run of a test is the same every time.
        self.files: dict[FileKey, None] = {}
        self.directories: dict[str, None] = {}
        self._disk = disk
        self._directory = directory

    def sync(self) -> None:
        """Make all of it durable, contents before names. Helper thread. OSError when the disk fails."""
        if len(self.files) > SYNC_EACH_MAX:
            self._disk.sync_tree(self._directory, site=SyncSite.QUEUE_FILE)
            return
        for queue, base_position in self.files:
            path = f"{self._directory}/{queue.topic}/{queue.queue_id}/{file_name(base_position)}"
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                continue  # its topic was deleted meanwhile, or retention took it
            try:
                file.sync(site=SyncSite.QUEUE_FILE)
            finally:
                file.close()
        for path in sorted(self.directories, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self._disk.sync_directory(path, site=SyncSite.QUEUE_DIRECTORY)


class ConsumeQueueFiles:
    """Reads and writes units by queue offset."""

    def __init__(self, disk: Disk, directory: str, *, file_bytes: int, open_files_max: int) -> None:
        assert file_bytes % UNIT.size == 0
        self.dirty = DirtyQueues()
        self.log_min_offset = LOG_START
        self.directory = directory
        self.units_per_file = file_bytes // UNIT.size
        self.file_bytes = file_bytes
        self.removal = threading.Lock()
        """Held by who removes the files of a topic, and by who makes a file outside the loop thread."""
        self._making: set[FileKey] = set()
        self._disk = disk
        self._file_bytes = file_bytes
        self._open_files_max = open_files_max
        self._open: OrderedDict[FileKey, DiskFile] = OrderedDict()
        self._unsynced = UnsyncedFiles(disk, directory)

    def path_of(self, queue: ConsumeQueue) -> str:
        """The queue's folder."""
        return f"{self.directory}/{queue.topic}/{queue.queue_id}"

    def base_positions(self, topic: str, queue_id: int) -> list[int]:
        """Where the queue's files start, in bytes, ascending; empty when it has none."""
        try:
            names = self._disk.list_directory(f"{self.directory}/{topic}/{queue_id}")
        except FileNotFoundError:
            return []
        return [position for position in map(base_offset_of, names) if position is not None]

    def first_offset(self, queue: ConsumeQueue) -> QueueOffset:
        """The queue offset at which its oldest file starts; its tail's start when there is no file."""
        positions = self.base_positions(queue.topic, queue.queue_id)
        return QueueOffset(positions[0] // UNIT.size) if positions else queue.tail_offset

    def read(self, queue: ConsumeQueue, start: QueueOffset, end: QueueOffset) -> bytes:
        """Units [start, end), all of them.

        Raises:
            CorruptDataError: A file of the range is missing or cut short.
        """
        parts = []
        position, end_position = start * UNIT.size, end * UNIT.size
        while position < end_position:
            base_position = position - position % self._file_bytes
            stop = min(end_position, base_position + self._file_bytes)
            file = self._file(queue, base_position)
            data = b"" if file is None else file.read_at(stop - position, position - base_position)
            if len(data) != stop - position:
                raise CorruptDataError("queue file is gone or cut short", topic=queue.topic, queue_id=queue.queue_id)
            parts.append(data)
            position = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, queue: ConsumeQueue, start: QueueOffset, units: bytes) -> None:
        """Write units from queue offset `start` on, making files as needed.

        Raises:
            DiskFullError: There is no room. Part of it may be written; the same call may be repeated.
        """
        position, done = start * UNIT.size, 0
        while done < len(units):
            base_position = position - position % self._file_bytes
            piece = units[done : done + base_position + self._file_bytes - position]
            file = self._file(queue, base_position) or self._make(queue, base_position, position - base_position)
            file.write_at(piece, position - base_position)
            self._unsynced.files[queue, base_position] = None
            if self._making and (queue, base_position) in self._making:
                self.doubt_names(queue)
            position += len(piece)
            done += len(piece)

    def fill(self, queue: ConsumeQueue, start: QueueOffset, end: QueueOffset) -> None:
        """Write filler units for the offsets [start, end)."""
        while start < end:
            stop = min(end, start + self.units_per_file)
            self.write(queue, start, FILLER * (stop - start))
            start = stop

    def cut(self, queue: ConsumeQueue, end: QueueOffset, positions: Sequence[int]) -> None:
        """Make sure that the files at `positions` hold nothing at or behind queue offset `end`; recovery only."""
        end_position = end * UNIT.size
        for base_position in positions:
            if base_position + self._file_bytes <= end_position:
                continue
            if base_position >= end_position and base_position > positions[0]:
                self._forget(queue, base_position)
                self._disk.remove(f"{self.path_of(queue)}/{file_name(base_position)}")
                self._unsynced.directories[self.path_of(queue)] = None
                continue
            # The first file stays, even when it is empty: its name tells where the queue goes on.
            file = self._file(queue, base_position) or self._make(queue, base_position, 0)
            file.punch_from(max(0, end_position - base_position))
            self._unsynced.files[queue, base_position] = None

    def doubt_names(self, queue: ConsumeQueue) -> None:
        """Sync the names of a queue's files with the next round, too: a process that died may have made them."""
        path = self.path_of(queue)
        self._unsynced.directories |= dict.fromkeys((path, parent_of(path), self.directory))

    def delete_before(self, queue: ConsumeQueue, offset: QueueOffset) -> list[str]:
        """Paths of files whose units all lie below `offset`, never the newest file; forgets their descriptors."""
        positions = self.base_positions(queue.topic, queue.queue_id)
        paths = []
        for base_position in positions[:-1]:
            if base_position + self._file_bytes <= offset * UNIT.size:
                self._forget(queue, base_position)
                paths.append(f"{self.path_of(queue)}/{file_name(base_position)}")
        return paths

    def forget(self, queue: ConsumeQueue) -> None:
        """Close what is open of a queue that goes away."""
        if queue.tail:
            self.dirty.discard(queue)
        for key in [key for key in self._open if key[0] is queue]:
            self._forget(*key)

    def unmade_place(self, queue: ConsumeQueue) -> tuple[int, int] | None:
        """Where the file of the queue's next unit begins, and that unit in it, in bytes, when it has none yet.

        None also where only a read of the disk would show it.
        """
        position = queue.tail_offset * UNIT.size
        first_position = position % self._file_bytes
        key = (queue, position - first_position)
        is_new = first_position == 0 or queue.tail_offset == queue.known_min_offset
        return (key[1], first_position) if is_new and key not in self._open and key not in self._making else None

    def begin_making(self, queue: ConsumeQueue, base_position: int) -> None:
        """A file is being made in a helper thread: its names need a sync with the next write."""
        self._making.add((queue, base_position))

    def end_making(self, queue: ConsumeQueue, base_position: int, file: DiskFile | None, *, is_live: bool) -> None:
        """The file was made, or not; `is_live`: the queue is still in use."""
        key = (queue, base_position)
        self._making.discard(key)
        if is_live:
            self.doubt_names(queue)  # without a file, too: its folder may have been made
        if file is None:
            return
        if not is_live or key in self._open:
            file.close()
            return
        self._remember(key, file)

    def take_unsynced(self) -> UnsyncedFiles:
        """Hand over what is to be synced; writes from now on count for the next time."""
        taken, self._unsynced = self._unsynced, UnsyncedFiles(self._disk, self.directory)
        return taken

    def give_back(self, unsynced: UnsyncedFiles) -> None:
        """Take back what a failed sync has not made durable."""
        self._unsynced.files |= unsynced.files
        self._unsynced.directories |= unsynced.directories

    def close(self) -> None:
        """Close all descriptors; idempotent."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, queue: ConsumeQueue, base_position: int) -> DiskFile | None:
        """The open file, opened when it is not; None when there is none, or it was not finished."""
        key = (queue, base_position)
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
            return file
        try:
            file = self._disk.open(f"{self.path_of(queue)}/{file_name(base_position)}", random_access=True)
        except FileNotFoundError:
            return None
        # One that was written to since the last sync has been looked at.
        if key not in self._unsynced.files and file.size_bytes != self._file_bytes:
            file.close()
            return None
        self._remember(key, file)
        return file

    def _make(self, queue: ConsumeQueue, base_position: int, first_position: int) -> DiskFile:
        """Make a file whose first unit will be written at `first_position` in it."""
        directory = self.path_of(queue)
        try:
            file, is_new_directory = make_queue_file(
                self._disk, directory, base_position, first_position=first_position, file_bytes=self._file_bytes
            )
        except (OSError, DiskFullError):
            self.doubt_names(queue)  # the folder may have been made: the next try finds it, and would not sync its name
            raise
        if is_new_directory:
            self._unsynced.directories |= dict.fromkeys((parent_of(directory), self.directory))
        self._unsynced.directories[directory] = None
        self._remember((queue, base_position), file)
        return file

    def _remember(self, key: FileKey, file: DiskFile) -> None:
        self._open[key] = file
        while len(self._open) > self._open_files_max:
            _, oldest = self._open.popitem(last=False)
            oldest.close()

    def _forget(self, queue: ConsumeQueue, base_position: int) -> None:
        file = self._open.pop((queue, base_position), None)
        if file is not None:
            file.close()


def make_queue_file(
    disk: Disk, directory: str, base_position: int, *, first_position: int, file_bytes: int
) -> tuple[DiskFile, bool]:
    """Make a queue's file, filled up to `first_position`; open, and whether the folder was made too. Any thread.

    A file that is there keeps its units.

    Raises:
        DiskFullError: There is no room.
    """
    path = f"{directory}/{file_name(base_position)}"
    is_new_directory = False
    try:
        file = disk.open(path, create=True, random_access=True)
    except FileNotFoundError:
        disk.make_directory(directory)
        is_new_directory = True
        file = disk.open(path, create=True, random_access=True)
    try:
        if first_position:
            file.write_at(FILLER * (first_position // UNIT.size), 0)
        file.truncate(file_bytes)
    except BaseException:
        file.close()
        raise
    return file, is_new_directory
