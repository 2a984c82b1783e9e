"""Tier feed: reports changed topics and queues to the tier process, after the tick that wrote their units.

A tier process that has just sent HELLO gets every topic and queue, a slice at a time, so that fifty thousand queues
never hold the loop; afterwards only what changed, and every `cut_interval_ms` the cut of each topic that has a time to
live, as it was at a time that is kept (kept_clock.py). Topics go before their queues. `log_offset` rises with the last
slice of a round alone: below it the reported ends are complete.

A deleted topic is reported when its deletion is durable, so the data that the tier process removes cannot come back.

At a slave a queue's first records may come before its topic, whose table is followed every few seconds: such a queue is
reported with its topic, and until then `log_offset` stays. If the master has deleted the topic meanwhile, the slave
deletes it without ever having had it: then nothing is to be reported, and `log_offset` rises.
"""

import asyncio
import contextlib
import itertools
import logging
from typing import TypeVar

from thermocline.broker.cold import is_tiered_topic
from thermocline.broker.helpers import TIER_ROLE, HelperHub, HelperRequestCode, QueueState, QueueTable, TopicState
from thermocline.broker.tables import KeptClock, TopicTable
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import LOG_START
from thermocline.store.queues import ConsumeQueue, ConsumeQueueTable
from thermocline.store.state import TopicIncarnations

logger = logging.getLogger(__name__)

ENTRIES_PER_SLICE = 200
"""Topics and queues in one table."""
SLICE_PAUSE_S = 0.002

Entry = TypeVar("Entry")


