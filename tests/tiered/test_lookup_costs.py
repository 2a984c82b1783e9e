"""What lookups cost in requests, on the metering wrapper, from segments of topics' own and from packs, with nothing in
memory but the catalog (cold), and once more (warm).

Bounds are the most that any lookup of these runs may cost. Design: docs/adr/0037-lookups.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

import pytest

from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.cold_reader import Boundary, ColdReader
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.memory import MemoryObjectStore
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

Costs = dict[str, tuple[int, int]]
"""By kind of lookup: most requests cold, most requests warm."""

OWN: Costs = {"time": (2, 0), "view": (len(NAMES) + 1, 2), "key hit": (13, 11), "key miss": (10, 10)}
PACKED: Costs = {"time": (2, 0), "view": (5, 2), "key hit": (13, 7), "key miss": (12, 6)}


@dataclass(frozen=True, slots=True)
class Sent:
    """One message."""

    store_ms: int
    physical_offset: int
    key: str


class History:
    """Topics between each other in one log, two of them larger than the others, and what became of it."""

    def __init__(self) -> None:
        self.random = Random(3)
        self.hot = SyntheticHotTier(seed=7)
        self.topics = {name: SyntheticTopic() for name in NAMES}
        self.store = MemoryObjectStore()
        self.sent: dict[tuple[str, int], list[Sent]] = {}

    async def write(self, tier: SyntheticColdTier, *, is_packed: bool) -> None:
        """Send and seal, a few rounds."""
        for number in range(ROUNDS):
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
                if number == MERGED_AFTER:
                    await tier.merge_all()
                continue
            for name in NAMES:
                sealing = asyncio.create_task(tier.service.seal(name))
                await asyncio.sleep(0)
                await tier.service.run_once()
                await sealing

    async def cost(
        self, tier: SyntheticColdTier, lookup: Callable[[ColdReader], Awaitable[object]]
    ) -> tuple[int, int, object]:
        """Requests cold, requests warm, and what was found both times."""
        metered, cache = MeteringObjectStore(self.store), FrameCache()
        reader = ColdReader(metered, catalog=lambda: tier.catalog, cache=cache)
        found = await lookup(reader)
        cold_count = metered.counters.request_count
        assert await lookup(reader) == found
        await reader.close()
        await cache.close()
        return cold_count, metered.counters.request_count - cold_count, found


async def look_up_once(history: History, tier: SyntheticColdTier, costs: Costs) -> None:
    """Look for one message in each way; adds what it cost."""
    random = history.random
    (name, queue_id), queue = random.choice(list(history.sent.items()))
    sent = random.choice(queue)
    time_ms, cut_ms = sent.store_ms + random.randint(-1, 1), random.choice((0, random.choice(queue).store_ms))

    async def note(kind: str, lookup: Callable[[ColdReader], Awaitable[object]]) -> object:
        cold_count, warm_count, found = await history.cost(tier, lookup)
        known = costs.get(kind, (0, 0))
        costs[kind] = max(known[0], cold_count), max(known[1], warm_count)
        return found

    async def by_time(reader: ColdReader, boundary: Boundary) -> object:
        return await reader.offset_by_time(name, queue_id, time_ms, boundary=boundary, cut_ms=cut_ms)

    async def by_key(reader: ColdReader, key: str) -> object:
        return await reader.query_key(name, key, begin_ms=0, end_ms=1 << 60, count_max=1, cut_ms=0)

    for boundary in Boundary:
        await note("time", partial(by_time, boundary=boundary))
    assert await note("view", lambda reader: reader.view(sent.physical_offset, cut_ms=lambda _: 0))
    assert await note("key hit", partial(by_key, key=sent.key))
    assert not await note("key miss", partial(by_key, key=f"not {sent.key}"))


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
    bounds = PACKED if is_packed else OWN
    for kind, (cold_max, warm_max) in bounds.items():
        assert costs[kind][0] <= cold_max, (kind, costs)
        assert costs[kind][1] <= warm_max, (kind, costs)
