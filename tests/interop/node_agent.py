"""The process that drives the Node client ali-ons for the tests; its other half is `node/agent.js`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from tests.interop.java_agent import ANSWER_TIMEOUT_S, JavaAgent
from tooling.system_packages import find_node

PROGRAM = Path(__file__).resolve().parent / "node" / "agent.js"


class NodeAgent(JavaAgent):
    """A running agent, which speaks the Java agent's protocol; made by `node_agent`."""

    def taken(self, name: str, *, count: int, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait until consumer `name` holds so many messages that were not taken yet, and take all it holds."""
        answer: list[dict[str, Any]] = self.call(
            "received", name=name, count=count, timeout_ms=int(timeout_s * 1000), timeout_s=timeout_s + ANSWER_TIMEOUT_S
        )
        return answer


@contextlib.contextmanager
def node_agent(modules: Path, directory: Path) -> Iterator[NodeAgent]:
    """Run an agent with the packages of the directory `modules`; its log goes to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "agent.log"
    environment = {"HOME": str(directory), "NODE_PATH": str(modules / "node_modules")}
    with agent_process(
        [str(find_node()), str(PROGRAM)], directory, log_path=log_path, environment=environment
    ) as process:
        yield NodeAgent(process, log_path)
