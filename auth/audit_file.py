"""Audit file: lines of the audit log, written by a thread of its own, so that no request waits for the disk.

    audit.log                  written now, mode 0600
    audit.log.1 ... .N         set aside when they were full, the newest first

Bound: PENDING_BYTES_MAX of lines that are not written yet; beyond, lines are dropped and counted, and a line says how
many. The same where the disk refuses. Whatever was refused is tried again with the next lines: a full disk, a new file
for which there is no descriptor, a file that an operator has moved away. Half a line, which a full disk or a crash
leaves, is ended before the next one.
Owner: `write` belongs to the event loop, the file to the thread. A line costs the loop no lock: each side has counters
that the other only reads, and the queue between them is a deque; the thread is woken only when it waits for a line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable

from thermocline.auth.audit import dropped_line, whole_line

logger = logging.getLogger(__name__)

PENDING_BYTES_MAX = 4 << 20
GATHER_S = 0.05
"""How long lines wait for others, so that a flood of denials does not wake the thread for each."""
FILE_MODE = 0o600
NEW_LINE = ord("\n")
TIME_BYTES = 34
"""Of a line, in front of what `write` takes."""


class AuditFile:
    """See the module. `close` ends the thread when everything is written."""

    def __init__(self, path: str, *, file_bytes: int, file_count: int, clock: Callable[[], int]) -> None:
        """Open the file, and the thread begins. `clock`: milliseconds of the wall clock.

        Raises:
            OSError: The file cannot be opened.
        """
        self._path = path
        self._file_bytes = file_bytes
        self._file_count = file_count
        self._clock = clock
        self._pending: deque[tuple[int, bytes]] = deque()
        self._taken_bytes = 0
        self._ended_bytes = 0
        """Of lines that were taken: those that the thread has written, or given up."""
        self._dropped = 0
        self._noted = 0
        """Of dropped lines: those that a line tells of."""
        self._given_up = 0
        self._is_idle = False
        self._is_closing = False
        self._changed = threading.Condition()
        self._is_torn = False
        """Whether the file ends with half a line."""
        self._file, self._size_bytes = self._open()
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    def write(self, time_ms: int, rest: bytes) -> None:
        """Take a line; see the bound above."""
        size_bytes = len(rest) + TIME_BYTES
        if self._taken_bytes - self._ended_bytes + size_bytes > PENDING_BYTES_MAX or self._is_closing:
            self._dropped += 1
            return
        self._taken_bytes += size_bytes
        self._pending.append((time_ms, rest))
        if self._is_idle:
            with self._changed:
                self._changed.notify()

    def close(self) -> None:
        """Write what is pending, and end. Idempotent."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                # First idle, then a look: a line that comes in between finds the thread idle, and wakes it.
                self._is_idle = True
                while not (self._pending or self._is_closing):
                    self._changed.wait()
                self._is_idle = False
                self._changed.wait_for(lambda: self._is_closing, timeout=GATHER_S)
                is_closing = self._is_closing
            self._write_pending()
            if is_closing:
                with contextlib.suppress(OSError):
                    os.close(self._file)
                return

    def _write_pending(self) -> None:
        count, size_bytes = len(self._pending), 0
        lines = []
        for _ in range(count):
            time_ms, rest = self._pending.popleft()
            size_bytes += len(rest) + TIME_BYTES
            lines.append(whole_line(time_ms, rest))
        dropped = self._dropped + self._given_up
        if dropped > self._noted:
            lines.append(dropped_line(dropped - self._noted, self._clock()))
        try:
            self._write_all(lines)
            self._noted = dropped
        except OSError as error:
            logger.error("audit log not written path=%s lines=%d error=%s", self._path, len(lines), error)
            self._given_up += count
        self._ended_bytes += size_bytes

    def _write_all(self, lines: list[bytes]) -> None:
        start = 0
        while start < len(lines):
            if self._size_bytes >= self._file_bytes:
                self._set_aside()
            end, room = start, max(1, self._file_bytes - self._size_bytes)
            while end < len(lines) and room > 0:
                room -= len(lines[end])
                end += 1
            self._write(b"".join(lines[start:end]))
            start = end

    def _write(self, data: bytes) -> None:
        view = memoryview(b"\n" + data if self._is_torn else data)
        while view:
            written = os.write(self._file, view)
            self._is_torn = view[written - 1] != NEW_LINE
            self._size_bytes += written
            view = view[written:]

    def _set_aside(self) -> None:
        # Without a file at the path there is none to set aside: it was moved, or the last attempt could not open one.
        if os.path.exists(self._path):
            for number in range(self._file_count - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.replace(self._path, f"{self._path}.1")
        file, size_bytes = self._open()
        os.close(self._file)
        self._file, self._size_bytes = file, size_bytes

    def _open(self) -> tuple[int, int]:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(file, FILE_MODE)
        found = os.fstat(file)
        self._is_torn = stat.S_ISREG(found.st_mode) and found.st_size > 0 and not self._ends_with_line()
        return file, found.st_size

    def _ends_with_line(self) -> bool:
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == bytes([NEW_LINE])
