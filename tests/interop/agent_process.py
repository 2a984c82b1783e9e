"""The process of an agent that drives official clients: asked over its standard input, answering over its output."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from thermocline.localstack.child_process import die_with_parent

STOP_TIMEOUT_S = 10.0


@contextlib.contextmanager
def agent_process(
    arguments: Sequence[str], directory: Path, *, log_path: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run it in `directory`; it ends when its input does, or is killed. `environment`: what is different in it."""
    with log_path.open("wb") as log_file:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
