"""POP reviver: when a check point's time is up, its unacknowledged messages are put once more (pop/revival.py).

    due -> topic and group still there? -> each open message read, hot or cold -> retry or dead-letter topic

Two kinds of check points are revived by tasks of their own, so that what does not answer holds nothing else up:
    run_elsewhere   those of another broker name, from a slave that stood in for its master (escaped_pops.py): their
                    messages are read from that broker
    run_cold        those with messages that only the cold tier has
Where one fails, those of the same broker, or of the tier, are put off with it.

Rules
  - It sleeps until the next check point is due; with nothing in flight it does nothing at all.
  - A message that is acknowledged while its record is being fetched is not put. One that is gone (expired, its topic
    deleted) counts as finished.
  - A message that cannot be read or put now is tried again after 10, 20, 30, 60 s and so on, up to two hours; others
    go on.
  - Messages of one check point are put together, up to PUT_BYTES_MAX at a time: each in one write with its
    acknowledgement, so that a crash repeats none.
Owner: the hot process's event loop.
Source: PopReviveService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from thermocline.broker.queues import MessageReader
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import ConsumerOffsets, GroupTable, TopicTable
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.in_flight import Pending
from thermocline.pop.pop_store import PopStore
from thermocline.pop.revival import dead_letter_draft, is_dead, retry_draft, retry_topic_of
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.errors import MQError, ServiceUnavailableError
from thermocline.remoting.handles import normal_topic
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.topic_validation import dlq_topic
from thermocline.store.log import MessageDraft

logger = logging.getLogger(__name__)

AGAIN_S = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""After how long a check point that failed is tried again."""
PUT_BYTES_MAX = 256 * 1024
SLICE_MAX = 32
"""Check points revived before others are served."""
SLEEP_S_MAX = 60.0
"""The wall clock may be set meanwhile."""
FAILURE_PAUSE_S = 10.0
AWAY_MAX = 1_000
"""Brokers that are remembered not to have answered; this one's name stands for the cold tier."""
QUEUES = 1


class ReadElsewhere(Protocol):
    """Reads one message of another broker."""

    async def __call__(
        self, broker_name: str, topic: str, queue_id: int, offset: QueueOffset, *, group: str
    ) -> MessageRecord | None:
        """The message; None when it is not there any more. Raises MQError: that broker cannot tell now."""


