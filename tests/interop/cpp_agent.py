"""The process that drives RocketMQ's C++ client for the tests; its other half is `cpp/agent.py`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from tests.interop.java_agent import ANSWER_TIMEOUT_S, JavaAgent

PROGRAM = Path(__file__).resolve().parent / "cpp" / "agent.py"
STATUS, MESSAGE_ID, QUEUE_OFFSET = range(3)
"""Of an answer to a send."""


class CppAgent(JavaAgent):
    """A running agent, which speaks the Java agent's protocol; made by `cpp_agent`."""

    def taken(self, name: str, *, count: int, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait until consumer `name` holds so many messages that were not taken yet, and take all it holds."""
        answer: list[dict[str, Any]] = self.call(
            "received", name=name, count=count, timeout_ms=int(timeout_s * 1000), timeout_s=timeout_s + ANSWER_TIMEOUT_S
        )
        return answer


@contextlib.contextmanager
def cpp_agent(wheel: Path, directory: Path) -> Iterator[CppAgent]:
    """Run an agent with the client in the directory `wheel`; its log, and the client's own, go to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "agent.log"
    environment = {"HOME": str(directory), "PYTHONPATH": str(wheel)}
    with agent_process(
        [sys.executable, str(PROGRAM)], directory, log_path=log_path, environment=environment
    ) as process:
        yield CppAgent(process, log_path)
