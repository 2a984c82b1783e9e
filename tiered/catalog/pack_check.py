"""Checks on packs before they are committed."""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.packs import PackEntry


def check_follows(catalog: Catalog, packs: Iterable[PackEntry]) -> None:
    """InvalidRequestError when a pack of sealed records holds offsets that the catalog holds already."""
    ends: dict[tuple[str, int], QueueOffset] = {}
    bounds: dict[str, dict[int, tuple[QueueOffset, QueueOffset]]] = {}
    for pack in packs:
        for topic, piece in zip(pack.topics, pack.table().pieces(), strict=True):
            entry = catalog.topics.get(topic)
            if entry is None or entry.deleted or entry.incarnation != piece.incarnation:
                continue
            if topic not in bounds:
                bounds[topic] = catalog.queue_bounds(topic)
            for queue in piece.queues:
                end = ends.get(
                    (topic, queue.queue_id), bounds[topic].get(queue.queue_id, (QUEUE_START, QUEUE_START))[1]
                )
                if queue.start_offset < end:
                    raise InvalidRequestError(
                        "a pack holds offsets that are held already",
                        topic=topic,
                        queue_id=queue.queue_id,
                        queue_offset=queue.start_offset,
                    )
                ends[topic, queue.queue_id] = queue.end_offset
