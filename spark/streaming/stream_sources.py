"""StreamSources: reads the state of a query's sources, cold tier and brokers, and joins them by queue.

Rules
  - Cold and live belong together when store and incarnation are the same. A broker sees first that a topic was
    deleted or made again; the cold tier of an earlier incarnation is then ignored.
  - An incarnation other than the one that the query has read is a permanent error: offsets of two incarnations are not
    comparable.
  - Of a broker that is in no route any more, or that does not answer, the cold tier alone is read. The same of one
    whose store is another than its ledger's, if they belonged together before in this run: after a change of masters
    the new one takes the ledger over a moment after it is in the routes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    TopicNotFoundError,
)
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.private_requests import FlushedRange
from thermocline.spark.reading.source_options import QueueName
from thermocline.spark.streaming.cold_line import ColdLine
from thermocline.spark.streaming.cold_view import ColdTopic, ColdView
from thermocline.spark.streaming.live_view import LiveSnapshot, LiveTopic, LiveView
from thermocline.spark.streaming.offset_line import OffsetLine
from thermocline.spark.streaming.stream_options import StreamOptions
from thermocline.tiered.objects import masked_url

logger = logging.getLogger(__name__)

COLD_AGE_S_MAX = 5.0

_Behind: TypeAlias = tuple[str, str, int, int]
"""Topic, broker name, queue id and its local start; -1 and the incarnation when it is about the whole topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """One topic on one broker: its cold part, its live part, and its incarnation."""

    topic: str
    broker_name: str
    incarnation: int
    cold: ColdTopic | None
    live: LiveTopic | None

    @property
    def is_deleted(self) -> bool:
        """Whether the catalog marks the topic as deleted, and no broker has it again."""
        return self.live is None and self.cold is not None and self.cold.entry.deleted

    def cold_line(self, queue_id: int) -> ColdLine | None:
        """What the cold tier holds of a queue."""
        return None if self.cold is None else self.cold.lines.get(queue_id)

    def live_queue(self, queue_id: int) -> FlushedRange | None:
        """What the broker holds of it."""
        return None if self.live is None else self.live.queues.get(queue_id)

    def end_offset(self, queue_id: int) -> QueueOffset:
        """The offset behind the last one that may be read now."""
        line, queue = self.cold_line(queue_id), self.live_queue(queue_id)
        return max(QUEUE_START if line is None else line.end, QUEUE_START if queue is None else queue.end)

    def beginning(self, queue_id: int, wanted_from_ms: int) -> QueueOffset:
        """The offset where a new reader of messages stored at a time or later begins."""
        line, queue = self.cold_line(queue_id), self.live_queue(queue_id)
        if line is not None and (line.runs or line.lost):
            offset = line.beginning(wanted_from_ms)
            if offset < line.end or queue is None:
                return offset
            return max(offset, queue.visible_start)
        return QUEUE_START if queue is None else queue.visible_start


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """All sources at one moment."""

    now_ms: int
    sources: Mapping[tuple[str, str], TopicSource] = field(default_factory=dict)
    is_complete: bool = True
    """Whether every broker that has, or had, one of the topics has answered."""
    broker_names: frozenset[str] = frozenset()
    """Of the brokers in the cold tier, and of those that have one of the topics."""

    def queues(self, options: StreamOptions) -> Iterator[tuple[TopicSource, QueueName]]:
        """Every wanted queue, in order."""
        for (_, broker_name), source in sorted(self.sources.items()):
            ids = set(() if source.cold is None else source.cold.lines)
            ids.update(() if source.live is None else source.live.queues)
            for queue_id in sorted(ids):
                name = QueueName(broker_name, queue_id)
                if options.read.wants_queue(name):
                    yield source, name

    def check_topics(self, topics: tuple[str, ...]) -> None:
        """TopicNotFoundError when neither cold tier nor brokers have one of them."""
        present = {source.topic for source in self.sources.values() if not source.is_deleted}
        for topic in topics:
            if topic not in present:
                raise TopicNotFoundError(f"topic {topic!r} is neither in the cold tier nor on a broker")

    def check_line(self, line: OffsetLine) -> None:
        """Compare the incarnations of the sources with those of the line.

        Raises:
            CorruptDataError: A topic was deleted, or deleted and made again.
        """
        for (topic, broker_name), incarnation in sorted(line.incarnations.items()):
            source = self.sources.get((topic, broker_name))
            if source is None:
                continue  # the broker does not answer; or it has no messages now, and may have some again
            if source.is_deleted or source.incarnation != incarnation:
                what = "was deleted" if source.is_deleted else "was deleted and made again"
                raise CorruptDataError(
                    f"topic {topic!r} {what} since this query has read it: offsets begin anew, and so must the query,"
                    " with a checkpoint of its own",
                    broker=broker_name,
                    incarnation=incarnation,
                    found=source.incarnation,
                )