class TierFeed:
    """Belongs to the hot process's loop."""

    def __init__(
        self,
        hub: HelperHub,
        *,
        topics: TopicTable,
        queues: ConsumeQueueTable,
        incarnations: TopicIncarnations,
        kept_clock: KeptClock,
        cut_interval_ms: int,
        waits_for_topics: bool = False,
    ) -> None:
        """`waits_for_topics`: queues may be there before their topics."""
        self._hub = hub
        self._topics = topics
        self._queues = queues
        self._incarnations = incarnations
        self._kept_clock = kept_clock
        self._cut_interval_s = cut_interval_ms / 1_000
        self._next_cuts_s = 0.0
        self._cuts_are_due = False
        self._changed_topics: dict[str, None] = {}
        self._changed_queues: dict[ConsumeQueue, None] = {}
        self._waits_for_topics = waits_for_topics
        self._without_topic: dict[str, dict[ConsumeQueue, None]] = {}
        self._sequence = 0
        self._log_offset = LOG_START
        self._pressure = False
        self._told_pressure = False
        self._is_telling = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        queues.on_written = self._queue_written
        topics.add_listener(self._topic_changed)

    def start(self) -> None:
        """Begin to feed; nothing is sent before `restart`."""
        assert self._task is None
        self._task = asyncio.create_task(self._run(), name="tier-feed")

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def restart(self) -> None:
        """A tier process has just connected: send every topic and queue again."""
        self._sequence = 0
        # It has received nothing yet, so no range is complete, not even those sent to its predecessor.
        self._log_offset = LOG_START
        self._changed_topics = dict.fromkeys((*self._topics, *self._incarnations.deleted_topics))
        self._changed_queues = dict.fromkeys(self._queues)
        self._without_topic.clear()
        self._is_telling = True
        self._next_cuts_s = 0.0
        self._wake.set()

    def ticked(self, *, pressure: bool) -> None:
        """Units have been written; `pressure` says that local files must go."""
        had_pressure, self._pressure = self._pressure, pressure
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_cuts_s:
            self._next_cuts_s = now_s + self._cut_interval_s
            if self._is_telling and self._topics.topics_with_ttl():
                self._cuts_are_due = True
                self._wake.set()
        has_news = self._changed_topics or self._changed_queues or self._queues.written_offset != self._log_offset
        if has_news or pressure or had_pressure:
            self._wake.set()

    async def tell_cuts(self) -> None:
        """Report the present cuts of topics with the next tables.

        Raises:
            UnavailableError: The time could not be kept; they say what had expired when it was last.
        """
        topics = self._topics.topics_with_ttl()
        if topics and self._is_telling:
            await self._kept_clock.keep()
            self._changed_topics.update(dict.fromkeys(topics))

    async def flush(self) -> None:
        """Send all changes so far; returns when they are sent, or the tier process is away."""
        while self._is_telling and self._send_slice():  # noqa: ASYNC110 - a pause between slices, not a poll
            await asyncio.sleep(SLICE_PAUSE_S)

    def _queue_written(self, queue: ConsumeQueue) -> None:
        if self._is_telling:
            self._changed_queues[queue] = None

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if self._is_telling:
            self._changed_topics[topic] = None
            self._changed_queues.update(self._without_topic.pop(topic, {}))
            self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._cuts_are_due:
                self._cuts_are_due = False
                with contextlib.suppress(UnavailableError):  # logged where it was written; tried again when next due
                    await self.tell_cuts()
            await self.flush()

    def _send_slice(self) -> bool:
        """Send one table; True while more waits."""
        if not self._hub.is_connected(TIER_ROLE):
            self._is_telling = False  # the next HELLO starts anew
            return False
        written_offset = self._queues.written_offset
        # A topic whose deletion has begun waits until that is durable.
        changed = (topic for topic in self._changed_topics if not self._topics.is_ending(topic))
        names = list(itertools.islice(changed, ENTRIES_PER_SLICE))
        has_more_topics = next(changed, None) is not None
        for name in names:
            del self._changed_topics[name]
        topics = [self._topic_state(name) for name in names]
        room = 0 if has_more_topics else max(1, ENTRIES_PER_SLICE - len(topics))
        queues = [
            QueueState(
                topic=queue.topic, queue_id=queue.queue_id, min_offset=queue.min_offset, end_offset=queue.tail_offset
            )
            for queue in _pop_first(self._changed_queues, room)
            if self._queues.find(queue.topic, queue.queue_id) is queue and self._has_topic(queue)
        ]
        more = has_more_topics or bool(self._changed_queues)
        self._forget_ended()
        if not more:
            is_news = bool(topics or queues or self._pressure or self._told_pressure)
            if not self._without_topic:
                is_news = is_news or written_offset != self._log_offset
                self._log_offset = max(self._log_offset, written_offset)
            if not is_news:
                return False
        self._sequence += 1
        table = QueueTable(
            sequence=self._sequence,
            log_offset=self._log_offset,
            topics=topics,
            queues=queues,
            pressure=self._pressure and not more,
        )
        self._told_pressure = table.pressure
        self._hub.tell(TIER_ROLE, HelperRequestCode.QUEUE_TABLE, table)
        return more

    def _has_topic(self, queue: ConsumeQueue) -> bool:
        topic = queue.topic
        if topic in self._topics:
            return True
        if self._waits_for_topics and is_tiered_topic(topic) and not self._incarnations.is_deleted(topic):
            self._without_topic.setdefault(topic, {})[queue] = None
        return False

    def _forget_ended(self) -> None:
        """Let no queue wait for a topic whose deletion is durable."""
        for topic in list(self._without_topic):
            if self._incarnations.is_deleted(topic) and not self._topics.is_ending(topic):
                del self._without_topic[topic]

    def _topic_state(self, topic: str) -> TopicState:
        incarnation = self._incarnations.find(topic)
        is_there = topic in self._topics
        return TopicState(
            topic=topic,
            incarnation=incarnation.id,
            ttl_ms=self._topics.time_to_live_ms(topic) if is_there else None,
            expired_before_ms=incarnation.expired_before_ms,
            cut_ms=self._topics.expired_at(topic, self._kept_clock.kept_ms) if is_there else 0,
            tiered=is_tiered_topic(topic),
            deleted=not is_there,
        )


def _pop_first(entries: dict[Entry, None], count: int) -> list[Entry]:
    """The first entries, out of the dictionary."""
    taken = list(itertools.islice(entries, count))
    for entry in taken:
        del entries[entry]
    return taken
