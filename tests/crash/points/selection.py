"""Selection: which points are tried, of the more than 20 000 that the runs have.

A *stop* is a distinct crash point: what the script was at, which call to which file or object, and whether the process
stops before it or behind it, or goes on without its answer. A call that a run makes twice, or two runs make, is one.
A *fault* is what else a network may do: an answer from the past, a call that comes late or twice. Of a call that a run
makes twice each may meet another past, so these are two.

The row begins with some of every operation, of each with every side, and goes on with every verb; a shorter selection
is the beginning of a longer one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TypeVar

from tests.crash.points.runs import RUNS
from tests.crash.points.tape import Io, Layer, Point, Side
from tests.crash.points.trial import Trial, carry_out

STOPS = frozenset({Side.BEFORE, Side.AFTER, Side.LOST})
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Place:
    """What makes a point one of its own."""

    operation: str
    layer: Layer
    verb: str
    target: str
    side: Side

    @classmethod
    def of(cls, io: Io, side: Side) -> Place:
        """Of one input or output."""
        return cls(io.operation, io.layer, io.verb, io.target, side)


@dataclass(frozen=True, slots=True)
class Selected:
    """One trial, and what it is to meet."""

    trial: Trial
    place: Place


@cache
def stops_of(seed: int) -> dict[str, list[Selected]]:
    """Of each run the distinct ones that no run before it has, in the order of their selection."""
    seen: set[Place] = set()
    selected: dict[str, list[Selected]] = {}
    for run in sorted(RUNS):
        found: dict[Place, Selected] = {}
        for each in _all_of(run, seed):
            if each.place.side in STOPS and each.place not in seen:
                found.setdefault(each.place, each)
        seen |= found.keys()
        selected[run] = _in_order(list(found.values()), Random(f"{run} {seed} stops"))
    return selected


@cache
def faults_of(seed: int) -> dict[str, list[Selected]]:
    """Of each run all, in the order of their selection."""
    return {
        run: _in_order(
            [each for each in _all_of(run, seed) if each.place.side not in STOPS], Random(f"{run} {seed} faults")
        )
        for run in sorted(RUNS)
    }


@cache
def _all_of(run: str, seed: int) -> list[Selected]:
    return [
        Selected(Trial(run, seed, Point(io.number, side)), Place.of(io, side))
        for io in carry_out(Trial(run, seed)).ios
        for side in io.sides
    ]


def _in_order(selected: list[Selected], random: Random) -> list[Selected]:
    random.shuffle(selected)
    return _interleaved(
        selected,
        lambda each: each.place.operation,
        lambda each: each.place.side,
        lambda each: (each.place.layer, each.place.verb),
    )


def _interleaved(items: list[Item], *kinds: Callable[[Item], Hashable]) -> list[Item]:
    """One of each first kind in turn, each time one of another second kind, and so on."""
    if not kinds:
        return items
    return _round_robin([_interleaved(group, *kinds[1:]) for group in _groups(items, kinds[0])])


def _groups(items: Iterable[Item], kind: Callable[[Item], Hashable]) -> list[list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(kind(item), []).append(item)
    return list(groups.values())


def _round_robin(groups: list[list[Item]]) -> list[Item]:
    missing = object()
    rows = itertools.zip_longest(*groups, fillvalue=missing)
    return [item for row in rows for item in row if item is not missing]  # type: ignore[misc]
