"""Followed topics: applies the follower process's reports on topics and queues to this broker's own tables.

    FOLLOWED_TOPICS   topics are made, changed and deleted here as at the source, read-only
    CATALOG_TABLE     a queue ends where the cold tier does; pulls that wait there are woken

A queue has no local message: its minimum and its end here are the cold tier's end, all lower offsets are cold. Pulls,
offsets by time and key queries therefore use the same code as in any broker.

Rules
  - One task applies the reports in order: a queue's range never before its topic, nor before the queue itself.
  - A topic of another incarnation than before begins anew, without its groups' offsets, also when it changed while this
    broker was down (followed_incarnations.py).
  - A topic that cannot be written now is tried again with each later report, and has its ranges then.
Belongs to the hot process's loop. Bounded by what the follower process sends: a table each time the ledger has moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from thermocline.broker.follower.followed_incarnations import FILE_NAME, FollowedIncarnations
from thermocline.broker.helpers import (
    CatalogTable,
    ColdRange,
    Fenced,
    FollowedTopic,
    FollowedTopics,
    HelperHub,
    HelperRequestCode,
    decode_body,
)
from thermocline.broker.pulls import LongPolling
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import ConsumerOffsets, TopicTable, consumer_offsets, ttl_attributes
from thermocline.broker.tier import TierLink
from thermocline.remoting.bodies import PERM_READ, TopicConfig
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE = 500
"""Topics that share their writes."""


class TopicFollower:
    """Collects the follower process's reports until `start`; see the module's header."""

    def __init__(self) -> None:
        self._incarnations = FollowedIncarnations()
        self._news: asyncio.Queue[FollowedTopics | CatalogTable] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._link: TierLink | None = None

    def make_link(self, hub: HelperHub, *, timeout_ms: int, on_fenced: Callable[[Fenced], None]) -> TierLink:
        """The link to the follower process; it has no bounds of the cold tier before the first table was applied."""
        self._link = TierLink(
            hub,
            incarnation_of=lambda topic: self._incarnations.table.get(topic, -1),
            timeout_ms=timeout_ms,
            on_connected=lambda: None,
            on_fenced=on_fenced,
            on_state=self._on_state,
            on_table=self._news.put_nowait,
        )
        return self._link

    def start(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        long_polling: LongPolling,
        persister: ConfigPersister,
    ) -> None:
        """Begin to bring the tables up to date.

        Raises:
            CorruptDataError: The file of incarnations cannot be read.
        """
        assert self._task is None
        assert self._link is not None
        persister.open(store.config.own_path, FILE_NAME, self._incarnations)
        tables = _FollowingTables(
            self._link,
            self._incarnations.table,
            store=store,
            topics=topics,
            offsets=offsets,
            long_polling=long_polling,
            persister=persister,
        )
        self._task = asyncio.get_running_loop().create_task(self._run(tables), name="follow")

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _on_state(self, code: int, body: bytes | memoryview) -> None:
        assert code == HelperRequestCode.FOLLOWED_TOPICS
        self._news.put_nowait(decode_body(body, FollowedTopics))

    async def _run(self, tables: _FollowingTables) -> None:
        while True:
            news = await self._news.get()
            try:
                await tables.follow(news)
            except Exception:
                # A bug in one report must not block the next ones.
                logger.exception("news of the ledger not followed, a bug of ours")


class _FollowingTables:
    """This broker's tables, brought up to date with the follower process's reports."""

    def __init__(
        self,
        link: TierLink,
        incarnations: dict[str, int],
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        long_polling: LongPolling,
        persister: ConfigPersister,
    ) -> None:
        """`incarnations`: of the topics followed so far; updated here, and written by `persister`."""
        self._link = link
        self._incarnations = incarnations
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._long_polling = long_polling
        self._persister = persister
        self._saved = dict(incarnations)
        self._failed: dict[str, FollowedTopic] = {}
        """Topics that could not be written. Bounded by the catalog."""

    async def follow(self, news: FollowedTopics | CatalogTable) -> None:
        """Bring the tables up to date with one message of the follower process."""
        followed = news.topics if isinstance(news, FollowedTopics) else ()
        failed, self._failed = self._failed, {}
        topics = [*({**failed, **{each.topic: each for each in followed}}).values()]
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            await self._follow_topics(topics[start : start + TOPICS_AT_ONCE])
        await self._save()
        late = failed.keys() - self._failed.keys() - {each.topic for each in followed}
        ranges = self._link.ranges_of(late) if late else []
        if isinstance(news, CatalogTable):
            # In one turn of the loop: no pull may find a queue whose end differs from the cold tier's.
            self._link.apply_table(news)
            ranges = [*ranges, *news.ranges]
        self._long_polling.arrived(self._follow_queues(ranges))

    async def _follow_topics(self, topics: Sequence[FollowedTopic]) -> None:
        outcomes = await asyncio.gather(*(self._follow(topic) for topic in topics), return_exceptions=True)
        for topic, outcome in zip(topics, outcomes, strict=True):
            if isinstance(outcome, MQError):
                logger.error("topic not followed topic=%s: %s", topic.topic, outcome)
                if isinstance(outcome, UnavailableError):
                    self._failed[topic.topic] = topic
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _save(self) -> None:
        """Write which incarnations are followed, once what ended with others is durable."""
        if self._incarnations == self._saved:
            return
        following = dict(self._incarnations)
        try:
            await self._persister.save_changed(consumer_offsets.FILE_NAME)
            await self._persister.save(FILE_NAME)
        except UnavailableError as error:
            logger.error("incarnations of followed topics not written, will try again: %s", error)
        else:
            self._saved = following

    async def _follow(self, followed: FollowedTopic) -> None:
        topic, incarnation = followed.topic, self._incarnations.get(followed.topic)
        has_ended = followed.deleted or (incarnation is not None and incarnation != followed.incarnation)
        if has_ended:
            self._offsets.remove_topic(topic)
            if topic in self._topics or self._topics.is_ending(topic):
                await self._topics.delete(topic)
            self._incarnations.pop(topic, None)
        if followed.deleted:
            return
        config = msgspec.structs.replace(
            TopicConfig() if followed.config is None else msgspec.convert(followed.config, TopicConfig),
            topic_name=topic,
            perm=PERM_READ,
            attributes=ttl_attributes({}, followed.ttl_ms or 0),
        )
        config.read_queue_nums = max(followed.queue_count, 1 if followed.config is None else config.read_queue_nums)
        config.write_queue_nums = config.read_queue_nums
        await self._topics.follow(config, expired_before_ms=followed.expired_before_ms)
        self._incarnations[topic] = followed.incarnation

    def _follow_queues(self, ranges: Iterable[ColdRange]) -> list[ConsumeQueue]:
        moved: list[ConsumeQueue] = []
        for each in ranges:
            if self._incarnations.get(each.topic) != each.incarnation or each.end_offset == 0:
                continue
            queue = self._store.queues.find_or_create(each.topic, each.queue_id)
            if queue.next_offset != each.end_offset:
                queue.restart_at(each.end_offset, min_offset=each.end_offset)
                moved.append(queue)
        return moved
