"""EmptyQueues: topics and queues of brokers without messages in the cold tier.

The catalog lists no queue without a segment. The queue count of a topic is in the broker's state snapshot, which is
stored in the same bucket; changes of the last seconds may be missing there. It decides only whether a topic without
messages can be opened, and whether the option `queues` may name an empty queue: a group that is handed over begins at
the oldest message of every queue that was not read, listed here or not.
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
    """The topics in the brokers' newest snapshots; each is read once. `known_topics` exist in any case."""

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
        """Whether one of the brokers has this queue of one of the wanted topics; True also when a broker has no
        readable snapshot.

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
        """Yield topic, broker name and id of every queue of the wanted topics, empty or not.

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
