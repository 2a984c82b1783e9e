"""In flight: check points whose messages are not all acknowledged, by what their receipts name, and by due time.

    add -> acknowledged bit by bit -> finished
                                   -> due -> revived -> finished
                                          -> cannot be read now -> due again later

Rules
  - A check point is found by (topic, group, queue id, start offset, pop time, broker name); who adds one sees that this
    is free.
  - The broker name is another one for messages of a queue of that broker: a slave that stands in for its master has put
    their check points here. They are not counted as messages of this broker's queue.
  - Each is at a revive offset of a revive queue. A restart reads that queue from its first unfinished check point on
    (`first`).
  - Finished ones are dropped from the order of due times when they are the greater part of it.
Memory: half a kilobyte each.
Belongs to the loop thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from thermocline.pop.ack_record import AckRecord
from thermocline.pop.check_point import CheckPoint
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset

Key = tuple[str, str, int, QueueOffset, int, str]

HEAP_SLACK = 1_024


class Pending:
    """One check point in flight, and what has happened to it since it was put."""

    __slots__ = (
        "acked_bits",
        "check_point",
        "due_ms",
        "is_finished",
        "physical_offset",
        "revive_offset",
        "revive_queue_id",
        "tries",
    )

    def __init__(
        self,
        check_point: CheckPoint,
        *,
        revive_queue_id: int,
        revive_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        due_ms: int,
    ) -> None:
        self.check_point = check_point
        self.revive_queue_id = revive_queue_id
        self.revive_offset = revive_offset
        self.physical_offset = physical_offset
        self.due_ms = due_ms
        self.acked_bits = check_point.acked_bits
        self.tries = check_point.rewritten_times
        """How often its messages could not be read or put when it was due."""
        self.is_finished = False

    def __lt__(self, other: Pending) -> bool:
        return self.due_ms < other.due_ms

    @property
    def key(self) -> Key:
        """Its key in receipts."""
        return key_of(self.check_point)

    def is_acked(self, offset: QueueOffset) -> bool | None:
        """Whether the message was acknowledged; None when it is none of this check point's."""
        offsets = self.check_point.offsets
        if offset not in offsets:
            return None
        return bool(self.acked_bits >> offsets.index(offset) & 1)

    def as_record(self) -> CheckPoint:
        """The check point with what has been acknowledged, to be put anew."""
        return replace(self.check_point, acked_bits=self.acked_bits, rewritten_times=self.tries)

    def open_offsets(self) -> list[QueueOffset]:
        """The messages that are not acknowledged."""
        bits = self.acked_bits
        return [offset for index, offset in enumerate(self.check_point.offsets) if not bits >> index & 1]


def key_of(entry: CheckPoint | AckRecord) -> Key:
    """The key of a check point in receipts, or of the one that an acknowledgement belongs to."""
    return (entry.topic, entry.group, entry.queue_id, entry.start_offset, entry.pop_time_ms, entry.broker_name)


