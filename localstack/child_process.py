"""A server process that cannot outlive the one that started it.

Rules
  - The kernel kills the child when the thread that started it ends (PR_SET_PDEATHSIG), however it ends: start children
    from a thread that runs as long as they should, such as the main one.
  - It runs in a session of its own: Ctrl-C in a terminal reaches the parent alone, and stopping signals the group, so
    that no grandchild stays behind.
  - Its output goes to a file, never to a pipe that a reader would have to empty.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from thermocline.localstack.errors import ServerStartError

PR_SET_PDEATHSIG = 1
READY_POLL_INTERVAL_S = 0.05
LAST_WORDS_BYTES_MAX = 2_000

_libc = ctypes.CDLL(None, use_errno=True)


class ChildProcess:
    """One running server; `stop()` or `kill()` ends it, and both may be called again."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        working_directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command`; its output is appended to `log_path`.

        Raises:
            ServerStartError: The program cannot be executed.
        """
        self.command = tuple(command)
        self.log_path = log_path
        self._log_start_bytes = log_path.stat().st_size if log_path.exists() else 0
        with log_path.open("ab") as log_file:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=subprocess.STDOUT,
                    cwd=working_directory,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,
                    preexec_fn=die_with_parent(),
                )
            except OSError as error:
                raise ServerStartError(f"{self.command[0]} cannot be started: {error}") from error

    @property
    def process_id(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Return when `is_ready()` is true.

        Raises:
            ServerStartError: The process ended, or the time ran out; the process is killed in both cases.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if not self.is_running:
                raise ServerStartError(
                    f"{self.command[0]} ended with status {self._process.returncode}; it said:\n{self.last_words()}"
                )
            if is_ready():
                return
            if time.monotonic() > deadline:
                self.kill()
                raise ServerStartError(
                    f"{self.command[0]} was not ready within {timeout_s:.0f} s; it said:\n{self.last_words()}"
                )
            time.sleep(READY_POLL_INTERVAL_S)

    def output(self) -> str:
        """Everything the process has printed since it was started."""
        with self.log_path.open("rb") as log_file:
            log_file.seek(self._log_start_bytes)
            return log_file.read().decode(errors="replace")

    def last_words(self) -> str:
        """The end of its output."""
        return self.output()[-LAST_WORDS_BYTES_MAX:]

    def stop(self, *, timeout_s: float = 20.0) -> int:
        """Ask it to end (SIGTERM), kill it when it has not ended in time, and return its exit status."""
        if self.is_running:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """End it at once (SIGKILL), with all of its children."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def die_with_parent() -> Callable[[], None]:
    """The function that a new process calls before it executes its program, so that it ends with the calling thread."""
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended between the fork and the line above
            os._exit(1)

    return prepare
