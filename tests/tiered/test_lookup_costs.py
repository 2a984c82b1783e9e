"""What lookups cost in requests, on the metering wrapper, from segments of topics' own and from packs, with nothing in
memory but the catalog (cold), and once more (warm).

Bounds are the most that any lookup of these runs may cost. Design: docs/adr/0037-lookups.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

import pytest

from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.cold_reader import Boundary, ColdReader
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.index_policy import ITEMS_MIN, OBJECTS_MAX
from thermocline.tiered.indexes.indexed_parts import items_between
from thermocline.tiered.memory import MemoryObjectStore
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.tier_config import TierConfig
from thermocline.tiered.wrappers import MeteringObjectStore

KIB = 1024
CONFIG = TierConfig(
    cold_url="memory://costs",
    segment_bytes=64 * KIB,
    frame_bytes=4 * KIB,
    seal_age_ms=60_000,
    pack_bytes=256 * KIB,
    merge_fan_in=3,
)
NAMES = tuple(f"topic-{number}" for number in range(6))
ROUNDS, MERGED_AFTER = 8, 5
SAMPLES = 100

Bounds = dict[str, tuple[int, int]]
"""By kind of lookup: most requests cold, most requests warm."""
Costs = dict[str, list[tuple[int, int]]]
"""By kind of lookup: requests cold, requests warm, of each."""

OWN: Bounds = {"time": (2, 0), "view": (len(NAMES) + 1, 2), "key hit": (13, 11), "key miss": (10, 10)}
PACKED: Bounds = {"time": (2, 0), "view": (5, 2), "key hit": (13, 7), "key miss": (12, 6)}


@dataclass(frozen=True, slots=True)
class Sent:
    """One message."""

    store_ms: int
    physical_offset: int
    key: str


class History:
    """Topics between each other in one log, two of them larger than the others, and what became of it."""

    def __init__(self, *, hours_between_rounds: int = 0) -> None:
        self.random = Random(3)
        self.hot = SyntheticHotTier(seed=7, dated_ids=True)
        self.pause_ms = hours_between_rounds * 3_600_000
        self.topics = {name: SyntheticTopic() for name in NAMES}
        self.store = MemoryObjectStore()
        self.sent: dict[tuple[str, int], list[Sent]] = {}

    async def write(
        self, tier: SyntheticColdTier, *, is_packed: bool, is_indexed: bool = False, rounds: int = ROUNDS
    ) -> None:
        """Send and seal, a few rounds."""
        for number in range(rounds):
            self.hot.now_ms += self.pause_ms
            for _ in range(120):
                name = self.random.choice((*NAMES, *NAMES[:2]))
                queue_id = self.random.randrange(3)
                record = self.hot.append(name, queue_id, body_bytes=self.random.randint(50, 400))
                sent = Sent(self.hot.now_ms, int.from_bytes(record[28:36], "big"), self.hot.last_key)
                self.sent.setdefault((name, queue_id), []).append(sent)
                self.hot.now_ms += self.random.choice((0, 0, 3, 50))
            tier.report()
            if is_packed:
                self.hot.now_ms += CONFIG.seal_age_ms
                tier.report()
                await tier.service.run_once()
                if number == MERGED_AFTER or is_indexed:
                    await tier.merge_all()
            else:
                for name in NAMES:
                    sealing = asyncio.create_task(tier.service.seal(name))
                    await asyncio.sleep(0)
                    await tier.service.run_once()
                    await sealing
            if is_indexed:
                await tier.index_all()

    async def cost(
        self, tier: SyntheticColdTier, lookup: Callable[[ColdReader], Awaitable[object]], *, with_blooms: bool = False
    ) -> tuple[int, int, object]:
        """Requests cold, requests warm, and what was found both times. `with_blooms`: these are in memory before."""
        metered, cache = MeteringObjectStore(self.store), FrameCache()
        blooms = BloomCache() if with_blooms else None
        reader = ColdReader(metered, catalog=lambda: tier.catalog, cache=cache, blooms=blooms)
        await reader.load_lookups()
        before = metered.counters.request_count
        found = await lookup(reader)
        cold_count = metered.counters.request_count
        assert await lookup(reader) == found
        await reader.close()
        await cache.close()
        return cold_count - before, metered.counters.request_count - cold_count, found


async def look_up_once(history: History, tier: SyntheticColdTier, costs: Costs) -> None:
    """Look for one message in each way; adds what it cost."""
    random = history.random
    (name, queue_id), queue = random.choice(list(history.sent.items()))
    sent = random.choice(queue)
    time_ms, cut_ms = sent.store_ms + random.randint(-1, 1), random.choice((0, random.choice(queue).store_ms))

    async def note(
        kind: str, lookup: Callable[[ColdReader], Awaitable[object]], *, with_blooms: bool = False
    ) -> object:
        cold_count, warm_count, found = await history.cost(tier, lookup, with_blooms=with_blooms)
        costs.setdefault(kind, []).append((cold_count, warm_count))
        return found

    async def by_time(reader: ColdReader, boundary: Boundary) -> object:
        return await reader.offset_by_time(name, queue_id, time_ms, boundary=boundary, cut_ms=cut_ms)

    async def by_key(reader: ColdReader, key: str) -> object:
        return await reader.query_key(name, key, begin_ms=0, end_ms=1 << 60, count_max=32, cut_ms=0)

    for boundary in Boundary:
        await note("time", partial(by_time, boundary=boundary))
    is_indexed = sent.physical_offset < tier.catalog.indexed_to or not tier.catalog.indexes
    kind = "view" if is_indexed else "view of what is new"
    assert await note(kind, lambda reader: reader.view(sent.physical_offset, cut_ms=lambda _: 0))
    for with_blooms in (False, True):
        kind = "key, blooms" if with_blooms else "key"
        assert await note(f"{kind} hit", partial(by_key, key=sent.key), with_blooms=with_blooms)
        assert not await note(f"{kind} miss", partial(by_key, key=f"not {sent.key}"), with_blooms=with_blooms)


@pytest.mark.parametrize("is_packed", [False, True], ids=["own segments", "packs"])
async def test_requests_of_lookups(is_packed: bool) -> None:
    history, costs = History(), Costs()
    async with opened(history.store, CONFIG, hot=history.hot, topics=history.topics) as tier:
        await history.write(tier, is_packed=is_packed)
        if is_packed:
            assert {pack.level for pack in tier.catalog.packs.values()} == {0, 1}
        else:
            assert tier.catalog.segment_count == ROUNDS * len(NAMES)
        for _ in range(SAMPLES):
            await look_up_once(history, tier, costs)
    check(costs, PACKED if is_packed else OWN)


@pytest.mark.parametrize("is_packed", [False, True], ids=["own segments", "packs"])
async def test_requests_of_lookups_with_index_objects(is_packed: bool) -> None:
    """A place costs two requests, a key that is there three with blooms in memory, one that is not there none, but for
    what blooms say falsely; without blooms one for each index object, of which there are few."""
    history, costs = History(hours_between_rounds=6), Costs()
    async with opened(history.store, CONFIG, hot=history.hot, topics=history.topics) as tier:
        await history.write(tier, is_packed=is_packed, is_indexed=True, rounds=72 if is_packed else 56)
        indexes = tier.catalog.indexes.values()
        by_class = Counter(index.ttl_class for index in indexes)
        count = by_class["forever"]
        assert by_class == {"places": count, "forever": count}
        assert max(index.level for index in indexes) >= 1
        # Of what is not indexed yet each costs a request more.
        items = list(items_between(tier.catalog, tier.catalog.indexed_to, history.hot.append_offset))
        behind = max(
            (sum(isinstance(item, PackEntry) or item.topic == name for item in items) for name in NAMES), default=0
        )
        assert behind < ITEMS_MIN
        assert bool(behind) == is_packed
        assert count + behind <= OBJECTS_MAX
        for _ in range(SAMPLES):
            await look_up_once(history, tier, costs)
    most = count + behind
    check(costs, {"time": (2, 0), "view": (2, 2), "key hit": (most + 1, count + 2), "key miss": (most, count + 1)})
    check(costs, {"key, blooms hit": (3 + behind, 3), "key, blooms miss": (1 + behind, 1)})
    false_count = sum(warm for _, warm in costs["key, blooms miss"])
    assert false_count <= SAMPLES * count * 0.04, "blooms are false 1.3 times in a hundred"


def check(costs: Costs, bounds: Bounds) -> None:
    for kind, (cold_max, warm_max) in bounds.items():
        assert max(cold for cold, _ in costs[kind]) <= cold_max, (kind, costs[kind])
        assert max(warm for _, warm in costs[kind]) <= warm_max, (kind, costs[kind])
