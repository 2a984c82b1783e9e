"""Disk: the one seam between the store and the file system.

Everything that is to survive a power cut goes through a `Disk`, so that a test can put a simulated one in its place
which forgets, tears and reorders whatever was not synced. The rules that it holds its callers to are POSIX's, read
strictly:

  - What is written to a file is durable after `sync` of that file; its name after `sync_directory` of its folder.
  - A rename or link is one step: after a cut it has happened or not, in either case whole. Steps that no
    `sync_directory` has covered may be lost one by one, in any order.
  - `replace_file` is the way to change a small file: afterwards it holds the new bytes, before a cut the old ones.

Paths are text with `/`. Operating system errors pass through as they are (FileNotFoundError, FileExistsError), save
that a full disk is a DiskFullError. `RealDisk` at the end is the file system itself; its system calls release the
interpreter lock, so helper threads may sit in them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from thermocline.remoting.errors import DiskFullError, UnavailableError
from thermocline.store.files.page_loader import load_pages
from thermocline.store.files.private_files import PRIVATE, FileModes, make_directory

BACKUP_SUFFIX = ".bak"
TEMPORARY_SUFFIX = ".tmp"
FALLOCATE_ZERO_RANGE = 0x10
FALLOCATE_PUNCH_HOLE = 0x03
"""Hole, with the length kept."""
ZEROES_BYTES = 1 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

Buffer = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """One open file. Positions are bytes from its start."""

    @property
    def path(self) -> str:
        """Where it was opened."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its length now."""
        ...

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data`; DiskFullError when there is no room (part of it may be written)."""
        ...

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes`; fewer only where the file ends."""
        ...

    def view(self) -> memoryview:
        """Map the whole file for reading. Follows later writes; stays valid after `close` and after removal."""
        ...

    def allocate(self, size_bytes: int) -> None:
        """Make the file this long, with its blocks taken; DiskFullError when there is no room."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Set the length; new bytes are zero and take no blocks."""
        ...

    def zero_from(self, position: int) -> None:
        """Make everything from `position` to the end zero, its blocks allocated. The length never changes."""
        ...

    def punch_from(self, position: int) -> None:
        """Make everything from `position` to the end zero, its blocks given back. The length never changes."""
        ...

    def load_pages(self, position: int, size_bytes: int) -> None:
        """Have this range in memory, so that a write to it need not wait for memory. Only advice; any thread."""
        ...

    def leave_pages(self, position: int, size_bytes: int) -> None:
        """What `view` shows of this range need not count as this process's memory any more; it can be read as before.
        Only advice."""
        ...

    def sync(self, *, site: str = "") -> None:
        """Make content and length durable."""
        ...

    def close(self) -> None:
        """Give the descriptor back; idempotent. Maps stay."""
        ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False, random_access: bool = False) -> DiskFile:
        """Open for reading and writing. `create`: make it when missing. `random_access`: without read-ahead."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it; one that exists is fine."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it; one that is missing is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; a file of the target's name is replaced."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; FileExistsError when it is taken."""
        ...

    def sync_directory(self, path: str, *, site: str = "") -> None:
        """Make the names in a folder durable."""
        ...

    def sync_tree(self, path: str, *, site: str = "") -> None:
        """Make everything below a folder durable, names too: cheaper than file after file when there are many."""
        ...

    def read(self, path: str) -> bytes:
        """The whole content of a file."""
        ...

    def size_bytes(self, path: str) -> int:
        """The length of a file."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last written to."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room that is left for us on the file system of this folder."""
        ...

    def total_bytes(self, path: str) -> int:
        """Used plus free bytes of that file system: what a usage ratio is a ratio of."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Lock a file against other processes (as Apache RocketMQ locks it) and ourselves; gives the release.

        Raises:
            UnavailableError: Another process, or this one, holds it.
        """
        ...

    def is_locked_here(self, path: str) -> bool:
        """Whether the file there is still the one that this process has locked: not gone, not another one."""
        ...


