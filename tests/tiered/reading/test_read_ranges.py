"""What a consumer group asks of the store while it reads a topic from its first record to its last: few, large ranges.

Real packs and segments of messages that do not compress, with the default frames of 1 MiB; every request is metered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest

from benchmarks.bill import KIB, MIB, KindMeter
from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FETCH_BYTES_MAX, FrameCache
from thermocline.tiered.segments.fetch_plan import RANGE_BYTES_MIN
from thermocline.tiered.segments.known_frames import body_end
from thermocline.tiered.segments.segment_format import MAGIC_BYTES
from thermocline.tiered.stores.memory import MemoryObjectStore

QUEUES = 8
SIZES = {f"topic-{mib}": int(mib * MIB) for mib in (3, 4.2, 5, 9)}
CONFIG = TierConfig(cold_url="memory://ranges")
WEIGHTS = {"even": (1,) * QUEUES, "uneven": (60, 1, 9, 2, 30, 1, 5, 3), "one": (1, 0, 0, 0, 0, 0, 0, 0)}
FOOTERS_BYTES_MAX = 64 * KIB


@dataclass(slots=True)
class History:
    """A cold tier of the topics in SIZES, each by so many rounds in a pack, or as one segment of its own."""

    store: MemoryObjectStore
    catalog: Catalog
    records: dict[tuple[str, int], list[bytes]]


@asynccontextmanager
async def tier_of(hot: SyntheticHotTier, store: MemoryObjectStore) -> AsyncIterator[SyntheticColdTier]:
    async with opened(store, CONFIG, hot=hot, topics={name: SyntheticTopic() for name in SIZES}) as tier:
        yield tier


async def written(weights: tuple[int, ...], *, rounds: int, is_packed: bool, seed: int = 1) -> History:
    random, hot, store = Random(seed), SyntheticHotTier(seed=seed), MemoryObjectStore()
    records: dict[tuple[str, int], list[bytes]] = {}
    async with tier_of(hot, store) as tier:
        for _ in range(rounds):
            for name, size_bytes in SIZES.items():
                end = hot.append_offset + size_bytes
                while hot.append_offset < end:
                    (queue_id,) = random.choices(range(QUEUES), weights)
                    record = hot.append(name, queue_id, body_bytes=random.choice([900, 20 * KIB]))
                    records.setdefault((name, queue_id), []).append(record)
                hot.now_ms += 10
            tier.report()
            if is_packed:
                hot.now_ms += CONFIG.seal_age_ms
                await tier.service.run_once()
                continue
            for name in SIZES:
                sealing = asyncio.create_task(tier.service.seal(name))
                await asyncio.sleep(0)
                await tier.service.run_once()
                await sealing
        assert len(tier.catalog.packs) == (rounds if is_packed else 0)
        return History(store, tier.catalog, records)


async def read(history: History, topic: str, order: str, *, cache_bytes: int = 64 * MIB) -> list[int]:
    """Read all queues of a topic in some order, and see that all records come; the sizes of the requests."""
    meter, cache, random = KindMeter(history.store), FrameCache(bytes_max=cache_bytes), Random(topic + order)
    reader = ColdReader(meter, catalog=lambda: history.catalog, cache=cache, read_ahead_frames_max=8)
    offsets = {queue_id: 0 for name, queue_id in sorted(history.records) if name == topic}
    found: dict[int, list[memoryview]] = {queue_id: [] for queue_id in offsets}
    while offsets:
        if order == "in turn":
            chosen = list(offsets)
        else:
            chosen = [next(iter(offsets)) if order == "one after another" else random.choice(list(offsets))]
        for queue_id in chosen:
            pull = ColdPull(
                topic=topic,
                queue_id=queue_id,
                offset=offsets[queue_id],
                count_max=256,
                bytes_max=256 * KIB,
                cut_ms=0,
                group="group",
            )
            result = await reader.pull(pull)
            found[queue_id] += result.buffers
            offsets[queue_id] = result.next_offset
            if result.status is ColdPullStatus.ABOVE_END:
                del offsets[queue_id]
    await reader.close()
    await cache.close()
    for queue_id, buffers in found.items():
        assert b"".join(buffers) == b"".join(history.records[topic, queue_id])
    return [each.size_bytes for each in meter.ranges]


def record_requests(sizes: list[int]) -> list[int]:
    """Without those for footers: a section of a pack's footer is some KiB, and so is a segment's."""
    return [size for size in sizes if size > FOOTERS_BYTES_MAX]


@pytest.mark.parametrize("order", ["in turn", "one after another", "at random"])
@pytest.mark.parametrize("weights", list(WEIGHTS))
@pytest.mark.parametrize("is_packed", [True, False], ids=["pieces", "segments"])
async def test_a_topic_is_read_back_in_large_ranges(is_packed: bool, weights: str, order: str) -> None:
    history = await written(WEIGHTS[weights], rounds=2, is_packed=is_packed)
    for topic in SIZES:
        entry = await with_pieces(PackPieces(history.store), history.catalog, topic)
        assert entry is not None
        assert len(entry.segments) == 2
        sizes = await read(history, topic, order)
        requests = record_requests(sizes)
        assert min(requests) >= RANGE_BYTES_MIN, (topic, sorted(requests))
        assert max(requests) <= FETCH_BYTES_MAX + 2 * RANGE_BYTES_MIN
        assert sum(requests) <= sum(segment.log.size_bytes for segment in entry.segments), "nothing twice"
        frames_bytes = sum(body_end(segment) - MAGIC_BYTES for segment in entry.segments)
        assert frames_bytes <= sum(requests) <= frames_bytes + len(entry.segments) * FOOTERS_BYTES_MAX


@pytest.mark.parametrize("is_packed", [True, False], ids=["pieces", "segments"])
async def test_a_single_look_fetches_its_frame_alone(is_packed: bool) -> None:
    """In the middle of a run; a reader that continues from there gets more with the next request."""
    history = await written(WEIGHTS["one"], rounds=1, is_packed=is_packed)
    topic = "topic-9"
    meter, cache = KindMeter(history.store), FrameCache()
    reader = ColdReader(meter, catalog=lambda: history.catalog, cache=cache)
    middle = len(history.records[topic, 0]) // 2
    for offset in (middle, middle // 2):
        pull = ColdPull(topic=topic, queue_id=0, offset=offset, count_max=1, bytes_max=1, cut_ms=0)
        result = await reader.pull(pull)
        assert bytes(result.buffers[0]) == history.records[topic, 0][offset]
    requests = record_requests([each.size_bytes for each in meter.ranges])
    assert len(requests) == 2
    assert max(requests) <= MIB + 64 * KIB
    await reader.close()
    await cache.close()


async def test_a_cache_without_room_ahead_still_serves_everything() -> None:
    """Neighbours are a guess: they come as far as there is room for guesses, and nothing is missing without."""
    history = await written(WEIGHTS["uneven"], rounds=1, is_packed=True)
    requests = record_requests(await read(history, "topic-5", "in turn", cache_bytes=2 * MIB))
    assert requests
