"""Simulated disk: a file system in memory that keeps the written state and the durable state apart.

It implements `thermocline.store.files.disk.Disk` and stands in for it in power-cut tests.

    disk = SimulatedDisk(cut_at_step=n)      the n-th changing call raises PowerCut, and every call after it
    disk = disk.after_power_cut(random)      what a machine might find on the disk when it comes back
    disk.revive()                            the process died, the machine did not: everything written is there

What may be left after a cut, strictly by POSIX
  - Of a file: for each 512-byte sector written since its last sync, any of the contents it has had since then; for its
    length likewise. A sector that was lost holds what it held when it was last synced, or zeroes.
  - Of folders: each create, remove, rename and link since the folder's last sync has happened or not, independently of
    the others and in their order; a rename happens to both names or to neither.
  - A file whose name is lost is lost, and so is everything below a folder whose name is lost.
How much is kept is drawn once per cut, so that all, nothing and every mixture between occur.

While `is_full`, no file can be made or grow. A sync can be made to do nothing (`ignored_sites`) or to fail
(`fail_syncs`): then, as Linux does it, the pages count as clean afterwards though they never reached the disk.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random

from thermocline.remoting.errors import DiskFullError, UnavailableError
from thermocline.store.files.disk import Buffer, DiskFile

SECTOR_BYTES = 512
VERSIONS_MAX = 4
KEPT_SHARES = (0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 1.0)
SPARSE_BYTES = 1 << 20
"""Content of this size is mapped memory, in which zeroes cost nothing until written: a timer wheel is 38 MB."""
Content = bytearray | mmap.mmap


class PowerCut(BaseException):
    """The power is off. Not an Exception, so that nothing mistakes it for a failure to be handled."""


@dataclass(eq=False)
class _File:
    """A file's bytes: the current ones, the durable ones, and the changes between."""

    content: Content = field(default_factory=bytearray)
    durable: Content = field(default_factory=bytearray)
    dirty: dict[int, list[bytes]] = field(default_factory=dict)
    """Sector number -> contents since the last sync, the present one last."""
    lengths: list[int] = field(default_factory=list)
    """Lengths since the last sync."""
    modified_ms: int = 0

    def note(self, start: int, end: int) -> None:
        """Sectors that hold bytes of [start, end) have changed."""
        for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            present = bytes(self.content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            versions = self.dirty.setdefault(sector, [])
            versions.append(present)
            if len(versions) > VERSIONS_MAX:
                del versions[0]

    def resize(self, size_bytes: int) -> None:
        old_bytes = len(self.content)
        if size_bytes == old_bytes:
            return
        # A new array: maps of the old one stay what they were, as no bytearray with a view may change its length.
        self.content = _resized(self.content, size_bytes)
        self.lengths.append(size_bytes)
        if size_bytes < old_bytes:
            # What was cut off reads as zeroes should the file grow again.
            for sector, versions in self.dirty.items():
                if (sector + 1) * SECTOR_BYTES > size_bytes:
                    versions.append(bytes(self.content[sector * SECTOR_BYTES :]))
            if self.durable[size_bytes:].strip(b"\0"):
                self.note(size_bytes, old_bytes)

    def write(self, data: Buffer, position: int) -> None:
        end = position + len(data)
        if end > len(self.content):
            self.resize(end)
        self.content[position:end] = data
        self.note(position, end)

    def sync(self) -> None:
        """What is dirty is durable; what a failed sync has dropped is not dirty any more."""
        size_bytes = len(self.content)
        if len(self.durable) != size_bytes:
            self.durable = _resized(self.durable, size_bytes)
        for sector in self.dirty:
            start, end = sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, size_bytes)
            if start < end:
                self.durable[start:end] = self.content[start:end]
        self.dirty.clear()
        self.lengths.clear()

    def drop(self) -> None:
        """A sync has failed: the pages stay as they are, and count as clean."""
        self.dirty.clear()
        self.lengths.clear()

    def after_cut(self, random: Random, share: float) -> _File:
        length = len(self.durable)
        if self.lengths and random.random() < share:
            length = random.choice(self.lengths)
        content = _resized(self.durable, length)
        for sector, versions in self.dirty.items():
            if random.random() < share:
                present = random.choice(versions) if random.random() < 0.2 else versions[-1]
                start = sector * SECTOR_BYTES
                room = min(SECTOR_BYTES, length - start)
                if room > 0:
                    content[start : start + room] = present[:room].ljust(room, b"\0")
        return _File(content=content, durable=_resized(content, length), modified_ms=self.modified_ms)


