"""Tier process: the cold tier of one broker. Seals, uploads, commits, expires, collects, scrubs, and serves
cold reads.

It learns from the hot process which queues reach how far (QUEUE_TABLE) and tells which offsets it serves
(CATALOG_TABLE), from the ledger version that it has committed itself. A request that relies on a later version than it
serves is refused, so nobody is answered from the past. After `kill -9` it opens the ledger anew, under the next epoch;
what was sealed but not committed is an orphan that garbage collection removes.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import msgspec

from thermocline.broker.dropped_ranges import DroppedRange, DroppedRanges
from thermocline.broker.helper_process import HelperLink, HelperOptions, connect, main
from thermocline.broker.helper_protocol import (
    CatalogTable,
    ColdRange,
    Dropped,
    Fenced,
    HelperRequestCode,
    QueueTable,
    QueueTierReport,
    ReaderLeft,
    ScrubRequest,
    SealedSegment,
    SealReply,
    SealRequest,
    StateAnswer,
    StateSaved,
    StoreAway,
    TierReportReply,
    TierReportRequest,
    TierSettings,
    TopicTierReport,
)
from thermocline.broker.hot_state import HotState
from thermocline.broker.log_reservation import reserve_bytes
from thermocline.broker.pending_tables import PendingTables
from thermocline.broker.state_capture import StateCapture, queue_ends
from thermocline.broker.state_rounds import StateRounds
from thermocline.broker.tier_reads import TierReads
from thermocline.broker.tier_scrub import TierScrub
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connection import Connection
from thermocline.remoting.errors import CorruptDataError, FencedError, ObjectStoreUnavailableError, UnavailableError
from thermocline.store.disk import Disk, RealDisk
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.cold_reader import ColdReader
from thermocline.tiered.doctor.fencing_check import check_fencing
from thermocline.tiered.errors import ForeignLedgerError, UnfitStoreError
from thermocline.tiered.fencing import new_arbiter
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.ledger_entry import QueueHole
from thermocline.tiered.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.local_files import LocalLog, LocalQueues
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.object_store_url import ObjectStoreOptions, is_s3_url, open_object_store
from thermocline.tiered.scrub.healer import Healer
from thermocline.tiered.scrub.hot_records import HotRecords
from thermocline.tiered.scrub.ledger_copy import LedgerCopyStore
from thermocline.tiered.scrub.ledger_healer import restore_damaged
from thermocline.tiered.scrub.segment_recovery import SegmentRecovery
from thermocline.tiered.seal_backlog import SealBacklog, SealPolicy
from thermocline.tiered.sealer import Sealer
from thermocline.tiered.segment_writer import SegmentOptions
from thermocline.tiered.tier_budgets import TierBudgets
from thermocline.tiered.tier_config import TierConfig
from thermocline.tiered.tier_service import TierService, TopicReport
from thermocline.tiered.ttl import report as expired_report
from thermocline.tiered.wrappers import StoreAbsence, StoreCounters, StoreRates, WatchingObjectStore

logger = logging.getLogger(__name__)

ROLE = "tier"
OPEN_RETRY_MS = 500
OPEN_RETRY_MS_MAX = 10_000


def now_ms() -> int:
    """Milliseconds of the wall clock."""
    return time.time_ns() // 1_000_000


class TierRole:
    """What the hot process talks to. Belongs to the process's loop."""

    def __init__(
        self,
        *,
        disk: Disk | None = None,
        clock: Callable[[], int] = now_ms,
        keeps_spool_in_memory: bool = False,
        open_store: Callable[[str, ObjectStoreOptions], Awaitable[ObjectStore]] = open_object_store,
    ) -> None:
        """`disk`: where the hot process has its store; `clock`: milliseconds since 1970."""
        self._open_store = open_store
        self._disk: Disk = disk if disk is not None else RealDisk()
        self._clock = clock
        self._keeps_spool_in_memory = keeps_spool_in_memory
        self._link: HelperLink | None = None
        self._service: TierService | None = None
        self._reads: TierReads | None = None
        self._scrub: TierScrub | None = None
        self._counters = StoreCounters()
        self.rates = StoreRates()
        """How much may pass in a second."""
        self.budgets = TierBudgets()
        """How many bytes are held now."""
        self._pending = PendingTables()
        self._dropped = DroppedRanges(incarnation_of=lambda _: 0)
        self._hot_state = HotState()
        self._last_error = "the cold tier is being opened"
        self._received = 0
        self._sent = 0
        self._told: dict[str, set[int]] = {}

    @property
    def is_serving(self) -> bool:
        """Whether cold reads are answered."""
        return self._reads is not None

    async def run(self, link: HelperLink) -> None:
        """Open the cold tier, however long its store is away, and work until cancelled.

        Raises:
            FencedError: Another writer has taken over.
            ForeignLedgerError: The prefix belongs to another store directory.
            UnfitStoreError: The store would let two writers commit.
        """
        self._link = link
        config = link.settings.tier
        keys = BrokerKeys.of(cluster=link.settings.cluster_name, broker_name=link.settings.broker_name)
        folder = f"{link.settings.store.own_path}/ledger-copy"
        self._follow(config)
        opened = await self._open_store(config.cold_url, ObjectStoreOptions(counters=self._counters, rates=self.rates))
        watched = self._watched = WatchingObjectStore(
            opened, clock_ms=self._clock, check_key=keys.head_hint, on_change=self._store_changed
        )
        store = LedgerCopyStore(watched, keys=keys, disk=self._disk, folder=folder)
        try:
            writer = await self._open_ledger(store, link)
            try:
                await self._work(link, store, writer)
            finally:
                await writer.close()
        finally:
            await store.close()

    async def _work(self, link: HelperLink, store: LedgerCopyStore, writer: LedgerWriter) -> None:
        settings, config = link.settings, link.settings.tier
        log = LocalLog(self._disk, path=settings.store.commit_log_path, file_bytes=settings.store.log_file_bytes)
        queues = LocalQueues(
            self._disk, path=settings.store.consume_queue_path, file_bytes=settings.store.queue_file_bytes
        )
        spool_folder = None if self._keeps_spool_in_memory else Path(settings.store.own_path) / "spool"
        if spool_folder is not None:
            spool_folder.mkdir(exist_ok=True)
        options = SegmentOptions(frame_bytes=config.frame_bytes, compression_level=config.compression_level)
        sealer = Sealer(
            store=store,
            keys=writer.keys,
            log=log,
            spool_folder=spool_folder,
            options=options,
            clock=self._clock,
            budgets=self.budgets,
        )
        cache = FrameCache(bytes_max=config.cache_bytes, budget=self.budgets.reads)
        reader = ColdReader(
            store, catalog=self._catalog, cache=cache, read_ahead_frames_max=config.read_ahead_frames_max
        )
        backlog = SealBacklog(
            queues=queues,
            log=log,
            policy=SealPolicy(segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms),
            log_min_offset=lambda: link.page.read().min_offset,
        )
        service = TierService(
            writer=writer,
            backlog=backlog,
            sealer=sealer,
            config=config,
            clock=self._clock,
            flush_offset=lambda: link.page.read().flush_offset,
            on_committed=self._committed,
            check_store=self._watched.check,
        )
        hot = HotRecords(backlog=backlog, queues=queues, log=log, log_min_offset=lambda: link.page.read().min_offset)
        recovery = SegmentRecovery(store=store, hot=hot, options=options, spool_folder=spool_folder)
        healer = Healer(writer=writer, service=service, recovery=recovery, find_copy=store.find, clock_ms=self._clock)
        scrub = TierScrub(
            store=store,
            writer=writer,
            healer=healer,
            clock=self._clock,
            disk=self._disk,
            state_path=f"{settings.store.own_path}/scrub.json",
        )
        self._service = service
        self._scrub = scrub
        self._reads = TierReads(reader, catalog=self._catalog, cut_ms=self._cut_ms)
        try:
            table = self._pending.take()
            if table is not None:
                self._take(table, service)
            self._take_dropped(self._dropped.live())
            service.backlog.account()
            self._committed(writer.catalog, frozenset(writer.catalog.topics))
            await first_to_end(service.run(), self._state_rounds(link, writer, service).run())
        finally:
            self._service = self._reads = self._scrub = None
            await scrub.close()
            await reader.close()
            await cache.close()
            log.close()

    def _state_rounds(self, link: HelperLink, writer: LedgerWriter, service: TierService) -> StateRounds:
        settings, config = link.settings, link.settings.tier
        return StateRounds(
            writer,
            StateCapture(self._disk, settings.store, clock=self._clock),
            ends=lambda: queue_ends(service.backlog),
            reported_offset=lambda: service.backlog.reported_offset,
            popped=lambda: self._hot_state.popped(link),
            append_offset=lambda: link.page.read().append_offset,
            saved=lambda ceiling: link.tell(HelperRequestCode.STATE_SAVED, StateSaved(log_ceiling=ceiling)),
            reserve_bytes=reserve_bytes(self._disk, settings.store, configured=config.reserve_bytes),
            interval_ms=config.state_interval_ms,
            clock=self._clock,
        )

    async def _open_ledger(self, store: LedgerCopyStore, link: HelperLink) -> LedgerWriter:
        """See whether the store can tell writers apart, then claim the next epoch; tried again for as long as the store
        does not answer.

        A ledger that is damaged is mended once from the local copy, as far as that has it.
        """
        settings = link.settings
        mode = settings.tier.fencing_mode
        keys = BrokerKeys.of(cluster=settings.cluster_name, broker_name=settings.broker_name)
        # Its own for all attempts: a ballot proposes one entry for a version, whatever became of the first.
        arbiter = new_arbiter(mode, store, keys, random=random.Random())
        # What `file://` and `memory://` promise is our own code.
        is_checked = not is_s3_url(settings.tier.cold_url)
        delay_ms = OPEN_RETRY_MS
        is_mended = False
        while True:
            try:
                if not is_checked:
                    await check_fencing(store, keys, mode=mode, random=random.Random())
                    is_checked = True
                return await LedgerWriter.open(
                    store,
                    keys,
                    arbiter=arbiter,
                    identity=LedgerIdentity(
                        store_uuid=settings.store_uuid,
                        cluster=settings.cluster_name,
                        broker_name=settings.broker_name,
                    ),
                    clock_ms=self._clock,
                    random=random.Random(),
                )
            except CorruptDataError as error:
                self._last_error = str(error)
                if is_mended or not await restore_damaged(
                    store, keys, store_uuid=settings.store_uuid, find_copy=store.find
                ):
                    raise
                is_mended = True
            except ObjectStoreUnavailableError as error:
                self._last_error = str(error)
                logger.debug("cold tier cannot be opened: %s retry_ms=%d", error, delay_ms)
                await asyncio.sleep(delay_ms / 1_000)
                delay_ms = min(delay_ms * 2, OPEN_RETRY_MS_MAX)

    def _catalog(self) -> Catalog:
        assert self._service is not None
        return self._service.catalog

    def _cut_ms(self, topic: str) -> int:
        assert self._service is not None
        progress = self._service.backlog.topics.get(topic)
        return progress.cut_ms if progress is not None else 1 << 62

    # -- towards the hot process ---------------------------------------------------------------------------------------

    def _committed(self, catalog: Catalog, topics: frozenset[str]) -> None:
        """Tell which offsets are served now; the catalog is in use already."""
        service, link = self._service, self._link
        assert service is not None
        assert link is not None
        ranges: list[ColdRange] = []
        for topic in topics:
            entry = catalog.topics.get(topic)
            if entry is None:
                continue
            minimums, ends = entry.queue_starts(), entry.queue_ends()
            # A queue that was told of and has lost its last segment is told of once more, as empty.
            known = self._told.pop(topic, set())
            ranges.extend(
                ColdRange(
                    topic=topic,
                    incarnation=entry.incarnation,
                    queue_id=queue_id,
                    min_offset=minimums.get(queue_id, 0),
                    end_offset=ends.get(queue_id, 0),
                )
                for queue_id in known | minimums.keys()
            )
            if minimums:
                self._told[topic] = set(minimums)
        self._sent += 1
        link.tell(
            HelperRequestCode.CATALOG_TABLE,
            CatalogTable(
                sequence=self._sent,
                version=catalog.version,
                committed_offset=max(0, service.backlog.committed_offset()),
                ranges=ranges,
            ),
        )

    def _follow(self, config: TierConfig) -> None:
        """Keep to these limits and budgets; what else settings say counts from the broker's next start on."""
        self.rates.set(config.limits)
        self.budgets.resize(config)

    def _store_changed(self, absence: StoreAbsence | None) -> None:
        """Tell that the object store has ceased to answer, or answers again."""
        assert self._link is not None
        tell_absence(self._link, absence)

    def fenced(self, error: FencedError | ForeignLedgerError | UnfitStoreError) -> None:
        """Tell the hot process that this broker's time as a writer is over, or never comes."""
        if self._link is not None:
            is_refused = not isinstance(error, FencedError)
            self._link.tell(HelperRequestCode.FENCED, Fenced(reason=str(error), is_refused=is_refused))

    # -- RequestHandler ------------------------------------------------------------------------------------------------

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Tables, reads, reports and seals."""
        code = command.code
        if code == HelperRequestCode.QUEUE_TABLE:
            self._queue_table(msgspec.msgpack.decode(command.body, type=QueueTable))
            return None
        if code == HelperRequestCode.TIER_REPORT:
            return self._report(command)
        if code == HelperRequestCode.DROPPED:
            self._take_dropped(msgspec.msgpack.decode(command.body, type=Dropped).ranges)
            return None
        if code == HelperRequestCode.READER_LEFT:
            if self._reads is not None:
                self._reads.reader_left(msgspec.msgpack.decode(command.body, type=ReaderLeft).reader)
            return None
        if code == HelperRequestCode.TIER_SETTINGS:
            self._follow(msgspec.msgpack.decode(command.body, type=TierSettings).tier)
            return None
        if code == HelperRequestCode.STATE_ANSWER:
            self._hot_state.answered(msgspec.msgpack.decode(command.body, type=StateAnswer))
            return None
        service, reads = self._service, self._reads
        if service is None or reads is None:
            raise UnavailableError("the cold tier is not open yet", reason=self._last_error)
        if code == HelperRequestCode.SEAL:
            request = msgspec.msgpack.decode(command.body, type=SealRequest)
            outcomes = await service.seal(request.topic)
            reply = SealReply(
                segments=[
                    SealedSegment(
                        topic=outcome.topic,
                        segment_id=outcome.segment_id,
                        messages=outcome.record_count,
                        raw_bytes=outcome.raw_bytes,
                        stored_bytes=outcome.stored_bytes,
                    )
                    for outcome in outcomes
                ]
            )
            return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))
        if code in (HelperRequestCode.SCRUB, HelperRequestCode.SCRUB_STATE):
            return self._answer_scrub(command)
        return await reads.handle(command)

    def _answer_scrub(self, command: RemotingCommand) -> RemotingCommand:
        assert self._scrub is not None
        if command.code == HelperRequestCode.SCRUB:
            state = self._scrub.start(msgspec.msgpack.decode(command.body, type=ScrubRequest))
        else:
            state = self._scrub.state()
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(state))

    def connection_opened(self, connection: Connection) -> None:
        """The hot process's one."""

    def connection_closed(self, connection: Connection) -> None:
        """`connect` was given what happens then."""

    def _queue_table(self, table: QueueTable) -> None:
        assert table.sequence == self._received + 1, "the hot process numbers its tables"
        self._received = table.sequence
        if self._service is None:
            self._pending.add(table)
        else:
            self._take(table, self._service)

    def _take_dropped(self, ranges: list[DroppedRange]) -> None:
        service = self._service
        if service is None:
            self._dropped.add(ranges)
            return
        for each in ranges:
            hole = QueueHole(each.queue_id, each.start_offset, each.end_offset)
            service.report_dropped(each.topic, each.incarnation, hole)

    def _take(self, table: QueueTable, service: TierService) -> None:
        for topic in table.topics:
            service.report_topic(
                TopicReport(
                    topic=topic.topic,
                    incarnation=topic.incarnation,
                    ttl_ms=topic.ttl_ms,
                    expired_before_ms=topic.expired_before_ms,
                    cut_ms=topic.cut_ms,
                    tiered=topic.tiered,
                    deleted=topic.deleted,
                )
            )
        for queue in table.queues:
            service.report_queue(queue.topic, queue.queue_id, min_offset=queue.min_offset, end_offset=queue.end_offset)
        service.reported(log_offset=table.log_offset, pressure=table.pressure)

    def _report(self, command: RemotingCommand) -> RemotingCommand:
        request = msgspec.msgpack.decode(command.body, type=TierReportRequest)
        service = self._service
        counters = self._counters
        reply = TierReportReply(
            version=service.catalog.version if service else -1,
            last_error=service.last_error if service else self._last_error,
            requests={verb.value: count for verb, count in counters.requests.items()},
            sent_bytes=counters.sent_bytes,
            received_bytes=counters.received_bytes,
            topics=self._topic_reports(service, request) if service else [],
            last_scrub=self._scrub.last_report if self._scrub else None,
        )
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))

    def _topic_reports(self, service: TierService, request: TierReportRequest) -> list[TopicTierReport]:
        reports: list[TopicTierReport] = []
        backlog = service.backlog
        backlog.account()
        for topic, progress in backlog.topics.items():
            if request.topic is not None and topic != request.topic:
                continue
            entry = service.catalog.topics.get(topic)
            segments = entry.segments if entry is not None and entry.incarnation == progress.incarnation else ()
            expired = (
                expired_report(entry, visible_from_ms=request.visible_from_ms)
                if entry is not None and request.visible_from_ms is not None
                else None
            )
            reports.append(
                TopicTierReport(
                    topic=topic,
                    segments=len(segments),
                    raw_bytes=sum(segment.raw_bytes for segment in segments),
                    stored_bytes=sum(segment.stored_bytes for segment in segments),
                    expired_segments=expired.segment_count if expired else 0,
                    expired_stored_bytes=expired.stored_bytes if expired else 0,
                    queues=[
                        QueueTierReport(
                            queue_id=queue_id,
                            cold_end=queue.cold_end,
                            waiting_bytes=queue.waiting_bytes,
                            first_waiting_ms=queue.first_waiting_ms,
                        )
                        for queue_id, queue in sorted(progress.queues.items())
                    ],
                )
            )
        return reports


