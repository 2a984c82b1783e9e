"""A cold tier to which anything happens in any order, and one endless log beside it, which says what it must answer."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random

from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.remoting.errors import QueryNotFoundError
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.reading.cold_reader import Boundary
from thermocline.tiered.stores.memory import MemoryObjectStore

KIB = 1024
HOUR_MS = 3_600_000
OBJECT_PREFIXES = (KEYS.topics_prefix, KEYS.packs_prefix, KEYS.indexes_prefix)
NAMES = tuple(f"topic-{number}" for number in range(7))
TTLS_MS = (None, None, 2 * HOUR_MS, 3 * HOUR_MS, 9 * HOUR_MS, 30 * HOUR_MS)
CONFIG = TierConfig(
    cold_url="memory://model",
    segment_bytes=64 * KIB,
    frame_bytes=4 * KIB,
    seal_age_ms=60_000,
    pack_bytes=64 * KIB,
    merge_fan_in=3,
    grace_ms=4 * HOUR_MS,
    sweep_interval_ms=1_000,
)


@dataclass(slots=True)
class Sent:
    """One message, and in which life of its topic it was sent."""

    record: bytes
    store_ms: int
    key: str
    physical_offset: int


@dataclass(slots=True)
class Life:
    """A topic in one incarnation: every queue from offset 0."""

    queues: dict[int, list[Sent]] = field(default_factory=dict)


class Model:
    """The tier under test and the endless log beside it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.hot = SyntheticHotTier(seed=seed)
        self.store = MemoryObjectStore()
        self.topics = {name: SyntheticTopic(ttl_ms=self.random.choice(TTLS_MS)) for name in NAMES}
        self.incarnations = {name: Life() for name in NAMES}
        self.gone: list[Sent] = []
        self.merge_count = 0
        self.index_count = 0
        self.purged_segments = 0
        self.index_levels: set[int] = set()
        self.levels: set[int] = set()
        self._stack = AsyncExitStack()
        self._opened = 0
        self.tier: SyntheticColdTier

    async def start(self) -> None:
        """Open the ledger, under the next epoch if it was open."""
        await self._stack.aclose()
        self._opened += 1
        self.tier = await self._stack.enter_async_context(
            opened(
                self.store,
                CONFIG,
                hot=self.hot,
                topics=self.topics,
                seed=1_000 * self._opened + self.random.randrange(999),
                checkpoint_interval=4,
            )
        )
        self.tier.report()

    async def stop(self) -> None:
        """Close it."""
        await self._stack.aclose()

    # -- what happens --------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        """Some messages, some of them a topic's that is larger than others."""
        for _ in range(self.random.randint(1, 40)):
            name = self.random.choice((*NAMES, NAMES[0], NAMES[0]))
            queue_id = self.random.randrange(3)
            record = self.hot.append(name, queue_id, body_bytes=self.random.randint(10, 900))
            self.incarnations[name].queues.setdefault(queue_id, []).append(
                Sent(record, self.hot.now_ms, self.hot.last_key, int.from_bytes(record[28:36], "big"))
            )
            self.hot.now_ms += self.random.choice((0, 0, 3, 50))

    async def round(self) -> None:
        """A round of the tier service."""
        self.tier.report()
        await self.tier.service.run_once()

    async def age(self) -> None:
        """What waits becomes due by age."""
        self.hot.now_ms += 61_000
        await self.round()

    async def seal(self) -> None:
        """One topic is sealed on demand, or all are."""
        self.tier.report()
        wanted = self.random.choice((*NAMES, None))
        task = asyncio.create_task(self.tier.service.seal(wanted))
        await asyncio.sleep(0)
        await self.tier.service.run_once()
        await task

    async def merge(self) -> None:
        """One merge, while a round goes on beside it half of the time."""
        self.tier.report()
        merging = asyncio.create_task(self.tier.merging.run_once())
        if self.random.random() < 0.5:
            for _ in range(self.random.randint(0, 30)):
                await asyncio.sleep(0)
            await self.random.choice((self.send, self.delete, self.pass_time))()
            await self.age()
        if await merging is not None:
            self.merge_count += 1

    async def change_ttl(self) -> None:
        """What has expired by now stays so."""
        topic = self.topics[self.random.choice(NAMES)]
        topic.fixed_cut_ms, topic.ttl_ms = topic.cut_ms(self.hot.now_ms), self.random.choice(TTLS_MS)
        self.tier.report()

    async def delete(self) -> None:
        """A topic is deleted, and made again under its name."""
        name = self.random.choice(NAMES)
        for sent in self.incarnations[name].queues.values():
            self.gone += sent
        self.incarnations[name] = Life()
        self.hot.delete_topic(name)
        old = self.topics[name]
        self.topics[name] = SyntheticTopic(old.incarnation + 1, ttl_ms=self.random.choice(TTLS_MS))
        self.tier.report()

    async def pass_time(self) -> None:
        """Minutes or hours go by."""
        self.hot.now_ms += self.random.choice((60_000, HOUR_MS, 5 * HOUR_MS))
        await self.round()

    async def forget(self) -> None:
        """Local files go as far as the gate of local deletion allows."""
        self.tier.service.backlog.account()
        self.hot.forget_before(min(self.hot.append_offset, self.tier.service.backlog.committed_offset()))

    async def purge(self) -> None:
        """What is hidden of a topic goes at once."""
        name = self.random.choice(NAMES)
        self.tier.report()
        report = await self.tier.purger.purge(name)
        assert (report.remaining, report.left_segments) == ((), ())
        self.purged_segments += report.segments_rewritten

    async def index(self) -> None:
        """Index objects are made, merged and dropped, while rounds go on beside it half of the time."""
        self.tier.report()
        indexing = asyncio.create_task(self.tier.index_all(rounds_max=self.random.randint(1, 8)))
        if self.random.random() < 0.5:
            for _ in range(self.random.randint(0, 30)):
                await asyncio.sleep(0)
            await self.random.choice((self.send, self.delete, self.pass_time, self.merge))()
            await self.age()
        self.index_count += await indexing

    async def step(self) -> None:
        """One thing that happens."""
        happenings: tuple[tuple[Callable[[], object], int], ...] = (
            (self.send, 8),
            (self.age, 6),
            (self.merge, 7),
            (self.index, 5),
            (self.seal, 2),
            (self.change_ttl, 1),
            (self.delete, 1),
            (self.pass_time, 1),
            (self.forget, 2),
            (self.purge, 1),
            (self.start, 1),
        )
        (happening,) = self.random.choices([each for each, _ in happenings], [weight for _, weight in happenings])
        result = happening()
        assert asyncio.iscoroutine(result)
        await result
        self.levels |= {pack.level for pack in self.tier.catalog.packs.values()}
        self.index_levels |= {index.level for index in self.tier.catalog.indexes.values()}

    # -- what must be true ---------------------------------------------------------------------------------------------

    async def check_queue(self, name: str, queue_id: int) -> None:
        """One queue, by offset, time and key."""
        sent = self.incarnations[name].queues.get(queue_id, [])
        cut_ms = self.topics[name].cut_ms(self.hot.now_ms)
        catalog, reader = self.tier.catalog, self.tier.reader
        entry = catalog.topics.get(name)
        if entry is None or entry.incarnation != self.topics[name].incarnation:
            return  # nothing of this life is committed yet
        end = catalog.queue_ends(name).get(queue_id, 0)
        times = [each.store_ms for each in sent[:end]]
        first = bisect_left(times, cut_ms)
        minimum = await reader.min_offset(name, queue_id, cut_ms=cut_ms)
        if first >= end:
            assert minimum is None
            return
        assert minimum == first
        bounds = catalog.queue_bounds(name)[queue_id]
        assert bounds[0] <= first
        assert bounds[1] == end
        assert await self._pulled(name, queue_id, cut_ms, first) == [each.record for each in sent[first:end]]
        for _ in range(3):
            time_ms = self.random.choice(times) + self.random.choice((-1, 0, 1))
            lower = bisect_left(times, time_ms)
            found = await reader.offset_by_time(name, queue_id, time_ms, boundary=Boundary.LOWER, cut_ms=cut_ms)
            assert found == (max(lower, first) if lower < end else None)
            upper = bisect_right(times, time_ms) - 1
            found = await reader.offset_by_time(name, queue_id, time_ms, boundary=Boundary.UPPER, cut_ms=cut_ms)
            assert found == (upper if upper >= first else None)
        offset = self.random.randrange(end)
        each, is_visible = sent[offset], offset >= first
        keyed = await reader.query_key(name, each.key, begin_ms=0, end_ms=1 << 60, count_max=4, cut_ms=cut_ms)
        assert [bytes(record) for record in keyed] == ([each.record] if is_visible else [])
        await self._check_place(each, cut_ms, is_visible=is_visible)

    async def _check_place(self, each: Sent, cut_ms: int, *, is_visible: bool) -> None:
        try:
            found = bytes(await self.tier.reader.view(each.physical_offset, cut_ms=lambda _: cut_ms))
        except QueryNotFoundError:
            assert not is_visible
        else:
            assert is_visible
            assert found == each.record

    async def _pulled(self, name: str, queue_id: int, cut_ms: int, offset: int) -> list[bytes]:
        found: list[bytes] = []
        while True:
            pull = ColdPull(
                topic=name, queue_id=queue_id, offset=offset, count_max=16, bytes_max=8 * KIB, cut_ms=cut_ms
            )
            result = await self.tier.reader.pull(pull)
            if result.status is ColdPullStatus.ABOVE_END:
                return found
            assert result.next_offset > offset, result
            for buffer in result.buffers:
                position = 0
                while position < len(buffer):
                    size = int.from_bytes(buffer[position : position + 4], "big")
                    found.append(bytes(buffer[position : position + size]))
                    position += size
            offset = result.next_offset

    async def check_all(self) -> None:
        """Check every queue, deleted topics, the catalog that others read, and that all objects have a name."""
        for name in NAMES:
            for queue_id in range(3):
                await self.check_queue(name, queue_id)
        catalog = self.tier.catalog
        assert await open_catalog(self.store, KEYS) == catalog
        named = catalog.live_keys() | {key for gone in catalog.removed for key in gone.keys}
        stored = {key for key in self.store.objects if key.startswith(OBJECT_PREFIXES)}
        assert named <= stored
        assert stored - named <= set(self.tier.writer.discarded)
        for pack_id in {pack_id for packed in catalog.packed.values() for pack_id in packed.packs}:
            assert pack_id in catalog.packs
        for name, packed in catalog.packed.items():
            for pack_id in packed.packs:
                assert catalog.packs[pack_id].indexes_of(name)
        if all(topic.incarnation == self.topics[topic.topic].incarnation for topic in catalog.topics.values()):
            for each in self.random.sample(self.gone, min(len(self.gone), 5)):
                await self._check_place(each, 0, is_visible=False)
