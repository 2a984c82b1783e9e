"""Topic journal: makes the birth of a topic durable at the cost of one line, whatever the number of topics.

    add -> encode (loop) -> write (persister's thread): appended and synced, all that came meanwhile at once
    durable_count -> both tables written -> forget(that count) -> the next write replaces the file by the lines behind

Format and rules of reading: store/state/topic_births.py. When a write fails, its topics are refused and their lines
dropped; the next write replaces the file, so that no torn line stands in front of a valid one.
Owner: the hot process's event loop. `write` runs in the persister's thread, and `encode` never while it does: only
these two change what is known of the file.
"""

from __future__ import annotations

from enum import StrEnum

from thermocline.store.files import Disk, replace_file
from thermocline.store.state import TopicBirth

FILE_NAME = "topicBirths"


class JournalSyncSite(StrEnum):
    """Where the journal is made durable; beside each: what is lost without it (see store/files/sync_site.py)."""

    JOURNAL_FILE = "topic journal"
    """Lines: topics that were answered for."""
    JOURNAL_DIRECTORY = "topic journal directory"
    """The file's name: all of its lines."""


class TopicJournal:
    """Lines of topics that the tables do not have for certain."""

    def __init__(self, disk: Disk, path: str) -> None:
        """`path`: the file, whose content counts until `forget`, also that of an earlier process."""
        self._disk = disk
        self._path = path
        self._lines: list[bytes] = []
        self._durable_count = 0
        self._flying_count = 0
        self._forgotten_count = 0
        self._is_replacing = True  # the first write: what an earlier process has left is in the tables by then
        self._has_failed = False
        self._position = 0

    def __len__(self) -> int:
        """How many lines the tables do not have for certain."""
        return len(self._lines)

    def add(self, birth: TopicBirth) -> None:
        """A topic is being made; durable with the next write."""
        self._lines.append(birth.encode())

    def forget(self, count: int) -> None:
        """The oldest lines are in both tables, durably; they go with the next write."""
        assert count <= self._durable_count
        self._forgotten_count = count

    @property
    def durable_count(self) -> int:
        """How many of the oldest lines are durable."""
        return self._durable_count

    def encode(self) -> bytes:
        """The content for the next `write`: lines to append, or all of them."""
        if self._has_failed:
            del self._lines[self._durable_count : self._flying_count]
            self._has_failed, self._is_replacing = False, True
        if self._forgotten_count:
            del self._lines[: self._forgotten_count]
            self._durable_count -= self._forgotten_count
            self._forgotten_count, self._is_replacing = 0, True
        self._flying_count = len(self._lines)
        return b"".join(self._lines if self._is_replacing else self._lines[self._durable_count :])

    def write(self, data: bytes) -> None:
        """Make durable what `encode` gave. In the persister's thread.

        Raises:
            OSError, DiskFullError: It is not; what was durable is still.
        """
        try:
            if self._is_replacing:
                replace_file(
                    self._disk,
                    self._path,
                    data,
                    keep_backup=False,
                    file_site=JournalSyncSite.JOURNAL_FILE,
                    directory_site=JournalSyncSite.JOURNAL_DIRECTORY,
                )
                self._position = 0
            elif data:
                file = self._disk.open(self._path)
                try:
                    file.write_at(data, self._position)
                    file.sync(site=JournalSyncSite.JOURNAL_FILE)
                finally:
                    file.close()
        except BaseException:
            self._has_failed = True
            raise
        self._position += len(data)
        self._durable_count, self._is_replacing = self._flying_count, False
