"""A cold tier with a meter, fed by topics that send at random, on a clock that moves a second a step.

Everything from the seal backlog to the object store is the real part; a round of the tier service is run each second,
behind it whatever merges are due; if wanted index objects, too, and the state is saved as often as a broker does.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

from benchmarks.indexing_beside import IndexingBeside
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.broker.state.state_documents import PoppedOffsets
from thermocline.broker.tier_process.state_capture import Captured, QueueEnds, queue_ends
from thermocline.broker.tier_process.state_rounds import StateRounds
from thermocline.tiered.budgets.tier_budgets import TierBudgets
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.cost.cost_meter import CostMeter
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.indexes.index_builder import IndexBuilder
from thermocline.tiered.indexes.index_merger import IndexMerger
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.merging.merge_policy import MergePolicy
from thermocline.tiered.merging.merging import MergeBudget, Merging
from thermocline.tiered.merging.pack_merger import PackMerger
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.sealing.due_changes import TopicReport
from thermocline.tiered.sealing.pack_sealer import PackSealer
from thermocline.tiered.sealing.round_costs import piece_bytes_of
from thermocline.tiered.sealing.seal_admission import SealAdmission
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPolicy
from thermocline.tiered.sealing.sealer import Sealer
from thermocline.tiered.sealing.traffic_record import TrafficRecord
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.service.indexing import Indexing
from thermocline.tiered.service.tier_service import TierService
from thermocline.tiered.state.snapshot import TopicState
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore

KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
IDENTITY = LedgerIdentity(store_uuid="metered", cluster="DefaultCluster", broker_name="broker-a")
STEP_MS = 1_000
RESERVE_BYTES = 1 << 50
FORGET_STEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A topic that sends messages at random times, so many a minute, over its queues."""

    per_minute: float
    body_bytes: int = 300
    queues: int = 2
    ttl_ms: int | None = None


