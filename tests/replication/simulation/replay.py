"""Replays a run, and prints its trace: `python -m tests.replication.simulation.replay plain SEED` (or `controlled`)."""

from __future__ import annotations

import sys

from tests.replication.simulation.controlled_set import ControlledSet
from tests.replication.simulation.plain_set import PlainSet
from tests.virtual_loop import run_virtually

RUNS = {"plain": PlainSet, "controlled": ControlledSet}


def main(kind: str, seed: str) -> None:
    """Run it."""
    run = RUNS[kind](int(seed))
    try:
        run_virtually(run.run)
    finally:
        sys.stdout.write("".join(f"{line}\n" for line in run.world.trace))


if __name__ == "__main__":
    main(*sys.argv[1:])