class StreamSources:
    """See the module's header. One thread."""

    def __init__(self, options: StreamOptions, cold: ColdView, live: LiveView | None) -> None:
        self._options = options
        self._cold = cold
        self._live = live
        self._seen: set[tuple[str, str]] = set()
        self._belonged: set[str] = set()
        """The names of brokers whose store was their ledger's."""
        self._changing: set[tuple[str, str]] = set()
        """Topic and name of those whose store is not any more, or not yet."""
        self._behind: frozenset[_Behind] = frozenset()
        """What the newest catalogs did not explain either."""

    def snapshot(self, *, now_ms: int, fresh: bool = False, wait_ms: int = 0) -> SourceSnapshot:
        """Read the state of all sources; `fresh`: without cached answers. `wait_ms`: for all brokers' answers.

        Raises:
            UnavailableError: Neither the store nor, within `wait_ms`, a broker gives an answer.
            InvalidRequestError: Brokers and cold tier do not belong together.
            ObjectNotFoundError: There is no cold tier.
            CorruptDataError: A catalog is damaged.
        """
        cold = self._cold.topics_by_broker(age_s_max=0 if fresh else COLD_AGE_S_MAX)
        live = LiveSnapshot()
        is_complete = True
        if self._live is not None:
            expected = {key for key, topic in cold.items() if not topic.entry.deleted} | self._seen
            live = self._live.snapshot(fresh=fresh, wait_ms=wait_ms, expected=expected)
            self._seen.update(live.topics)
            is_complete = not live.failures and not live.missing(expected)
        behind = _behind(cold, live) - self._behind
        if behind:
            # Read after the brokers' answers: messages are committed to the catalog before a broker deletes them.
            cold = self._cold.topics_by_broker(age_s_max=0, brokers={broker_name for _, broker_name, *_ in behind})
            self._behind = _behind(cold, live)
        sources: dict[tuple[str, str], TopicSource] = {}
        for key in sorted({*cold, *live.topics}):
            held, found = cold.get(key), live.topics.get(key)
            if held is not None and found is not None:
                if held.store_uuid == found.store_uuid:
                    self._belonged.add(key[1])
                    self._changing.discard(key)
                elif key[1] in self._belonged:
                    if key not in self._changing:
                        logger.warning("broker has not taken its ledger over, waiting topic=%s broker=%s", *key)
                        self._changing.add(key)
                    found, is_complete = None, False
            sources[key] = _joined(key, held, found)
        names = self._cold.broker_names.union(broker_name for _, broker_name in live.topics)
        return SourceSnapshot(now_ms=now_ms, sources=sources, is_complete=is_complete, broker_names=names)


def _behind(cold: Mapping[tuple[str, str], ColdTopic], live: LiveSnapshot) -> frozenset[_Behind]:
    """Signs that the catalogs in the view are old: a broker that is not in the view, one that has deleted messages
    which no catalog holds, one with another incarnation of a topic."""
    signs: set[_Behind] = set()
    for (topic, broker_name), found in live.topics.items():
        held = cold.get((topic, broker_name))
        if held is None or held.incarnation != found.incarnation or held.store_uuid != found.store_uuid:
            signs.add((topic, broker_name, -1, found.incarnation))
        lines = {} if held is None else held.lines
        for queue_id, queue in found.queues.items():
            line = lines.get(queue_id)
            if queue.local_start > (0 if line is None else line.end):
                signs.add((topic, broker_name, queue_id, queue.local_start))
    return frozenset(signs)


def _joined(key: tuple[str, str], cold: ColdTopic | None, live: LiveTopic | None) -> TopicSource:
    topic, broker_name = key
    if cold is not None and live is not None:
        if cold.store_uuid != live.store_uuid:
            raise InvalidRequestError(
                "the broker that the NameServer names is not the one whose history is here: namesrvAddr and path"
                " belong to different clusters",
                broker=broker_name,
                path=f"{masked_url(cold.source.url)} {cold.source.root}",
            )
        if cold.entry.deleted or cold.incarnation < live.incarnation:
            cold = None
        elif cold.incarnation > live.incarnation:
            live = None  # asked a moment before the topic was made again
    if live is not None:
        return TopicSource(topic=topic, broker_name=broker_name, incarnation=live.incarnation, cold=cold, live=live)
    assert cold is not None
    return TopicSource(topic=topic, broker_name=broker_name, incarnation=cold.incarnation, cold=cold, live=None)
