"""Spark reads records of packs as it reads segments: by locator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from tests.spark.cold_tier import directory_url
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.object_store_url import open_object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = TierConfig(
    cold_url="file:///packs",
    segment_bytes=128 << 10,
    frame_bytes=8 << 10,
    seal_age_ms=60_000,
    pack_bytes=256 << 10,
    merge_fan_in=3,
)


async def write_packs(url: str) -> list[tuple[str, int, int, bytes]]:
    """Packs of all levels, and segments that were merged out of them; topic, queue, offset and body of each message."""
    store, hot = await open_object_store(url), SyntheticHotTier(now_ms=1_700_000_000_000)
    topics = {name: SyntheticTopic() for name in ("orders", "payments", "small")}
    sent: list[tuple[str, int, int, bytes]] = []
    async with opened(store, CONFIG, hot=hot, topics=topics) as tier:
        for round_number in range(11):
            for number in range(90):
                name = "orders" if number % 9 < 6 else "payments" if number % 9 < 8 else "small"
                keys = f"all seven{round_number}" if number % 7 == 0 else ""
                message = decode_record(hot.append(name, number % 2, body_bytes=300, keys=keys))
                sent.append((name, message.queue_id, message.queue_offset, bytes(message.body)))
            hot.now_ms += 61_000
            tier.report()
            await tier.service.run_once()
            if round_number < 10:
                await tier.merge_all()
        assert len({pack.level for pack in tier.catalog.packs.values()}) >= 2
        assert tier.catalog.topics["orders"].segments
    await store.close()
    return sent


def test_packed_messages_are_read(spark_session: SparkSession, tmp_path: Path) -> None:
    sent = asyncio.run(write_packs(tmp_path.as_uri()))
    for name in ("orders", "payments", "small"):
        table = (
            spark_session.read.format("thermocline")
            .option("topic", name)
            .option("columns", "queueId,queueOffset,value")
            .option("maxPartitionBytes", "64k")
            .load(directory_url(tmp_path))
        )
        found = sorted((row["queueId"], row["queueOffset"], bytes(row["value"])) for row in table.collect())
        assert found == sorted((queue_id, offset, body) for topic, queue_id, offset, body in sent if topic == name)
