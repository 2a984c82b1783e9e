"""Writes `golden/`: small buckets with packs, ledger format 2, and what they must be read as.

    python -m tests.tiered.packs.make_golden VERSION        in the repository's root

Only a new format version makes new files; those of an old one stay, and stay readable.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import zstandard

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier, SyntheticQueue
from tests.tiered.record_variants import LONG_TOPIC, VARIANTS, Variant
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.file import FileObjectStore

GOLDEN = Path(__file__).parent / "golden" / "v2-logs"
GOLDEN_BEFORE = tuple(Path(__file__).parent / "golden" / name for name in ("v2", "v2-times"))
"""Written before pack entries noted times of pieces, and pieces all of their frames; then before sizes of logs."""
GOLDEN_RECORDS = Path(__file__).parent / "golden" / "v2-records"
"""A record of every kind, in packs, a segment and index objects."""
CONFIG = TierConfig(
    cold_url="file:///golden",
    segment_bytes=64 * 1024,
    frame_bytes=4 * 1024,
    seal_age_ms=60_000,
    pack_bytes=64 * 1024,
    merge_fan_in=3,
)
RECORDS_CONFIG = replace(CONFIG, merge_fan_in=8)
LARGE = "large"
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


async def write_records_bucket(folder: Path) -> dict[str, object]:
    """Write a bucket with a record of every kind: in packs, indexed and behind the indexes, in two classes; a topic's
    own segment is there, too. Return what it must be read as; of that topic, `LARGE`, a digest of all records."""
    store = FileObjectStore(str(folder), disk=RealDisk())
    hot = SyntheticHotTier(seed=5, now_ms=1_700_000_000_000)
    topics = {name: SyntheticTopic(incarnation=6) for name in ("variants", LONG_TOPIC, LARGE)}
    topics["variants"].ttl_ms = 7 * DAY_MS
    expected: dict[str, dict[str, list[str]]] = {"variants": {}, LONG_TOPIC: {}}
    large = b""
    async with opened(store, RECORDS_CONFIG, hot=hot, topics=topics, checkpoint_interval=4) as tier:
        for round_number in range(5):
            for variant in VARIANTS if round_number in (0, 4) else VARIANTS[:3]:
                for name in ("variants", LONG_TOPIC):
                    queue = hot.queues.get((name, variant.queue_id), SyntheticQueue())
                    record = variant.record(
                        topic=name,
                        queue_offset=queue.end_offset,
                        physical_offset=hot.append_offset,
                        now_ms=hot.now_ms,
                    )
                    hot.put(name, variant.queue_id, record, variant.tags_code)
                    expected[name].setdefault(str(variant.queue_id), []).append(record.hex())
                hot.now_ms += not variant.is_same_send
            for number in range(3 if round_number == 1 else 0):
                variant = Variant(name=f"large {number}", queue_id=0, fields={"body": bytes(24_000)})
                record = variant.record(
                    topic=LARGE, queue_offset=number, physical_offset=hot.append_offset, now_ms=hot.now_ms
                )
                hot.put(LARGE, 0, record, variant.tags_code)
                large += record
            hot.now_ms += 61_000
            tier.report()
            await tier.service.run_once()
            await tier.index_all()
        version, indexed_to = tier.catalog.version, tier.catalog.indexed_to
    await store.close()
    shutil.rmtree(folder / ".partial", ignore_errors=True)
    found: dict[str, object] = {"version": version, "indexed_to": indexed_to, "zstd": list(zstandard.ZSTD_VERSION)}
    return found | {"topics": expected, "large": sha256(large).hexdigest()}


WRITERS: dict[Path, Callable[[Path], Awaitable[dict[str, object]]]] = {
    GOLDEN: write_bucket,
    GOLDEN_RECORDS: write_records_bucket,
}
"""What is written today."""


def main() -> None:
    (golden,) = [each for each in WRITERS if each.name == sys.argv[1]]
    write = WRITERS[golden]
    shutil.rmtree(golden, ignore_errors=True)

    async def run() -> dict[str, object]:
        return await write(golden / "bucket")

    expected = asyncio.run(run())
    (golden / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
