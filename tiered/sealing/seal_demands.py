"""Seal demands: calls that wait until every record flushed at the time of the call is committed, and their results.

asked      waits for the next round, which is to begin at once
taken      by a round: it seals the requested topics, whatever their size and age
given back when the round fails: the next one takes them again, with the outcomes so far
done       when the round ends: each call returns the segments and packs that were committed for it; it fails if some of
           its records could not be read: who seals before a disk is given away must not believe that all is committed

While the store is away rounds fail, and calls wait: WAITING_MAX at a time, further ones are refused. A call that is
cancelled is forgotten.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from thermocline.remoting.errors import BrokerBusyError, InvalidRequestError, UnavailableError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.sealing.pack_sealer import SealedPack
from thermocline.tiered.sealing.seal_backlog import SealBacklog
from thermocline.tiered.segments import SegmentEntry

WAITING_MAX = 256


class SealOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A segment or pack piece committed by a seal on demand."""

    topic: str
    segment_id: str
    record_count: int
    raw_bytes: int
    stored_bytes: int


@dataclass(slots=True)
class _Demand:
    """`topics`: None for all."""

    topics: frozenset[str] | None
    done: asyncio.Future[list[SealOutcome]]
    outcomes: list[SealOutcome] = field(default_factory=list)


class SealDemands:
    """The demands that no round has taken yet. Belongs to the tier service's loop."""

    def __init__(self, backlog: SealBacklog, *, wake: Callable[[], None]) -> None:
        """`wake`: starts a round."""
        self._backlog = backlog
        self._wake = wake
        self._waiting: list[_Demand] = []

    async def seal(self, topic: str | None) -> list[SealOutcome]:
        """Seal all records of a topic (None: of all topics) that are reported and flushed now; committed on return.

        Raises:
            InvalidRequestError: The topic is not tiered.
            UnavailableError: The hot process has not reported the topic yet, or some of the records cannot be read.
            BrokerBusyError: Too many calls wait.
        """
        self._forget_cancelled()
        if len(self._waiting) >= WAITING_MAX:
            raise BrokerBusyError("too many requests wait for a seal", count_max=WAITING_MAX)
        if topic is not None:
            progress = self._backlog.topics.get(topic)
            if progress is None:
                raise UnavailableError("the cold tier has no report of this topic yet", topic=topic)
            if not progress.tiered:
                raise InvalidRequestError("the cold tier holds nothing of this topic", topic=topic)
        topics = frozenset([topic]) if topic is not None else None
        demand = _Demand(topics, asyncio.get_running_loop().create_future())
        self._waiting.append(demand)
        self._wake()
        return await demand.done

    def take_waiting(self) -> "TakenDemands":
        """Remove and return the waiting demands, for one round."""
        self._forget_cancelled()
        taken, self._waiting = self._waiting, []
        return TakenDemands(self._backlog, taken)

    def give_back(self, taken: "TakenDemands") -> None:
        """The round has failed: queue its demands for the next one, before newer demands."""
        self._waiting = taken.demands + self._waiting

    def _forget_cancelled(self) -> None:
        self._waiting = [demand for demand in self._waiting if not demand.done.done()]


class TakenDemands:
    """The demands of one round."""

    def __init__(self, backlog: SealBacklog, demands: list[_Demand]) -> None:
        self._backlog = backlog
        self.demands = demands
        self._wanted = self._demanded_ends() if demands else {}
        """Topic -> its incarnation, and the end of each queue that it had when the round began."""

    @property
    def named(self) -> frozenset[str]:
        """The topics that demands name."""
        return frozenset[str]().union(*(demand.topics for demand in self.demands if demand.topics is not None))

    def waited_for(self) -> list[str]:
        """The topics of all demands, in the order of the backlog, so that the order does not depend on hashes."""
        if not self.demands:
            return []
        is_all, named = any(demand.topics is None for demand in self.demands), self.named
        return [
            topic
            for topic, progress in self._backlog.topics.items()
            if progress.tiered and (is_all or topic in named) and progress.first_waiting_ms is not None
        ]

    def committed(self, segments: Iterable[SegmentEntry], packs: Iterable[SealedPack]) -> None:
        """Note that these segments and packs are committed."""
        for entry in segments:
            self._tell(
                SealOutcome(
                    topic=entry.topic,
                    segment_id=entry.segment_id,
                    record_count=entry.record_count,
                    raw_bytes=entry.raw_bytes,
                    stored_bytes=entry.stored_bytes,
                )
            )
        for sealed in packs:
            for plan, extent in sealed.pieces:
                self._tell(
                    SealOutcome(
                        topic=plan.topic,
                        segment_id=sealed.pack.pack_id,
                        record_count=sum(queue.end_offset - queue.start_offset for queue in extent.queues),
                        raw_bytes=extent.raw_bytes,
                        stored_bytes=extent.stored_bytes,
                    )
                )

    def done(self, *, flush_offset: PhysicalOffset) -> None:
        """The round has ended, which sealed up to `flush_offset`: let the waiting calls return. They fail when records
        that they have requested are not sealed."""
        unsealed = [topic for topic in self._wanted if self._is_left(topic, flush_offset)]
        for demand in self.demands:
            if demand.done.done():
                continue
            missing = [topic for topic in unsealed if demand.topics is None or topic in demand.topics]
            if missing:
                demand.done.set_exception(
                    UnavailableError(
                        "not all is sealed: local files of some topics cannot be read, as the log says",
                        topics=len(missing),
                        first=missing[0],
                    )
                )
            else:
                demand.done.set_result(demand.outcomes)

    def _demanded_ends(self) -> dict[str, tuple[int, dict[int, QueueOffset]]]:
        is_all, named = any(demand.topics is None for demand in self.demands), self.named
        return {
            topic: (progress.incarnation, {queue_id: queue.end_offset for queue_id, queue in progress.queues.items()})
            for topic, progress in self._backlog.topics.items()
            if progress.tiered and (is_all or topic in named)
        }

    def _is_left(self, topic: str, flush_offset: PhysicalOffset) -> bool:
        """Whether records of a topic wait that were flushed and reported when the round began."""
        incarnation, ends = self._wanted[topic]
        progress = self._backlog.topics.get(topic)
        if progress is None or progress.incarnation != incarnation:
            return False  # deleted meanwhile
        for queue_id, end_offset in ends.items():
            queue = progress.queues[queue_id]
            place = queue.first_waiting_physical_offset
            if queue.first_waiting_offset < end_offset and (place is None or place < flush_offset):
                return True
        return False

    def _tell(self, outcome: SealOutcome) -> None:
        for demand in self.demands:
            if demand.topics is None or outcome.topic in demand.topics:
                demand.outcomes.append(outcome)
