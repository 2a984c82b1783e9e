"""Config persister: the JSON state files of the broker, written durably by one thread.

Rules
  - A part registers its file once, with a function that encodes its present state. `await save(name)` returns when a
    state at least as new as the one at the call is durable.
  - Group commit: while one write is under way, callers wait; the next write takes all of them at once. A thousand
    topics created together cost two or three files written, not a thousand.
  - Encoding runs on the event loop, so a state is never torn; writing and syncing run in the one persister thread, so
    the loop never waits for a disk. Registered parts keep pieces encoded, so that encoding stays below a few
    milliseconds.
  - A file is replaced by temporary file, fsync, rename, fsync of the directory; the old one is kept as `.bak`, as
    Apache RocketMQ keeps it, and `load` falls back to it. A journal brings a `write` of its own (topic_journal.py).
  - A state that must not be durable before the log records that it depends on has a `durable_first`: the state is
    encoded, `durable_first` is awaited, then the file is written (log_first.py).
  - Encoding a table has no effect on it. Which changes of a table its file lacks, a table notes in `changes`; this
    persister tells it when a save begins and when it has become durable.
  - A write that fails wakes its callers with UnavailableError; the next `save` tries again with the state of that time.
Bound: one write at a time; callers that wait are bounded by the requests the server admits.
Owner: the hot process's event loop; `_write` runs in the thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from typing import Protocol

import msgspec

from thermocline.remoting.errors import ClosedError, UnavailableError
from thermocline.store.files import Disk, read_with_backup, replace_file

logger = logging.getLogger(__name__)


class ConfigSyncSite(StrEnum):
    """Where state files are made durable; beside each: what is lost without it (see store/files/sync_site.py)."""

    CONFIG_FILE = "config file"
    """A state file's content: an empty file in its place."""
    CONFIG_DIRECTORY = "config directory"
    """A state file's name: the state before."""


class StateFile(Protocol):
    """A table of the broker that has a file of its own."""

    def encode(self) -> bytes:
        """Return the file's content. Has no effect on the table: it may be called to show the table."""

    def load(self, data: bytes | None) -> None:
        """Load the file's content at the start; None: there is no file.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """


class Changes(Protocol):
    """Which changes of a table its file lacks: store/state/table_changes.py."""

    @property
    def is_unsaved(self) -> bool:
        """Whether there are any."""

    def begin_save(self) -> None:
        """The table is encoded now."""

    def end_save(self) -> None:
        """The state encoded since `begin_save` is durable."""


class _File(msgspec.Struct, frozen=True):
    path: str
    encode: Callable[[], bytes]
    changes: Changes | None
    durable_first: Callable[[], Awaitable[None]] | None
    write: Callable[[bytes], None] | None


def load_file(disk: Disk, path: str) -> bytes | None:
    """Read a state file, or its `.bak` when the file is missing or empty; None when there is neither.

    RocketMQ renames its files without a sync: after a power cut one may have its length, and zeroes for content.
    """
    return next((data for _path, data in read_with_backup(disk, path) if data.strip(_EMPTY)), None)


_EMPTY = b" \t\r\n\0"


class ConfigPersister:
    """Writes registered state files; see the module's header."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, _File] = {}
        # Callers by file, the file that waits longest first: no file that is always dirty starves the others.
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="config-persister")
        self._worker: asyncio.Task[None] | None = None
        self._is_closed = False

    def register(
        self,
        name: str,
        path: str,
        encode: Callable[[], bytes],
        *,
        changes: Changes | None = None,
        durable_first: Callable[[], Awaitable[None]] | None = None,
        write: Callable[[bytes], None] | None = None,
    ) -> None:
        """Name a file and the function that encodes its state. Once per name.

        `changes`: of the table, for `save_changed`. `durable_first`: called after the state was encoded; the file is
        written when it returns. `write`: makes durable what `encode` gave, in the persister's thread, never while
        `encode` runs; None: the file is replaced.
        """
        assert name not in self._files
        self._files[name] = _File(path, encode, changes, durable_first, write)

    def open(
        self,
        folder: str,
        name: str,
        table: StateFile,
        *,
        changes: Changes | None = None,
        durable_first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Register the file of a table, and let the table take over what is in it.

        Raises:
            CorruptDataError: The file cannot be read.
        """
        path = f"{folder}/{name}"
        self.register(name, path, table.encode, changes=changes, durable_first=durable_first)
        table.load(load_file(self._disk, path))

    async def save(self, name: str) -> None:
        """Return when the state as of now, or a later one, is durable. Cancelling gives up waiting, not the write.

        Raises:
            UnavailableError: The disk refused; what is on it is the state before.
            ClosedError: The persister is closed.
        """
        await self._enqueue(name)

    async def save_changed(self, name: str) -> None:
        """Return when no change of the table is unsaved that was made before the call; raises as `save`.

        A change that is being written counts as unsaved: it is written once more.
        """
        changes = self._files[name].changes
        assert changes is not None, f"{name} was registered without its changes"
        if changes.is_unsaved:
            await self.save(name)

    def request(self, name: str) -> None:
        """Ask for a save without waiting for it; a failure is logged and the file written again with the next save."""
        self._enqueue(name).add_done_callback(_log_failure)

    async def after_writes(self, action: Callable[[], None]) -> None:
        """Do something in the thread that writes, after the writes before it.

        Raises:
            ClosedError: The persister is closed.
        """
        if self._is_closed:
            raise ClosedError("config persister is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, action)

    async def close(self) -> None:
        """Write the requested files, then end the thread. Idempotent."""
        self._is_closed = True
        if self._worker is not None:
            await asyncio.shield(self._worker)
        self._thread.shutdown(wait=True)

    def _enqueue(self, name: str) -> asyncio.Future[None]:
        if self._is_closed:
            raise ClosedError("config persister is closed", file=name)
        assert name in self._files
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(name, []).append(waiter)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return waiter

    async def _work(self) -> None:
        """Write dirty files until none is left. At most one runs."""
        while self._waiters:
            name = next(iter(self._waiters))
            waiters = self._waiters.pop(name)
            failure = await self._write_file(self._files[name])
            for waiter in waiters:
                if waiter.done():
                    continue
                if failure is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(failure)
        self._worker = None

    async def _write_file(self, file: _File) -> BaseException | None:
        """Write one file; return the error for its waiters when that failed."""
        try:
            if file.changes is not None:
                file.changes.begin_save()
            data = file.encode()
            if file.durable_first is not None:
                await file.durable_first()
            write = file.write or partial(self._write, file.path)
            await asyncio.get_running_loop().run_in_executor(self._thread, write, data)
            if file.changes is not None:
                file.changes.end_save()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a write ends here: every waiter gets the error
            logger.error("state file not written path=%s error=%s", file.path, error)
            return UnavailableError("state file not written", path=file.path, reason=str(error))
        except BaseException as error:  # noqa: BLE001 - the waiters' task is the one to end by it, not this one
            return error
        return None

    def _write(self, path: str, data: bytes) -> None:
        replace_file(
            self._disk,
            path,
            data,
            keep_backup=True,
            file_site=ConfigSyncSite.CONFIG_FILE,
            directory_site=ConfigSyncSite.CONFIG_DIRECTORY,
        )


def _log_failure(waiter: asyncio.Future[None]) -> None:
    if not waiter.cancelled():
        waiter.exception()  # logged where it happened; taken here, so that asyncio does not report it again
