"""Spool: bytes written in order and then seen as one view, without holding them in memory when a folder is given.

The file has no name, so nothing is left behind however the process ends; it is never made durable. A disk without room
for it is a DiskFullError.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from thermocline.remoting.errors import DiskFullError
from thermocline.store.files import NO_ROOM

WRITE_BYTES = 1024 * 1024


class Spool:
    """In an unnamed file under `folder`, or in memory. `crc32` is that of everything written."""

    def __init__(self, folder: Path | None) -> None:
        self._file: IO[bytes] | None = None
        self._memory = bytearray()
        self._map: mmap.mmap | None = None
        if folder is not None:
            with _translated():
                self._file = tempfile.TemporaryFile(dir=folder, buffering=WRITE_BYTES)  # noqa: SIM115 - see close()
        self.size_bytes = 0
        self.crc32 = 0

    def write(self, data: bytes | memoryview) -> None:
        """Add `data`."""
        if self._file is None:
            self._memory += data
        else:
            with _translated():
                self._file.write(data)
        self.size_bytes += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)

    def finish(self) -> memoryview:
        """All of it, read-only."""
        if self._file is None:
            return memoryview(self._memory).toreadonly()
        with _translated():
            self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), self.size_bytes, prot=mmap.PROT_READ)
        return memoryview(self._map)

    def close(self) -> None:
        """Let go of it; memory and disk are free when the last view is. Idempotent."""
        self._map = None
        self._memory = bytearray()
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):  # the buffered rest may find no room, and is not needed
                file.close()

    def __del__(self) -> None:
        """A writer that is given up half way, as its broker is the master no more, closes nothing."""
        self.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError("no room left to spool a segment") from error
        raise
