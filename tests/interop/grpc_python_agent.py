"""The process that drives RocketMQ's official Python gRPC client; its other half is `grpc_python/agent.py`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests.interop.foreign_agent import ForeignAgent, foreign_agent

PROGRAM = Path(__file__).resolve().parent / "grpc_python" / "agent.py"


def grpc_python_agent(
    wheels: Path, directory: Path, *, authority: Path | None = None
) -> AbstractContextManager[ForeignAgent]:
    """Run an agent with the client in the directory `wheels`. `authority`: whose certificates it trusts."""
    environment = {"PYTHONPATH": str(wheels)}
    if authority is not None:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(authority)
    return foreign_agent([sys.executable, str(PROGRAM)], directory, environment=environment)
