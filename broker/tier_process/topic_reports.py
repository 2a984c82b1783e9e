"""Topic reports: what the tier process answers of each topic to TIER_REPORT.

Of one version of the catalog. A broker has tens of thousands of topics: cold reads and tables are served meanwhile.
"""

import asyncio
from collections.abc import Sequence

from thermocline.broker.cold import PinHolds, quarantined_ranges
from thermocline.broker.helpers import QueueTierReport, TierReportRequest, TopicTierReport
from thermocline.broker.tier_process.tier_ttl import expired_parts
from thermocline.tiered.ledger import Pin
from thermocline.tiered.segments import NO_SEGMENTS
from thermocline.tiered.service import TierService

TOPICS_IN_A_PASS = 100


async def topic_reports(
    service: TierService, request: TierReportRequest, *, pins: Sequence[Pin], now_ms: int
) -> list[TopicTierReport]:
    """The report of each requested topic that the hot process has reported."""
    reports: list[TopicTierReport] = []
    backlog, catalog = service.backlog, service.catalog
    backlog.account()
    holds = PinHolds(catalog, pins, now_ms=now_ms)
    names = list(backlog.topics) if request.topic is None else [request.topic]
    for number, topic in enumerate(names):
        if number % TOPICS_IN_A_PASS == TOPICS_IN_A_PASS - 1:
            await asyncio.sleep(0)
        progress = backlog.topics.get(topic)
        if progress is None:
            continue
        entry = catalog.topics.get(topic)
        segments = entry.segments if entry and entry.incarnation == progress.incarnation else NO_SEGMENTS
        packed = catalog.packed.get(topic)
        if packed is not None and packed.incarnation != progress.incarnation:
            packed = None
        cut_ms = request.visible_from_ms
        reports.append(
            TopicTierReport(
                topic=topic,
                segments=len(segments),
                raw_bytes=segments.raw_bytes + (packed.raw_bytes if packed else 0),
                stored_bytes=segments.stored_bytes + (packed.stored_bytes if packed else 0),
                queues=[
                    QueueTierReport(
                        queue_id=queue_id,
                        cold_end=queue.cold_end,
                        waiting_bytes=queue.waiting_bytes,
                        first_waiting_ms=queue.first_waiting_ms,
                    )
                    for queue_id, queue in sorted(progress.queues.items())
                ],
                packs=len(packed.packs) if packed else 0,
                first_newest_ms=min(
                    (
                        *(() if segments.first_newest_ms is None else (segments.first_newest_ms,)),
                        *(catalog.packs[pack_id].max_store_ms for pack_id in (packed.packs if packed else ())),
                    ),
                    default=None,
                ),
                expired=None if cut_ms is None else expired_parts(service, topic, segments, packed, cut_ms=cut_ms),
                quarantined=quarantined_ranges(catalog, topic),
                pins=holds.of(topic),
            )
        )
    return reports
