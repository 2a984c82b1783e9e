"""Topics follower: topics, their attributes, time to live and mappings as the master has them.

Which incarnation of a topic it is, and where in the log that begins
  - A master of ours tells (TOPIC_INCARNATIONS). Ids and offsets are the same here: dispatch ignores the same records,
    and what the cold tier holds by an id is found by it after a switch.
  - A master of RocketMQ does not. A topic that is new here has every record of its name; one that was deleted here
    before begins at the lowest offset that this log's end had when the topic was missing at the master.

Rules
  - Records of a topic that was deleted and made again are copied before this broker follows that change. Their queue
    units are placed then.
  - A topic that the master does not have is deleted with its queues. That needs proof that the master's table was made
    from the one here: a master of ours says that the topic was deleted, or the counter of the master's version is not
    below the one here. A master that has lost its disk deletes nothing on its slaves.
  - A topic that this broker does not serve, of batches for example, is refused by itself: the others are taken over,
    and the next round tries again.
  - The version is taken over last: after a stop in between, the next start requests the table again.
  - A master may die, and this broker follow it: messages of a topic that is new, or was made again, have the topics
    requested at the next step.
Source: broker/slave/SlaveSynchronize.java (syncTopicConfig), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from thermocline.broker.replicas.followed_table import PERIOD_MS
from thermocline.broker.replicas.master_metadata import MasterMetadata, MasterTopics
from thermocline.broker.replicas.slices import run_in_slices
from thermocline.broker.tables import StaticTopicTable, TopicTable
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.queues import ConsumeQueueTable
from thermocline.store.state import Incarnation, TopicIncarnations

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE = 50
"""Topics that are changed in one turn of the loop."""


class TopicsFollower:
    """Follows topics and mappings."""

    name = "topics"
    bound = None

    def __init__(
        self,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        *,
        incarnations: TopicIncarnations,
        log_end: Callable[[], PhysicalOffset],
        place_late: Callable[[str, PhysicalOffset], Iterator[None]],
        queues: ConsumeQueueTable,
    ) -> None:
        """`incarnations`: of `topics`. `log_end`: of this broker's log; the master's is never below. `place_late`:
        gives queues the units of a topic's records from an offset on (store/late_placement.py). `queues`: the store's.
        """
        self._topics = topics
        self._incarnations = incarnations
        self._static_topics = static_topics
        self._log_end = log_end
        self._place_late = place_late
        self._queues = queues
        self._asked_news: tuple[int, int] | None = None

    @property
    def period_ms(self) -> int:
        """See FollowedTable."""
        return PERIOD_MS if self._news == self._asked_news else 0

    @property
    def _news(self) -> tuple[int, int]:
        """Changes with messages of a topic that is new at the master, or was made again."""
        return self._queues.name_count, self._queues.unplaced_count

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        topics, static_topics = self._topics, self._static_topics
        log_end = self._log_end()
        self._asked_news = self._news
        news = await master.topics(version=topics.data_version, mapping_version=static_topics.data_version)
        if news is None:
            return False
        changes = _Changes(topics, self._queues, news, await master.incarnations())
        await run_in_slices(changes.find())
        await self._delete(changes.ended, next_start=log_end if changes.incarnations is None else None)
        refused = await self._put(changes)
        if news.mapping_version != static_topics.data_version:
            details = {name: detail for name, detail in news.mappings.items() if name in topics}
            await static_topics.replace(details, version=news.mapping_version)
        if refused:
            raise InvalidRequestError("topics of the master are not served here", topics=",".join(sorted(refused)[:10]))
        await topics.follow_version(news.version)
        return True

    async def _delete(self, names: Sequence[str], *, next_start: PhysicalOffset | None) -> None:
        for start in range(0, len(names), TOPICS_AT_ONCE):
            for name in names[start : start + TOPICS_AT_ONCE]:
                await self._static_topics.delete(name)
            await asyncio.gather(
                *(self._topics.delete(name, next_start=next_start) for name in names[start : start + TOPICS_AT_ONCE])
            )

    async def _put(self, changes: _Changes) -> list[str]:
        """Make topics, or set them up anew; the names of those that are refused."""
        refused: list[str] = []
        for start in range(0, len(changes.changed), TOPICS_AT_ONCE):
            part = changes.changed[start : start + TOPICS_AT_ONCE]
            results = await asyncio.gather(
                *(self._put_one(config, (changes.incarnations or {}).get(config.topic_name)) for config in part),
                return_exceptions=True,
            )
            for config, result in zip(part, results, strict=True):
                if isinstance(result, InvalidRequestError):
                    refused.append(config.topic_name)
                elif isinstance(result, BaseException):
                    raise result
        return refused

    async def _put_one(self, config: TopicConfig, incarnation: Incarnation | None) -> None:
        topics, name = self._topics, config.topic_name
        present = topics.incarnation(name)
        if incarnation is not None:
            if present.deleted:
                self._incarnations.begin_anew(name)
                await run_in_slices(self._place_late(name, incarnation.start_offset))
            self._incarnations.follow(name, incarnation)
        elif name not in topics:
            start_offset = present.start_offset if present.deleted else LOG_START
            if present.deleted:
                self._incarnations.begin_anew(name)
                await run_in_slices(self._place_late(name, start_offset))
            self._incarnations.create(name, start_offset=start_offset, has_queues=True)
        await topics.follow(config)


class _Changes:
    """In what a master's topics differ from those here."""

    def __init__(
        self,
        topics: TopicTable,
        queues: ConsumeQueueTable,
        news: MasterTopics,
        incarnations: Mapping[str, Incarnation] | None,
    ) -> None:
        self._topics = topics
        self._queues = queues
        self._news = news
        self.incarnations = incarnations
        self.ended: list[str] = []
        """Topics that the master has deleted, perhaps to make others of their names."""
        self.changed: list[TopicConfig] = []
        """Topics that are new here, or differ."""

    def find(self) -> Iterator[None]:
        """Compare all topics, step by step."""
        topics, news = self._topics, self._news
        kept: list[str] = []
        for name in list(topics):
            if name not in news.topics and not topics.is_system_topic(name):
                (self.ended if self._has_ended(name) else kept).append(name)
            yield
        for name in self._queues.topics:
            if name not in topics and name not in news.topics and self._was_deleted(name):
                self.ended.append(name)
            yield
        for name, config in news.topics.items():
            self._compare(name, config)
            yield
        if kept:
            logger.error(
                "topics kept that the master does not have, and has not deleted count=%d first=%s", len(kept), min(kept)
            )

    def _was_deleted(self, name: str) -> bool:
        """Whether the master has made and deleted a topic of which only messages came here."""
        there = (self.incarnations or {}).get(name)
        return there is not None and there.deleted and not self._topics.incarnation(name).deleted

    def _has_ended(self, name: str) -> bool:
        """Whether the lack of a topic at the master is no loss of the master's table."""
        if self.incarnations is None:
            return self._news.version.counter >= self._topics.data_version.counter
        return name in self.incarnations and self.incarnations[name].deleted

    def _compare(self, name: str, config: TopicConfig) -> None:
        here = self._topics.incarnation(name)
        there = (self.incarnations or {}).get(name)
        if there is not None and there.deleted:
            return  # it was deleted between the two answers: the next round finds another version
        # A start alone does not tell: after a power cut it may be lower here (`begin_at_latest`).
        if there is not None and there.id > here.id > 0 and there.start_offset > here.start_offset:
            self.ended.append(name)
        if there not in (None, here) or self._topics.get(name) != config:
            self.changed.append(config)