class InFlight:
    """All check points in flight of one broker."""

    def __init__(self, broker_name: str) -> None:
        """`broker_name`: this broker's."""
        self._broker_name = broker_name
        self._by_key: dict[Key, Pending] = {}
        self._heap: list[Pending] = []
        self._queues: dict[int, deque[Pending]] = {}
        self._queue_counts: dict[int, int] = {}
        self._message_counts: dict[tuple[str, str, int], int] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._by_key.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def find(self, key: Key) -> Pending | None:
        """The check point that a receipt names; None when it is finished, or never was."""
        return self._by_key.get(key)

    def is_own(self, check_point: CheckPoint) -> bool:
        """Whether its messages are in a queue of this broker."""
        return check_point.broker_name == self._broker_name

    def message_count(self, topic: str, group: str, queue_id: int) -> int:
        """How many messages of a queue a group has in flight."""
        return self._message_counts.get((topic, group, queue_id), 0)

    def add(
        self,
        check_point: CheckPoint,
        *,
        revive_queue_id: int,
        revive_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        due_ms: int | None = None,
    ) -> Pending:
        """Take a check point that was put; behind all others of its revive queue. `due_ms`: at its revive time."""
        key = key_of(check_point)
        assert key not in self._by_key
        pending = Pending(
            check_point,
            revive_queue_id=revive_queue_id,
            revive_offset=revive_offset,
            physical_offset=physical_offset,
            due_ms=check_point.revive_time_ms if due_ms is None else due_ms,
        )
        self._by_key[key] = pending
        heapq.heappush(self._heap, pending)
        self._enqueue(pending)
        self._count(pending, len(pending.open_offsets()))
        return pending

    def ack(self, pending: Pending, offset: QueueOffset) -> None:
        """Note that a message was acknowledged, or revived; the check point is finished with its last one."""
        assert not pending.is_finished
        bit = 1 << pending.check_point.offsets.index(offset)
        if not pending.acked_bits & bit:
            pending.acked_bits |= bit
            self._count(pending, -1)
            if pending.acked_bits == (1 << len(pending.check_point.offsets)) - 1:
                self._finish(pending)

    def drop(self, pending: Pending) -> None:
        """Forget a check point: its topic or group is gone."""
        if not pending.is_finished:
            self._count(pending, -len(pending.open_offsets()))
            self._finish(pending)

    def clear(self) -> None:
        """Forget all of them."""
        for pending in list(self):
            pending.is_finished = True
        self._by_key.clear()
        self._heap.clear()
        self._queues.clear()
        self._queue_counts.clear()
        self._message_counts.clear()

    def moved(
        self, pending: Pending, *, revive_queue_id: int, revive_offset: QueueOffset, physical_offset: PhysicalOffset
    ) -> None:
        """The check point was put anew, behind all others of its revive queue; its old record is of no more use."""
        assert not pending.is_finished
        copy = Pending(
            pending.check_point,
            revive_queue_id=revive_queue_id,
            revive_offset=revive_offset,
            physical_offset=physical_offset,
            due_ms=pending.due_ms,
        )
        copy.acked_bits, copy.tries = pending.acked_bits, pending.tries
        pending.is_finished = True
        self._queue_counts[pending.revive_queue_id] -= 1
        self._by_key[copy.key] = copy
        heapq.heappush(self._heap, copy)
        self._enqueue(copy)
        self._trim_heap()

    # -- due times -----------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the next check point is due; None when there is none."""
        heap = self._heap
        while heap and heap[0].is_finished:
            heapq.heappop(heap)
        return heap[0].due_ms if heap else None

    def take_due(self, now_ms: int) -> Pending | None:
        """The check point that has been due longest, taken out of the order of due times; see `put_off`."""
        due_ms = self.next_due_ms
        if due_ms is None or due_ms > now_ms:
            return None
        return heapq.heappop(self._heap)

    def put_off(self, pending: Pending, due_ms: int) -> None:
        """Set a later due time of a check point that was returned as due."""
        if not pending.is_finished:
            pending.due_ms = due_ms
            heapq.heappush(self._heap, pending)

    def set_back(self, now_ms: int) -> None:
        """The clock was set back: what was popped while it was ahead is due its invisible time from now on at the
        latest, and what was put off then is due by its own time."""
        for pending in self._by_key.values():
            check_point = pending.check_point
            is_ahead = check_point.pop_time_ms > now_ms
            due_ms = now_ms + check_point.invisible_ms if is_ahead else check_point.revive_time_ms
            pending.due_ms = min(pending.due_ms, max(now_ms, due_ms))
        heapq.heapify(self._heap)

    # -- revive queues -------------------------------------------------------------------------------------------------

    def first(self, revive_queue_id: int) -> Pending | None:
        """The first check point of a revive queue that is not finished."""
        queue = self._queues.get(revive_queue_id)
        if queue is None:
            return None
        while queue and queue[0].is_finished:
            queue.popleft()
        return queue[0] if queue else None

    def count_of(self, revive_queue_id: int) -> int:
        """How many check points of a revive queue are not finished."""
        return self._queue_counts.get(revive_queue_id, 0)

    @property
    def revive_queue_ids(self) -> list[int]:
        """Revive queues that ever had a check point here."""
        return list(self._queues)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _enqueue(self, pending: Pending) -> None:
        queue = self._queues.setdefault(pending.revive_queue_id, deque())
        assert not queue or queue[-1].revive_offset < pending.revive_offset
        queue.append(pending)
        self._queue_counts[pending.revive_queue_id] = self._queue_counts.get(pending.revive_queue_id, 0) + 1

    def _count(self, pending: Pending, change: int) -> None:
        check_point = pending.check_point
        if not self.is_own(check_point):
            return
        key = check_point.topic, check_point.group, check_point.queue_id
        count = self._message_counts.get(key, 0) + change
        if count:
            self._message_counts[key] = count
        else:
            self._message_counts.pop(key, None)

    def _finish(self, pending: Pending) -> None:
        pending.is_finished = True
        del self._by_key[pending.key]
        self._queue_counts[pending.revive_queue_id] -= 1
        self._trim_heap()

    def _trim_heap(self) -> None:
        if len(self._heap) > 2 * len(self._by_key) + HEAP_SLACK:
            self._heap = [pending for pending in self._heap if not pending.is_finished]
            heapq.heapify(self._heap)