def _resized(data: Content, size_bytes: int) -> Content:
    """A new array of so many bytes that begins with these."""
    kept_bytes = min(len(data), size_bytes)
    resized = bytearray(size_bytes) if size_bytes < SPARSE_BYTES else mmap.mmap(-1, size_bytes)
    with memoryview(data) as view:
        resized[:kept_bytes] = view[:kept_bytes]
    return resized


@dataclass(eq=False)
class _Folder:
    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)


@dataclass(frozen=True)
class _Change:
    """One step on names: (folder, name, what it names now or None), all of it or nothing."""

    effects: tuple[tuple[_Folder, str, _File | _Folder | None], ...]


class SimulatedDisk:
    """See the module's header. Safe to use from several threads."""

    def __init__(self, *, cut_at_step: int | None = None, ignored_sites: Collection[str] = ()) -> None:
        self.step_count = 0
        self.sync_counts: Counter[str] = Counter()
        self.fail_syncs: set[str] = set()
        self.ignored_sites = frozenset(ignored_sites)
        self.cut_at_step = cut_at_step
        self.is_full = False
        self.now_ms = 0
        self.free_bytes_left = 1 << 40
        self.total_bytes_there = 1 << 41
        self._is_cut = False
        self._root = _Folder()
        self._changes: list[_Change] = []
        self._locks: dict[str, _File | _Folder | None] = {}
        self._lock = threading.RLock()

    # -- the test's side -------------------------------------------------------------------------------------------

    def after_power_cut(self, random: Random, *, kept_share: float | None = None) -> SimulatedDisk:
        """A disk with what survives a cut now; this one is not to be used any more.

        `kept_share`: how much of what was not synced is there all the same, drawn when not given.
        """
        with self._lock:
            share = random.choice(KEPT_SHARES) if kept_share is None else kept_share
            # Names first: changes that happen are applied to the durable entries in their order.
            entries: dict[int, dict[str, _File | _Folder]] = {}
            for change in self._changes:
                if random.random() < share:
                    for folder, name, target in change.effects:
                        folder_entries = entries.setdefault(id(folder), dict(folder.durable))
                        if target is None:
                            folder_entries.pop(name, None)
                        else:
                            folder_entries[name] = target
            files: dict[int, _File] = {}

            def copy_of(node: _File | _Folder) -> _File | _Folder:
                if isinstance(node, _File):
                    if id(node) not in files:
                        files[id(node)] = node.after_cut(random, share)
                    return files[id(node)]
                kept = {name: copy_of(child) for name, child in sorted(entries.get(id(node), node.durable).items())}
                return _Folder(entries=kept, durable=dict(kept))

            survivor = SimulatedDisk(ignored_sites=self.ignored_sites)
            root = copy_of(self._root)
            assert isinstance(root, _Folder)
            survivor._root = root
            survivor.now_ms = self.now_ms
            survivor.free_bytes_left, survivor.total_bytes_there = self.free_bytes_left, self.total_bytes_there
            return survivor

    def revive(self) -> None:
        """Go on with everything that was written, as after the death of a process: locks are free, calls work."""
        with self._lock:
            self._is_cut = False
            self.cut_at_step = None
            self.is_full = False
            self.fail_syncs.clear()
            self._locks.clear()

    def sync_everything(self) -> None:
        """Make all of it durable, whatever the sites say."""
        with self._lock:

            def sync(node: _File | _Folder) -> None:
                if isinstance(node, _File):
                    node.sync()
                    return
                node.durable = dict(node.entries)
                for child in node.entries.values():
                    sync(child)

            self._changes.clear()
            sync(self._root)

    def paths(self) -> list[str]:
        """Every file there is."""

        def walk(folder: _Folder, prefix: str) -> list[str]:
            found = []
            for name, node in sorted(folder.entries.items()):
                found += [f"{prefix}/{name}"] if isinstance(node, _File) else walk(node, f"{prefix}/{name}")
            return found

        return walk(self._root, "")

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Change bytes without a recorded write, durably."""
        file = self._file(path)
        file.content[position : position + len(data)] = data
        file.durable[position : position + len(data)] = data

    # -- the store's side ------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, random_access: bool = False) -> DiskFile:
        """Open for reading and writing."""
        with self._lock:
            self._check()
            folder, name = self._place(path)
            node = folder.entries.get(name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                if self.is_full:
                    raise DiskFullError("no room left on the disk", path=path)
                node = _File(modified_ms=self.now_ms)
                self._change((folder, name, node))
            if isinstance(node, _Folder):
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            return SimulatedFile(self, path, node)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        with self._lock:
            self._check()
            return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        with self._lock:
            self._check()
            return isinstance(self._find(path), _Folder)

    def list_directory(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        with self._lock:
            self._check()
            return sorted(self._folder(path).entries)

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it."""
        with self._lock:
            self._check()
            folder = self._root
            for name in path.strip("/").split("/"):
                node = folder.entries.get(name)
                if node is None:
                    node = _Folder()
                    self._change((folder, name, node))
                if isinstance(node, _File):
                    raise FileExistsError(errno.EEXIST, "is a file", path)
                folder = node

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        with self._lock:
            self._check()
            self._file(path)
            folder, name = self._place(path)
            self._change((folder, name, None))

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, file by file."""
        with self._lock:
            self._check()
            node = self._find(path)
            if node is None:
                return
            if isinstance(node, _Folder):
                for name in list(node.entries):
                    self.remove_tree(f"{path}/{name}")
            folder, name = self._place(path)
            self._change((folder, name, None))

    def rename(self, source: str, target: str) -> None:
        """Rename; a file of the target's name is replaced."""
        with self._lock:
            self._check()
            node = self._find(source)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            source_folder, source_name = self._place(source)
            target_folder, target_name = self._place(target)
            self._change((source_folder, source_name, None), (target_folder, target_name, node))

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; FileExistsError when it is taken."""
        with self._lock:
            self._check()
            file = self._file(source)
            folder, name = self._place(target)
            if name in folder.entries:
                raise FileExistsError(errno.EEXIST, "exists", target)
            self._change((folder, name, file))

    def sync_directory(self, path: str, *, site: str = "") -> None:
        """Make the names in a folder durable."""
        with self._lock:
            self._check()
            folder = self._folder(path)
            if not self._begins_sync(site):
                return
            self._sync_names(folder)

    def sync_tree(self, path: str, *, site: str = "") -> None:
        """Make everything below a folder durable."""
        with self._lock:
            self._check()
            top = self._folder(path)
            if not self._begins_sync(site):
                return

            def sync(node: _File | _Folder) -> None:
                if isinstance(node, _File):
                    node.sync()
                    return
                self._sync_names(node)
                for child in node.entries.values():
                    sync(child)

            sync(top)

    def read(self, path: str) -> bytes:
        """The whole content of a file."""
        with self._lock:
            self._check()
            return bytes(self._file(path).content)

    def size_bytes(self, path: str) -> int:
        """The length of a file."""
        with self._lock:
            self._check()
            return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        """When a file was last written to, by `now_ms`."""
        with self._lock:
            self._check()
            return self._file(path).modified_ms

    def free_bytes(self, path: str) -> int:
        """What the test says."""
        return 0 if self.is_full else self.free_bytes_left

    def total_bytes(self, path: str) -> int:
        """What the test says."""
        return self.total_bytes_there

    def lock(self, path: str) -> Callable[[], None]:
        """Lock a file; gives the release."""
        with self._lock:
            if path in self._locks:
                raise UnavailableError("the store is open already", path=path)
            self.open(path, create=True).write_at(b"lock", 0)
            self._locks[path] = self._find(path)

            def release() -> None:
                self._locks.pop(path, None)

            return release

    def is_locked_here(self, path: str) -> bool:
        """Whether this disk object holds the lock."""
        with self._lock:
            self._check()
            return path in self._locks and self._find(path) is self._locks[path]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_cut:
            raise PowerCut

    def _step(self) -> None:
        """Count a call that changes something; it has been noted as not durable when the cut comes."""
        self.step_count += 1
        if self.step_count == self.cut_at_step:
            self._is_cut = True
            raise PowerCut

    def _begins_sync(self, site: str) -> bool:
        self._step()
        self.sync_counts[site] += 1
        return site not in self.ignored_sites

    def _change(self, *effects: tuple[_Folder, str, _File | _Folder | None]) -> None:
        for folder, name, target in effects:
            if target is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = target
        self._changes.append(_Change(effects))
        self._step()

    def _sync_names(self, folder: _Folder) -> None:
        remaining = []
        for change in self._changes:
            if any(changed is folder for changed, _, _ in change.effects):
                for changed, name, target in change.effects:
                    if target is None:
                        changed.durable.pop(name, None)
                    else:
                        changed.durable[name] = target
            else:
                remaining.append(change)
        self._changes = remaining

    def _find(self, path: str) -> _File | _Folder | None:
        node: _File | _Folder = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, _Folder) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if not isinstance(node, _Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._folder(parent), name


class SimulatedFile:
    """An open file of a simulated disk."""

    def __init__(self, disk: SimulatedDisk, path: str, file: _File) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._is_closed = False
        self.loaded: list[tuple[int, int]] = []
        """Ranges [start, end) that were asked to be in memory, where everything is anyway."""

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Its length now."""
        return len(self._file.content)

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data`."""
        with self._disk._lock:
            self._check()
            if self._disk.is_full and position + len(data) > len(self._file.content):
                raise DiskFullError("no room left on the disk", path=self._path)
            self._file.write(data, position)
            self._file.modified_ms = self._disk.now_ms
            self._disk._step()

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes`."""
        with self._disk._lock:
            self._check()
            return bytes(self._file.content[position : position + size_bytes])

    def view(self) -> memoryview:
        """Map the whole file for reading."""
        with self._disk._lock:
            self._check()
            return memoryview(self._file.content).toreadonly()

    def allocate(self, size_bytes: int) -> None:
        """Make the file this long."""
        with self._disk._lock:
            self._check()
            if self._disk.is_full and size_bytes > len(self._file.content):
                raise DiskFullError("no room left on the disk", path=self._path)
            if size_bytes > len(self._file.content):
                self._file.resize(size_bytes)
            self._disk._step()

    def truncate(self, size_bytes: int) -> None:
        """Set the length."""
        with self._disk._lock:
            self._check()
            self._file.resize(size_bytes)
            self._disk._step()

    def zero_from(self, position: int) -> None:
        """Make everything from `position` on zero."""
        with self._disk._lock:
            self._check()
            self._file.write(bytes(len(self._file.content) - position), position)
            self._disk._step()

    def punch_from(self, position: int) -> None:
        """Make everything from `position` on zero."""
        self.zero_from(position)

    def leave_pages(self, position: int, size_bytes: int) -> None:
        """Nothing: all of it is memory."""

    def load_pages(self, position: int, size_bytes: int) -> None:
        """Record the range."""
        assert position + size_bytes <= self.size_bytes
        self.loaded.append((position, position + size_bytes))

    def sync(self, *, site: str = "") -> None:
        """Make content and length durable."""
        with self._disk._lock:
            self._check()
            if not self._disk._begins_sync(site):
                return
            if site in self._disk.fail_syncs:
                self._file.drop()
                raise OSError(errno.EIO, "simulated write error", self._path)
            self._file.sync()

    def close(self) -> None:
        """Give the descriptor back; idempotent."""
        self._is_closed = True

    def _check(self) -> None:
        self._disk._check()
        assert not self._is_closed, f"{self._path} is closed"
