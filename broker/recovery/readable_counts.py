"""Readable counts: how many committed messages of each topic a reader gets after a recovery.

Expired messages may stay in the bucket for a while: in a segment or pack with newer messages, until the next sweep, and
in objects that wait for their deletion. The catalog counts them; a reader never gets them. Where the cut is within a
segment or piece, its times are read: one or two requests for each such queue.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from thermocline.broker.recovery.recovery_report import TopicReport
from thermocline.remoting.errors import MQError
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.objects import ObjectStore, run_all
from thermocline.tiered.reading import ColdReader, catalog_reader

logger = logging.getLogger(__name__)


async def with_readable_counts(
    topics: tuple[TopicReport, ...], store: ObjectStore, catalog: Catalog, cuts_ms: Mapping[str, int]
) -> tuple[TopicReport, ...]:
    """The reports, whose committed messages are those of the catalog, without what has expired. `cuts_ms`: each topic's
    first visible store time, of topics that have one. A failure to read makes a topic's `expired_count` None."""
    async with catalog_reader(store, catalog) as reader:
        return tuple(await run_all([_counted(topic, reader, catalog, cuts_ms.get(topic.topic, 0)) for topic in topics]))


async def _counted(topic: TopicReport, reader: ColdReader, catalog: Catalog, cut_ms: int) -> TopicReport:
    if cut_ms <= 0 or not topic.committed_count + topic.quarantined_count:
        return topic
    try:
        readable_count = await reader.visible_count(topic.topic, cut_ms=cut_ms)
    except MQError as error:  # damaged, missing, or no answer: a count is no reason to fail a recovery
        logger.warning("expired messages not counted topic=%s: %s", topic.topic, error)
        return replace(topic, expired_count=None)
    entry = catalog.topics.get(topic.topic)
    quarantined_count = sum(
        lost.end_offset - lost.start_offset
        for kept in (entry.quarantine if entry is not None else ())
        for lost in kept.lost
        if kept.segment.max_store_ms >= cut_ms
    )
    return replace(
        topic,
        committed_count=readable_count,
        quarantined_count=quarantined_count,
        expired_count=topic.committed_count - readable_count,
    )