def replace_file(
    disk: Disk, path: str, data: bytes, *, keep_backup: bool, file_site: str = "", directory_site: str = ""
) -> None:
    """Give a file new content in one step, durable on return: a cut leaves the old bytes or the new ones.

    `keep_backup` moves the old file to `.bak` first, as Apache RocketMQ does; between the two renames only the backup
    is there, so readers fall back to it.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        file.sync(site=file_site)
    finally:
        file.close()
    if keep_backup and disk.exists(path):
        disk.rename(path, path + BACKUP_SUFFIX)
    disk.rename(temporary, path)
    disk.sync_directory(parent_of(path), site=directory_site)


def read_with_backup(disk: Disk, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield a file's path and content, then those of its backup; of each only when it is there.

    Another process may replace the file meanwhile: it is opened without asking first whether it exists.
    """
    for candidate in (path, path + BACKUP_SUFFIX):
        try:
            data = disk.read(candidate)
        except FileNotFoundError:
            continue
        yield candidate, data


def make_durable_directory(disk: Disk, path: str, *, site: str = "") -> None:
    """Make a folder and those above it, names durable on return."""
    missing = []
    ancestor = path
    while not disk.exists(ancestor):
        missing.append(ancestor)
        ancestor = parent_of(ancestor)
    if missing:
        disk.make_directory(path)
        for made in reversed(missing):
            disk.sync_directory(parent_of(made), site=site)


def parent_of(path: str) -> str:
    """The folder that holds `path`."""
    parent = path.rstrip("/").rpartition("/")[0]
    if parent:
        return parent
    return "/" if path.startswith("/") else "."