class PopReviver:
    """Puts unacknowledged popped messages again. `run` is its task; `step` is what the task does."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        pops: PopStore,
        stats: BrokerStats,
        clock: Callable[[], int],
        store_host: tuple[str, int],
        reader: MessageReader,
        read_elsewhere: ReadElsewhere,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._pops = pops
        self._stats = stats
        self._clock = clock
        self._store_host = store_host
        self._reader = reader
        self._read_elsewhere = read_elsewhere
        self._elsewhere = _Lane()
        self._cold = _Lane()
        self._away_until_ms: dict[str, int] = {}
        self._wake = asyncio.Event()
        pops.on_due = self._wake.set

    async def run(self) -> None:
        """Revive until cancelled."""
        while True:
            self._wake.clear()
            try:
                has_more = await self.step()
            except Exception:
                # A bug must not keep everything that was popped for good.
                logger.exception("reviving popped messages failed")
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            if has_more:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(self._sleep_s()):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def step(self) -> bool:
        """Revive what is due now, up to a slice; True when more is due."""
        pops = self._pops
        pops.catch_up()
        for _ in range(SLICE_MAX):
            pending = pops.in_flight.take_due(self._clock())
            if pending is None:
                return False
            lane = self._lane_of(pending)
            if lane is None:
                await self._try(pending)
            else:
                lane.add(pending)
        return True

    async def run_elsewhere(self) -> None:
        """Revive messages of other brokers until cancelled."""
        await self._run_lane(self._elsewhere)

    async def run_cold(self) -> None:
        """Revive messages that only the cold tier has until cancelled."""
        await self._run_lane(self._cold)

    async def step_elsewhere(self) -> None:
        """Revive those of other brokers that were found due."""
        await self._step_lane(self._elsewhere)

    async def step_cold(self) -> None:
        """Revive those in the cold tier that were found due."""
        await self._step_lane(self._cold)

    def _lane_of(self, pending: Pending) -> _Lane | None:
        """Where a check point waits for its turn; None when its messages can be read at once."""
        check_point = pending.check_point
        if not self._pops.in_flight.is_own(check_point):
            return self._elsewhere
        topic, queue_id = check_point.topic, check_point.queue_id
        is_cold = any(self._reader.is_cold(topic, queue_id, offset) for offset in pending.open_offsets())
        return self._cold if is_cold else None

    async def _run_lane(self, lane: _Lane) -> None:
        while True:
            lane.wake.clear()
            try:
                await self._step_lane(lane)
            except Exception:
                logger.exception("reviving popped messages failed")
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            await lane.wake.wait()

    async def _step_lane(self, lane: _Lane) -> None:
        while lane.waiting:
            pending = lane.waiting.popleft()
            name = pending.check_point.broker_name
            now = self._clock()
            if pending.is_finished:
                continue
            until_ms = self._away_until_ms.get(name, now)
            if now < until_ms <= now + AGAIN_S[0] * 1_000:  # beyond: the clock was set back
                self._pops.in_flight.put_off(pending, until_ms)
            elif await self._try(pending):
                self._away_until_ms.pop(name, None)
            else:
                if len(self._away_until_ms) >= AWAY_MAX:
                    self._away_until_ms.clear()
                self._away_until_ms[name] = self._clock() + AGAIN_S[0] * 1_000
            self._wake.set()  # it may be due before all others now

    async def _try(self, pending: Pending) -> bool:
        """Revive a check point, or put it off; whether it is done with."""
        try:
            await self._revive(pending)
        except Exception as error:  # one check point must not hold up the others
            if not isinstance(error, MQError):
                logger.error("reviving popped messages failed, a bug of ours", exc_info=error)
            self._put_off(pending, error)
            return False
        except BaseException:
            self._pops.in_flight.put_off(pending, self._clock() + AGAIN_S[0] * 1_000)
            raise
        return True

    def _sleep_s(self) -> float | None:
        due_ms = self._pops.in_flight.next_due_ms
        if due_ms is None:
            return None
        return min(max(0.0, (due_ms - self._clock()) / 1_000), SLEEP_S_MAX)

    def _put_off(self, pending: Pending, error: Exception) -> None:
        pause_s = AGAIN_S[min(pending.tries, len(AGAIN_S) - 1)]
        check_point = pending.check_point
        logger.warning(
            "popped messages not back yet topic=%s group=%s queue_id=%d start_offset=%d again_s=%d error=%s",
            check_point.topic,
            check_point.group,
            check_point.queue_id,
            check_point.start_offset,
            pause_s,
            error,
        )
        pending.tries += 1
        self._pops.in_flight.put_off(pending, self._clock() + pause_s * 1_000)

    async def _revive(self, pending: Pending) -> None:
        """Bring a check point to its end. UnavailableError and others when that is not possible now."""
        check_point = pending.check_point
        # One that was made by its first use may not have been on disk yet when the broker was killed.
        group = self._groups.find_or_create(check_point.group)
        is_own = self._pops.in_flight.is_own(check_point)
        has_topic = normal_topic(check_point.topic, check_point.group) in self._topics
        if group is None or (is_own and not has_topic):
            logger.info(
                "popped messages dropped, topic or group is gone topic=%s group=%s",
                check_point.topic,
                check_point.group,
            )
            self._end(pending, pending.open_offsets())
            return
        gone: list[QueueOffset] = []
        records: list[tuple[QueueOffset, MessageRecord]] = []
        size_bytes = 0
        for offset in pending.open_offsets():
            record = await self._read(check_point, offset)
            if record is None:
                gone.append(offset)
                continue
            if not has_topic:
                raise ServiceUnavailableError("nothing is popped here of that topic", topic=check_point.topic)
            records.append((offset, record))
            size_bytes += record.size_bytes
            if size_bytes > PUT_BYTES_MAX:
                await self._put(pending, records, group)
                records, size_bytes = [], 0
        if records:
            await self._put(pending, records, group)
        self._end(pending, gone)

    async def _read(self, check_point: CheckPoint, offset: QueueOffset) -> MessageRecord | None:
        topic, group, queue_id = check_point.topic, check_point.group, check_point.queue_id
        if self._pops.in_flight.is_own(check_point):
            return await self._reader.read(topic, queue_id, offset, group=group)
        return await self._read_elsewhere(check_point.broker_name, topic, queue_id, offset, group=group)

    async def _put(
        self, pending: Pending, records: list[tuple[QueueOffset, MessageRecord]], group: SubscriptionGroupConfig
    ) -> None:
        check_point = pending.check_point
        tries_max = group.retry_max_times
        retry_topic = retry_topic_of(check_point, is_v2=self._settings.broker.retry_topic_v2)
        dead = [is_dead(record, check_point, tries_max=tries_max) for _, record in records]
        if not all(dead):
            await self._ensure(retry_topic, check_point.group)
        if any(dead):
            await self._topics.ensure(dlq_topic(check_point.group), queue_count=QUEUES)
        # No await from here on: the messages open now are put.
        drafts: list[MessageDraft] = []
        offsets: list[QueueOffset] = []
        buried: list[MessageRecord] = []
        for (offset, record), record_is_dead in zip(records, dead, strict=True):
            if pending.is_finished or pending.is_acked(offset):
                continue
            offsets.append(offset)
            if record_is_dead:
                drafts.append(dead_letter_draft(record, check_point))
                buried.append(record)
            else:
                drafts.append(retry_draft(record, check_point, topic=retry_topic, store_host=self._store_host))
        if not drafts:
            return
        results = self._pops.revive(pending, drafts, offsets)
        for draft, result in zip(drafts, results, strict=True):
            self._stats.add_put(draft.topic, 1, result.size_bytes)
        for record in buried:
            topic = normal_topic(check_point.topic, check_point.group)
            self._stats.add_dead_letter(topic, check_point.group)
            logger.info(
                "dead letter topic=%s group=%s unique_key=%s tries=%d",
                topic,
                check_point.group,
                record.unique_key,
                record.reconsume_times,
            )

    async def _ensure(self, retry_topic: str, group: str) -> None:
        """Make the retry topic if it is missing; the group begins with its first message."""
        if retry_topic not in self._topics:
            await self._topics.ensure(retry_topic, queue_count=QUEUES)
            if self._offsets.query(retry_topic, group, 0) is None:
                self._offsets.commit(retry_topic, group, 0, QUEUE_START)

    def _end(self, pending: Pending, offsets: list[QueueOffset]) -> None:
        """Note that these messages do not come back."""
        opened = [offset for offset in offsets if not pending.is_finished and not pending.is_acked(offset)]
        if opened:
            self._pops.revive(pending, [], opened)


class _Lane:
    """Check points that are due and wait for their turn; one task revives them one by one."""

    __slots__ = ("waiting", "wake")

    def __init__(self) -> None:
        self.waiting: deque[Pending] = deque()
        self.wake = asyncio.Event()

    def add(self, pending: Pending) -> None:
        """Take one that is due."""
        self.waiting.append(pending)
        self.wake.set()
