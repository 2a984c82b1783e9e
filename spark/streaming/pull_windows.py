"""PullWindows: which offsets of a live part are pulled side by side, so that what is held is bounded in bytes.

    |-- taken --|== window ==|== window ==|== window ==|-- not begun --|
    start                                                             end

    windows    of WINDOW_OFFSETS at most, WINDOWS_MAX of them at most, and about ROUND_BYTES_MAX in all, by the size of
               the records that came last: fewer and smaller ones when records are large
    full       a window that holds WINDOW_BYTES_MAX is pulled no further until what it holds was taken: sizes are a
               guess, and large messages may come where small ones were expected
    drain      from the front, through the first window that is not finished, which is pulled on from its position

Bound: of each window WINDOW_BYTES_MAX and an answer more, which is a message, or the messages that a broker answers
with at once (256 KiB unless its settings say otherwise, and never more than WINDOW_BYTES_MAX).
Holds bytes, pulls nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.record_heads import read_heads
from thermocline.spark.streaming.cold_line import Span

WINDOW_OFFSETS = 128
WINDOWS_MAX = 8
ROUND_BYTES_MAX = 4 << 20
WINDOW_BYTES_MAX = ROUND_BYTES_MAX // WINDOWS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The result of pulling the next offsets: bodies, and the offsets without a message."""

    bodies: list[memoryview]
    missing: list[Span]
    first_offset: QueueOffset | None
    """Of the first record; None without one."""


@dataclass(slots=True, kw_only=True)
class PullWindow:
    """Offsets [position, end) are still to be pulled; what came before `position` and was not taken is held."""

    position: QueueOffset
    end: QueueOffset
    size_bytes: int = 0
    bodies: list[memoryview] = field(default_factory=list)
    missing: list[Span] = field(default_factory=list)
    first_offset: QueueOffset | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it is to be pulled on."""
        return self.position < self.end and self.size_bytes < WINDOW_BYTES_MAX

    def skip_to(self, offset: QueueOffset) -> None:
        """Note that no message precedes an offset."""
        assert offset > self.position
        self.missing.append((self.position, min(offset, self.end)))
        self.position = min(offset, self.end)

    def add(self, body: bytes) -> None:
        """Keep the records of an answer, and note the offsets between them that did not come.

        Raises:
            CorruptDataError: The offsets are not the requested ones.
        """
        heads = read_heads(body)
        offsets = heads.integers("queue_offset").tolist()
        if not offsets or offsets[0] < self.position:
            raise CorruptDataError(
                "a pull returned other offsets than requested", offset=self.position, found=offsets[:1]
            )
        kept = memoryview(body)
        for row, offset in enumerate(offsets):
            if offset > self.position:
                self.missing.append((self.position, min(offset, self.end)))
            if offset >= self.end:
                # The window has offsets without a message, so the answer goes past it: the next window pulls the rest.
                kept = kept[: int(heads.starts[row])]
                self.position = self.end
                break
            self.position = offset + 1
        if kept:
            self.bodies.append(kept)
            self.size_bytes += len(kept)
            if self.first_offset is None:
                self.first_offset = offsets[0]

    def drain(self) -> Pulled:
        """Return all that the window holds, and empty it."""
        taken = Pulled(bodies=self.bodies, missing=self.missing, first_offset=self.first_offset)
        self.bodies, self.missing, self.first_offset, self.size_bytes = [], [], None, 0
        return taken


class PullWindows:
    """See the module's header; of offsets [start, end). `record_bytes`: about how large records are, 0 if unknown."""

    def __init__(self, start: QueueOffset, end: QueueOffset, *, record_bytes: int) -> None:
        self._taken = start  # everything in front of it was taken
        self._next = start
        self._end = end
        self._record_bytes = max(1, record_bytes)
        self._windows: deque[PullWindow] = deque()

    @property
    def is_done(self) -> bool:
        """Whether all offsets were taken."""
        return self._taken == self._end

    @property
    def held_bytes(self) -> int:
        """What all windows hold."""
        return sum(window.size_bytes for window in self._windows)

    def waiting(self) -> list[PullWindow]:
        """The windows to be pulled now, new ones among them as far as the bounds leave room."""
        offsets = max(1, min(WINDOW_OFFSETS, WINDOW_BYTES_MAX // self._record_bytes))
        expected_bytes = sum(self._expected_bytes(window) for window in self._windows)
        while self._next < self._end and len(self._windows) < WINDOWS_MAX:
            window = PullWindow(position=self._next, end=min(self._next + offsets, self._end))
            expected_bytes += self._expected_bytes(window)
            if self._windows and expected_bytes > ROUND_BYTES_MAX:
                break
            self._windows.append(window)
            self._next = window.end
        return [window for window in self._windows if window.is_waiting]

    def drain(self) -> list[Pulled]:
        """Remove and return the pulled records, by rising offset and without a gap; empty before the first pull."""
        taken: list[Pulled] = []
        before = self._taken
        while self._windows:
            window = self._windows[0]
            taken.append(window.drain())
            self._taken = window.position
            if window.position < window.end:
                break
            self._windows.popleft()
        if self._taken > before:
            # The next windows are sized by what came last.
            size_bytes = sum(len(body) for pulled in taken for body in pulled.bodies)
            self._record_bytes = max(1, size_bytes // (self._taken - before))
        return taken

    def _expected_bytes(self, window: PullWindow) -> int:
        return window.size_bytes + (window.end - window.position) * self._record_bytes
