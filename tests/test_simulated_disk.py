"""The simulated disk: synced data survives a cut, other data may be lost in every way."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.store.files.disk import replace_file

SEEDS = range(200)


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.sync_everything()
    return disk


def outcomes(disk: SimulatedDisk, path: str) -> set[bytes | None]:
    """What a file may hold after a cut."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        survivor = disk.after_power_cut(Random(seed))
        found.add(survivor.read(path) if survivor.exists(path) else None)
    return found


def test_an_unsynced_name_may_be_lost_and_unsynced_bytes_too() -> None:
    disk = new_disk()
    file = disk.open("/d/a", create=True)
    file.write_at(b"abc", 0)
    assert outcomes(disk, "/d/a") == {None, b"", b"abc", b"\0\0\0"}
    file.sync()
    assert outcomes(disk, "/d/a") == {None, b"abc"}
    disk.sync_directory("/d")
    assert outcomes(disk, "/d/a") == {b"abc"}


def test_sectors_survive_one_by_one() -> None:
    disk = new_disk()
    file = disk.open("/d/a", create=True)
    file.allocate(1_024)
    file.sync()
    disk.sync_directory("/d")
    file.write_at(b"x" * 1_024, 0)
    assert outcomes(disk, "/d/a") == {
        first + second for first in (bytes(512), b"x" * 512) for second in (bytes(512), b"x" * 512)
    }


def test_an_older_content_may_survive() -> None:
    disk = new_disk()
    file = disk.open("/d/a", create=True)
    file.write_at(b"1", 0)
    file.sync()
    disk.sync_directory("/d")
    file.write_at(b"2", 0)
    file.write_at(b"3", 0)
    assert outcomes(disk, "/d/a") == {b"1", b"2", b"3"}


def test_names_change_independently_but_each_at_once() -> None:
    disk = new_disk()
    for name in ("a", "b"):
        file = disk.open(f"/d/{name}", create=True)
        file.write_at(name.encode(), 0)
        file.sync()
    disk.sync_directory("/d")
    disk.rename("/d/a", "/d/c")
    disk.remove("/d/b")
    found = {tuple(disk.after_power_cut(Random(seed)).list_directory("/d")) for seed in SEEDS}
    assert found == {("a", "b"), ("a",), ("b", "c"), ("c",)}


def test_files_below_a_lost_folder_are_lost() -> None:
    disk = new_disk()
    disk.make_directory("/d/e")
    file = disk.open("/d/e/a", create=True)
    file.write_at(b"x", 0)
    file.sync()
    disk.sync_directory("/d/e")
    assert outcomes(disk, "/d/e/a") == {None, b"x"}
    disk.sync_directory("/d")
    assert outcomes(disk, "/d/e/a") == {b"x"}


def test_replace_file_leaves_the_old_or_the_new() -> None:
    for step in range(1, 30):
        disk = new_disk()
        replace_file(disk, "/d/a", b"old", keep_backup=False)
        disk.cut_at_step = disk.step_count + step
        try:
            replace_file(disk, "/d/a", b"new", keep_backup=False)
        except PowerCut:
            assert outcomes(disk, "/d/a") <= {b"old", b"new"}
        else:
            assert outcomes(disk, "/d/a") == {b"new"}
            return


def test_a_failed_sync_leaves_pages_that_count_as_clean() -> None:
    disk = new_disk()
    file = disk.open("/d/a", create=True)
    file.write_at(b"1", 0)
    file.sync()
    disk.sync_directory("/d")
    file.write_at(b"2", 0)
    disk.fail_syncs.add("bad")
    with pytest.raises(OSError, match="simulated"):
        file.sync(site="bad")
    file.sync(site="good")
    assert file.read_at(1, 0) == b"2"
    assert outcomes(disk, "/d/a") == {b"1"}
    file.write_at(b"2", 0)
    file.sync(site="good")
    assert outcomes(disk, "/d/a") == {b"2"}


def test_an_ignored_sync_does_nothing() -> None:
    disk = new_disk()
    disk.ignored_sites = frozenset({"ignored"})
    file = disk.open("/d/a", create=True)
    file.write_at(b"1", 0)
    file.sync(site="ignored")
    disk.sync_directory("/d", site="ignored")
    assert None in outcomes(disk, "/d/a")
    assert disk.sync_counts == {"ignored": 2}


def test_after_the_cut_nothing_works_until_the_process_is_new() -> None:
    disk = new_disk()
    disk.cut_at_step = disk.step_count + 1
    with pytest.raises(PowerCut):
        disk.open("/d/a", create=True)
    with pytest.raises(PowerCut):
        disk.exists("/d/a")
    disk.revive()
    assert disk.exists("/d/a")


def test_a_cut_is_the_same_for_the_same_seed() -> None:
    def survivor() -> bytes:
        disk = new_disk()
        file = disk.open("/d/a", create=True)
        disk.sync_directory("/d")
        file.write_at(bytes(range(256)) * 40, 0)
        return disk.after_power_cut(Random(7)).read("/d/a")

    assert survivor() == survivor()
