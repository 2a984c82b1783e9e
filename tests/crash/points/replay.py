"""Replays one trial: `python -m tests.crash.points.replay RUN SEED [NUMBER SIDE]`, from the repository's root."""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.crash.points import takeover, trial
from tests.crash.points.tape import Point, Side
from tests.crash.points.trial import Trial


def main(run: str, seed: str, number: str | None = None, side: str | None = None) -> None:
    """Carry it out, and say what it was."""
    point = None if number is None or side is None else Point(int(number), Side(side))
    tried = Trial(run, int(seed), point)
    if run == takeover.RUN:
        takeover.carry_out(tried)
        sys.stdout.write("ok\n")
        return
    outcome = trial.carry_out(tried)
    if point is not None:
        sys.stdout.write(f"{outcome.ios[point.number]} {point.side}\n")
    sys.stdout.write(f"{Counter(io.operation for io in outcome.ios)}\n") if point is None else None
    sys.stdout.write(f"ok ios={len(outcome.ios)} digest={outcome.digest} power_was_cut={outcome.power_was_cut}\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    main(*sys.argv[1:])
