"""What tests of the documents share: the commands shown in them, and a cluster to run them against."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.docs.pages import CodeBlock, code_blocks

COMMAND = [sys.executable, "-m", "thermocline.cli"]
DAEMONS = ("dev", "namesrv", "broker", "controller", "proxy")
SUBCOMMANDS = (
    *("config", "runtime", "stats", "clean", "kv", "wipe-write-perm", "add-write-perm", "clients", "rules"),
    *("status", "elect"),
)
"""Of daemons that run."""
FREE_ADDRESS = "127.0.0.1:0"
STOP_TIMEOUT_S = 20


def command_lines(page: Path) -> list[tuple[CodeBlock, list[str]]]:
    """The words of each `thermocline` command in the page's shell blocks, without that first word."""
    found: list[tuple[CodeBlock, list[str]]] = []
    for block in code_blocks(page, "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "thermocline":
                found.append((block, words[1:]))
    return found


def is_daemon(words: Sequence[str]) -> bool:
    """Whether the command runs until it is stopped."""
    return words[0] in DAEMONS and not (len(words) > 1 and words[1] in SUBCOMMANDS)


class Daemon:
    """A daemon of the command line as a process, in a directory of its own, on free ports."""

    def __init__(self, words: Sequence[str], directory: Path) -> None:
        self._log = (directory / f"{words[0]}.err").open("w+b")
        self.process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=self._log, cwd=directory)

    def ready(self) -> dict[str, str]:
        """Wait for the line that says that it serves, and return its fields."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), self.errors()
        return dict(part.split("=", 1) for part in line.split()[1:])

    def errors(self) -> str:
        """Its stderr so far."""
        self._log.seek(0)
        return self._log.read().decode()

    def stop(self) -> int:
        """Stop it as Ctrl-C would, and return its exit status; kills it when it does not stop in time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._log.close()
