"""Tasks and plans report to the driver: one JSON line over a connection of its own, answered by one byte.

The driver's address comes as an option of the read (`collector.py`). A report is sent before the task ends, and waits
for the answer, so that the driver has it when the action returns. A driver that is gone, or not to be reached from
here, costs a report and never a task: it is tried once in the life of a worker process.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from thermocline.spark.metrics.task_counts import TaskCounts

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 2.0
RECEIVED = b"\n"

_unreachable: set[str] = set()


@contextmanager
def task_reported(address: str | None, counts: Callable[[], TaskCounts], *, engine: str) -> Iterator[None]:
    """Report, however the block is left, what a task has done in it."""
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except GeneratorExit:
        outcome = "stopped"  # the reader needs no more rows: a limit
        raise
    finally:
        if address is not None:
            numbers = _place() | counts().as_dict()
            send_report(address, {"kind": "task", "engine": engine, "outcome": outcome, **numbers})


def send_report(address: str, report: Mapping[str, object]) -> bool:
    """Whether the driver has it; never raises."""
    if address in _unreachable:
        return False
    parts = urlsplit(address)
    token = parts.path.lstrip("/")
    line = json.dumps({"token": token, **report}).encode() + b"\n"
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=SEND_TIMEOUT_S) as connection:
            connection.sendall(line)
            return connection.recv(1) == RECEIVED
    except (OSError, ValueError) as error:
        _unreachable.add(address)
        logger.warning("the report of a task did not reach the driver host=%s reason=%s", parts.hostname, error)
        return False


def _place() -> dict[str, int]:
    """Which task this is, as Spark counts."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return {"stage": -1, "partition": -1, "attempt": 0}
    return {"stage": context.stageId(), "partition": context.partitionId(), "attempt": context.attemptNumber()}
