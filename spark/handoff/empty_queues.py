"""Empty queues: those that a topic has at a broker beside the ones that the cold tier holds something of.

The catalog knows no queue without a segment. How many a topic has stands in the broker's state snapshot, which lies in
the same bucket; what was changed in the last seconds may be missing there. Nothing depends on it: a group that is
handed over begins at the beginning of every queue that was not read, whether it is known here or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.reading.read_plan import ReadPlan
from thermocline.spark.reading.source_options import QueueName, ReadOptions
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.state import snapshot as names
from thermocline.tiered.state.newest_state import read_newest


def empty_queues(plan: ReadPlan, options: ReadOptions) -> Iterator[tuple[str, str, int]]:
    """Topic, broker name and id of every queue that the brokers' newest snapshots name, empty or not.

    Raises:
        UnavailableError: The store gave no answer, or refused.
        CorruptDataError: A snapshot cannot be read.
    """
    for source in plan.sources:
        store = blocking_store(source.url, options.store)
        state = store.run(read_newest(store.store, BrokerKeys(source.root)))
        table: dict[str, Any] = {}
        if state is not None:
            table = (state.documents.get(names.TOPICS) or {}).get("topicConfigTable", {})
        for topic in options.topics:
            config = table.get(topic, {})
            for queue_id in range(max(config.get("readQueueNums", 0), config.get("writeQueueNums", 0))):
                if options.wants_queue(QueueName(source.broker_name, queue_id)):
                    yield topic, source.broker_name, queue_id
