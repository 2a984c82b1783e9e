"""Disk: one contract for the file system itself and for the simulated one.

Covers `store/files/page_loader.py`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import DiskFullError, UnavailableError
from thermocline.store.files import disk as disk_module
from thermocline.store.files.disk import (
    BACKUP_SUFFIX,
    Disk,
    RealDisk,
    make_durable_directory,
    parent_of,
    read_with_backup,
    replace_file,
)


def pages_in_memory(path: Path) -> bytes:
    """A byte for each page of a file: 1 when it is in memory."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        pages = ctypes.create_string_buffer(-(-len(mapping) // mmap.PAGESIZE))
        first = ctypes.c_char.from_buffer(mapping)
        address = ctypes.c_void_p(ctypes.addressof(first))
        assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(mapping)), pages) == 0
        del first  # the map cannot be closed before
        return bytes(byte & 1 for byte in pages.raw)


def mapped_bytes_in_memory(path: str) -> int:
    """How much of this process's memory is pages of maps of files whose names begin so."""
    found, is_file = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            is_file = words[-1].startswith(path)
        elif is_file and words[0] == "Rss:":
            found += int(words[1]) * 1_024
    return found


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and a folder on it."""
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = SimulatedDisk()
    disk.make_directory("/folder")
    return disk, "/folder"


class TestContract:
    """What every disk does."""

    def test_a_file_holds_written_bytes(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        file = disk.open(f"{folder}/a", create=True)
        file.write_at(b"hello", 3)
        file.write_at(memoryview(b"J"), 3)
        assert file.size_bytes == 8
        assert file.read_at(100, 0) == b"\0\0\0Jello"
        assert file.read_at(2, 4) == b"el"
        assert file.path == f"{folder}/a"
        file.sync(site="test")
        file.close()
        file.close()
        assert disk.read(f"{folder}/a") == b"\0\0\0Jello"
        assert disk.size_bytes(f"{folder}/a") == 8

    def test_opening_a_missing_file(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        with pytest.raises(FileNotFoundError):
            disk.open(f"{folder}/a")
        with pytest.raises(FileNotFoundError):
            disk.open(f"{folder}/b/a", create=True)
        with pytest.raises(FileNotFoundError):
            disk.list_directory(f"{folder}/b")

    def test_a_view_follows_writes_and_outlives_the_file(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        file = disk.open(f"{folder}/a", create=True)
        file.allocate(10_000)
        view = file.view()
        assert view.readonly
        file.write_at(b"x" * 100, 5_000)
        assert bytes(view[5_000:5_100]) == b"x" * 100
        piece = view[4_999:5_001]
        del view
        file.close()
        disk.remove(f"{folder}/a")
        assert bytes(piece) == b"\0x"

    def test_lengths(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        file = disk.open(f"{folder}/a", create=True, random_access=True)
        file.write_at(b"x" * 3_000, 0)
        file.truncate(1_000)
        file.truncate(5_000)
        assert file.read_at(5_000, 0) == b"x" * 1_000 + bytes(4_000)
        file.allocate(6_000)
        assert file.size_bytes == 6_000
        file.allocate(100)
        assert file.size_bytes == 6_000
        file.close()

    @pytest.mark.parametrize("method", ["zero_from", "punch_from"])
    def test_zeroing_keeps_the_length(self, place: tuple[Disk, str], method: str) -> None:
        disk, folder = place
        file = disk.open(f"{folder}/a", create=True)
        file.write_at(b"x" * 20_000, 0)
        getattr(file, method)(7_777)
        assert file.read_at(20_000, 0) == b"x" * 7_777 + bytes(20_000 - 7_777)
        getattr(file, method)(20_000)
        assert file.size_bytes == 20_000
        file.close()

    def test_folders(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        disk.make_directory(f"{folder}/b/c")
        disk.make_directory(f"{folder}/b/c")
        disk.open(f"{folder}/b/z", create=True).close()
        disk.open(f"{folder}/b/a", create=True).close()
        assert disk.list_directory(f"{folder}/b") == ["a", "c", "z"]
        assert disk.is_directory(f"{folder}/b/c")
        assert not disk.is_directory(f"{folder}/b/a")
        assert disk.exists(f"{folder}/b/a")
        disk.sync_directory(f"{folder}/b", site="test")
        disk.sync_tree(folder, site="test")
        disk.remove_tree(f"{folder}/b")
        disk.remove_tree(f"{folder}/b")
        assert not disk.exists(f"{folder}/b")

    def test_rename_replaces(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        _write(disk, f"{folder}/a", b"new")
        _write(disk, f"{folder}/b", b"old")
        disk.rename(f"{folder}/a", f"{folder}/b")
        assert disk.read(f"{folder}/b") == b"new"
        assert not disk.exists(f"{folder}/a")
        with pytest.raises(FileNotFoundError):
            disk.rename(f"{folder}/a", f"{folder}/b")

    def test_link_creates_only_if_absent(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        _write(disk, f"{folder}/a", b"content")
        disk.link(f"{folder}/a", f"{folder}/b")
        with pytest.raises(FileExistsError):
            disk.link(f"{folder}/a", f"{folder}/b")
        disk.remove(f"{folder}/a")
        assert disk.read(f"{folder}/b") == b"content"
        with pytest.raises(FileNotFoundError):
            disk.remove(f"{folder}/a")

    def test_room_is_known(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        assert 0 < disk.free_bytes(folder) < disk.total_bytes(folder)

    def test_a_lock_belongs_to_its_file(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        path = f"{folder}/lock"
        assert not disk.is_locked_here(path)
        release = disk.lock(path)
        assert disk.is_locked_here(path)
        disk.remove(path)
        assert not disk.is_locked_here(path)
        disk.open(path, create=True).close()
        assert not disk.is_locked_here(path)  # another one
        release()

    def test_a_lock_excludes(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        release = disk.lock(f"{folder}/lock")
        with pytest.raises(UnavailableError):
            disk.lock(f"{folder}/lock")
        release()
        disk.lock(f"{folder}/lock")()
        assert disk.read(f"{folder}/lock") == b"lock"

    def test_replace_file(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        path = f"{folder}/state.json"
        replace_file(disk, path, b"one, and longer", keep_backup=True)
        assert not disk.exists(path + BACKUP_SUFFIX)
        replace_file(disk, path, b"two", keep_backup=True)
        assert (disk.read(path), disk.read(path + BACKUP_SUFFIX)) == (b"two", b"one, and longer")
        replace_file(disk, path, b"three", keep_backup=False)
        assert (disk.read(path), disk.read(path + BACKUP_SUFFIX)) == (b"three", b"one, and longer")
        assert disk.list_directory(folder) == ["state.json", "state.json.bak"]

    def test_a_file_is_read_while_it_is_replaced(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        path, is_read = f"{folder}/state.json", threading.Event()
        assert list(read_with_backup(disk, path)) == []
        replace_file(disk, path, b"first", keep_backup=True)
        replace_file(disk, path, b"0", keep_backup=True)
        assert list(read_with_backup(disk, path)) == [(path, b"0"), (path + BACKUP_SUFFIX, b"first")]

        def replace_on() -> None:
            number = 1
            while not is_read.is_set():
                replace_file(disk, path, b"%d" % number, keep_backup=True)
                number += 1

        with ThreadPoolExecutor(max_workers=1) as executor:
            writer = executor.submit(replace_on)
            try:
                seen = [int(next(read_with_backup(disk, path))[1]) for _read in range(3_000)]
            finally:
                is_read.set()
            writer.result()
        assert seen == sorted(seen)

    def test_make_durable_directory(self, place: tuple[Disk, str]) -> None:
        disk, folder = place
        make_durable_directory(disk, f"{folder}/b/c")
        make_durable_directory(disk, f"{folder}/b/c")
        assert disk.is_directory(f"{folder}/b/c")


def test_parent_of() -> None:
    assert parent_of("/a/b/c") == "/a/b"
    assert parent_of("/a/b/") == "/a"
    assert parent_of("/a") == "/"
    assert parent_of("a") == "."


class TestRealDisk:
    """What only the file system itself can show."""

    def test_a_full_disk_is_a_typed_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """ENOSPC where blocks are taken becomes DiskFullError; other errors stay what they are."""
        file = RealDisk().open(str(tmp_path / "a"), create=True)

        def no_room(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no room")

        def broken(*_: object) -> int:
            raise OSError(errno.EIO, "broken")

        monkeypatch.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(DiskFullError):
            file.allocate(1 << 20)
        monkeypatch.setattr(os, "pwrite", no_room)
        with pytest.raises(DiskFullError):
            file.write_at(b"x", 0)
        monkeypatch.setattr(os, "pwrite", broken)
        with pytest.raises(OSError, match="broken"):
            file.write_at(b"x", 0)
        file.close()

    def test_a_short_write_is_gone_on_with(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real_pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real_pwrite(fd, bytes(data)[:3], position))
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        file.write_at(b"0123456789", 5)
        monkeypatch.undo()
        assert file.read_at(20, 5) == b"0123456789"
        file.close()

    @pytest.mark.parametrize("method", ["zero_from", "punch_from"])
    def test_zeroing_without_help_of_the_file_system(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        monkeypatch.setattr(disk_module, "_fallocate", lambda *_: False)
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        file.write_at(b"x" * (3 << 20), 0)
        getattr(file, method)(100)
        assert file.read_at(4 << 20, 0) == b"x" * 100 + bytes((3 << 20) - 100)
        file.close()

    def test_punching_gives_blocks_back(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        file = RealDisk().open(str(path), create=True)
        file.write_at(b"x" * (1 << 20), 0)
        file.sync()
        before = path.stat().st_blocks
        file.punch_from(4_096)
        assert path.stat().st_blocks < before
        file.close()

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such advice")
    def test_loaded_pages_are_in_memory(self, tmp_path: Path) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        file.allocate(4 << 20)
        file.load_pages(1 << 20, 2 << 20)
        assert pages_in_memory(tmp_path / "a")[256 : 3 * 256] == bytes([1]) * 512
        file.close()
        file.load_pages(0, 1 << 20)  # by a helper thread, a moment too late
        assert (tmp_path / "a").read_bytes() == bytes(4 << 20)

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such advice")
    def test_pages_that_are_left_are_no_memory_of_this_process(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a")
        file = RealDisk().open(path, create=True)
        file.leave_pages(0, 1 << 20)  # nothing is mapped yet
        file.write_at(b"x" * (4 << 20), 0)
        view = file.view()
        assert bytes(view).count(b"x") == 4 << 20
        assert mapped_bytes_in_memory(path) == 4 << 20
        file.leave_pages((1 << 20) + 1, 1 << 20)  # whole pages only; where they are large, those around go along
        left_bytes = mapped_bytes_in_memory(path)
        assert left_bytes <= (3 << 20) + mmap.PAGESIZE
        file.leave_pages(5, 100)
        assert mapped_bytes_in_memory(path) == left_bytes
        assert bytes(view).count(b"x") == 4 << 20
        file.close()

    def test_modified_time_is_in_ms(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_bytes(b"x")
        os.utime(path, ns=(1, 1_234_567_000_000))
        assert RealDisk().modified_ms(str(path)) == 1_234_567

    def test_another_process_is_locked_out(self, tmp_path: Path) -> None:
        path = str(tmp_path / "lock")
        release = RealDisk().lock(path)
        assert _lock_elsewhere(path) == "held"
        release()
        assert _lock_elsewhere(path) == "free"


def _lock_elsewhere(path: str) -> str:
    """What another process meets that locks as Java does: a record lock on the first byte."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n    print('free')\n"
        "except OSError:\n    print('held')\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def _write(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(data, 0)
    file.close()
