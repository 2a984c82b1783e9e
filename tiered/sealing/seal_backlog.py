"""Seal backlog: which records of each local queue wait to be sealed, which topics are due, and what one seal takes.

A topic is due when its waiting records reach `segment_bytes`, when the oldest of them is older than `age_ms`, when
local files must go (pressure), or on demand. A plan takes, for every queue of the topic, one gapless run from the
queue's cold end; the runs are cut at one log position, so that the segments of a topic follow each other in the
log as well as in every queue. Expired records are skipped: they are invisible. The hot process alone decides what has
expired (`cut_ms`): this process's clock and time to live are not used, as the latter may have changed meanwhile.

    local:  [min ......... cold end ======waiting======> end)
                              ^ a plan starts here          ^ as the hot process last reported it, files written

Invariants
  - A plan never reaches past the flush offset: the bucket holds no record that a power cut can remove from the log.
  - `committed_offset` never passes a waiting record of a tiered topic, nor the log offset of the last report.

Deleted local files held no waiting records: an earlier tier process reported all of their records as committed or
expired (the catalog does not list expired ones), or the topic was deleted. A queue starts at its first remaining unit.

Pure bookkeeping: it reads local files through `LocalQueues` and `LocalLog`, and does no other input or output.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.tiered.sealing.local_files import LocalLog, LocalQueues, Units
from thermocline.tiered.sealing.traffic_record import TrafficRecord

logger = logging.getLogger(__name__)

PLAN_UNITS_MAX = 1_000_000
PLAN_UNITS_PER_QUEUE_MIN = 1_000
UNREADABLE_TOLD = 100
"""After so many attempts, of which each round makes at least one, a queue that cannot be read is not being deleted."""


class SealPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a topic is due, and how much one segment takes."""

    segment_bytes: int = 128 * 1024 * 1024
    age_ms: int = 600_000


class SealRun(msgspec.Struct, frozen=True, kw_only=True):
    """One queue's part of a plan: the units of queue offsets [start_offset, start_offset + len(units))."""

    queue_id: int
    start_offset: QueueOffset
    units: Units

    @property
    def end_offset(self) -> QueueOffset:
        """Queue offset after the last unit."""
        return self.start_offset + len(self.units)


class SealPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one new segment. `skipped_to` moves queues whose waiting records had all expired."""

    topic: str
    incarnation: int
    runs: tuple[SealRun, ...]
    skipped_to: dict[int, QueueOffset]
    raw_bytes: int

    @property
    def record_count(self) -> int:
        """Messages."""
        return sum(len(run.units) for run in self.runs)


class QueueProgress(msgspec.Struct, kw_only=True):
    """One queue; offsets in messages, `accounted_offset` is how far `waiting_bytes` has been counted."""

    min_offset: QueueOffset = QUEUE_START
    end_offset: QueueOffset = QUEUE_START
    cold_end: QueueOffset = QUEUE_START
    accounted_offset: QueueOffset = QUEUE_START
    waiting_bytes: int = 0
    first_waiting_ms: int | None = None
    first_waiting_physical_offset: PhysicalOffset | None = None
    noted_offset: QueueOffset | None = None
    """The traffic record counts the queue's units below this offset; None before the first count."""

    @property
    def first_waiting_offset(self) -> QueueOffset:
        """Queue offset at which the next run starts."""
        return max(self.cold_end, self.min_offset)

    @property
    def is_waiting(self) -> bool:
        """True when a local record is not in the cold tier."""
        return self.end_offset > self.first_waiting_offset


@dataclass(slots=True, kw_only=True)
class TopicProgress:
    """One topic under one incarnation. What was stored before `cut_ms` has expired."""

    incarnation: int
    cut_ms: int
    tiered: bool
    queues: dict[int, QueueProgress] = field(default_factory=dict)

    @property
    def waiting_bytes(self) -> int:
        """Accounted bytes of waiting records."""
        return sum(queue.waiting_bytes for queue in self.queues.values())

    @property
    def first_waiting_ms(self) -> int | None:
        """Store time of the oldest waiting record, in ms."""
        times = [queue.first_waiting_ms for queue in self.queues.values() if queue.first_waiting_ms is not None]
        return min(times, default=None)

    def start_ages(self, *, now_ms: int) -> None:
        """Let all waiting records be of this age, as their store times are later: the clock was set back, and store
        times stand still until it has caught up, which may take hours."""
        for queue in self.queues.values():
            if queue.first_waiting_ms is not None:
                queue.first_waiting_ms = min(queue.first_waiting_ms, now_ms)


