"""File allocator: log files made ahead of need by a helper thread.

A file is made under `staging/`, given all its blocks, synced, renamed into the log's folder, and the folder synced. So
the log's folder never shows a file of a length that Apache RocketMQ would refuse, a file that is handed out survives a
power cut, and a full disk is met here, as an answer, long before a record is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files.disk import Disk, DiskFile
from thermocline.store.files.mapped_file import MappedFile, file_name
from thermocline.store.files.sync_site import SyncSite

logger = logging.getLogger(__name__)


NICE = 10
"""By how much the helper thread gives way to the others where cores are few."""


def make_allocator_executor() -> ThreadPoolExecutor:
    """One helper thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="log-allocator", initializer=_give_way)


def _give_way() -> None:
    with contextlib.suppress(OSError, AttributeError):  # only Linux has priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class FileAllocator:
    """Makes log files. `prepare` and `take` belong to the loop thread, `_make` runs in the executor's."""

    def __init__(self, disk: Disk, *, directory: str, staging: str, file_bytes: int, executor: Executor) -> None:
        self._disk = disk
        self._directory = directory
        self._staging = staging
        self._file_bytes = file_bytes
        self._executor = executor
        self._prepared: tuple[int, Future[DiskFile]] | None = None

    def clear_staging(self) -> None:
        """Remove what a crash left half made. Once, at the start."""
        for name in self._disk.list_directory(self._staging):
            self._disk.remove(f"{self._staging}/{name}")

    def prepare(self, base_offset: PhysicalOffset) -> None:
        """Start to make this file, unless that has been started. At most one is made ahead."""
        if self._prepared is None:
            self._prepared = base_offset, self._executor.submit(self._make, base_offset)

    def take_file(self, base_offset: PhysicalOffset) -> MappedFile:
        """The file, waited for when it is being made, made now when it is not.

        Raises:
            DiskFullError: There is no room for it.
        """
        file: DiskFile | None = None
        if self._prepared is not None:
            prepared_offset, future = self._prepared
            self._prepared = None
            assert prepared_offset == base_offset
            # What failed ahead of need is tried again now: room may have come back.
            with contextlib.suppress(Exception):
                file = future.result()
        if file is None:
            file = self._make(base_offset)
        return MappedFile(file, base_offset=base_offset, size_bytes=self._file_bytes)

    def load_pages(self, file: DiskFile, *, position: int, size_bytes: int) -> None:
        """Have a range of a log file in memory before it is written to."""
        self._executor.submit(file.load_pages, position, size_bytes)

    def discard(self) -> None:
        """Wait for what is being made, and remove it: nothing was written to it. Idempotent."""
        if self._prepared is not None:
            base_offset, future = self._prepared
            self._prepared = None
            with contextlib.suppress(Exception):
                future.result().close()
                self._disk.remove(f"{self._directory}/{file_name(base_offset)}")

    def _make(self, base_offset: PhysicalOffset) -> DiskFile:
        name = file_name(base_offset)
        staged = f"{self._staging}/{name}"
        file = self._disk.open(staged, create=True)
        try:
            file.truncate(0)  # a file left by a crash may hold anything
            file.allocate(self._file_bytes)
            file.sync(site=SyncSite.LOG_ALLOCATE)
            self._disk.rename(staged, f"{self._directory}/{name}")
            self._disk.sync_directory(self._directory, site=SyncSite.LOG_DIRECTORY)
        except Exception as error:
            logger.error("log file not allocated base_offset=%d error=%s", base_offset, error)
            file.close()
            with contextlib.suppress(OSError):
                self._disk.remove(staged)
            raise
        return file
