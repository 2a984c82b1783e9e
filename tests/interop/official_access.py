"""The JVM that decides with RocketMQ's `auth` module; its other half is `java5/interop/Access.java`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from tests.interop.java_agent import JavaClients, compiled_classes
from tooling.official_rocketmq import OfficialSoftware

MAIN_CLASS = "interop.Access"


class OfficialAccess:
    """The running module; made by `official_access`."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def ask(self, questions: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The answers; questions are written while answers are read, or both pipes would fill."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        text = "".join(f"{json.dumps(question)}\n" for question in questions) + "\n"
        writer = threading.Thread(target=self._write, args=(text.encode(),))
        writer.start()
        answers = [process.stdout.readline() for _ in questions]
        writer.join()
        assert all(answers), self._log_path.read_text(errors="replace")[-3_000:]
        return [json.loads(answer) for answer in answers]

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()


@contextlib.contextmanager
def official_access(software: OfficialSoftware, directory: Path) -> Iterator[OfficialAccess]:
    """Run the module; its log is in `directory`."""
    log_path = directory / "access.log"
    java = str(software.java_home / "bin" / "java")
    class_path = f"{compiled_classes(software, JavaClients.V5)}:{software.jars}/*"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={directory}"]
    with agent_process([java, *options, "-cp", class_path, MAIN_CLASS], directory, log_path=log_path) as process:
        yield OfficialAccess(process, log_path)
