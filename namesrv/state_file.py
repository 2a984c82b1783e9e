"""State file: a small file of a NameServer that is replaced as a whole, durably.

A NameServer keeps two: settings that were changed while it ran, and the KV configuration. Both change when an operator
says so, so they are written where the change is made, on the event loop, and are durable before the answer. An empty
path keeps nothing: then a restart begins anew. A daemon that runs holds a lock beside each file: of two that replaced
one file, each would undo what the other has confirmed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from thermocline.remoting.errors import UnavailableError

TEMPORARY_SUFFIX, LOCK_SUFFIX = ".tmp", ".lock"
FILE_MODE, FOLDER_MODE, OTHERS = 0o600, 0o700, 0o077
WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class StateFile:
    """One file, by its path; nothing at all when the path is empty."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1

    def lock(self) -> None:
        """Keep other daemons from the file until `unlock`. Where nothing can be written, nothing has to be locked.

        Raises:
            UnavailableError: Another daemon has it.
        """
        if not self.path or self._lock >= 0:
            return
        path = Path(self.path)
        try:
            path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = os.open(
                path.with_name(path.name + LOCK_SUFFIX), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
            )
        except OSError:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise UnavailableError("a state file is another daemon's that runs", path=self.path) from None
        except OSError:  # a file system without locks
            return

    def unlock(self) -> None:
        """Let another daemon have the file. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def load(self) -> bytes | None:
        """The state saved last; None when none was.

        Raises:
            UnavailableError: The file cannot be read.
        """
        if not self.path:
            return None
        try:
            return Path(self.path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnavailableError(f"a state file cannot be read: {error.strerror}", path=self.path) from error

    def close_to_others(self) -> None:
        """Take access from other users, as an earlier release left it: of the file, and of a folder with state alone.

        Raises:
            UnavailableError: It belongs to another user.
        """
        path = Path(self.path)
        if not self.path or not path.is_file():
            return
        try:
            for made in (path, path.with_name(path.name + TEMPORARY_SUFFIX)):
                if made.exists():
                    made.chmod(FILE_MODE)
            if all(name.is_file() and not name.stat().st_mode & OTHERS for name in path.parent.iterdir()):
                path.parent.chmod(FOLDER_MODE)
        except OSError as error:
            raise UnavailableError(f"a state file cannot be made private: {error.strerror}", path=self.path) from error

    def save(self, data: bytes) -> None:
        """Replace the file; a crash leaves the old content or the new one.

        Raises:
            UnavailableError: It could not be written; the old content stays.
        """
        if not self.path:
            return
        path = Path(self.path)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        try:
            path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            with open(os.open(temporary, WRITE_ANEW, FILE_MODE), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise UnavailableError(f"a state file cannot be written: {error.strerror}", path=self.path) from error
