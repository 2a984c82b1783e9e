"""Open slot: the units of the tick that is being delivered, by the moment at which each is due.

A tick is cut into stretches of 20 ms. A unit waits in the stretch of its exact time, and may go when that is over: late
by 20 ms at most and never early. One without an exact time waits in the last. Within a stretch the older
goes first.

Filling: the slot's chain gives the newest unit first (`add_older`); a unit that is enqueued for this tick meanwhile or
afterwards is `add`ed, and one that is due already joins the stretch that is going out. Nothing goes before the chain
has been walked to its end (`finish_loading`), as a recall marker may lie anywhere in it.

Progress: units go stretch by stretch, and within one by position; so the last one that is in the store stands for all
before it, and a restart in the middle of a tick leaves them out. That needs each unit to lie in its stretch by its own
time: one that comes for a stretch that is over gets a later time in the timer log (`earliest_ms`).
Memory: 8 bytes a unit.
"""

from __future__ import annotations

from array import array

import msgspec

STRETCH_MS = 20


class SlotProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The last unit of a tick that went out, and is in the store."""

    stretch: int = 0
    position: int = -1


class OpenSlot:
    """Positions in the timer log, in the order of delivery."""

    __slots__ = ("_arrived", "_index", "_progress", "_stretch", "_stretches", "is_loaded", "time_ms")

    def __init__(self, time_ms: int, *, precision_ms: int, progress: SlotProgress) -> None:
        """`progress`: what went out before a restart; that is not taken in."""
        assert precision_ms % STRETCH_MS == 0
        self.time_ms = time_ms
        self.is_loaded = False
        self._stretches = [array("q") for _ in range(precision_ms // STRETCH_MS)]
        self._progress = progress
        self._stretch = min(progress.stretch, len(self._stretches) - 1)
        self._index = 0
        self._arrived: list[tuple[int, int]] = []

    @property
    def earliest_ms(self) -> int:
        """The earliest time that a unit which is enqueued now may have."""
        return self.time_ms + self._stretch * STRETCH_MS + 1

    def is_out(self, position: int, deliver_ms: int) -> bool:
        """Whether a unit of this tick went out before the restart."""
        stretch = self._stretch_of(deliver_ms)
        return (stretch, position) <= (self._progress.stretch, self._progress.position)

    def add_older(self, position: int, deliver_ms: int) -> None:
        """Add a unit that is older than all before it."""
        assert not self.is_loaded
        if not self.is_out(position, deliver_ms):
            self._stretches[self._stretch_of(deliver_ms)].append(position)

    def add(self, position: int, deliver_ms: int) -> None:
        """Add a unit that is newer than all before it; its time is not before `earliest_ms`."""
        if self.is_loaded:
            stretch = self._stretch_of(deliver_ms)
            assert stretch >= self._stretch
            self._stretches[stretch].append(position)
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

    def take_due(self, now_ms: int) -> int | None:
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
    def next_ms(self) -> int:
        """Until then there is nothing to take: the end of the next stretch that holds something, else of the tick."""
        for number in range(self._stretch, len(self._stretches)):
            taken = self._index if number == self._stretch else 0
            if len(self._stretches[number]) > taken:
                return self.time_ms + (number + 1) * STRETCH_MS
        return self.time_ms + len(self._stretches) * STRETCH_MS

    def progress_at(self, position: int) -> SlotProgress:
        """The progress once the unit that was just taken from `position` is in the store."""
        return SlotProgress(stretch=self._stretch, position=position)

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