@contextmanager
def _full_disk_is_an_answer(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError("no room left on the disk", path=path) from error
        raise


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_mapping", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._mapping: mmap.mmap | None = None

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Its length now."""
        return os.fstat(self._descriptor).st_size

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data`; DiskFullError when there is no room (part of it may be written)."""
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                rest = memoryview(data)
                while written < len(rest):
                    written += os.pwrite(self._descriptor, rest[written:], position + written)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFullError("no room left on the disk", path=self._path) from error
            raise

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes`; fewer only where the file ends."""
        data = os.pread(self._descriptor, size_bytes, position)
        while len(data) < size_bytes:
            more = os.pread(self._descriptor, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def view(self) -> memoryview:
        """Map the whole file for reading; the map exists as long as a slice of it."""
        if self._mapping is None:
            self._mapping = mmap.mmap(self._descriptor, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        return memoryview(self._mapping)

    def allocate(self, size_bytes: int) -> None:
        """Make the file this long, with its blocks taken."""
        with _full_disk_is_an_answer(self._path):
            os.posix_fallocate(self._descriptor, 0, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Set the length; new bytes are zero and take no blocks."""
        with _full_disk_is_an_answer(self._path):
            os.ftruncate(self._descriptor, size_bytes)

    def zero_from(self, position: int) -> None:
        """Make everything from `position` to the end zero, its blocks allocated."""
        if not _fallocate(self._descriptor, FALLOCATE_ZERO_RANGE, position, self.size_bytes - position):
            self._write_zeroes(position)

    def punch_from(self, position: int) -> None:
        """Make everything from `position` to the end zero, its blocks given back."""
        if not _fallocate(self._descriptor, FALLOCATE_PUNCH_HOLE, position, self.size_bytes - position):
            self._write_zeroes(position)

    def _write_zeroes(self, position: int) -> None:
        """Write over what is not zero yet: for file systems that know no ranges."""
        while data := self.read_at(ZEROES_BYTES, position):
            if data.count(0) != len(data):
                self.write_at(bytes(len(data)), position)
            position += len(data)

    def load_pages(self, position: int, size_bytes: int) -> None:
        """Have this range in the page cache."""
        if size_bytes:
            load_pages(self._descriptor, position, size_bytes)

    def leave_pages(self, position: int, size_bytes: int) -> None:
        """Drop the map's pages in this range; the page cache keeps them."""
        start = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (position + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if self._mapping is not None and length > 0:
            self._mapping.madvise(mmap.MADV_DONTNEED, start, length)

    def sync(self, *, site: str = "") -> None:
        """fdatasync: content, and the length that is needed to read it."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._mapping = None


class RealDisk:
    """The file system of this machine."""

    # One per process on purpose: record locks do not exclude ourselves. Device and inode by path.
    _locked: dict[str, tuple[int, int]] = {}  # noqa: RUF012

    def __init__(self, modes: FileModes = PRIVATE) -> None:
        """`modes`: of files and folders that are made through it."""
        self._modes = modes

    def open(self, path: str, *, create: bool = False, random_access: bool = False) -> RealFile:
        """Open for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _full_disk_is_an_answer(path):
            descriptor = os.open(path, flags, self._modes.file)
        if create and not self._modes.is_private:
            with suppress(PermissionError):  # some network file systems have modes of their own
                os.fchmod(descriptor, self._modes.file)  # the process's umask is for what is private
        if random_access:
            # Without it one touch of a sparse file reads megabytes of nothing into the page cache.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return RealFile(path, descriptor)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        return os.path.isdir(path)

    def list_directory(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it."""
        with _full_disk_is_an_answer(path):
            make_directory(path, self._modes)

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if os.path.exists(path):
                raise

    def rename(self, source: str, target: str) -> None:
        """Rename; a file of the target's name is replaced."""
        with _full_disk_is_an_answer(target):
            os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; FileExistsError when it is taken."""
        with _full_disk_is_an_answer(target):
            os.link(source, target)

    def sync_directory(self, path: str, *, site: str = "") -> None:
        """Make the names in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_tree(self, path: str, *, site: str = "") -> None:
        """syncfs: one call for the whole file system, however many files there are."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync_file_system(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        """The whole content of a file."""
        with open(path, "rb") as file:
            return file.read()

    def size_bytes(self, path: str) -> int:
        """The length of a file."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When a file was last written to."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def free_bytes(self, path: str) -> int:
        """Room that is left for us."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        """Used plus free bytes, as `df` counts them."""
        status = os.statvfs(path)
        return (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        """Take the record lock on the file's first byte, as Java's FileChannel.tryLock(0, 1) does."""
        real_path = os.path.realpath(path)
        if real_path in self._locked:
            raise UnavailableError("this process has the store open already", path=path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE.file)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise UnavailableError("another process has the store open", path=path) from error
        os.pwrite(descriptor, b"lock", 0)
        self._locked[real_path] = _identity(os.fstat(descriptor))

        def release() -> None:
            self._locked.pop(real_path, None)
            os.close(descriptor)

        return release

    def is_locked_here(self, path: str) -> bool:
        """Look where the path leads now."""
        try:
            found = _identity(os.stat(path))
        except FileNotFoundError:
            return False
        return found == self._locked.get(os.path.realpath(path))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _find_sync_file_system() -> Callable[[int], None]:
    """syncfs(2), which reports write errors of its file system since Linux 5.8; sync(2) where there is none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return lambda _descriptor: os.sync()
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int

    def sync_file_system(descriptor: int) -> None:
        if function(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return sync_file_system


def _find_fallocate() -> Callable[[int, int, int, int], bool]:
    """fallocate(2) with a mode; its answer is whether the file system can do that."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return lambda _descriptor, _mode, _position, _size_bytes: False
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    function.restype = ctypes.c_int

    def fallocate(descriptor: int, mode: int, position: int, size_bytes: int) -> bool:
        return size_bytes == 0 or bool(function(descriptor, mode, position, size_bytes) == 0)

    return fallocate


_sync_file_system = _find_sync_file_system()
_fallocate = _find_fallocate()
