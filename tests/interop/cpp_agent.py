"""The process that drives RocketMQ's C++ client for the tests; its other half is `cpp/agent.py`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests.interop.foreign_agent import ForeignAgent, foreign_agent

PROGRAM = Path(__file__).resolve().parent / "cpp" / "agent.py"
STATUS, MESSAGE_ID, QUEUE_OFFSET = range(3)
"""Of an answer to a send."""


def cpp_agent(wheel: Path, directory: Path) -> AbstractContextManager[ForeignAgent]:
    """Run an agent with the client in the directory `wheel`."""
    return foreign_agent([sys.executable, str(PROGRAM)], directory, environment={"PYTHONPATH": str(wheel)})
