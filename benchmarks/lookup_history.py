"""A history to look things up in: topics between each other in one log, sealed, merged and indexed by the real parts;
and who looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.indexes import BloomCache, FreshIndex
from thermocline.tiered.ledger import open_catalog
from thermocline.tiered.reading import ColdReader, FrameCache
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore

KIB, MIB = 1024, 1024 * 1024
CONFIG = TierConfig(
    cold_url="memory://lookups",
    segment_bytes=64 * KIB,
    frame_bytes=4 * KIB,
    seal_age_ms=60_000,
    pack_bytes=256 * KIB,
    merge_fan_in=3,
)
NAMES = tuple(f"topic-{number}" for number in range(6))
QUEUES = 3
MERGED_AFTER = 5


@dataclass(frozen=True, slots=True)
class Sent:
    """One message."""

    topic: str
    queue_id: int
    offset: int
    store_ms: int
    physical_offset: int
    key: str
    record: bytes


class History:
    """Two topics are larger than the others. `sent` is everything, in the order of the log."""

    def __init__(self, *, hours_between_rounds: int = 0) -> None:
        self.random = Random(3)
        self.hot = SyntheticHotTier(seed=7, dated_ids=True)
        self.pause_ms = hours_between_rounds * 3_600_000
        self.topics = {name: SyntheticTopic() for name in NAMES}
        self.store = MemoryObjectStore()
        self.sent: list[Sent] = []

    def send(self, topic: str, queue_id: int, *, body_bytes: int, key: str = "") -> Sent:
        """One message; with `key` others have that, too."""
        record = self.hot.append(topic, queue_id, body_bytes=body_bytes, unique_key=key)
        sent = Sent(
            topic=topic,
            queue_id=queue_id,
            offset=self.hot.queues[topic, queue_id].end_offset - 1,
            store_ms=self.hot.now_ms,
            physical_offset=int.from_bytes(record[28:36], "big"),
            key=key or self.hot.last_key,
            record=record,
        )
        self.sent.append(sent)
        return sent

    async def write(self, tier: SyntheticColdTier, *, rounds: int, is_packed: bool, is_indexed: bool = False) -> None:
        """Send and seal, a few rounds; with packs that are not indexed some are merged."""
        for number in range(rounds):
            self.hot.now_ms += self.pause_ms
            for _ in range(120):
                name = self.random.choice((*NAMES, *NAMES[:2]))
                self.send(name, self.random.randrange(QUEUES), body_bytes=self.random.randint(50, 400))
                self.hot.now_ms += self.random.choice((0, 0, 3, 50))
            await (self.pack(tier) if is_packed else self.seal(tier))
            if is_packed and (number == MERGED_AFTER or is_indexed):
                await tier.merge_all()
            if is_indexed:
                await tier.index_all()

    async def pack(self, tier: SyntheticColdTier) -> None:
        """What waits goes up in packs."""
        tier.report()
        self.hot.now_ms += CONFIG.seal_age_ms
        tier.report()
        await tier.service.run_once()

    async def seal(self, tier: SyntheticColdTier) -> None:
        """What waits goes up in segments of its own."""
        tier.report()
        for name in self.topics:
            sealing = asyncio.create_task(tier.service.seal(name))
            await asyncio.sleep(0)
            await tier.service.run_once()
            await sealing


@asynccontextmanager
async def tier_of(history: History, config: TierConfig = CONFIG) -> AsyncIterator[SyntheticColdTier]:
    """The cold tier of a history, metered: `metered_by` says what it has asked."""
    store = MeteringObjectStore(history.store)
    async with opened(store, config, hot=history.hot, topics=history.topics) as tier:
        yield tier


def metered_by(tier: SyntheticColdTier) -> int:
    """Requests that the tier, its own reader included, has sent so far."""
    store = tier.writer.store
    assert isinstance(store, MeteringObjectStore)
    return store.counters.request_count


class LaterReader:
    """A reader that opens the catalog when everything has been written: a starting tier process, or a read-only
    broker. `request_count`: requests since the catalog was opened."""

    def __init__(
        self, store: MemoryObjectStore, catalog: Catalog, *, blooms: BloomCache | None, fresh: FreshIndex | None
    ) -> None:
        self.catalog = catalog
        self.blooms = blooms
        self.fresh = fresh
        self._metered, self.cache = MeteringObjectStore(store), FrameCache()
        self.reader = ColdReader(
            self._metered, catalog=lambda: self.catalog, cache=self.cache, blooms=blooms, fresh=fresh
        )

    @property
    def request_count(self) -> int:
        """See the class."""
        return self._metered.counters.request_count

    @asynccontextmanager
    async def another(self, store: MemoryObjectStore, *, keeps: bool) -> AsyncIterator[LaterReader]:
        """With nothing in memory but the catalog and, if it `keeps` anything, what was loaded for lookups."""
        blooms, fresh = (self.blooms, self.fresh) if keeps else (None, None)
        other = LaterReader(store, self.catalog, blooms=blooms, fresh=fresh)
        try:
            yield other
        finally:
            await other.close()

    async def close(self) -> None:
        """End it; what is loaded for lookups stays."""
        await self.reader.close()
        await self.cache.close()


@asynccontextmanager
async def opened_later(
    store: MemoryObjectStore, *, keeps: bool = True, fresh: FreshIndex | None = None
) -> AsyncIterator[LaterReader]:
    """Begins as processes do: with everything loaded that lookups keep in memory, unless it `keeps` nothing. `fresh`:
    in place of the usual one."""
    catalog = await open_catalog(store, KEYS)
    if keeps:
        later = LaterReader(store, catalog, blooms=BloomCache(), fresh=fresh if fresh is not None else FreshIndex())
    else:
        later = LaterReader(store, catalog, blooms=None, fresh=None)
    try:
        await later.reader.load_lookups()
        yield later
    finally:
        await later.close()
