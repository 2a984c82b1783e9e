"""The process that drives the Node client ali-ons for the tests; its other half is `node/agent.js`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tests.interop.foreign_agent import ForeignAgent, foreign_agent
from tooling.system_packages import find_node

PROGRAM = Path(__file__).resolve().parent / "node" / "agent.js"


def node_agent(modules: Path, directory: Path) -> AbstractContextManager[ForeignAgent]:
    """Run an agent with the packages of the directory `modules`."""
    environment = {"NODE_PATH": str(modules / "node_modules")}
    return foreign_agent([str(find_node()), str(PROGRAM)], directory, environment=environment)
