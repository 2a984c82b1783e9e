"""EmptyQueues: topics and queues that brokers have beside those of which the cold tier holds something.

The catalog knows no queue without a segment. How many a topic has stands in the broker's state snapshot, which lies in
the same bucket; what was changed in the last seconds may be missing there. Nothing depends on it but whether a topic
without any message can be opened, and whether a queue without any can be asked for: a group that is handed over begins
at the beginning of every queue that was not read, whether it is known here or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from thermocline.remoting.errors import CorruptDataError
from thermocline.spark.access.blocking_store import OpenStore, blocking_store
from thermocline.spark.reading.read_plan import ColdSource
from thermocline.spark.reading.source_options import QueueName, ReadOptions
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import read_newest
from thermocline.tiered.state import snapshot as names


class EmptyQueues:
    """What the newest snapshots of brokers name; each is read once. `known_topics` are there without being named."""

    def __init__(
        self, options: ReadOptions, *, known_topics: Iterable[str] = (), open_store: OpenStore = blocking_store
    ) -> None:
        self._options = options
        self._known_topics = frozenset(known_topics)
        self._open_store = open_store
        self._tables: dict[ColdSource, dict[str, Any] | None] = {}

    def has_topic(self, topic: str, sources: Sequence[ColdSource]) -> bool:
        """Whether one of the brokers has the topic. Raises as `places`."""
        return topic in self._known_topics or any(topic in (self._table(source) or {}) for source in sources)

    def may_have_queue(self, queue: QueueName, sources: Sequence[ColdSource]) -> bool:
        """Whether one of the brokers has it of one of the topics that are asked for; so, too, when a broker has saved
        nothing that can be read and would tell.

        Raises:
            UnavailableError: The store gave no answer, or refused.
        """
        try:
            tables = [self._table(source) for source in sources if queue.broker_name in ("", source.broker_name)]
        except CorruptDataError:
            return True
        return any(
            table is None or any(queue.queue_id < _queue_count(table, topic) for topic in self._options.topics)
            for table in tables
        )

    def places(self, sources: Iterable[ColdSource]) -> Iterator[tuple[str, str, int]]:
        """Topic, broker name and id of every queue of the topics that are asked for, empty or not.

        Raises:
            UnavailableError: The store gave no answer, or refused.
            CorruptDataError: A snapshot cannot be read.
        """
        for source in sources:
            for topic in self._options.topics:
                for queue_id in range(_queue_count(self._table(source) or {}, topic)):
                    if self._options.wants_queue(QueueName(source.broker_name, queue_id)):
                        yield topic, source.broker_name, queue_id

    def _table(self, source: ColdSource) -> dict[str, Any] | None:
        """The topics of a broker by name; None when nothing was saved."""
        if source not in self._tables:
            store = self._open_store(source.url, self._options.store)
            state = store.run(read_newest(store.store, BrokerKeys(source.root)))
            saved = None if state is None else state.documents.get(names.TOPICS)
            self._tables[source] = None if saved is None else saved.get("topicConfigTable", {})
        return self._tables[source]


def _queue_count(table: dict[str, Any], topic: str) -> int:
    config = table.get(topic, {})
    return max(int(config.get("readQueueNums", 0)), int(config.get("writeQueueNums", 0)))
