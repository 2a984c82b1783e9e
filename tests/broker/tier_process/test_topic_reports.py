"""What the tier process reports of all topics of a large broker, and that it serves others meanwhile."""

from __future__ import annotations

import asyncio

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.broker.helpers.helper_protocol import TierReportRequest
from thermocline.broker.tier_process.topic_reports import TOPICS_IN_A_PASS, topic_reports
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.memory import MemoryObjectStore

TOPIC_COUNT = 1_000


async def test_a_report_of_all_topics_gives_way_to_cold_reads() -> None:
    hot, topics = SyntheticHotTier(), {f"topic-{number}": SyntheticTopic() for number in range(TOPIC_COUNT)}
    config = TierConfig(cold_url="memory://topics", seal_age_ms=60_000)
    async with opened(MemoryObjectStore(), config, hot=hot, topics=topics) as tier:
        hot.append("topic-7", 0, body_bytes=200)
        hot.now_ms += 61_000
        tier.report()
        await tier.service.run_once()
        request = TierReportRequest(topic=None, visible_from_ms=None)
        asking = asyncio.create_task(topic_reports(tier.service, request, pins=[], now_ms=hot.now_ms))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= TOPIC_COUNT // TOPICS_IN_A_PASS
        reports = {report.topic: report for report in await asking}
        assert reports.keys() == topics.keys()
        assert [(name, report.packs) for name, report in reports.items() if report.packs] == [("topic-7", 1)]

        one = TierReportRequest(topic="topic-7", visible_from_ms=None)
        assert await topic_reports(tier.service, one, pins=[], now_ms=hot.now_ms) == [reports["topic-7"]]
        other = TierReportRequest(topic="never reported", visible_from_ms=None)
        assert await topic_reports(tier.service, other, pins=[], now_ms=hot.now_ms) == []
