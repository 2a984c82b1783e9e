"""Tier work: everything that works on one cold tier while its writer holds the ledger, put together.

    sealing      TierService above SealBacklog, Sealer, PackSealer      StateRounds save what the broker is besides
    merging      Merging and Purger                                     TierScrub with Healer and PackHealer
    lookups      TierIndexing, whose blooms ColdReader shares
    cold reads   TierReads above ColdReader and FrameCache

It is made anew whenever the ledger is opened. Belongs to the tier process's loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from thermocline.broker.helpers import HelperLink, HelperRequestCode, StateSaved, TtlProofReply, TtlProofRequest
from thermocline.broker.metrics import TierFigures, TierFiguresRequest, sum_of_others
from thermocline.broker.state import reserve_bytes
from thermocline.broker.tier_process.hot_state import HotState
from thermocline.broker.tier_process.lasting_work import keep_working
from thermocline.broker.tier_process.state_capture import StateCapture, queue_ends
from thermocline.broker.tier_process.state_rounds import StateRounds
from thermocline.broker.tier_process.tier_account import TierAccount
from thermocline.broker.tier_process.tier_indexing import TierIndexing
from thermocline.broker.tier_process.tier_reads import TierReads
from thermocline.broker.tier_process.tier_scrub import TierScrub
from thermocline.broker.tier_process.tier_ttl import prove
from thermocline.remoting.errors import CorruptDataError, ObjectStoreUnavailableError, UnavailableError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files import Disk
from thermocline.tiered.budgets import TierBudgets
from thermocline.tiered.catalog import Catalog, PackPieces
from thermocline.tiered.healing import Healer, HotRecords, IndexHealer, PackHealer, SegmentRecovery, StateHealer
from thermocline.tiered.indexes import BloomCache, FreshIndex
from thermocline.tiered.ledger import LedgerWriter, Pin, list_pins
from thermocline.tiered.merging import MergeBudget, MergePolicy, Merging, PackMerger
from thermocline.tiered.purge import Purger, SegmentRewriter
from thermocline.tiered.reading import ColdReader, FrameCache
from thermocline.tiered.sealing import (
    LocalLog,
    LocalQueues,
    PackSealer,
    SealBacklog,
    Sealer,
    SealPolicy,
    piece_bytes_of,
)
from thermocline.tiered.segments import SegmentOptions
from thermocline.tiered.service import TierService
from thermocline.tiered.state import StateLog
from thermocline.tiered.stores import put_requests_of
from thermocline.tiered.wrappers import LedgerCopyStore

logger = logging.getLogger(__name__)

PINS_TIMEOUT_S = 2.0
"""How long an explanation waits for the bucket to say which pins there are."""
NOTHING_VISIBLE_MS = 1 << 62


class TierWork:
    """The owner calls `close`, also after a failure."""

    def __init__(
        self,
        link: HelperLink,
        store: LedgerCopyStore,
        writer: LedgerWriter,
        account: TierAccount,
        *,
        disk: Disk,
        clock: Callable[[], int],
        keeps_spool_in_memory: bool,
        hot_state: HotState,
        on_committed: Callable[[Catalog, frozenset[str]], None],
        budgets: TierBudgets,
        check_store: Callable[[], Awaitable[None]],
        scrub_bytes_per_day: Callable[[], int],
    ) -> None:
        """`budgets`: how many bytes may be held at a time. `check_store`: see TierService."""
        self.account = account
        self._link = link
        self._writer = writer
        self._disk = disk
        self._clock = clock
        self._hot_state = hot_state
        self._on_committed = on_committed
        self._budgets = budgets
        self._check_store = check_store
        self._scrub_bytes_per_day = scrub_bytes_per_day
        self._changed = asyncio.Event()
        self._forgotten_version = -1
        local, config = link.settings.store, link.settings.tier
        self._spool_folder = None if keeps_spool_in_memory else Path(local.own_path) / "spool"
        if self._spool_folder is not None:
            self._spool_folder.mkdir(mode=0o700, exist_ok=True)
        self._log = LocalLog(disk, path=local.commit_log_path, file_bytes=local.log_file_bytes)
        self._queues = LocalQueues(disk, path=local.consume_queue_path, file_bytes=local.queue_file_bytes)
        self._options = SegmentOptions(frame_bytes=config.frame_bytes, compression_level=config.compression_level)
        self._cache = FrameCache(bytes_max=config.cache_bytes)
        blooms, self._fresh = BloomCache(bytes_max=config.index_bytes), FreshIndex()
        self._reader = ColdReader(
            store,
            catalog=self._catalog,
            cache=self._cache,
            read_ahead_frames_max=config.read_ahead_frames_max,
            blooms=blooms,
            fresh=self._fresh,
        )
        self._states = StateLog(writer)
        self.service = self._new_service(store)
        self._merging = self._new_merging()
        self.indexing = TierIndexing(
            writer=writer,
            service=self.service,
            account=account,
            config=config,
            blooms=blooms,
            fresh=self._fresh,
            spool_folder=self._spool_folder,
            clock=clock,
        )
        self.purger = self._new_purger(store)
        self._state_rounds = self._new_state_rounds()
        self.service.carry = self._state_rounds.carry
        self.scrub = self._new_scrub(store)
        self.reads = TierReads(self._reader, catalog=self._catalog, cut_ms=self._cut_ms)

    async def run(self) -> None:
        """Seal, merge and save until cancelled.

        Raises:
            FencedError: Another writer has taken over.
        """
        merging: asyncio.Task[None] | None = None
        if self._link.settings.tier.merge_bytes_per_second:
            work = keep_working(lambda: self._merging.run(self._changed), name="merging")
            merging = asyncio.create_task(work, name="merging")
        scrubbing = asyncio.create_task(self.scrub.run_steadily(), name="steady-scrub")
        self.indexing.start()
        self._reader.load_lookups_soon()
        try:
            await first_to_end(self.service.run(), self._state_rounds.run())
        finally:
            await self.indexing.stop()
            beside = [task for task in (merging, scrubbing) if task is not None]
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def figures(self, request: TierFiguresRequest) -> TierFigures:
        """The answer to TIER_METRICS."""
        service, cache, report = self.service, self._cache, self.scrub.last_report
        catalog, now_ms, account = service.catalog, self._clock(), self.account
        topics = account.topic_figures(service, now_ms=now_ms)
        wanted = set(request.topics)
        others = [each for each in topics if each.topic not in wanted]
        budget = account.budget_state()
        return TierFigures(
            topics=[each for each in topics if each.topic in wanted] + ([sum_of_others(others)] if others else []),
            purposes=account.purpose_figures(),
            topic_requests=account.topic_request_figures(catalog, request.topics),
            removed_bytes=sum(each.stored_bytes for each in catalog.removed),
            ledger_version=catalog.version,
            committed_ms=catalog.committed_ms,
            outage_ms=account.outage_ms,
            is_widened=budget is not None and budget.is_widened,
            budget_left=None if budget is None else budget.available,
            yielded_requests=None if budget is None else budget.yielded_requests,
            scrub_ms=None if report is None else report.finished_ms,
            scrub_broken=self.scrub.broken_count,
            steady=self.scrub.steady_report(),
            cache_bytes=cache.size_bytes,
            cache_hits=cache.hit_count,
            cache_misses=cache.miss_count,
            cache_bytes_max=cache.bytes_max,
        )

    async def live_pins(self) -> list[Pin]:
        """The pins that hold something now; none while they cannot be read."""
        writer, now_ms = self._writer, self._clock()
        try:
            async with asyncio.timeout(PINS_TIMEOUT_S):
                pins = await list_pins(writer.store, writer.keys)
        except (TimeoutError, ObjectStoreUnavailableError, CorruptDataError) as error:
            logger.info("pins cannot be read: %s", str(error) or "no answer in time")
            return []
        return [pin for pin in pins if pin.until_ms > now_ms]

    async def prove_ttl(self, request: TtlProofRequest) -> TtlProofReply:
        """The answer to TTL_PROOF; raises as `prove`."""
        return await prove(self.service, self._writer, self._cache, request)

    async def close(self) -> None:
        """Stop all work, and drop caches and files; idempotent."""
        await self.scrub.close()
        await self._reader.close()
        await self._cache.close()
        self._log.close()

    def _catalog(self) -> Catalog:
        return self.service.catalog

    def _cut_ms(self, topic: str) -> int:
        backlog = self.service.backlog
        progress = backlog.topics.get(topic)
        if progress is not None:
            return progress.cut_ms
        if not backlog.reported_offset:
            raise UnavailableError("the topic's expiry has not been reported yet", topic=topic)
        return NOTHING_VISIBLE_MS

    def _committed(self, catalog: Catalog, topics: frozenset[str]) -> None:
        self._changed.set()
        self._fresh.follow(catalog)
        self.indexing.committed()
        self._forget_removed(catalog)
        self._on_committed(catalog, topics)

    def _forget_removed(self, catalog: Catalog) -> None:
        """Drop objects that the catalog no longer names from memory."""
        keys: set[str] = set()
        for removed in reversed(catalog.removed):
            if removed.removed_in <= self._forgotten_version:
                break
            keys.update(removed.keys)
        self._forgotten_version = catalog.version
        self._reader.forget(keys)

    def _log_min_offset(self) -> PhysicalOffset:
        return self._link.page.read().min_offset

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _new_service(self, store: LedgerCopyStore) -> TierService:
        config = self._link.settings.tier
        sealer = Sealer(
            store=store,
            keys=self._writer.keys,
            log=self._log,
            spool_folder=self._spool_folder,
            options=self._options,
            clock=self._clock,
            budgets=self._budgets,
            fresh=self._fresh,
        )
        return TierService(
            writer=self._writer,
            backlog=SealBacklog(
                queues=self._queues,
                log=self._log,
                policy=SealPolicy(segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms),
                log_min_offset=self._log_min_offset,
                traffic=self.account.traffic,
            ),
            sealer=sealer,
            config=config,
            clock=self._clock,
            flush_offset=lambda: self._link.page.read().seal_offset,
            on_committed=self._committed,
            pack_sealer=PackSealer(
                writer=self._writer,
                sealer=sealer,
                spool_folder=self._spool_folder,
                pack_bytes=config.pack_bytes,
                clock=self._clock,
                budgets=self._budgets,
                fresh=self._fresh,
            ),
            admission=self.account.admission,
            check_store=self._check_store,
            put_requests=put_requests_of(config.cold_url),
            on_sealed=self.account.shares.settle,
            states=self._states,
        )

    def _new_merging(self) -> Merging:
        config, service = self._link.settings.tier, self.service
        return Merging(
            merger=PackMerger(
                writer=self._writer,
                options=self._options,
                spool_folder=self._spool_folder,
                clock=self._clock,
                budgets=self._budgets,
                fresh=self._fresh,
            ),
            policy=MergePolicy(fan_in=config.merge_fan_in, pack_bytes=config.pack_bytes),
            budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=self._clock),
            segment_bytes=config.segment_bytes if self.account.requests is None else piece_bytes_of(config),
            catalog=self._catalog,
            class_of=service.class_of,
            cuts_ms=service.cuts_ms,
            amend=service.amend,
            requests=self.account.requests,
            commit_cost=lambda: self._writer.commit_cost_max,
        )

    def _new_purger(self, store: LedgerCopyStore) -> Purger:
        return Purger(
            service=self.service,
            merging=self._merging,
            pieces=PackPieces(store),
            rewriter=SegmentRewriter(
                writer=self._writer,
                options=self._options,
                spool_folder=self._spool_folder,
                clock=self._clock,
                budgets=self._budgets,
                fresh=self._fresh,
            ),
        )

    def _new_scrub(self, store: LedgerCopyStore) -> TierScrub:
        hot = HotRecords(
            backlog=self.service.backlog, queues=self._queues, log=self._log, log_min_offset=self._log_min_offset
        )
        recovery = SegmentRecovery(store=store, hot=hot, options=self._options, spool_folder=self._spool_folder)
        packs = PackHealer(
            writer=self._writer,
            service=self.service,
            recovery=recovery,
            spool_folder=self._spool_folder,
            clock_ms=self._clock,
        )
        healer = Healer(
            writer=self._writer,
            service=self.service,
            recovery=recovery,
            packs=packs,
            indexes=IndexHealer(writer=self._writer, service=self.service, builder=self.indexing.builder),
            states=StateHealer(self._writer, self._states, self._state_rounds.renew),
            find_copy=store.find,
            clock_ms=self._clock,
        )
        return TierScrub(
            store=store,
            writer=self._writer,
            healer=healer,
            states=self._states,
            clock=self._clock,
            disk=self._disk,
            state_path=f"{self._link.settings.store.own_path}/scrub.json",
            spool_folder=self._spool_folder,
            bytes_per_day=self._scrub_bytes_per_day,
            requests=self.account.requests,
        )

    def _new_state_rounds(self) -> StateRounds:
        link, service = self._link, self.service
        local, config = link.settings.store, link.settings.tier
        return StateRounds(
            self._writer,
            self._states,
            StateCapture(self._disk, local, clock=self._clock),
            ends=lambda: queue_ends(service.backlog),
            reported_offset=lambda: service.backlog.reported_offset,
            popped=lambda: self._hot_state.popped(link),
            append_offset=lambda: link.page.read().append_offset,
            saved=lambda ceiling: link.tell(HelperRequestCode.STATE_SAVED, StateSaved(log_ceiling=ceiling)),
            reserve_bytes=reserve_bytes(self._disk, local, configured=config.reserve_bytes),
            interval_ms=config.state_interval_ms,
            clock=self._clock,
        )


async def first_to_end(*works: Coroutine[object, object, None]) -> None:
    """Run works side by side, none of which ends but by its failure; with the first the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
