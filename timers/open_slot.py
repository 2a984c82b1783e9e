"""Open slot: the units of the tick that is being delivered, by the moment at which each is due.

A tick is cut into stretches of 20 ms. A unit waits in the stretch that its exact time lies in, and may go when that is
over: late by 20 ms at most and never early. One without an exact time waits in the last. Within a stretch the older
goes first.

Filling: the slot's chain gives the newest unit first (`add_older`); a unit that is enqueued for this tick meanwhile or
afterwards is `add`ed, and one that is due already joins the stretch that is going out. Nothing goes before the chain
has been walked to its end (`finish_loading`), as a recall marker may lie anywhere in it.
Memory: 8 bytes a unit.
"""

from __future__ import annotations

from array import array

STRETCH_MS = 20


class OpenSlot:
    """Positions in the timer log, in the order of delivery."""

    __slots__ = ("_arrived", "_index", "_stretch", "_stretches", "is_loaded", "time_ms")

    def __init__(self, time_ms: int, *, precision_ms: int) -> None:
        assert precision_ms % STRETCH_MS == 0
        self.time_ms = time_ms
        self.is_loaded = False
        self._stretches = [array("q") for _ in range(precision_ms // STRETCH_MS)]
        self._stretch = 0
        self._index = 0
        self._arrived: list[tuple[int, int]] = []

    def add_older(self, position: int, deliver_ms: int) -> None:
        """Add a unit that is older than all before it."""
        assert not self.is_loaded
        self._stretches[self._stretch_of(deliver_ms)].append(position)

    def add(self, position: int, deliver_ms: int) -> None:
        """Add a unit that is newer than all before it."""
        if self.is_loaded:
            self._stretches[max(self._stretch, self._stretch_of(deliver_ms))].append(position)
        else:
            self._arrived.append((position, deliver_ms))

    def finish_loading(self) -> None:
        """Every older unit is in."""
        assert not self.is_loaded
        for stretch in self._stretches:
            stretch.reverse()
        self.is_loaded = True
        for position, deliver_ms in self._arrived:
            self.add(position, deliver_ms)
        self._arrived.clear()

    def take(self, now_ms: int) -> int | None:
        """The position of the next unit that is due; None when none is due yet."""
        if not self.is_loaded:
            return None
        while True:
            stretch = self._stretches[self._stretch]
            if self._index < len(stretch):
                if now_ms < self.time_ms + (self._stretch + 1) * STRETCH_MS:
                    return None
                self._index += 1
                return stretch[self._index - 1]
            if self._stretch + 1 == len(self._stretches):
                return None
            # An empty stretch is left when it is over: before, units may come for it.
            if now_ms < self.time_ms + (self._stretch + 1) * STRETCH_MS:
                return None
            self._stretches[self._stretch] = array("q")
            self._stretch += 1
            self._index = 0

    @property
    def is_empty(self) -> bool:
        """Whether every unit was taken."""
        return (
            self.is_loaded
            and self._index == len(self._stretches[self._stretch])
            and not any(self._stretches[self._stretch + 1 :])
        )

    def _stretch_of(self, deliver_ms: int) -> int:
        last = len(self._stretches) - 1
        return last if deliver_ms == 0 else min(last, max(0, (deliver_ms - self.time_ms - 1) // STRETCH_MS))
