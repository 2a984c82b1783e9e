"""FileObjectStore: a directory with the promises of `object_store.py`; every object is one file, its key the path.

    {root}/{key}                      objects
    {root}/.partial/{key}.{token}     what is being written; never listed, removed by `remove_incomplete`

How an object appears whole, durable and at most once
    make its folder durable; write the partial file, sync it; then
    create_if_absent:  link it to its name (fails when there is one), sync the folder, remove the partial name
    put:               rename it to its name, sync the folder
An object that exists is made durable before AlreadyExistsError says so: another process may have linked it and died
before its sync, and the caller builds upon its existence.

A tree (the first component of keys) that was there and is gone counts as no answer: its file system was unmounted. Its
objects are not missing, a listing of it is not empty, and nothing is written in its place.

All files go through the `Disk` seam. System calls run in helper threads, unless `in_thread` is false.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import posixpath
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

from thermocline.remoting.errors import (
    DiskFullError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    SegmentSizeError,
)
from thermocline.store.files import Disk, make_durable_directory, parent_of
from thermocline.tiered.objects import (
    AlreadyExistsError,
    Data,
    ObjectInfo,
    ObjectStoreRefusedError,
    ObjectSuffix,
    SegmentOffset,
    check_key,
)

PARTIAL_FOLDER = ".partial"
LIST_PAGE_COUNT = 1000
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems without hard links answer to one."""

Result = TypeVar("Result")


class ObjectSyncSite(StrEnum):
    """A place that makes an object durable; what is lost without it stands beside it."""

    CONTENT = "object content"
    """The object's bytes: a name with nothing behind it."""
    FOLDER = "object folder"
    """A folder's name in its parent: every object in it, however well synced."""
    NAME = "object name"
    """The object itself, after its store has answered."""
    FOUND = "object found"
    """Make an object durable that another process linked."""
    REMOVED = "object removed"
    """The deletion: entries of the ledger that come back above ones that did not."""


def _token() -> str:
    return uuid.uuid4().hex


