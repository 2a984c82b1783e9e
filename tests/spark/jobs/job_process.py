"""A job in a process of its own, to be killed: a Python program, with its JVM, as one process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

JOB_TIMEOUT_S = 600.0


class JobProcess:
    """`python ARGUMENTS` with its children; `until` waits for what it does."""

    def __init__(
        self, arguments: Sequence[str], directory: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = directory / "job.out", directory / "job.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def until(self, condition: Callable[[], bool]) -> bool:
        """Wait until it holds; False when the job ended first."""
        deadline = time.monotonic() + JOB_TIMEOUT_S
        while not condition():
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """`kill -9` of the job, its JVM and its workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> int:
        """Its exit status."""
        try:
            return self._process.wait(JOB_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def output(self) -> str:
        """What it wrote to stdout."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._err.read_text(errors="replace")


def entry_count(directory: Path) -> int:
    """How many things are in it, at any depth; what goes while they are counted may be counted or not."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(directory))


def has_entries(directory: Path, count: int) -> bool:
    """Whether there are so many: their number changes with all that a job does."""
    return entry_count(directory) >= count
