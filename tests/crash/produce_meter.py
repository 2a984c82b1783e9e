"""How a broker's produce goes, beside another's that is sent the same at the same time.

Times of a shared machine say little: so the one is put in relation to the other, and that relation before something
happens to the one to that during it. No absolute time is judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RATE_LEAST = 0.5
CPU_MOST = 1.5
P99_MOST = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SENDS_MIN = 50
"""In fewer a 99th percentile is one bad moment."""

Side = tuple[int, list[float]]
"""Process id of the hot process; how long each send took, in seconds, to which its producers append."""


@dataclass(frozen=True, slots=True)
class Produce:
    """Messages in a second, processor time of the hot process for each, and a time that 99 % of sends stay below."""

    rate_per_s: float
    cpu_s: float
    p99_s: float

    @classmethod
    def of(cls, took_s: Sequence[float], *, batch: int, cpu_s: float, wall_s: float) -> Produce:
        """`batch`: messages of a send."""
        assert len(took_s) >= SENDS_MIN, f"{len(took_s)} sends say nothing"
        count = len(took_s) * batch
        return cls(count / wall_s, cpu_s / count, sorted(took_s)[len(took_s) * 99 // 100])

    def beside(self, other: Produce) -> Produce:
        """In relation to another one."""
        return Produce(self.rate_per_s / other.rate_per_s, self.cpu_s / other.cpu_s, self.p99_s / other.p99_s)


class PairMeter:
    """Begins to measure when it is made."""

    def __init__(self, one: Side, other: Side, *, batch: int) -> None:
        self._sides = (one, other)
        self._batch = batch
        self._counts = [len(took_s) for _, took_s in self._sides]
        self._cpu_s = [processor_seconds(pid) for pid, _ in self._sides]
        self._began_s = time.monotonic()

    def read(self) -> Produce:
        """The one beside the other, since then."""
        wall_s = time.monotonic() - self._began_s
        one, other = (
            Produce.of(took_s[count:], batch=self._batch, cpu_s=processor_seconds(pid) - cpu_s, wall_s=wall_s)
            for (pid, took_s), count, cpu_s in zip(self._sides, self._counts, self._cpu_s, strict=True)
        )
        return one.beside(other)


def check_unaffected(before: Produce, during: Produce) -> None:
    """At least half of the rate, at most half as much processor time more for a message, and no sends that wait."""
    change = during.beside(before)
    assert change.rate_per_s >= RATE_LEAST, change
    assert change.cpu_s <= CPU_MOST, change
    assert change.p99_s <= P99_MOST, change


def processor_seconds(pid: int) -> float:
    """What a process has computed so far, its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
