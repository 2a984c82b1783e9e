"""Tape: every input and output of a run in one numbered row, of files and of the object store; at one of them the
process stops, or the store's answer goes astray.

    run the script without a point      -> `ios`: what there is to stop at
    run it again with Point(17, AFTER)  -> the same row up to number 17, which is carried out, and nothing after it

Of files every call counts that changes something: stopping at a read is stopping behind the change before it. Of the
object store every call counts. Numbers are the same whenever seed and script are; `digest` tells whether they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from thermocline.tiered.wrappers import Fault, ProcessCrash, StoreCall
from thermocline.tiered.wrappers.wrapping import Verb


class Layer(StrEnum):
    """Where to."""

    FILE = "file"
    OBJECT = "object"


class Side(StrEnum):
    """What happens at an input or output."""

    BEFORE = "before"
    """The process stops, the call is not carried out."""
    AFTER = "after"
    """The process stops; the call is carried out, but its result is lost."""
    LOST = "lost"
    """The process goes on, as if the call had got no answer; it was carried out."""
    LATE = "late"
    """The process goes on without an answer; the call is carried out later, perhaps when the process has long ended."""
    TWICE = "twice"
    """The call is carried out, and once more later."""
    STALE = "stale"
    """A listing that has not seen the last writes; a hint as it was before it was replaced."""
    SLEPT_BEFORE = "slept-before"
    """The process sleeps through a successor's work, then the call is carried out, and it goes on."""
    SLEPT_AFTER = "slept-after"
    """The call is carried out, and its answer comes when the process has slept so."""


FAULTS = {
    Side.BEFORE: Fault.CRASH_BEFORE,
    Side.AFTER: Fault.CRASH_AFTER,
    Side.LOST: Fault.LOST_ANSWER,
    Side.LATE: Fault.LATE,
    Side.TWICE: Fault.TWICE,
    Side.STALE: Fault.STALE,
    Side.SLEPT_BEFORE: Fault.SLEEP_BEFORE,
    Side.SLEPT_AFTER: Fault.SLEEP_AFTER,
}
WRITES = frozenset({Verb.PUT, Verb.CREATE_IF_ABSENT, Verb.DELETE, Verb.DELETE_MANY})


@dataclass(frozen=True, slots=True)
class Io:
    """One input or output. `operation`: what the script was at."""

    number: int
    operation: str
    layer: Layer
    verb: str
    target: str

    @property
    def sides(self) -> tuple[Side, ...]:
        """What can happen here."""
        if self.layer is Layer.FILE:
            return Side.BEFORE, Side.AFTER
        sides = [Side.BEFORE, Side.AFTER, Side.LOST]
        if self.verb in WRITES:
            sides += [Side.LATE, Side.TWICE]
        if self.verb == Verb.LIST or (self.verb == Verb.GET and self.target.endswith("/head-hint")):
            sides.append(Side.STALE)
        return tuple(sides)


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that happens, at one input or output."""

    number: int
    side: Side


class Tape:
    """One run's row. `died` is called as the process stops: it raises what stops this one, or kills it."""

    def __init__(self, point: Point | None = None, *, died: Callable[[], None] = lambda: None) -> None:
        self.point = point
        self.operation = ""
        self.ios: list[Io] = []
        self.is_reached = False
        self._died = died
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The row so far, in a few letters."""
        return self._digest.hexdigest()[:16]

    def record(self, layer: Layer, verb: str, target: str) -> Side | None:
        """Another one comes; what is to happen."""
        io = Io(len(self.ios), self.operation, layer, verb, target)
        self.ios.append(io)
        self._digest.update(f"{io.operation}\t{layer}\t{verb}\t{target}\n".encode())
        if self.point is None or self.point.number != io.number:
            return None
        self.is_reached = True
        return self.point.side

    def store_plan(self, _number: int, call: StoreCall) -> Fault:
        """The plan of the object store."""
        side = self.record(Layer.OBJECT, call.verb, call.key)
        return Fault.NONE if side is None else FAULTS[side]

    def stop(self) -> None:
        """The process stops here."""
        self._died()
        raise ProcessCrash