class FileObjectStore:
    """See the module's header. Any number of processes may use one root."""

    def __init__(
        self, root: str, *, disk: Disk, in_thread: bool = True, make_token: Callable[[], str] = _token
    ) -> None:
        self._root = root.rstrip("/")
        self._disk = disk
        self._in_thread = in_thread
        self._make_token = make_token
        self._durable_folders: set[str] = set()
        self._trees: set[str] = set()
        """Those that have been there."""

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return await self._run(key, lambda: self._read_all(key))

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore."""
        assert 0 <= start < end
        data, _size_bytes = await self._run(key, lambda: self._read(key, start, end - start))
        if len(data) < end - start:
            raise SegmentSizeError("the object ends before the range", key=key, end=end, size_bytes=start + len(data))
        return data

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        assert size_bytes > 0
        data, object_bytes = await self._run(key, lambda: self._read(key, -size_bytes, size_bytes))
        return ObjectSuffix(data=data, size_bytes=object_bytes)

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        return await self._run(key, lambda: self._info(key))

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        check_key(key)
        await self._run(key, lambda: self._write(key, data, replace=True))

    async def create_if_absent(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        check_key(key)
        await self._run(key, lambda: self._write(key, data, replace=False))

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        folder = prefix.rpartition("/")[0]
        found = self._walk(folder, prefix.encode(), start_after.encode())
        while True:
            page = await self._run(prefix, lambda: self._page_of(found, prefix))
            for info in page:
                yield info
            if len(page) < LIST_PAGE_COUNT:
                return

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        await self._run(key, lambda: self._delete(key))

    async def delete_many(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        for key in keys:
            await self.delete(key)

    async def remove_incomplete(self, prefix: str) -> int:
        """See ObjectStore."""
        return await self._run(prefix, lambda: self._remove_incomplete(prefix))

    async def close(self) -> None:
        """See ObjectStore."""

    async def _run(self, key: str, work: Callable[[], Result]) -> Result:
        """Do blocking work, and translate what the file system says."""

        def attempt() -> Result:
            try:
                return work()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                self._check_tree(key)
                raise ObjectNotFoundError("there is no such object", key=key) from error

        try:
            return await asyncio.to_thread(attempt) if self._in_thread else attempt()
        except (PermissionError, FileExistsError) as error:
            raise ObjectStoreRefusedError("the file system refuses", key=key, reason=error.strerror) from error
        except (DiskFullError, OSError) as error:
            raise ObjectStoreUnavailableError("the file system fails", key=key, reason=str(error)) from error

    def _check_tree(self, key: str) -> None:
        """ObjectStoreUnavailableError when the tree of a key, or of the beginning of one, was there and is gone."""
        tree, _, _ = key.rpartition("/")[0].partition("/")
        if tree in self._trees and not self._disk.is_directory(f"{self._root}/{tree}"):
            raise ObjectStoreUnavailableError("the directory is gone: its file system is not mounted", key=key)

    def _was_there(self, key: str) -> None:
        tree, slash, _ = key.partition("/")
        if slash:
            self._trees.add(tree)

    def _page_of(self, found: Iterator[ObjectInfo], prefix: str) -> tuple[ObjectInfo, ...]:
        """The next objects of a listing, which does not end because its tree is gone."""
        page = tuple(itertools.islice(found, LIST_PAGE_COUNT))
        if len(page) < LIST_PAGE_COUNT:
            self._check_tree(prefix)
        return page

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    def _read_all(self, key: str) -> bytes:
        data = self._disk.read(self._path(key))
        self._was_there(key)
        return data

    def _read(self, key: str, position: int, size_bytes: int) -> tuple[bytes, int]:
        """Up to `size_bytes` from a position, which counts from the end when negative; and the size of the object."""
        file = self._disk.open(self._path(key))
        self._was_there(key)
        try:
            object_bytes = file.size_bytes
            start = position if position >= 0 else max(0, object_bytes + position)
            return file.read_at(size_bytes, start), object_bytes
        finally:
            file.close()

    def _info(self, key: str) -> ObjectInfo:
        path = self._path(key)
        if self._disk.is_directory(path):
            raise FileNotFoundError(path)
        modified_ms = self._disk.modified_ms(path)
        size_bytes = self._disk.size_bytes(path)
        self._was_there(key)
        return ObjectInfo(
            key=key, size_bytes=size_bytes, etag=f"{modified_ms:x}-{size_bytes:x}", modified_ms=modified_ms
        )

    def _write(self, key: str, data: Data, *, replace: bool) -> None:
        disk, path = self._disk, self._path(key)
        folder = posixpath.dirname(path)
        partial = f"{self._root}/{PARTIAL_FOLDER}/{key}.{self._make_token()}"
        try:
            if folder not in self._durable_folders:
                self._check_tree(key)
                self._make_durable(folder)
            self._was_there(key)
            disk.make_directory(posixpath.dirname(partial))
            file = disk.open(partial, create=True)
            try:
                file.write_at(data, 0)
                file.sync(site=ObjectSyncSite.CONTENT)
            finally:
                file.close()
            if replace:
                disk.rename(partial, path)
                disk.sync_directory(folder, site=ObjectSyncSite.NAME)
                return
            try:
                disk.link(partial, path)
            except FileExistsError:
                disk.sync_directory(folder, site=ObjectSyncSite.FOUND)
                raise AlreadyExistsError(key=key) from None
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                text = "this file system has no hard links, by which an object is created once"
                raise ObjectStoreRefusedError(text, key=key, reason=error.strerror) from error
            disk.sync_directory(folder, site=ObjectSyncSite.NAME)
            disk.remove(partial)
        except (NotADirectoryError, IsADirectoryError) as error:
            raise ObjectStoreRefusedError("the key is a folder of another, or below an object", key=key) from error
        except FileNotFoundError as error:
            with contextlib.suppress(OSError):
                disk.remove(partial)
            self._check_tree(key)
            # A tool has deleted the key's folder, as it was empty: the next attempt makes it again.
            self._durable_folders.clear()
            raise ObjectStoreUnavailableError(
                "the partial file or its folder was removed meanwhile", key=key
            ) from error
        except BaseException:
            with contextlib.suppress(OSError):
                disk.remove(partial)
            raise

    def _make_durable(self, folder: str) -> None:
        """Make a folder and the names of all above it durable, once in the life of this store.

        One that exists may have been made by a process that died before its sync.
        """
        make_durable_directory(self._disk, self._root)
        self._disk.make_directory(folder)
        chain = [folder]
        while chain[-1] != self._root and chain[-1] not in self._durable_folders:
            chain.append(parent_of(chain[-1]))
        for made in reversed(chain):
            self._disk.sync_directory(parent_of(made), site=ObjectSyncSite.FOLDER)
        self._durable_folders.update(chain)

    def _delete(self, key: str) -> None:
        path = self._path(key)
        try:
            self._disk.remove(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._check_tree(key)
            return
        self._disk.sync_directory(posixpath.dirname(path), site=ObjectSyncSite.REMOVED)

    def _walk(self, folder: str, prefix: bytes, start_after: bytes) -> Iterator[ObjectInfo]:
        """Objects below `folder` in the order of their keys' bytes: a folder sorts as its name and a slash."""
        path = f"{self._root}/{folder}" if folder else self._root
        try:
            names = self._disk.list_directory(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        keys: list[tuple[bytes, str, bool]] = []
        for name in names:
            key = f"{folder}/{name}" if folder else name
            if key != PARTIAL_FOLDER:
                is_folder = self._disk.is_directory(f"{self._root}/{key}")
                keys.append(((key + "/" if is_folder else key).encode(), key, is_folder))
        for order, key, is_folder in sorted(keys):
            if is_folder:
                inside = order.startswith(prefix) or prefix.startswith(order)
                if inside and (order > start_after or start_after.startswith(order)):
                    yield from self._walk(key, prefix, start_after)
            elif order.startswith(prefix) and order > start_after:
                with contextlib.suppress(FileNotFoundError):
                    yield self._info(key)

    def _remove_incomplete(self, prefix: str) -> int:
        disk, base = self._disk, f"{self._root}/{PARTIAL_FOLDER}"
        count = 0
        waiting = [prefix.rpartition("/")[0]]
        while waiting:
            folder = waiting.pop()
            path = f"{base}/{folder}" if folder else base
            try:
                names = disk.list_directory(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name in names:
                key = f"{folder}/{name}" if folder else name
                if disk.is_directory(f"{base}/{key}"):
                    if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                        waiting.append(key)
                elif key.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):
                        disk.remove(f"{base}/{key}")
                        count += 1
        return count