class MeteredTier:
    """One broker's cold tier. `opened` with settings, as often as wanted: the bucket and the log stay."""

    def __init__(
        self,
        senders: Mapping[str, Sender],
        *,
        seed: int = 1,
        step_ms: int = STEP_MS,
        store: ObjectStore | None = None,
        spool_folder: Path | None = None,
        budgets: TierBudgets | None = None,
        is_whole: bool = False,
    ) -> None:
        """`is_whole`: keys are indexed and the state is saved, too."""
        self._is_whole = is_whole
        self._spool_folder = spool_folder
        self._budgets = budgets if budgets is not None else TierBudgets()
        self.senders = dict(senders)
        self.hot = SyntheticHotTier(seed=seed)
        self.meter = CostMeter(KEYS, lambda: self.hot.now_ms)
        self.traffic = TrafficRecord(lambda: self.hot.now_ms)
        self.store = MeteringObjectStore(store or MemoryObjectStore(), self.meter.totals, self.meter.accounts_of)
        self.service: TierService
        self.merging: Merging
        self.indexing: Indexing
        self._beside: IndexingBeside
        self.states: StateRounds
        self.on_sealed: Callable[[Catalog, Mapping[str, int]], None] = lambda catalog, sealed_bytes: None
        self.pressure = False
        self.times_ms: dict[tuple[str, int], array[int]] = {}
        """When each message of a queue was stored, by its offset."""
        self._random = Random(seed)
        self._steps = 0
        self._changed: set[tuple[str, int]] = set()
        self._step_ms = step_ms

    @asynccontextmanager
    async def opened(self, config: TierConfig, *, admission: SealAdmission | None = None) -> AsyncIterator[TierService]:
        """Claim the ledger, and let everything be as in the tier process."""
        hot, local = self.hot, cast(Any, self.hot)  # it stands for LocalLog and LocalQueues

        def clock() -> int:
            return hot.now_ms

        writer = await LedgerWriter.open(self.store, KEYS, identity=IDENTITY, clock_ms=clock, random=Random(hot.now_ms))
        options = SegmentOptions(frame_bytes=config.frame_bytes, compression_level=1)
        spool_folder, budgets, fresh = self._spool_folder, self._budgets, FreshIndex()
        requests = admission.budget if admission is not None else None
        sealer = Sealer(
            store=self.store,
            keys=KEYS,
            log=local,
            spool_folder=spool_folder,
            options=options,
            clock=clock,
            budgets=budgets,
            fresh=fresh,
        )

        def committed(catalog: Catalog, topics: frozenset[str]) -> None:
            fresh.follow(catalog)

        service = self.service = TierService(
            writer=writer,
            backlog=SealBacklog(
                queues=local,
                log=local,
                policy=SealPolicy(segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms),
                log_min_offset=lambda: hot.min_offset,
                traffic=self.traffic,
            ),
            sealer=sealer,
            config=config,
            clock=clock,
            flush_offset=lambda: hot.append_offset,
            on_committed=committed,
            pack_sealer=PackSealer(
                writer=writer,
                sealer=sealer,
                spool_folder=spool_folder,
                pack_bytes=config.pack_bytes,
                clock=clock,
                budgets=budgets,
                fresh=fresh,
            ),
            admission=admission,
            on_sealed=self.on_sealed,
            sleep=self._sleep,
        )
        self.merging = Merging(
            merger=PackMerger(
                writer=writer, options=options, spool_folder=spool_folder, clock=clock, budgets=budgets, fresh=fresh
            ),
            policy=MergePolicy(fan_in=config.merge_fan_in, pack_bytes=config.pack_bytes),
            budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=clock),
            segment_bytes=config.segment_bytes if requests is None else piece_bytes_of(config),
            catalog=lambda: service.catalog,
            class_of=service.class_of,
            cuts_ms=service.cuts_ms,
            amend=service.amend,
            requests=requests,
            commit_cost=lambda: writer.commit_cost_max,
        )

        def gate() -> int:
            service.backlog.account()
            return service.backlog.committed_offset()

        self._beside = beside = IndexingBeside(service)
        self.indexing = Indexing(
            builder=IndexBuilder(writer, spool_folder=spool_folder, clock=clock),
            merger=IndexMerger(writer, spool_folder=spool_folder, clock=clock),
            budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=clock),
            blooms=BloomCache(),
            fresh=fresh,
            catalog=lambda: service.catalog,
            gate=gate,
            class_of=service.class_of,
            cuts_ms=service.cuts_ms,
            amend=beside.amend,
            requests=requests,
            commit_cost=lambda: writer.commit_cost_max,
        )
        self.states = StateRounds(
            writer,
            StateLog(writer),
            cast(Any, _EndsAlone()),
            ends=lambda: queue_ends(service.backlog),
            reported_offset=lambda: service.backlog.reported_offset,
            popped=_nothing_popped,
            append_offset=lambda: hot.append_offset,
            saved=lambda ceiling: None,
            reserve_bytes=RESERVE_BYTES,
            interval_ms=config.state_interval_ms,
            clock=clock,
        )
        if self._is_whole:
            service.carry = self.states.carry
        self.report()
        try:
            yield self.service
        finally:
            await beside.stop()
            await writer.close()

    def report(self, *, only_changed: bool = False) -> None:
        """Report all queues to the service, or only the changed and the expired ones, as the hot process does."""
        hot = self.hot
        for topic, sender in self.senders.items():
            if only_changed and sender.ttl_ms is None:
                continue
            self.service.report_topic(
                TopicReport(
                    topic=topic,
                    incarnation=1,
                    ttl_ms=sender.ttl_ms,
                    expired_before_ms=0,
                    cut_ms=0 if sender.ttl_ms is None else hot.now_ms - sender.ttl_ms,
                    tiered=True,
                    deleted=False,
                )
            )
        for topic, queue_id in sorted(self._changed if only_changed else hot.queues):
            queue = hot.queues[topic, queue_id]
            self.service.report_queue(topic, queue_id, min_offset=queue.first_offset, end_offset=queue.end_offset)
        self._changed.clear()
        self.service.reported(log_offset=hot.append_offset, pressure=self.pressure)

    async def step(self) -> None:
        """A step passes: a second, unless another was chosen."""
        hot, random = self.hot, self._random
        hot.now_ms += self._step_ms
        for topic, sender in self.senders.items():
            for _ in range(_poisson(random, sender.per_minute * self._step_ms / 60_000)):
                queue_id = random.randrange(sender.queues)
                hot.append(topic, queue_id, body_bytes=sender.body_bytes)
                self.times_ms.setdefault((topic, queue_id), array("q")).append(hot.now_ms)
                self._changed.add((topic, queue_id))
        self.report(only_changed=True)
        await self.service.run_once()
        while await self.merging.run_once() is not None:
            pass
        if self._is_whole:
            await self._beside.step(self.indexing)
            await self.states.save_due()
        self._steps += 1
        if self._steps % FORGET_STEPS == 0:
            hot.forget_before(self.service.backlog.committed_offset())

    async def _sleep(self, seconds: float) -> None:
        """Of a commit that got no answer."""
        self.hot.now_ms += int(seconds * 1_000)
        await asyncio.sleep(0)

    async def run(self, minutes: float) -> None:
        """So long passes."""
        for _ in range(round(minutes * 60_000 / self._step_ms)):
            await self.step()


class _EndsAlone:
    """Stands for StateCapture: a broker that has no files."""

    def capture(self, ends: QueueEnds, *, popped: PoppedOffsets) -> Captured:
        """See StateCapture."""
        return Captured(
            log_offset=ends.log_offset,
            new_queue_offset=0,
            last_incarnation=1,
            topics=tuple(
                TopicState(topic=topic, incarnation=incarnation, ends=each)
                for topic, (incarnation, each) in sorted(ends.topics.items())
            ),
            documents={},
        )


async def _nothing_popped() -> PoppedOffsets:
    return ()


def _poisson(random: Random, mean: float) -> int:
    """How many come in a step of this mean."""
    count, waited = 0, random.expovariate(1.0)
    while waited < mean:
        count += 1
        waited += random.expovariate(1.0)
    return count
