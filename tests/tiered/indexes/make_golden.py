"""Writes `golden/`: a small bucket with index objects, some merged, and which records they must find.

    python -m tests.tiered.indexes.make_golden        in the repository's root

Only a new format version makes new files; those of an old one stay, and stay readable.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import zstandard

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.file import FileObjectStore

GOLDEN = Path(__file__).parent / "golden" / "v1"
CONFIG = TierConfig(
    cold_url="file:///golden",
    segment_bytes=64 * 1024,
    frame_bytes=4 * 1024,
    seal_age_ms=60_000,
    pack_bytes=64 * 1024,
    merge_fan_in=8,
)
TOPICS = ("flights", "%RETRY%group", "orders")
DAY_MS = 24 * 3_600_000
ROUNDS = 23


async def write_bucket(folder: Path) -> dict[str, object]:
    """Write the bucket: two TTL classes, objects of two levels; return what they must find."""
    store = FileObjectStore(str(folder), disk=RealDisk())
    hot = SyntheticHotTier(seed=3, now_ms=1_700_000_000_000, dated_ids=False)
    topics = {name: SyntheticTopic(incarnation=4) for name in TOPICS}
    topics["orders"].ttl_ms = 7 * DAY_MS
    records: list[dict[str, object]] = []
    async with opened(store, CONFIG, hot=hot, topics=topics, checkpoint_interval=16) as tier:
        for _ in range(ROUNDS):
            for number in range(6):
                name, queue_id = TOPICS[number % len(TOPICS)], hot.random.randrange(2)
                record = hot.append(name, queue_id, body_bytes=20 + 60 * (number % 3))
                records.append(
                    {
                        "topic": name,
                        "queue_id": queue_id,
                        "queue_offset": int.from_bytes(record[20:28], "big"),
                        "place": int.from_bytes(record[28:36], "big"),
                        "key": hot.last_key,
                    }
                )
                hot.now_ms += 1
            hot.now_ms += 61_000
            tier.report()
            await tier.service.run_once()
            await tier.index_all()
        indexed_to, version = tier.catalog.indexed_to, tier.catalog.version
    await store.close()
    shutil.rmtree(folder / ".partial", ignore_errors=True)
    return {"version": version, "zstd": list(zstandard.ZSTD_VERSION), "indexed_to": indexed_to, "records": records}


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    expected = asyncio.run(write_bucket(GOLDEN / "bucket"))
    (GOLDEN / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
