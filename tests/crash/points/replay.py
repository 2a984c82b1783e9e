"""Replays one trial: `python -m tests.crash.points.replay RUN SEED [NUMBER SIDE]`, from the repository's root."""

from __future__ import annotations

import logging
import sys

from tests.crash.points.tape import Point, Side
from tests.crash.points.trial import Trial, carry_out


def main(run: str, seed: str, number: str | None = None, side: str | None = None) -> None:
    """Carry it out, with the broker's own log on stderr."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    point = None if number is None or side is None else Point(int(number), Side(side))
    outcome = carry_out(Trial(run, int(seed), point))
    if point is not None:
        sys.stdout.write(f"{outcome.ios[point.number]} {point.side}\n")
    sys.stdout.write(f"ok ios={len(outcome.ios)} digest={outcome.digest} power_was_cut={outcome.power_was_cut}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
