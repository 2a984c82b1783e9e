"""TapedDisk: a disk that records its changing calls on a tape. It wraps a simulated disk or the real one.

`die` ends it for the process that holds it: every later call raises, so that whatever that process still tries to do
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.points.tape import Layer, Side, Tape
from thermocline.store.files.disk import Buffer, Disk, DiskFile, parent_of
from thermocline.tiered.wrappers import ProcessCrash


class TapedDisk:
    """See the module's header; methods as `Disk` has them."""

    def __init__(self, inner: Disk, tape: Tape, *, root_path: str, now_ms: Callable[[], int]) -> None:
        """`root_path`: the tape has paths from the folder on that it is in. `now_ms`: when a file was written to."""
        self._now_ms = now_ms
        self._modified_ms: dict[str, int] = {}
        self._inner = inner
        self._tape = tape
        self._prefix_length = len(parent_of(root_path))
        self._is_dead = False
        self._unlocks: list[Callable[[], None]] = []

    def die(self) -> None:
        """The process that holds it is no more: its locks are free."""
        self._is_dead = True
        for unlock in self._unlocks:
            unlock()
        self._unlocks.clear()

    def check(self) -> None:
        """Nothing more is done for a dead process."""
        if self._is_dead:
            raise ProcessCrash

    def change(self, verb: str, path: str, call: Callable[[], None]) -> None:
        """A call that changes something."""
        self.check()
        side = self._tape.record(Layer.FILE, verb, path[self._prefix_length :].lstrip("/"))
        if side is Side.BEFORE:
            self._stop()
        try:
            call()
            self._modified_ms[path] = self._now_ms()
        finally:
            if side is Side.AFTER:
                self._stop()  # also behind a call that failed: its folder may not be there yet

    def _stop(self) -> None:
        self.die()
        self._tape.stop()

    def open(self, path: str, *, create: bool = False, random_access: bool = False) -> DiskFile:
        self.check()
        opened: list[DiskFile] = []

        def call() -> None:
            opened.append(self._inner.open(path, create=create, random_access=random_access))

        if create and not self._inner.exists(path):
            self.change("create", path, call)
        else:
            call()
        return TapedFile(self, opened[0])

    def exists(self, path: str) -> bool:
        self.check()
        return self._inner.exists(path)

    def is_directory(self, path: str) -> bool:
        self.check()
        return self._inner.is_directory(path)

    def list_directory(self, path: str) -> list[str]:
        self.check()
        return self._inner.list_directory(path)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self.change("make_directory", path, lambda: self._inner.make_directory(path))

    def remove(self, path: str) -> None:
        self.change("remove", path, lambda: self._inner.remove(path))

    def remove_tree(self, path: str) -> None:
        self.change("remove_tree", path, lambda: self._inner.remove_tree(path))

    def rename(self, source: str, target: str) -> None:
        self.change("rename", target, lambda: self._inner.rename(source, target))

    def link(self, source: str, target: str) -> None:
        self.change("link", target, lambda: self._inner.link(source, target))

    def sync_directory(self, path: str, *, site: str = "") -> None:
        self.change("sync_directory", path, lambda: self._inner.sync_directory(path, site=site))

    def sync_tree(self, path: str, *, site: str = "") -> None:
        self.change("sync_tree", path, lambda: self._inner.sync_tree(path, site=site))

    def read(self, path: str) -> bytes:
        self.check()
        return self._inner.read(path)

    def size_bytes(self, path: str) -> int:
        self.check()
        return self._inner.size_bytes(path)

    def modified_ms(self, path: str) -> int:
        self.check()
        own_ms = self._inner.modified_ms(path)  # of a file that an earlier process wrote
        return self._modified_ms.get(path, own_ms)

    def free_bytes(self, path: str) -> int:
        return self._inner.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._inner.total_bytes(path)

    def lock(self, path: str) -> Callable[[], None]:
        self.check()
        unlock = self._inner.lock(path)
        self._unlocks.append(unlock)

        def release() -> None:
            if unlock in self._unlocks:
                self._unlocks.remove(unlock)
                unlock()

        return release

    def is_locked_here(self, path: str) -> bool:
        return self._inner.is_locked_here(path)


class TapedFile:
    """An open file of it; methods as `DiskFile` has them."""

    def __init__(self, disk: TapedDisk, inner: DiskFile) -> None:
        self._disk = disk
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def write_at(self, data: Buffer, position: int) -> None:
        self._disk.change("write", self.path, lambda: self._inner.write_at(data, position))

    def read_at(self, size_bytes: int, position: int) -> bytes:
        self._disk.check()
        return self._inner.read_at(size_bytes, position)

    def view(self) -> memoryview:
        self._disk.check()
        return self._inner.view()

    def allocate(self, size_bytes: int) -> None:
        self._disk.change("allocate", self.path, lambda: self._inner.allocate(size_bytes))

    def truncate(self, size_bytes: int) -> None:
        self._disk.change("truncate", self.path, lambda: self._inner.truncate(size_bytes))

    def zero_from(self, position: int) -> None:
        self._disk.change("zero", self.path, lambda: self._inner.zero_from(position))

    def punch_from(self, position: int) -> None:
        self._disk.change("punch", self.path, lambda: self._inner.punch_from(position))

    def load_pages(self, position: int, size_bytes: int) -> None:
        self._inner.load_pages(position, size_bytes)

    def leave_pages(self, position: int, size_bytes: int) -> None:
        self._inner.leave_pages(position, size_bytes)

    def sync(self, *, site: str = "") -> None:
        self._disk.change("sync", self.path, lambda: self._inner.sync(site=site))

    def close(self) -> None:
        self._inner.close()
