"""Transaction table: which half messages are open, and how far everything before them is finished.

One byte for each half queue offset in the window [base, end): open, or how it ended. So a million half messages cost a
megabyte, and looking for the open ones is a search for a zero byte.

    base   everything below it is finished, and so said by op messages in the log
    end    the half queue's end, as far as it was looked at

Copies. A half message whose producers were asked is put again at the end of the queue. `moved` maps the origin of a
transaction (the offset of its first half message) to its last copy; only that one can be open. Entries stay until
`base` has passed the last copy, so a decision that names an early copy finds the transaction's end.

Op messages in the window are kept as (op queue offset, greatest half queue offset in it): those in which nothing at or
behind `base` is named are done with. Both progresses go into one file, so that what a restart reads of the op queue
always covers what it reads of the half queue.

Pure state: no clock, no store. Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum

from thermocline.remoting.offsets import QueueOffset, offset_range
from thermocline.transactions.op_message import OpBuffer


class TransactionState(IntEnum):
    """Of one half queue offset."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    MOVED = 3
    """A later copy stands for it."""
    PARKED = 4
    ENDED = 5
    """By an op message that was read at a start, which does not say how."""
    MISSING = 6
    """There is no readable record at this offset."""


class TransactionTable:
    """See the module."""

    def __init__(self, *, half_offset: QueueOffset, op_offset: QueueOffset) -> None:
        """Where both queues are read from on."""
        self.base = half_offset
        self.op_offset = op_offset
        """The op message from which on op messages name something at or behind `base`."""
        self.buffer = OpBuffer()
        """Ends that no op message names yet."""
        self._states = bytearray()
        self._moved: dict[QueueOffset, QueueOffset] = {}
        self._origins: dict[QueueOffset, QueueOffset] = {}
        self._ops: deque[tuple[QueueOffset, QueueOffset]] = deque()
        self._next_op_offset = op_offset

    @property
    def end(self) -> QueueOffset:
        """The first offset behind the window."""
        return self.base + len(self._states)

    @property
    def open_count(self) -> int:
        """How many half messages in the window are open."""
        return self._states.count(TransactionState.OPEN)

    def extend(self, end: QueueOffset) -> None:
        """The half queue ends at `end` now: what is new is open."""
        if end > self.end:
            self._states += bytes(end - self.end)

    def state(self, half_offset: QueueOffset) -> TransactionState:
        """The state of one half message. ENDED below the window; the offset must be below `end`."""
        assert half_offset < self.end
        if half_offset < self.base:
            return TransactionState.ENDED
        return TransactionState(self._states[half_offset - self.base])

    def last_copy(self, origin: QueueOffset) -> QueueOffset:
        """The half queue offset that stands for a transaction now."""
        return self._moved.get(origin, origin)

    def next_open(self, start: QueueOffset, end: QueueOffset) -> QueueOffset | None:
        """The first open half message in [start, end); None when there is none."""
        start = max(start, self.base)
        position = self._states.find(TransactionState.OPEN, start - self.base, max(0, end - self.base))
        return None if position < 0 else self.base + position

    # -- changes -------------------------------------------------------------------------------------------------------

    def finish(self, half_offset: QueueOffset, state: TransactionState, *, now_ms: int) -> None:
        """An open half message has ended; an op message is to say so."""
        assert state is not TransactionState.OPEN
        assert self.state(half_offset) is TransactionState.OPEN
        self._states[half_offset - self.base] = state
        if state is not TransactionState.MISSING:
            self.buffer.add(half_offset, now_ms)

    def move(self, origin: QueueOffset, copy_offset: QueueOffset, *, now_ms: int) -> None:
        """A transaction goes on with a copy; the one before it is finished if it was open."""
        before = self.last_copy(origin)
        assert before < copy_offset
        self.extend(copy_offset + 1)
        self._origins.pop(before, None)
        if before >= self.base and self.state(before) is TransactionState.OPEN:
            self.finish(before, TransactionState.MOVED, now_ms=now_ms)
        self._moved[origin] = copy_offset
        self._origins[copy_offset] = origin

    def note_op(self, op_offset: QueueOffset, half_offsets: Iterable[QueueOffset]) -> None:
        """An op message with these offsets is in the log."""
        assert op_offset >= self._next_op_offset
        self._next_op_offset = op_offset + 1
        greatest = max(half_offsets, default=QueueOffset(-1))
        if greatest >= self.base:
            self._ops.append((op_offset, greatest))

    def mark_ended(self, half_offsets: Iterable[QueueOffset]) -> None:
        """At a start: op messages in the log name these, within the window or not."""
        base, states = self.base, self._states
        for half_offset in half_offsets:
            if base <= half_offset < base + len(states):
                states[half_offset - base] = TransactionState.ENDED

    def advance(self) -> tuple[QueueOffset, QueueOffset]:
        """Move `base` over what is finished and named by op messages; the progress in half and op queue."""
        states, buffer = self._states, self.buffer
        count = 0
        for state in states:
            if state == TransactionState.OPEN or (self.base + count) in buffer:
                break
            count += 1
        if count:
            if self._origins:
                for half_offset in offset_range(self.base, self.base + count):
                    origin = self._origins.pop(half_offset, None)
                    if origin is not None:
                        del self._moved[origin]
            del states[:count]
            self.base += count
        while self._ops and self._ops[0][1] < self.base:
            self._ops.popleft()
        self.op_offset = self._ops[0][0] if self._ops else self._next_op_offset
        return self.base, self.op_offset
