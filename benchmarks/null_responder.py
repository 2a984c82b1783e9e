"""The null responder (`null_responder.c`): what the machine and the load generator cost without any broker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_under_test import real_time
from benchmarks.compiled_c import compile_c
from thermocline.localstack.child_process import ChildProcess

SOURCE = Path(__file__).resolve().parent / "null_responder.c"
START_TIMEOUT_S = 10.0


@contextlib.contextmanager
def start_null_responder(directory: Path, *, cpus: set[int], is_real_time: bool) -> Iterator[str]:
    """Run it on these cores; its address.

    Raises:
        ToolMissingError: There is no C compiler.
    """
    directory.mkdir(parents=True, exist_ok=True)
    process = ChildProcess(
        [str(compile_c(SOURCE))], log_path=directory / "null_responder.log", working_directory=directory
    )
    try:
        process.wait_until(lambda: process.output().endswith("\n"), timeout_s=START_TIMEOUT_S)
        os.sched_setaffinity(process.process_id, cpus)
        if is_real_time:
            real_time([process.process_id])
        yield f"127.0.0.1:{int(process.output())}"
    finally:
        process.kill()
