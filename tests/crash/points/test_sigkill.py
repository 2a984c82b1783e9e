"""The same scripts over the real file system, in a real process that dies by SIGKILL at the point."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.points.nursery import bucket_of, read_promises
from tests.crash.points.play import Play
from tests.crash.points.runs import RUNS
from tests.crash.points.selection import stops_of
from tests.crash.points.tape import Side, Tape
from tests.crash.points.test_crash_points import FULL_STOPS, SOAK_STOPS
from tests.crash.points.trial import Trial, carry_out, come_back, make_world
from tests.virtual_loop import run_virtually
from thermocline.store.files.disk import RealDisk

ROOT = Path(__file__).resolve().parents[3]
SEED = 1
KILLS = (Side.BEFORE, Side.AFTER)
PROCESSES_BEFORE = 1_000
"""So that the restarted process draws other nonces than the killed one."""


class Nursery:
    """See nursery.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def live(self, trial: Trial, folder: Path, *, in_memory: bool = False) -> str:
        """Let a process live and die, over files or without; what its end was."""
        point = trial.point
        order = {
            "run": trial.run,
            "seed": trial.seed,
            "number": None if point is None else point.number,
            "side": None if point is None else point.side,
            "folder": str(folder),
            "in_memory": in_memory,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One for all; its strings hash as they like."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.points.nursery"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Nursery(process)


@pytest.mark.crash
def test_every_promise_is_kept_by_who_comes_after_a_kill(
    nursery: Nursery, tmp_path: Path, case_count: Callable[..., int]
) -> None:
    # Of those that `make soak` stops in process, those that `make test` does not.
    tried = [stops[2 * FULL_STOPS : 2 * SOAK_STOPS] for stops in stops_of(SEED).values()]
    per_run = [[each.trial for each in stops if each.place.side in KILLS] for stops in tried]
    trials = [trial for row in zip(*per_run, strict=False) for trial in row]
    for number, trial in enumerate(trials[: case_count(quick=5, full=9, soak=102)]):
        folder = tmp_path / f"{number}"
        assert nursery.live(trial, folder) == f"signal {signal.SIGKILL}", trial.line
        try:
            run_virtually(lambda trial=trial, folder=folder: _come_back(trial, folder))
        except BaseException as error:
            error.add_note(f"killed as by: {trial.line}")
            raise
        shutil.rmtree(folder)


async def _come_back(trial: Trial, folder: Path) -> None:
    world = make_world(trial.run, trial.seed, disk=RealDisk(), bucket=bucket_of(folder), root=str(folder / "store"))
    world.process_count = PROCESSES_BEFORE
    play = Play(world, Tape())
    play.promises = read_promises(folder)
    world.start_ms = play.promises.now_ms
    play.promises.survived()
    await come_back(play, Random(trial.line))
    partial = [path for path in (folder / "cold" / ".partial").rglob("*") if path.is_file()]
    assert not partial, "unfinished objects were left behind"


@pytest.mark.crash
@pytest.mark.parametrize("run", sorted(RUNS))
def test_a_seed_is_a_run_in_every_process(nursery: Nursery, tmp_path: Path, run: str) -> None:
    """Whatever strings hash to: over memory in this process and another, over files twice."""
    trial = Trial(run, SEED)
    in_memory = carry_out(trial)
    assert nursery.live(trial, tmp_path / "memory", in_memory=True) == f"{len(in_memory.ios)} {in_memory.digest}"
    over_files = {nursery.live(trial, tmp_path / name) for name in ("first", "second")}
    assert len(over_files) == 1, over_files
