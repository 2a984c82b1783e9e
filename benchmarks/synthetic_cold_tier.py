"""The cold tier of a broker without the broker: tier service, packs, merging, indexing, purging and cold reads above a
`SyntheticHotTier`, put together as the tier process does, on a clock that is moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

from benchmarks.indexing_beside import IndexingBeside
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, PackPieces
from thermocline.tiered.indexes import BloomCache, FreshIndex, IndexBuilder, IndexMerger
from thermocline.tiered.ledger import LedgerIdentity, LedgerWriter
from thermocline.tiered.merging import MergeBudget, MergePolicy, Merging, PackMerger
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.purge import Purger, SegmentRewriter
from thermocline.tiered.reading import ColdReader, FrameCache
from thermocline.tiered.sealing import RECORDS_MAX as LAG_RECORDS_MAX
from thermocline.tiered.sealing import PackSealer, SealBacklog, Sealer, SealPolicy, TopicReport
from thermocline.tiered.segments import BrokerKeys, SegmentOptions
from thermocline.tiered.service import Indexing, TierService

KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
IDENTITY = LedgerIdentity(store_uuid="synthetic", cluster="DefaultCluster", broker_name="broker-a")


@dataclass(slots=True)
class SyntheticTopic:
    """A topic as the hot process would report it."""

    incarnation: int = 1
    ttl_ms: int | None = None
    fixed_cut_ms: int = 0
    deleted: bool = False

    def cut_ms(self, now_ms: int) -> int:
        """The store time before which nothing is visible."""
        return self.fixed_cut_ms if self.ttl_ms is None else max(self.fixed_cut_ms, now_ms - self.ttl_ms)


@dataclass(slots=True)
class SyntheticColdTier:
    """Made by `opened`. `topics` are what is reported; change them, then `report`."""

    hot: SyntheticHotTier
    topics: dict[str, SyntheticTopic]
    writer: LedgerWriter
    service: TierService
    merging: Merging
    purger: Purger
    reader: ColdReader
    cache: FrameCache
    indexing: Indexing
    blooms: BloomCache
    fresh: FreshIndex
    beside: IndexingBeside
    changed: set[tuple[str, int]] = field(default_factory=set)

    @property
    def catalog(self) -> Catalog:
        """The newest catalog."""
        return self.service.catalog

    def report(self, *, only_changed: bool = False) -> None:
        """Tell the service everything, or topics and the queues in `changed`."""
        hot = self.hot
        names = {name for name, _ in self.changed} if only_changed else set(self.topics)
        for name in sorted(names):
            topic = self.topics[name]
            self.service.report_topic(
                TopicReport(
                    topic=name,
                    incarnation=topic.incarnation,
                    ttl_ms=topic.ttl_ms,
                    expired_before_ms=topic.fixed_cut_ms,
                    cut_ms=topic.cut_ms(hot.now_ms),
                    tiered=True,
                    deleted=topic.deleted,
                )
            )
        queues = self.changed if only_changed else hot.queues.keys()
        for name, queue_id in sorted(queues):
            queue = hot.queues.get((name, queue_id))
            if queue is not None:
                self.service.report_queue(
                    name, queue_id, min_offset=QueueOffset(queue.first_offset), end_offset=QueueOffset(queue.end_offset)
                )
        self.changed.clear()
        self.service.reported(log_offset=hot.append_offset, pressure=False)

    async def merge_all(self, *, rounds_max: int = 64) -> int:
        """Merge as long as anything is due, budget or not; how many merges there were."""
        for count in range(rounds_max):
            if await self.merging.run_once() is None:
                return count
        return rounds_max

    async def index_all(self, *, rounds_max: int = 64) -> int:
        """Make, merge and drop index objects as long as anything is due; how often there was."""
        for count in range(rounds_max):
            if not await self.indexing.run_once():
                return count
        return rounds_max

    async def index_beside(self) -> None:
        """As a tier process does it, of a tier that was `opened` with `joins`; see IndexingBeside."""
        await self.beside.step(self.indexing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """Parts that all others of a tier use."""

    writer: LedgerWriter
    config: TierConfig
    hot: SyntheticHotTier
    options: SegmentOptions
    fresh: FreshIndex
    spool_folder: Path | None
    clock: Callable[[], int]


def _tier_service(
    shared: _Shared,
    store: ObjectStore,
    *,
    on_committed: Callable[[Catalog, frozenset[str]], None],
    lag_records_max: int,
) -> TierService:
    config, hot, clock = shared.config, shared.hot, shared.clock
    local = cast(Any, hot)  # it stands for LocalLog and LocalQueues
    sealer = Sealer(
        store=store,
        keys=KEYS,
        log=local,
        spool_folder=shared.spool_folder,
        options=shared.options,
        clock=clock,
        fresh=shared.fresh,
    )
    return TierService(
        writer=shared.writer,
        backlog=SealBacklog(
            queues=local,
            log=local,
            policy=SealPolicy(segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms),
            log_min_offset=lambda: hot.min_offset,
        ),
        sealer=sealer,
        config=config,
        clock=clock,
        flush_offset=lambda: hot.append_offset,
        on_committed=on_committed,
        pack_sealer=PackSealer(
            writer=shared.writer,
            sealer=sealer,
            spool_folder=shared.spool_folder,
            pack_bytes=config.pack_bytes,
            clock=clock,
            fresh=shared.fresh,
        ),
        lag_records_max=lag_records_max,
    )


def _merging(shared: _Shared, service: TierService) -> Merging:
    config, clock = shared.config, shared.clock
    return Merging(
        merger=PackMerger(
            writer=shared.writer,
            options=shared.options,
            spool_folder=shared.spool_folder,
            clock=clock,
            fresh=shared.fresh,
        ),
        policy=MergePolicy(fan_in=config.merge_fan_in, pack_bytes=config.pack_bytes),
        budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=clock),
        segment_bytes=config.segment_bytes,
        catalog=lambda: service.catalog,
        class_of=service.class_of,
        cuts_ms=service.cuts_ms,
        amend=service.amend,
    )


@asynccontextmanager
async def opened(
    store: ObjectStore,
    config: TierConfig,
    *,
    hot: SyntheticHotTier,
    topics: dict[str, SyntheticTopic],
    seed: int = 1,
    spool_folder: Path | None = None,
    checkpoint_interval: int = 32,
    on_committed: Callable[[Catalog, frozenset[str]], None] | None = None,
    lag_records_max: int = LAG_RECORDS_MAX,
    joins: bool = False,
) -> AsyncIterator[SyntheticColdTier]:
    """Claim the ledger, and let everything be as in the tier process. Closing leaves the store open. `joins`:
    commits of index objects wait for a round's; else they are made at once, for `index_all`."""

    def clock() -> int:
        return hot.now_ms

    writer = await LedgerWriter.open(
        store, KEYS, identity=IDENTITY, clock_ms=clock, random=Random(seed), checkpoint_interval=checkpoint_interval
    )
    options = SegmentOptions(frame_bytes=config.frame_bytes, compression_level=config.compression_level)
    fresh = FreshIndex()
    shared = _Shared(
        writer=writer, config=config, hot=hot, options=options, fresh=fresh, spool_folder=spool_folder, clock=clock
    )

    def committed(catalog: Catalog, topics: frozenset[str]) -> None:
        fresh.follow(catalog)
        if on_committed is not None:
            on_committed(catalog, topics)

    service = _tier_service(shared, store, on_committed=committed, lag_records_max=lag_records_max)
    merging = _merging(shared, service)

    def gate() -> PhysicalOffset:
        service.backlog.account()
        return service.backlog.committed_offset()

    beside = IndexingBeside(service)
    blooms = BloomCache(bytes_max=config.index_bytes)
    indexing = Indexing(
        builder=IndexBuilder(writer, spool_folder=spool_folder, clock=clock),
        merger=IndexMerger(writer, spool_folder=spool_folder, clock=clock),
        budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=clock),
        blooms=blooms,
        fresh=fresh,
        catalog=lambda: service.catalog,
        gate=gate,
        class_of=service.class_of,
        cuts_ms=service.cuts_ms,
        amend=beside.amend if joins else service.amend,
    )
    cache = FrameCache(bytes_max=config.cache_bytes)
    reader = ColdReader(store, catalog=lambda: service.catalog, cache=cache, blooms=blooms, fresh=fresh)
    rewriter = SegmentRewriter(writer=writer, options=options, spool_folder=spool_folder, clock=clock, fresh=fresh)
    purger = Purger(service=service, merging=merging, pieces=PackPieces(store), rewriter=rewriter)
    tier = SyntheticColdTier(
        hot, topics, writer, service, merging, purger, reader, cache, indexing, blooms, fresh, beside
    )
    try:
        yield tier
    finally:
        await beside.stop()
        await reader.close()
        await cache.close()
        await writer.close()
