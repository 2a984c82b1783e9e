"""The process that drives RocketMQ's official Python gRPC client; its other half is `grpc_python/agent.py`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests.interop.foreign_agent import ForeignAgent, foreign_agent
from thermocline.client import Credentials

PROGRAM = Path(__file__).resolve().parent / "grpc_python" / "agent.py"


def grpc_python_agent(
    wheels: Path,
    directory: Path,
    *,
    authority: Path | None = None,
    credentials: Credentials | None = None,
    is_tls: bool = False,
) -> AbstractContextManager[ForeignAgent]:
    """Run an agent with the client in the directory `wheels`. `authority`: whose certificates it trusts.
    `credentials` and `is_tls`: of all its clients."""
    environment = {"PYTHONPATH": str(wheels), "INTEROP_TLS": str(is_tls).lower()}
    if credentials is not None:
        environment |= {"INTEROP_ACCESS_KEY": credentials.access_key, "INTEROP_SECRET_KEY": credentials.secret_key}
    if authority is not None:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(authority)
    return foreign_agent([sys.executable, str(PROGRAM)], directory, environment=environment)
