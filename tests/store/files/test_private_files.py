"""Access of other users: modes of new files, modes that are corrected, and files that stay untouched."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from thermocline.store.files.disk import RealDisk
from thermocline.store.files.private_files import (
    PRIVATE,
    Readers,
    apply_modes,
    close_to_others,
    make_directory,
    modes_like,
)


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever it is."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(disk: RealDisk, path: Path) -> None:
    file = disk.open(str(path), create=True)
    file.write_at(b"x", 0)
    file.close()


@pytest.mark.parametrize(
    ("readers", "file_mode", "directory_mode"),
    [(Readers.OWNER, 0o600, 0o700), (Readers.GROUP, 0o640, 0o750), (Readers.ALL, 0o644, 0o755)],
)
def test_new_files_of_a_disk_are_private(tmp_path: Path, readers: Readers, file_mode: int, directory_mode: int) -> None:
    disk = RealDisk(readers.modes)
    disk.make_directory(str(tmp_path / "a" / "b"))
    write(disk, tmp_path / "a" / "b" / "file")
    assert [mode_of(tmp_path / name) for name in ("a", "a/b", "a/b/file")] == [
        directory_mode,
        directory_mode,
        file_mode,
    ]
    assert modes_like(str(tmp_path / "a")) == readers.modes
    release = disk.lock(str(tmp_path / "a" / "lock"))
    release()
    assert mode_of(tmp_path / "a" / "lock") == 0o600


def test_a_folder_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o751)
    make_directory(str(tmp_path / "new"))
    make_directory(str(tmp_path))
    assert (mode_of(tmp_path), mode_of(tmp_path / "new")) == (0o751, 0o700)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directory(str(tmp_path / "file"))
    assert modes_like(str(tmp_path / "missing")) == PRIVATE


def test_closing_to_others_leaves_foreign_files(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    for folder in (root / "config", root / "other", elsewhere):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (root / "commitlog").symlink_to(elsewhere)
    for path in (root, root / "config", root / "config/file", root / "other/file", elsewhere, elsewhere / "file"):
        path.chmod(0o755)
    close_to_others(str(root), names=("commitlog", "config", "missing"))
    # What the owner may execute stays so.
    assert [mode_of(path) for path in (root, root / "config", root / "config/file")] == [0o700, 0o700, 0o700]
    assert [mode_of(path) for path in (elsewhere, elsewhere / "file")] == [0o700, 0o700], "a link leads there"
    assert mode_of(root / "other/file") == 0o755


def test_a_large_folder_that_is_closed_is_passed_over(tmp_path: Path) -> None:
    large = tmp_path / "store" / "consumequeue"
    large.mkdir(parents=True)
    (large / "file").touch()
    (large / "file").chmod(0o644)
    large.chmod(0o700)
    large.parent.chmod(0o700)
    close_to_others(str(large.parent), names=("consumequeue",), large=("consumequeue",))
    assert mode_of(large / "file") == 0o644
    large.parent.chmod(0o755)
    close_to_others(str(large.parent), names=("consumequeue",), large=("consumequeue",))
    assert mode_of(large / "file") == 0o600


def test_trees_get_the_requested_modes(tmp_path: Path) -> None:
    root = tmp_path / "cold"
    ours, theirs = root / "cluster" / "broker-a", root / "cluster" / "broker-b"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "object").touch()
        (folder / "object").chmod(0o600)
        folder.chmod(0o2700)
    apply_modes(str(root), ("cluster/broker-a", ".partial"), Readers.GROUP.modes)
    assert [mode_of(path) for path in (root, ours, ours / "object")] == [0o750, 0o2750, 0o640]
    assert mode_of(theirs / "object") == 0o600
    apply_modes(str(tmp_path / "missing"), ("a",), PRIVATE)
    assert not (tmp_path / "missing").exists()
