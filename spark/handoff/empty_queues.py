"""EmptyQueues: topics and queues that brokers have beside those of which the cold tier holds something.

The catalog knows no queue without a segment. How many a topic has stands in the broker's state snapshot, which lies in
the same bucket; what was changed in the last seconds may be missing there. Nothing depends on it but whether a topic
without any message can be opened: a group that is handed over begins at the beginning of every queue that was not read,
whether it is known here or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.reading.read_plan import ColdSource
from thermocline.spark.reading.source_options import QueueName, ReadOptions
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.state import snapshot as names
from thermocline.tiered.state.newest_state import read_newest


class EmptyQueues:
    """What the newest snapshots of brokers name; each is read once. `known_topics` are there without being named."""

    def __init__(self, options: ReadOptions, *, known_topics: Iterable[str] = ()) -> None:
        self._options = options
        self._known_topics = frozenset(known_topics)
        self._tables: dict[ColdSource, dict[str, Any]] = {}

    def has_topic(self, topic: str, sources: Sequence[ColdSource]) -> bool:
        """Whether one of the brokers has the topic. Raises as `places`."""
        return topic in self._known_topics or any(topic in self._table(source) for source in sources)

    def places(self, sources: Iterable[ColdSource]) -> Iterator[tuple[str, str, int]]:
        """Topic, broker name and id of every queue of the topics that are asked for, empty or not.

        Raises:
            UnavailableError: The store gave no answer, or refused.
            CorruptDataError: A snapshot cannot be read.
        """
        for source in sources:
            for topic in self._options.topics:
                config = self._table(source).get(topic, {})
                for queue_id in range(max(config.get("readQueueNums", 0), config.get("writeQueueNums", 0))):
                    if self._options.wants_queue(QueueName(source.broker_name, queue_id)):
                        yield topic, source.broker_name, queue_id

    def _table(self, source: ColdSource) -> dict[str, Any]:
        """The topics of a broker by name; none when nothing was saved."""
        if source not in self._tables:
            store = blocking_store(source.url, self._options.store)
            state = store.run(read_newest(store.store, BrokerKeys(source.root)))
            saved = None if state is None else state.documents.get(names.TOPICS)
            self._tables[source] = (saved or {}).get("topicConfigTable", {})
        return self._tables[source]
