"""Writes `golden/`: a small bucket with packs, ledger format 2, and what it must be read as.

    python -m tests.tiered.packs.make_golden        in the repository's root

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
from thermocline.store.disk import RealDisk
from thermocline.tiered.file import FileObjectStore
from thermocline.tiered.tier_config import TierConfig

GOLDEN = Path(__file__).parent / "golden" / "v2-logs"
GOLDEN_BEFORE = tuple(Path(__file__).parent / "golden" / name for name in ("v2", "v2-times"))
"""Written before pack entries noted times of pieces, and pieces all of their frames; then before sizes of logs."""
CONFIG = TierConfig(
    cold_url="file:///golden",
    segment_bytes=64 * 1024,
    frame_bytes=4 * 1024,
    seal_age_ms=60_000,
    pack_bytes=64 * 1024,
    merge_fan_in=3,
)
TOPICS = ("flights", "%RETRY%group", "orders")
DAY_MS = 24 * 3_600_000


async def write_bucket(folder: Path) -> dict[str, object]:
    """Write the bucket: four packs, three of them merged, one topic deleted since; return what it must be read as."""
    store = FileObjectStore(str(folder), disk=RealDisk())
    hot = SyntheticHotTier(seed=3, now_ms=1_700_000_000_000)
    topics = {name: SyntheticTopic(incarnation=4) for name in (*TOPICS, "gone")}
    topics["orders"].ttl_ms = 7 * DAY_MS
    expected: dict[str, dict[str, list[str]]] = {name: {} for name in TOPICS}
    async with opened(store, CONFIG, hot=hot, topics=topics, checkpoint_interval=4) as tier:
        for round_number in range(4):
            for number in range(16):
                name, queue_id = list(topics)[number % len(topics)], hot.random.randrange(2)
                record = hot.append(name, queue_id, body_bytes=20 + 60 * (number % 3))
                if name in expected:
                    expected[name].setdefault(str(queue_id), []).append(record.hex())
                hot.now_ms += number % 2
            hot.now_ms += 61_000
            if round_number == 3:
                topics["gone"].deleted = True
                hot.delete_topic("gone")
            tier.report()
            await tier.service.run_once()
            await tier.merge_all()
        version = tier.catalog.version
    await store.close()
    shutil.rmtree(folder / ".partial", ignore_errors=True)
    return {"version": version, "zstd": list(zstandard.ZSTD_VERSION), "topics": expected}


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    expected = asyncio.run(write_bucket(GOLDEN / "bucket"))
    (GOLDEN / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
