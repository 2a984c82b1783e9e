"""The driver of `stream_driver` as a process: its life, what it has written, and the processes that belong to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 300.0
DRIVER = "tests.spark.streaming.stream_driver"
SIGNS_OF_BUGS = ("CorruptDataError", "OutOfRangeError", "InvalidRequestError", "NotFoundError: ", "AssertionError")
ROOT = Path(__file__).parents[3]


class DriverProcess:
    """One life of a query."""

    def __init__(self, folder: Path, *, program: str = DRIVER, **task: Any) -> None:
        """`folder` holds sink, checkpoint and the log of all runs."""
        folder.mkdir(parents=True, exist_ok=True)
        self._log_path = folder / "driver.log"
        self._out_path = folder / "driver.out"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        with self._log_path.open("ab") as log, self._out_path.open("wb") as out:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    program,
                    json.dumps(task | {"folder": str(folder)}),
                ],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether the driver is alive."""
        return self._process.poll() is None

    def batches(self) -> list[int]:
        """The batches that this life has done."""
        lines = [line.split() for line in self._out_path.read_text().splitlines() if line.startswith("batch ")]
        return [int(words[1]) for words in lines if len(words) > 1]

    def wait_for_batch(self) -> bool:
        """Return once another batch is done; False when the driver has ended before."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        count = len(self.batches())
        while len(self.batches()) <= count:
            if not self.is_running:
                return False
            assert time.monotonic() < deadline_s, f"no batch in time: {self.last_words()}"
            time.sleep(0.1)
        return True

    def wait(self, timeout_s: float) -> int:
        """The exit status."""
        return self._process.wait(timeout_s)

    def descendants(self) -> dict[int, str]:
        """Process id -> command line of everything that the driver has started, with what that has started."""
        return descendants(self._process.pid)

    def kill(self) -> None:
        """`kill -9` of the driver, its JVM, executors and Python workers."""
        everything = [self._process.pid, *self.descendants()]
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_one(self, *words: str) -> bool:
        """`kill -9` of one descendant with one of these words in its command line; False when there is none."""
        for pid, command in sorted(self.descendants().items(), reverse=True):
            if any(word in command for word in words):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def check_log(self) -> None:
        """Fail on what any life has written about errors that no kill explains."""
        log = self._log_path.read_text(errors="replace")
        for sign in SIGNS_OF_BUGS:
            assert sign not in log, log[max(0, log.index(sign) - 2_000) :][:6_000]

    def last_words(self) -> str:
        """The end of the log."""
        return self._log_path.read_text(errors="replace")[-3_000:]


def descendants(process_id: int) -> dict[int, str]:
    """Process id -> command line of everything that a process has started, with what that has started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    level = {process_id}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level and pid not in found}
        for pid in level:
            command = ""
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[pid] = command
    return found
