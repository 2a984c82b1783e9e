"""Private files: who may read what a process makes on this machine.

    files 0600, folders 0700           everything of a store, a NameServer and their processes, whatever the umask
    as the folder of a cold tier says  objects of a `file://` cold tier, which other users may have to read

A process sets its umask (`keep_private`), so that what a library makes is private too. What an earlier release, Apache
RocketMQ or a copy has left open to others is closed at the start (`close_to_others`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

logger = logging.getLogger(__name__)

PRIVATE_UMASK = 0o077
OTHERS = 0o077
_READ, _READ_AND_ENTER = 0o044, 0o055


class FileModes(msgspec.Struct, frozen=True, kw_only=True):
    """The modes of new files and folders, independent of the umask."""

    file: int = 0o600
    directory: int = 0o700

    @property
    def is_private(self) -> bool:
        """Whether only the owner has access, which the umask cannot widen."""
        return not (self.file | self.directory) & OTHERS


PRIVATE = FileModes()


class Readers(StrEnum):
    """The readers of a directory that other users need: its owner alone, its group, every user."""

    OWNER = "owner"
    GROUP = "group"
    ALL = "all"

    @property
    def modes(self) -> FileModes:
        """Files and folders that they may read."""
        readers = {Readers.OWNER: 0, Readers.GROUP: 0o070, Readers.ALL: 0o077}[self]
        return FileModes(file=PRIVATE.file | readers & _READ, directory=PRIVATE.directory | readers & _READ_AND_ENTER)


def keep_private() -> None:
    """Make new files of this process, and of those that it starts, private to its user."""
    os.umask(PRIVATE_UMASK)


def modes_like(folder: str) -> FileModes:
    """Modes for what is made in a folder: who may read the folder may read that; private where there is none."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return PRIVATE
    return FileModes(file=PRIVATE.file | mode & _READ, directory=PRIVATE.directory | mode & _READ_AND_ENTER)


def make_directory(path: str, modes: FileModes = PRIVATE) -> None:
    """Make a folder and those above it that are missing; one that exists is fine, and stays as it is."""
    missing = []
    ancestor = path.rstrip("/") or "/"
    while not os.path.isdir(ancestor):
        missing.append(ancestor)
        ancestor = os.path.dirname(ancestor) or "."
    for folder in reversed(missing):
        try:
            os.mkdir(folder, modes.directory)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
        else:
            if not modes.is_private:
                with contextlib.suppress(PermissionError):
                    set_mode(folder, modes)


def set_mode(path: str, modes: FileModes) -> bool:
    """Give a file or folder these modes; whether it had others. A folder's own bits (set-group-id) stay.

    Raises:
        PermissionError: It is another user's.
    """
    present = os.lstat(path).st_mode
    if stat.S_ISLNK(present):
        return False
    wanted = modes.directory if stat.S_ISDIR(present) else modes.file | present & stat.S_IXUSR
    special = stat.S_IMODE(present) & ~0o777
    if stat.S_IMODE(present) == wanted | special:
        return False
    os.chmod(path, wanted | special)
    return True


def close_to_others(root: str, *, names: Iterable[str], large: Iterable[str] = ()) -> None:
    """Close a folder that exists, and what of these names is in it; what is of other names is not ours.

    `large`: folders of many files that are passed over when they are closed themselves.
    """
    if not os.path.isdir(root):
        return
    changed = _Changed()
    for name in names:
        path = f"{root}/{name}"
        if name in large and _is_closed(root) and _is_closed(path):
            continue
        changed.add_tree(path, PRIVATE)
    changed.add(root, PRIVATE)
    changed.tell(root)


def apply_modes(root: str, trees: Iterable[str], modes: FileModes) -> None:
    """Give a folder, and the trees in it, modes that they do not have yet; a tree whose top has them is passed over."""
    if not os.path.isdir(root):
        return
    changed = _Changed()
    for tree in trees:
        path = root
        for name in Path(tree).parts[:-1]:
            path = f"{path}/{name}"
            changed.add(path, modes)
        path = f"{root}/{tree}"
        with contextlib.suppress(FileNotFoundError):
            if stat.S_IMODE(os.stat(path).st_mode) & 0o777 != modes.directory:
                changed.add_tree(path, modes)
    changed.add(root, modes)
    changed.tell(root)


class _Changed:
    """Counts of changed files, and of files that could not be changed."""

    def __init__(self) -> None:
        self.count = 0
        self.refused: list[str] = []

    def add(self, path: str, modes: FileModes) -> None:
        try:
            self.count += set_mode(path, modes)
        except FileNotFoundError:
            return
        except OSError:
            self.refused.append(path)

    def add_tree(self, top: str, modes: FileModes) -> None:
        """What is inside first, so that one that is cut off is done again."""
        top = os.path.realpath(top)  # part of a store may be on another disk, by a link
        for folder, _, files in os.walk(top, topdown=False, onerror=self._unreadable):
            for name in files:
                self.add(f"{folder}/{name}", modes)
            self.add(folder, modes)
        if not os.path.isdir(top):
            self.add(top, modes)

    def _unreadable(self, error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self.refused.append(str(error.filename))

    def tell(self, root: str) -> None:
        if self.count:
            logger.info("access of other users changed path=%s files=%d", root, self.count)
        if self.refused:
            logger.warning(
                "access of other users cannot be changed path=%s files=%d first=%s: another user owns them",
                root,
                len(self.refused),
                self.refused[0],
            )


def _is_closed(path: str) -> bool:
    try:
        return not os.stat(path).st_mode & OTHERS
    except OSError:
        return True
