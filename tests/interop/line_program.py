"""A Java program that answers each line of its input with a line of JSON, until it reads an empty line.

Programs of that form run RocketMQ's own classes beside ours: official_access.py, official_decoder.py.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from tests.interop.java_agent import JavaClients, compiled_classes
from tooling.official_jvm import quick_jvm
from tooling.official_rocketmq import OfficialSoftware


class LineProgram:
    """The running program; made by `line_program`."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def ask(self, lines: Sequence[str]) -> list[Any]:
        """The answers to the lines; they are written while the answers are read, or both pipes would fill."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        writer = threading.Thread(target=self._write, args=("".join(lines).encode() + b"\n",))
        writer.start()
        answers = [process.stdout.readline() for _ in lines]
        writer.join()
        assert all(answers), self._log_path.read_text(errors="replace")[-3_000:]
        return [json.loads(answer) for answer in answers]

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()


@contextlib.contextmanager
def line_program(
    software: OfficialSoftware, directory: Path, main_class: str, *, log_name: str
) -> Iterator[LineProgram]:
    """Run a compiled class beside RocketMQ's; its log is in `directory`."""
    log_path = directory / log_name
    java = str(software.java_home / "bin" / "java")
    class_path = f"{compiled_classes(software, JavaClients.V5)}:{software.jars}/*"
    options = quick_jvm(directory, heap_mb=256)
    with agent_process([java, *options, "-cp", class_path, main_class], directory, log_path=log_path) as process:
        yield LineProgram(process, log_path)
