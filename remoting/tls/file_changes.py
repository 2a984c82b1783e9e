"""FileChanges: whether files are others than those that were read, by what `stat` tells of them.

A change counts when it has stayed the same between two calls, so that a file that is being written is not read in part.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["CHECK_INTERVAL_S", "FileChanges", "file_marks"]

CHECK_INTERVAL_S = 0.25
"""How often files that are in use are looked at."""

FileMark = tuple[str, int, int, int, int] | tuple[str]


class FileChanges:
    """See the module. Made before the files are read."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._seen = self._read = file_marks(self._paths)

    def are_settled(self) -> bool:
        """Whether the files have changed since this was True last, and not since the last call: read them then."""
        seen, self._seen = self._seen, file_marks(self._paths)
        if self._seen == self._read or self._seen != seen:
            return False
        self._read = self._seen
        return True


def file_marks(paths: Iterable[str]) -> tuple[FileMark, ...]:
    """Changes when one of these files, or the target of a link, is written or replaced."""
    return tuple(_mark(path) for path in paths if path)


def _mark(path: str) -> FileMark:
    try:
        status = os.stat(path)
    except OSError:
        return (path,)
    return path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