class SealBacklog:
    """All topics of one broker. Belongs to the tier process's loop."""

    def __init__(
        self,
        *,
        queues: LocalQueues,
        log: LocalLog,
        policy: SealPolicy,
        log_min_offset: Callable[[], PhysicalOffset],
        traffic: TrafficRecord | None = None,
    ) -> None:
        """`log_min_offset`: the local log below it is deleted, or about to be. `traffic` counts incoming records."""
        self._traffic = traffic
        self._local_queues = queues
        self._log = log
        self._policy = policy
        self._log_min_offset = log_min_offset
        self._topics: dict[str, TopicProgress] = {}
        self._changed: set[tuple[str, int]] = set()
        self._unreadable: dict[tuple[str, int], int] = {}
        """Queues that cannot be read, and how often this was tried."""
        self._reported_offset = LOG_START

    @property
    def topics(self) -> dict[str, TopicProgress]:
        """Topics by name."""
        return self._topics

    @property
    def reported_offset(self) -> PhysicalOffset:
        """Every record below this log offset is within the ends reported so far."""
        return self._reported_offset

    def set_topic(
        self,
        topic: str,
        *,
        incarnation: int,
        cut_ms: int,
        tiered: bool,
        cold_ends: dict[int, QueueOffset],
    ) -> None:
        """Add or update a topic; a new incarnation starts without queues. `cold_ends`: queue id -> cataloged end."""
        progress = self._topics.get(topic)
        if progress is None or progress.incarnation != incarnation:
            progress = TopicProgress(incarnation=incarnation, cut_ms=cut_ms, tiered=tiered)
            self._topics[topic] = progress
            for queue_id, cold_end in cold_ends.items():
                progress.queues[queue_id] = QueueProgress(cold_end=cold_end, accounted_offset=cold_end)
        progress.cut_ms, progress.tiered = max(progress.cut_ms, cut_ms), tiered

    def delete_topic(self, topic: str) -> None:
        """Forget a topic and its waiting records."""
        self._topics.pop(topic, None)

    def set_queue(self, topic: str, queue_id: int, *, min_offset: QueueOffset, end_offset: QueueOffset) -> None:
        """Add or update a queue as the hot process reports it; its file is written up to `end_offset`."""
        progress = self._topics[topic]
        queue = progress.queues.setdefault(queue_id, QueueProgress())
        assert end_offset >= queue.end_offset
        assert min_offset <= end_offset
        queue.min_offset, queue.end_offset = max(queue.min_offset, min_offset), end_offset
        if progress.tiered and queue.is_waiting:
            self._changed.add((topic, queue_id))

    def raise_minimum(self, topic: str, queue_id: int, min_offset: QueueOffset) -> None:
        """Units below `min_offset` are deleted although they waited: count the remaining ones again."""
        queue = self._topics[topic].queues.get(queue_id)
        if queue is None or min_offset <= queue.first_waiting_offset:
            return
        queue.min_offset = min_offset
        queue.waiting_bytes, queue.accounted_offset = 0, min_offset
        queue.first_waiting_ms = queue.first_waiting_physical_offset = None
        if self._topics[topic].tiered and queue.is_waiting:
            self._changed.add((topic, queue_id))

    def set_reported_offset(self, log_offset: PhysicalOffset) -> None:
        """Every record below `log_offset` is within the ends reported so far."""
        assert log_offset >= self._reported_offset
        self._reported_offset = log_offset

    def account(self) -> None:
        """Count the bytes of records reported since the last call; reads the units of changed queues."""
        changed, self._changed = self._changed | self._unreadable.keys(), set()
        reported, self._unreadable = self._unreadable, {}
        for topic, queue_id in changed:
            progress = self._topics.get(topic)
            queue = progress.queues.get(queue_id) if progress is not None else None
            if queue is None:
                continue
            try:
                self._account_queue(topic, queue_id, queue)
            except (ObjectNotFoundError, CorruptDataError) as error:
                # Mostly its topic was deleted, which will be reported; until then it holds back local deletion.
                count = self._unreadable[topic, queue_id] = reported.get((topic, queue_id), 0) + 1
                if count == 1:
                    logger.info("queue cannot be read topic=%s queue_id=%d: %s", topic, queue_id, error)
                elif count == UNREADABLE_TOLD:
                    logger.error(
                        "queue cannot be read, so no local file of any topic is deleted topic=%s queue_id=%d: %s",
                        topic,
                        queue_id,
                        error,
                    )

    def _account_queue(self, topic: str, queue_id: int, queue: QueueProgress) -> None:
        start = max(queue.accounted_offset, queue.first_waiting_offset)
        if start >= queue.end_offset:
            return
        units = self._waiting_units(topic, queue_id, queue, start=start, end=queue.end_offset)
        if len(units) and queue.first_waiting_physical_offset is None:
            first = PhysicalOffset(units["physical_offset"][0])
            queue.first_waiting_ms = self._log.store_timestamp_ms(first)
            queue.first_waiting_physical_offset = first
        queue.waiting_bytes += int(units["size_bytes"].sum(dtype=np.int64))
        queue.accounted_offset = queue.end_offset
        if self._traffic is not None:
            self._note_traffic(self._traffic, topic, queue, units)

    def _note_traffic(self, traffic: TrafficRecord, topic: str, queue: QueueProgress, units: Units) -> None:
        """Count new units in the traffic record; the first time, those stored since the record began."""
        if queue.noted_offset is None:
            units = units[self._expired_count(units, traffic.started_ms) :]
        else:
            units = units[max(0, len(units) - (queue.end_offset - queue.noted_offset)) :]
        queue.noted_offset = queue.end_offset
        if len(units):
            traffic.note(topic, messages=len(units), raw_bytes=int(units["size_bytes"].sum(dtype=np.int64)))

    def _waiting_units(
        self, topic: str, queue_id: int, queue: QueueProgress, *, start: QueueOffset, end: QueueOffset
    ) -> Units:
        """Return the last units of [start, end), without those at the front whose local files are gone.

        Raises:
            ObjectNotFoundError: The whole queue is gone, because its topic was deleted.
        """
        try:
            units = self._local_queues.units(topic, queue_id, start=start, end=end)
        except ObjectNotFoundError:
            first_offset = self._local_queues.first_offset(topic, queue_id)
            if first_offset is None or first_offset <= start:
                raise
            units = self._local_queues.units(topic, queue_id, start=min(first_offset, end), end=end)
        log_min_offset = self._log_min_offset()
        if len(units) and units["physical_offset"][0] < log_min_offset:
            units = units[int(np.searchsorted(units["physical_offset"], log_min_offset)) :]
        if len(units) < end - start:
            queue.min_offset = max(queue.min_offset, end - len(units))
            logger.info("queue starts later topic=%s queue_id=%d offset=%d", topic, queue_id, queue.min_offset)
        return units

    def due(self, *, now_ms: int, pressure: bool, lead_ms: int = 0) -> list[str]:
        """Return the topics to seal now, the one that has waited longest first. `lead_ms`: see SealLead."""
        waiting: list[tuple[int, str]] = []
        for topic, progress in self._topics.items():
            first_ms = progress.first_waiting_ms if progress.tiered else None
            if first_ms is None:
                continue
            if first_ms > now_ms:
                progress.start_ages(now_ms=now_ms)
                first_ms = now_ms
            by_age = now_ms - first_ms >= self._policy.age_ms - lead_ms
            if pressure or by_age or progress.waiting_bytes >= self._policy.segment_bytes:
                waiting.append((first_ms, topic))
        return [topic for _, topic in sorted(waiting)]

    def waiting(self) -> list[str]:
        """Return every topic with waiting records that may be sealed."""
        return [
            topic
            for topic, progress in self._topics.items()
            if progress.tiered and progress.first_waiting_ms is not None
        ]

    def next_due_ms(self) -> int | None:
        """Return when the next topic becomes due by age, in ms; None when nothing waits."""
        times = [
            first_ms + self._policy.age_ms
            for progress in self._topics.values()
            if progress.tiered and (first_ms := progress.first_waiting_ms) is not None
        ]
        return min(times, default=None)

    def plan(self, topic: str, *, flush_offset: PhysicalOffset, bytes_max: int | None = None) -> SealPlan | None:
        """Return the plan of the topic's next segment, or None when no flushed record waits. `bytes_max`: the most raw
        bytes instead of a segment's.

        Raises:
            ObjectNotFoundError: A local file is gone, because the topic was deleted meanwhile.
        """
        progress = self._topics[topic]
        waiting = {queue_id: queue for queue_id, queue in progress.queues.items() if queue.is_waiting}
        units_max = max(PLAN_UNITS_PER_QUEUE_MIN, PLAN_UNITS_MAX // max(1, len(waiting)))
        log_end = flush_offset
        candidates: dict[int, tuple[QueueOffset, Units]] = {}
        skipped_to: dict[int, QueueOffset] = {}
        for queue_id, queue in sorted(waiting.items()):
            start, end = queue.first_waiting_offset, queue.end_offset
            read_end = min(end, start + units_max)
            units = self._waiting_units(topic, queue_id, queue, start=start, end=read_end)
            start = read_end - len(units)
            skipped = self._expired_count(units, progress.cut_ms)
            if skipped:
                start, units = start + skipped, units[skipped:]
                skipped_to[queue_id] = start
            if start + len(units) < end:
                if not len(units):
                    continue  # all units read have expired; the next plan reads further
                # Other queues' records must not pass this queue's records that were not read.
                log_end = min(log_end, PhysicalOffset(units["physical_offset"][-1]) + int(units["size_bytes"][-1]))
            candidates[queue_id] = (start, units)
        log_end = min(log_end, self._log_end_of_segment(candidates.values(), log_end, bytes_max))
        runs: list[SealRun] = []
        raw_bytes = 0
        for queue_id, (start, units) in candidates.items():
            ends = units["physical_offset"] + units["size_bytes"]
            taken = units[: int(np.searchsorted(ends, log_end, side="right"))]
            if len(taken):
                assert start >= waiting[queue_id].cold_end, "no record is sealed twice"
                assert ends[len(taken) - 1] <= flush_offset, "the bucket is never ahead of the disk"
                runs.append(SealRun(queue_id=queue_id, start_offset=start, units=taken))
                raw_bytes += int(taken["size_bytes"].sum(dtype=np.int64))
        if not runs and not skipped_to:
            return None
        return SealPlan(
            topic=topic,
            incarnation=progress.incarnation,
            runs=tuple(runs),
            skipped_to=skipped_to,
            raw_bytes=raw_bytes,
        )

    def check_waits(self, plan: SealPlan) -> None:
        """Call before the plan's segment is committed: asserts that none of its records was committed meanwhile."""
        progress = self._topics.get(plan.topic)
        if progress is not None and progress.incarnation == plan.incarnation:
            for run in plan.runs:
                assert run.start_offset >= progress.queues[run.queue_id].cold_end, "no record is committed twice"

    def committed(self, plan: SealPlan) -> None:
        """Move the cold ends past a plan whose segment is committed."""
        progress = self._topics.get(plan.topic)
        if progress is None or progress.incarnation != plan.incarnation:
            return
        ends = plan.skipped_to | {run.queue_id: run.end_offset for run in plan.runs}
        for queue_id, end in ends.items():
            self._move_cold_end(plan.topic, queue_id, end)

    def set_cold_ends(self, topic: str, cold_ends: dict[int, QueueOffset]) -> None:
        """Move cold ends to where the catalog has them; none of them moves back."""
        progress = self._topics[topic]
        for queue_id, cold_end in cold_ends.items():
            queue = progress.queues.setdefault(queue_id, QueueProgress())
            if cold_end > queue.cold_end:
                self._move_cold_end(topic, queue_id, cold_end)

    def _move_cold_end(self, topic: str, queue_id: int, cold_end: QueueOffset) -> None:
        queue = self._topics[topic].queues[queue_id]
        assert cold_end >= queue.cold_end
        queue.cold_end = cold_end
        queue.waiting_bytes, queue.accounted_offset = 0, cold_end
        queue.first_waiting_ms = queue.first_waiting_physical_offset = None
        if queue.is_waiting:
            self._changed.add((topic, queue_id))

    def skip_expired(self) -> None:
        """Let no record wait that has expired; `plan` does so too, for a broker that seals. Call after `account`."""
        for topic, progress in self._topics.items():
            for queue_id, queue in progress.queues.items() if progress.tiered and progress.cut_ms else ():
                if queue.first_waiting_ms is not None and queue.first_waiting_ms < progress.cut_ms:
                    start = queue.first_waiting_offset
                    end = min(queue.end_offset, start + PLAN_UNITS_MAX)
                    try:
                        units = self._waiting_units(topic, queue_id, queue, start=start, end=end)
                        skipped = self._expired_count(units, progress.cut_ms)
                    except (ObjectNotFoundError, CorruptDataError) as error:
                        logger.info("queue cannot be read topic=%s queue_id=%d: %s", topic, queue_id, error)
                        continue
                    if skipped:
                        self._move_cold_end(topic, queue_id, end - len(units) + skipped)
        self.account()

    def oldest_waiting(self) -> str | None:
        """The topic whose first waiting record is first in the log; None when nothing waits."""
        first: tuple[int, str] | None = None
        for topic, progress in self._topics.items():
            for queue in progress.queues.values() if progress.tiered else ():
                place = queue.first_waiting_physical_offset
                if place is not None and (first is None or place < first[0]):
                    first = place, topic
        return first[1] if first is not None else None

    def committed_offset(self) -> PhysicalOffset:
        """Return the log offset below which no record waits; call `account` first."""
        waiting = [
            queue.first_waiting_physical_offset
            for progress in self._topics.values()
            if progress.tiered
            for queue in progress.queues.values()
            if queue.first_waiting_physical_offset is not None
        ]
        assert not self._changed, "reported records are counted first"
        if self._unreadable:
            return LOG_START
        return min(min(waiting, default=self._reported_offset), self._reported_offset)

    def _expired_count(self, units: Units, cut_ms: int) -> int:
        """Return how many leading units are older than the cut. Store times rise along a queue; where they do not, in
        a log that RocketMQ wrote while its clock was set back, a first unit that has not expired keeps all."""

        def has_expired(index: int) -> bool:
            return self._log.store_timestamp_ms(PhysicalOffset(units["physical_offset"][index])) < cut_ms

        low, high = 0, 1
        while high <= len(units) and has_expired(high - 1):
            low, high = high, 2 * high
        high = min(high, len(units))
        while low < high:
            middle = (low + high) // 2
            if has_expired(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _log_end_of_segment(
        self, candidates: Iterable[tuple[QueueOffset, Units]], log_end: PhysicalOffset, bytes_max: int | None = None
    ) -> PhysicalOffset:
        """Return where in the log a segment of `segment_bytes` ends; at least one record fits."""
        bytes_max = self._policy.segment_bytes if bytes_max is None else bytes_max
        arrays = [units for _, units in candidates if len(units)]
        if not arrays:
            return log_end
        units = np.concatenate(arrays)
        units = units[np.argsort(units["physical_offset"], kind="stable")]
        total = np.cumsum(units["size_bytes"].astype(np.int64))
        if total[-1] <= bytes_max:
            return log_end
        last = max(0, int(np.searchsorted(total, bytes_max, side="right")) - 1)
        return PhysicalOffset(units["physical_offset"][last]) + int(units["size_bytes"][last])
