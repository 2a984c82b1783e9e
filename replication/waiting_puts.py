"""Waiting puts: puts that wait until the log is confirmed up to their end, in the order of offsets.

No task, no timer and no look at a put that is not answered.
Bound: the broker bounds the sends that wait (`sendThreadPoolQueueCapacity`).
Belongs to the loop thread, or to a simulation.
Source: store/ha/GroupTransferService.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.log import FlushCallback, PutStatus


class WaitingPuts:
    """One master's."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[PhysicalOffset, int, FlushCallback]] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: PhysicalOffset, callback: FlushCallback, *, deadline_ms: int) -> None:
        """One more; answered FLUSH_SLAVE_TIMEOUT at once when closed."""
        if self._is_closed:
            callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
            return
        waiting = self._waiting
        place = len(waiting)
        # Nearly always the last one: puts wait in their order, but for those that a flush has just let pass.
        while place and waiting[place - 1][0] > offset:
            place -= 1
        waiting.insert(place, (offset, deadline_ms, callback))

    def release(self, offset: PhysicalOffset, is_confirmed: Callable[[PhysicalOffset], bool] | None = None) -> None:
        """Answer those up to this offset, PUT_OK; those that are not confirmed wait on."""
        waiting, unconfirmed = self._waiting, []
        while waiting and waiting[0][0] <= offset:
            entry = waiting.popleft()
            if is_confirmed is None or is_confirmed(entry[0]):
                entry[2](PutStatus.PUT_OK)
            else:
                unconfirmed.append(entry)
        waiting.extendleft(reversed(unconfirmed))

    def expire(self, now_ms: int) -> None:
        """Answer those whose deadline has passed, FLUSH_SLAVE_TIMEOUT."""
        if not any(deadline_ms <= now_ms for _, deadline_ms, _ in self._waiting):
            return
        late = [callback for _, deadline_ms, callback in self._waiting if deadline_ms <= now_ms]
        self._waiting = deque(entry for entry in self._waiting if entry[1] > now_ms)
        for callback in late:
            callback(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def close(self) -> None:
        """This broker is no master any more: puts that wait, now or later, are answered as those that have waited too
        long."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for _, _, callback in waiting:
            callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
