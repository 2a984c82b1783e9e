"""Nursery: a process that makes processes to be killed. It has loaded everything, so each costs a fork.

    stdin   one JSON object a line: {"run", "seed", "number", "side", "folder", "in_memory"}; number null: to its end
    stdout  for each, when its process has ended: how many inputs and outputs there were and their digest, or the signal

The child runs the script over the real file system and a `file://` store below `folder`, and kills itself with SIGKILL
at the point. Its promises until then are stored in `promises`, written anew before each step.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import sys
from functools import partial
from pathlib import Path

from tests.crash.points.play import Play
from tests.crash.points.promises import Promises
from tests.crash.points.tape import Point, Side, Tape
from tests.crash.points.trial import make_world, run_until_death
from tests.virtual_loop import run_virtually
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.stores.file import FileObjectStore

EXIT_FAILED = 3


def bucket_of(folder: Path) -> FileObjectStore:
    """The store below a folder; its calls are made in the thread that asks."""
    return FileObjectStore(str(folder / "cold"), disk=RealDisk(), in_thread=False)


def read_promises(folder: Path) -> Promises:
    """What a process that was killed had promised."""
    promises = pickle.loads((folder / "promises").read_bytes())
    assert isinstance(promises, Promises)
    return promises


async def live(run: str, seed: int, point: Point | None, folder: Path, *, in_memory: bool) -> str:
    """One process's life; returns when the script ends."""
    world = (
        make_world(run, seed)
        if in_memory
        else make_world(run, seed, disk=RealDisk(), bucket=bucket_of(folder), root=str(folder / "store"))
    )
    tape = Tape(point, died=lambda: os.kill(os.getpid(), signal.SIGKILL))

    def noted(promises: Promises) -> None:
        (folder / "promises.tmp").write_bytes(pickle.dumps(promises))
        os.replace(folder / "promises.tmp", folder / "promises")

    await run_until_death(Play(world, tape, noted=noted), run, asyncio.Event())
    return f"{len(tape.ios)} {tape.digest}"


def main() -> None:
    """Serve until stdin ends."""
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        order = json.loads(line)
        folder = Path(order["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        number, in_memory = order["number"], order["in_memory"]
        point = None if number is None else Point(number, Side(order["side"]))
        pid = os.fork()
        if pid == 0:
            try:
                summary = run_virtually(partial(live, order["run"], order["seed"], point, folder, in_memory=in_memory))
                (folder / "summary").write_text(summary)
            except BaseException as error:  # noqa: BLE001 - the parent has to hear of it
                sys.stderr.write(f"{error!r}\n")
                os._exit(EXIT_FAILED)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            answer = f"signal {os.WTERMSIG(status)}"
        elif os.WEXITSTATUS(status) == 0:
            answer = (folder / "summary").read_text()
        else:
            answer = "failed"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
