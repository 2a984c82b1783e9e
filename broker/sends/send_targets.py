"""Send targets: the topics whose common sends the fast path may take, kept in step with the topic table.

Left out are topics whose messages need a look each: retry topics (they may go to a dead-letter topic), those that
clients may not send to, several tags a message, batch queues and compaction, names that need the second record
version, static topics. Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.tables import StaticTopicTable, TopicTable
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.records.message_record import TOPIC_BYTES_MAX_V1
from thermocline.remoting.topic_validation import SEND_FORBIDDEN_TOPICS, check_topic, is_retry_topic
from thermocline.store.queues import ConsumeQueueTable
from thermocline.store.sends import SendTarget

SINGLE_TAG = "SINGLE_TAG"
PLAIN_ATTRIBUTES = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


class SendTargets:
    """topic -> target. `table` is live: the fast path holds it."""

    def __init__(self, topics: TopicTable, static_topics: StaticTopicTable, queues: ConsumeQueueTable) -> None:
        self._static = static_topics.details
        self._queues = queues
        self.table: dict[str, SendTarget] = {}
        for topic, config in topics.configs().items():
            self._changed(topic, config)
        topics.add_listener(self._changed)
        static_topics.add_listener(lambda topic: self._changed(topic, topics.get(topic)))

    def _changed(self, topic: str, config: TopicConfig | None) -> None:
        if config is None or topic in self._static or not is_plain_topic(topic, config):
            self.table.pop(topic, None)
            return
        self.table[topic] = SendTarget(
            topic,
            queues=self._queues.of_topic(topic),
            queue_count=max(config.write_queue_nums, config.read_queue_nums),
            write_queue_count=config.write_queue_nums,
        )


def is_plain_topic(topic: str, config: TopicConfig) -> bool:
    """Whether a message to this topic needs no look of its own."""
    try:
        check_topic(topic)
    except InvalidParameterError:
        return False
    return (
        topic not in SEND_FORBIDDEN_TOPICS
        and not is_retry_topic(topic)
        and len(topic.encode()) <= TOPIC_BYTES_MAX_V1
        and config.topic_filter_type == SINGLE_TAG
        and config.write_queue_nums > 0
        and _has_plain_attributes(config.attributes)
    )


def _has_plain_attributes(attributes: Mapping[str, str]) -> bool:
    return all(attributes.get(name, value) == value for name, value in PLAIN_ATTRIBUTES.items())
