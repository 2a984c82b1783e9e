"""Pending holes: offsets that the hot process has dropped, until the ledger declares them.

Offsets are dropped before the bucket's content is known: some of them may be committed already, and an upload under way
may still bring others. So only offsets that no segment holds when the entry is written become a hole; readers skip it.
Pure bookkeeping; belongs to the tier process's loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.catalog import QueueHole

Span = tuple[QueueOffset, QueueOffset]


class PendingHoles:
    """By topic and incarnation. Bounded: a queue is dropped from its front, step by step, and that is one hole."""

    def __init__(self) -> None:
        self._holes: dict[tuple[str, int], dict[int, list[QueueHole]]] = {}

    def __len__(self) -> int:
        return sum(len(holes) for queues in self._holes.values() for holes in queues.values())

    def add(self, topic: str, incarnation: int, hole: QueueHole) -> None:
        """Add offsets that the hot process dropped."""
        holes = self._holes.setdefault((topic, incarnation), {}).setdefault(hole.queue_id, [])
        if holes and holes[-1].start_offset <= hole.start_offset <= holes[-1].end_offset:
            last = holes.pop()
            hole = QueueHole(hole.queue_id, last.start_offset, max(last.end_offset, hole.end_offset))
        holes.append(hole)

    def forget_before(self, topic: str, incarnation: int) -> None:
        """Forget the holes of earlier incarnations of the topic."""
        for key in [key for key in self._holes if key[0] == topic and key[1] < incarnation]:
            del self._holes[key]

    def take_declared(
        self, topic: str, incarnation: int, held: Iterable[tuple[int, QueueOffset, QueueOffset]]
    ) -> tuple[QueueHole, ...]:
        """Remove and return the holes that the next entry declares for a topic.

        `held`: queue id, start and end of offsets that segments hold or earlier entries have declared.
        """
        dropped = self._holes.pop((topic, incarnation), None)
        if dropped is None:
            return ()
        of_queue: dict[int, list[Span]] = {}
        for queue_id, start_offset, end_offset in held:
            of_queue.setdefault(queue_id, []).append((start_offset, end_offset))
        return tuple(
            QueueHole(hole.queue_id, start_offset, end_offset)
            for holes in dropped.values()
            for hole in holes
            for start_offset, end_offset in _without(hole, sorted(of_queue.get(hole.queue_id, ())))
        )


def _without(hole: QueueHole, held: list[Span]) -> Iterable[Span]:
    """The parts of the hole outside the `held` ranges."""
    position = hole.start_offset
    for start_offset, end_offset in held:
        if start_offset >= hole.end_offset:
            break
        if start_offset > position:
            yield position, start_offset
        position = max(position, end_offset)
    if position < hole.end_offset:
        yield position, hole.end_offset