def tell_absence(link: HelperLink, absence: StoreAbsence | None) -> None:
    """Tell the hot process since when the object store has been away, or that it is back."""
    away = StoreAway(since_ms=0, reason="")
    if absence is not None:
        away = StoreAway(since_ms=absence.since_ms, reason=absence.reason)
    link.tell(HelperRequestCode.STORE_ABSENCE, away)


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


async def serve(options: HelperOptions, stop: asyncio.Event, *, role: TierRole | None = None) -> None:
    """Run the role until `stop`, or until the hot process goes away.

    Raises:
        FencedError: Another writer has taken over, the prefix is another store's, the object store is unfit, or the hot
            process is of another build.
        MQError: The cold tier cannot be used.
    """
    role = role or TierRole()
    link = await connect(options, role=ROLE, handler=role, on_closed=stop.set)
    work = asyncio.create_task(role.run(link), name="tier")
    stopping = asyncio.create_task(stop.wait(), name="tier-stop")
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    except (FencedError, ForeignLedgerError, UnfitStoreError) as error:
        role.fenced(error)
        with contextlib.suppress(UnavailableError):
            await link.connection.wait_writable()
        raise FencedError(error.message, **error.context) from error
    finally:
        for task in (work, stopping):
            task.cancel()
        await asyncio.wait((work, stopping))
        link.connection.close()
        link.page.close()


if __name__ == "__main__":
    main(ROLE, serve)
