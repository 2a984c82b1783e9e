"""The JVM that keeps replica sets with RocketMQ's `controller` module.

Its other half is `java5/interop/ReplicaSets.java`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.line_program import LineProgram, line_program
from tooling.official_rocketmq import OfficialSoftware

MAIN_CLASS = "interop.ReplicaSets"


class OfficialReplicaSets:
    """The running module; made by `official_replica_sets`."""

    def __init__(self, program: LineProgram) -> None:
        self._program = program

    def ask(self, questions: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The answers."""
        return self._program.ask([f"{json.dumps(question)}\n" for question in questions])


@contextlib.contextmanager
def official_replica_sets(software: OfficialSoftware, directory: Path) -> Iterator[OfficialReplicaSets]:
    """Run the module; its log is in `directory`."""
    with line_program(software, directory, MAIN_CLASS, log_name="replica-sets.log") as program:
        yield OfficialReplicaSets(program)
