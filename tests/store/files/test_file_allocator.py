"""FileAllocator: whole files, ahead of need, from a real helper thread too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from thermocline.remoting.errors import DiskFullError
from thermocline.store.files.disk import RealDisk
from thermocline.store.files.file_allocator import FileAllocator


def allocator_on(disk: SimulatedDisk) -> FileAllocator:
    disk.make_directory("/log")
    disk.make_directory("/staging")
    return FileAllocator(disk, directory="/log", staging="/staging", file_bytes=512, executor=InlineExecutor())


def test_a_real_thread_makes_files(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "staging").mkdir()
    with ThreadPoolExecutor(1) as executor:
        allocator = FileAllocator(
            RealDisk(),
            directory=str(tmp_path / "log"),
            staging=str(tmp_path / "staging"),
            file_bytes=1 << 20,
            executor=executor,
        )
        allocator.prepare(0)
        first = allocator.take_file(0)
        second = allocator.take_file(1 << 20)
        allocator.prepare(2 << 20)
        allocator.discard()
        allocator.discard()
    assert (first.base_offset, second.base_offset) == (0, 1 << 20)
    made = sorted((tmp_path / "log").iterdir())
    assert [path.stat().st_size for path in made] == [1 << 20] * 2, "files without an owner are removed"
    assert all(path.stat().st_blocks * 512 >= 1 << 20 for path in made)
    assert not list((tmp_path / "staging").iterdir())
    first.close()
    second.close()


def test_the_folder_never_shows_a_short_file() -> None:
    """At whatever step the process dies."""
    for step in range(1, 20):
        disk = SimulatedDisk()
        allocator = allocator_on(disk)
        disk.cut_at_step = disk.step_count + step
        try:
            allocator.take_file(0)
        except PowerCut:
            disk.revive()
            assert all(disk.size_bytes(f"/log/{name}") == 512 for name in disk.list_directory("/log"))
        else:
            return


def test_a_failed_preparation_is_repeated_on_demand() -> None:
    disk = SimulatedDisk()
    allocator = allocator_on(disk)
    disk.is_full = True
    allocator.prepare(0)
    with pytest.raises(DiskFullError):
        allocator.take_file(0)
    allocator.prepare(0)
    disk.is_full = False
    assert allocator.take_file(0).base_offset == 0


def test_a_staged_file_of_a_crash_is_made_anew() -> None:
    disk = SimulatedDisk()
    allocator = allocator_on(disk)
    stale = disk.open("/staging/00000000000000000000", create=True)
    stale.write_at(b"stale" * 200, 0)
    file = allocator.take_file(0)
    assert bytes(file.view) == bytes(512)
