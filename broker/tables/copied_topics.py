"""Copied topics: a new master serves every topic that its log has messages of.

A slave gets a topic's messages at once and the topic by its next request, at most a second later. A master that dies
in between leaves acknowledged messages of a topic that its successor does not have. RocketMQ's successor serves them
when a producer makes the topic again. Here the topic is made of the queues that are there, before clients are served:
plain, as what else it was is not known. A topic that was deleted has no queues, and stays deleted.
"""

from __future__ import annotations

import asyncio
import logging

from thermocline.broker.tables.topic_table import TopicTable
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE = 50
"""Topics that are made in one turn of the loop."""


async def make_copied_topics(topics: TopicTable, store: MessageStore) -> None:
    """Make the topics of all queues whose topics are missing; durable on return.

    Raises:
        UnavailableError: A file could not be written.
    """
    missing = [name for name in store.queues.topics if name not in topics and not store.incarnations.is_deleted(name)]
    for start in range(0, len(missing), TOPICS_AT_ONCE):
        await asyncio.gather(*(_make(topics, store, name) for name in missing[start : start + TOPICS_AT_ONCE]))


async def _make(topics: TopicTable, store: MessageStore, name: str) -> None:
    queue_count = max(store.queues.of_topic(name)) + 1
    await topics.ensure(name, queue_count=queue_count)
    logger.warning(
        "topic made of its queues, the master before has died with its configuration topic=%s queues=%d",
        name,
        queue_count,
    )
