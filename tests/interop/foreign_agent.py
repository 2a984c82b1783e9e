"""A process that drives a client of another project for the tests, by the Java agent's protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from tests.interop.java_agent import ANSWER_TIMEOUT_S, JavaAgent


class ForeignAgent(JavaAgent):
    """A running agent; made by `foreign_agent`."""

    def taken(self, name: str, *, count: int, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait until consumer `name` holds so many messages that were not taken yet, and take all it holds."""
        answer: list[dict[str, Any]] = self.call(
            "received", name=name, count=count, timeout_ms=int(timeout_s * 1000), timeout_s=timeout_s + ANSWER_TIMEOUT_S
        )
        return answer


@contextlib.contextmanager
def foreign_agent(command: Sequence[str], directory: Path, *, environment: Mapping[str, str]) -> Iterator[ForeignAgent]:
    """Run an agent; its log, and what the client writes into its home, go to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "agent.log"
    home = {"HOME": str(directory)}
    with agent_process(command, directory, log_path=log_path, environment={**home, **environment}) as process:
        yield ForeignAgent(process, log_path)
