"""Tier process: the cold tier of one broker. Seals, uploads, commits, expires, collects, scrubs, and serves
cold reads.

It receives the queues' ends from the hot process (QUEUE_TABLE) and reports the offsets that it serves (CATALOG_TABLE),
from the ledger version that it has committed itself. A request that relies on a later version than it serves is
refused, so no answer is older than the hot process's state. After `kill -9` it opens the ledger anew, under the next
epoch; objects that were sealed but not committed are orphans that garbage collection removes.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

import msgspec

from thermocline.broker.cold import DroppedRange, DroppedRanges
from thermocline.broker.helpers import (
    TIER_ROLE,
    CatalogTable,
    ColdRange,
    CostRequest,
    Dropped,
    Fenced,
    HelperLink,
    HelperOptions,
    HelperRequestCode,
    PurgeReply,
    PurgeRequest,
    QueueTable,
    ReaderLeft,
    ScrubRequest,
    SealedSegment,
    SealReply,
    SealRequest,
    StateAnswer,
    StoreAway,
    TierReportReply,
    TierReportRequest,
    TierSettings,
    TtlProofRequest,
    connect,
)
from thermocline.broker.metrics import TierFiguresRequest
from thermocline.broker.process import give_memory_back
from thermocline.broker.tier_process.hot_state import HotState
from thermocline.broker.tier_process.ledger_opening import open_ledger
from thermocline.broker.tier_process.pending_tables import PendingTables
from thermocline.broker.tier_process.tier_account import TierAccount
from thermocline.broker.tier_process.tier_work import TierWork
from thermocline.broker.tier_process.topic_reports import topic_reports
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import FencedError, InvalidRequestError, UnavailableError
from thermocline.remoting.offsets import LOG_START, QUEUE_START
from thermocline.store.files import Disk, Readers, RealDisk
from thermocline.tiered.budgets import TierBudgets, TierConfig
from thermocline.tiered.catalog import Catalog, QueueHole
from thermocline.tiered.ledger import CHECKPOINT_INTERVAL
from thermocline.tiered.objects import ForeignLedgerError, ObjectStore, UnfitStoreError, UntrustedStoreError
from thermocline.tiered.sealing import TopicReport
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.service import TierService
from thermocline.tiered.stores import DirectoryAccess, ObjectStoreOptions, open_object_store
from thermocline.tiered.wrappers import (
    BoundingObjectStore,
    LedgerCopyStore,
    OutageWatch,
    OutageWatchingObjectStore,
    StoreCounters,
    StoreRates,
)

logger = logging.getLogger(__name__)

SEAL_S_MAX = 600.0
"""How long the hot process waits for a seal, too: while the store is away, no request is to wait for ever."""


class TierRole:
    """Answers the hot process. Belongs to the process's loop."""

    def __init__(
        self,
        *,
        disk: Disk | None = None,
        clock: Callable[[], int] = wall_clock_ms,
        keeps_spool_in_memory: bool = False,
        open_store: Callable[[str, ObjectStoreOptions], Awaitable[ObjectStore]] = open_object_store,
        make_random: Callable[[], random.Random] = random.Random,
        checkpoint_interval: int = CHECKPOINT_INTERVAL,
        on_opened: Callable[[], None] = give_memory_back,
    ) -> None:
        """`disk`: where the hot process has its store; `clock`: milliseconds since 1970; `make_random`: what it makes
        must differ in every process; `checkpoint_interval`: see LedgerWriter; `on_opened`: called once the catalog is
        decoded."""
        self._open_store = open_store
        self._on_opened = on_opened
        self._make_random = make_random
        self._checkpoint_interval = checkpoint_interval
        self._disk: Disk = disk if disk is not None else RealDisk()
        self._clock = clock
        self._keeps_spool_in_memory = keeps_spool_in_memory
        self._link: HelperLink | None = None
        self._account: TierAccount | None = None
        self._work: TierWork | None = None
        self.rates = StoreRates()
        """How much may pass in a second."""
        self.budgets = TierBudgets()
        """How many bytes are held now."""
        self._config = TierConfig()
        self._pending = PendingTables()
        self._dropped = DroppedRanges(incarnation_of=lambda _: 0)
        self._hot_state = HotState()
        self._last_error = "the cold tier is being opened"
        self._received = 0
        self._sent = 0
        self._reported: dict[str, set[int]] = {}

    @property
    def is_serving(self) -> bool:
        """Whether cold reads are answered."""
        return self._work is not None

    async def run(self, link: HelperLink) -> None:
        """Open the cold tier, however long its store is away, and work until cancelled.

        Raises:
            FencedError: Another writer has taken over.
            ForeignLedgerError: The prefix belongs to another store directory.
            UnfitStoreError: The store would let two writers commit, or cannot be opened as its URL says.
            UntrustedStoreError: The store's certificate is not trusted.
        """
        self._link = link
        append_offset = link.page.read().append_offset
        config = link.settings.tier
        keys = BrokerKeys.of(cluster=link.settings.cluster_name, broker_name=link.settings.broker_name)
        folder = f"{link.settings.store.own_path}/ledger-copy"
        self._follow(config)
        account = self._account = TierAccount(
            keys,
            config,
            seal_age_ms_max=link.settings.store.file_reserved_ms,
            clock=self._clock,
            on_outage=lambda watch: tell_outage(link, watch),
        )
        options = ObjectStoreOptions(
            counters=account.meter.totals,
            accounts_of=account.meter.accounts_of,
            rates=self.rates,
            directory_access=DirectoryAccess(readers=Readers(config.directory_readers), trees=(keys.root,)),
        )
        try:
            opened = await self._open_store(config.cold_url, options)
        except InvalidRequestError as error:  # what the URL's text does not tell: its file of authorities
            raise UnfitStoreError(error.message, **error.context) from error
        bounded = BoundingObjectStore(opened, self.budgets.reads)
        watched = OutageWatchingObjectStore(bounded, account.outage, check_key=keys.head_hint)
        store = LedgerCopyStore(watched, keys=keys, disk=self._disk, folder=folder)
        try:
            writer = await open_ledger(
                store,
                link.settings,
                clock=self._clock,
                on_failure=self._failed_to_open,
                append_offset=append_offset,
                make_random=self._make_random,
                checkpoint_interval=self._checkpoint_interval,
            )
            self._on_opened()
            try:
                work = TierWork(
                    link,
                    store,
                    writer,
                    account,
                    disk=self._disk,
                    clock=self._clock,
                    keeps_spool_in_memory=self._keeps_spool_in_memory,
                    hot_state=self._hot_state,
                    on_committed=self._committed,
                    budgets=self.budgets,
                    check_store=watched.check,
                    scrub_bytes_per_day=lambda: self._config.scrub_bytes_per_day,
                )
                try:
                    await self._run(work)
                finally:
                    self._work = None
                    await work.close()
            finally:
                await writer.close()
        finally:
            await store.close()

    async def _run(self, work: TierWork) -> None:
        self._work = work
        table = self._pending.take_merged()
        if table is not None:
            self._add_table(table, work.service)
        self._take_dropped(self._dropped.live())
        work.service.backlog.account()
        catalog = work.service.catalog
        self._committed(catalog, frozenset(catalog.topics))
        await work.run()

    def _failed_to_open(self, reason: str) -> None:
        self._last_error = reason

    # -- towards the hot process ---------------------------------------------------------------------------------------

    def _committed(self, catalog: Catalog, topics: frozenset[str]) -> None:
        """Report the offsets served now; the catalog is in use already."""
        work, link = self._work, self._link
        assert work is not None
        assert link is not None
        ranges: list[ColdRange] = []
        for topic in topics:
            entry = catalog.topics.get(topic)
            if entry is None:
                continue
            bounds, gaps = catalog.queue_bounds(topic), catalog.queue_gaps(topic)
            # A reported queue that has lost its last segment is reported once more, as empty.
            reported = self._reported.pop(topic, set())
            ranges.extend(
                ColdRange(
                    topic=topic,
                    incarnation=entry.incarnation,
                    queue_id=queue_id,
                    min_offset=bounds.get(queue_id, (QUEUE_START, QUEUE_START))[0],
                    end_offset=bounds.get(queue_id, (QUEUE_START, QUEUE_START))[1],
                    gaps=gaps[queue_id].spans if queue_id in gaps else (),
                )
                for queue_id in reported | bounds.keys()
            )
            if bounds:
                self._reported[topic] = set(bounds)
        self._sent += 1
        link.tell(
            HelperRequestCode.CATALOG_TABLE,
            CatalogTable(
                sequence=self._sent,
                version=catalog.version,
                committed_offset=max(LOG_START, work.service.backlog.committed_offset()),
                ranges=ranges,
            ),
        )

    def _follow(self, config: TierConfig) -> None:
        """Keep to these limits and budgets; what else settings say counts from the broker's next start on."""
        self._config = config
        self.rates.set(config.limits)
        self.budgets.resize(config)

    def fenced(self, error: FencedError | ForeignLedgerError | UnfitStoreError | UntrustedStoreError) -> None:
        """Tell the hot process that this broker's time as a writer is over, or never comes."""
        if self._link is not None:
            is_refused = not isinstance(error, FencedError)
            epoch = error.context.get("later_epoch")
            later_epoch = epoch if isinstance(epoch, int) else 0
            self._link.tell(
                HelperRequestCode.FENCED, Fenced(reason=str(error), is_refused=is_refused, later_epoch=later_epoch)
            )

    # -- RequestHandler ------------------------------------------------------------------------------------------------

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Tables, reads, reports and seals."""
        code = command.code
        if code == HelperRequestCode.QUEUE_TABLE:
            self._queue_table(msgspec.msgpack.decode(command.body, type=QueueTable))
            return None
        if code == HelperRequestCode.TIER_REPORT:
            return await self._report(command)
        if code == HelperRequestCode.DROPPED:
            self._take_dropped(msgspec.msgpack.decode(command.body, type=Dropped).ranges)
            return None
        if code == HelperRequestCode.READER_LEFT:
            if self._work is not None:
                self._work.reads.reader_left(msgspec.msgpack.decode(command.body, type=ReaderLeft).reader)
            return None
        if code == HelperRequestCode.TIER_SETTINGS:
            self._follow(msgspec.msgpack.decode(command.body, type=TierSettings).tier)
            return None
        if code == HelperRequestCode.STATE_ANSWER:
            self._hot_state.answered(msgspec.msgpack.decode(command.body, type=StateAnswer))
            return None
        work = self._work
        if work is None:
            raise UnavailableError("the cold tier is not open yet", reason=self._last_error)
        if code == HelperRequestCode.SEAL:
            return await self._seal(command, work)
        if code == HelperRequestCode.PURGE:
            return await self._purge(command, work)
        if code in (HelperRequestCode.SCRUB, HelperRequestCode.SCRUB_STATE):
            return self._answer_scrub(command, work)
        if code == HelperRequestCode.TTL_PROOF:
            proof = await work.prove_ttl(msgspec.msgpack.decode(command.body, type=TtlProofRequest))
            return RemotingCommand.response(command, body=msgspec.msgpack.encode(proof))
        if code == HelperRequestCode.TIER_COST:
            answer = await work.account.answer(work.service, msgspec.msgpack.decode(command.body, type=CostRequest))
            return RemotingCommand.response(command, body=msgspec.msgpack.encode(answer))
        if code == HelperRequestCode.TIER_METRICS:
            figures = work.figures(msgspec.msgpack.decode(command.body, type=TierFiguresRequest))
            return RemotingCommand.response(command, body=msgspec.msgpack.encode(figures))
        return await work.reads.handle(command)

    @staticmethod
    async def _seal(command: RemotingCommand, work: TierWork) -> RemotingCommand:
        request = msgspec.msgpack.decode(command.body, type=SealRequest)
        try:
            async with asyncio.timeout(SEAL_S_MAX):
                outcomes = await work.service.seal(request.topic)
        except TimeoutError as error:
            raise UnavailableError("not sealed in time", reason=work.service.last_error) from error
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

    @staticmethod
    async def _purge(command: RemotingCommand, work: TierWork) -> RemotingCommand:
        request = msgspec.msgpack.decode(command.body, type=PurgeRequest)
        report = await work.purger.purge(request.topic)
        reply = PurgeReply(
            packs_rewritten=report.packs_rewritten,
            segments_rewritten=report.segments_rewritten,
            written_bytes=report.written_bytes,
            deleted_objects=report.deleted_objects,
            deleted_bytes=report.deleted_bytes,
            held_by_pin=report.is_held_by_pin,
            left_objects=[*(held.key for held in report.remaining), *report.left_segments],
            own_segments=len(report.left_segments),
        )
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))

    @staticmethod
    def _answer_scrub(command: RemotingCommand, work: TierWork) -> RemotingCommand:
        if command.code == HelperRequestCode.SCRUB:
            state = work.scrub.start(msgspec.msgpack.decode(command.body, type=ScrubRequest))
        else:
            state = work.scrub.state()
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(state))

    def connection_opened(self, connection: Connection) -> None:
        """The hot process's one."""

    def connection_closed(self, connection: Connection) -> None:
        """`connect` was given what happens then."""

    def _queue_table(self, table: QueueTable) -> None:
        assert table.sequence == self._received + 1, "the hot process numbers its tables"
        self._received = table.sequence
        if self._work is None:
            self._pending.add(table)
        else:
            self._add_table(table, self._work.service)

    def _take_dropped(self, ranges: list[DroppedRange]) -> None:
        if self._work is None:
            self._dropped.add(ranges)
            return
        for each in ranges:
            hole = QueueHole(each.queue_id, each.start_offset, each.end_offset)
            self._work.service.report_dropped(each.topic, each.incarnation, hole)

    @staticmethod
    def _add_table(table: QueueTable, service: TierService) -> None:
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

    async def _report(self, command: RemotingCommand) -> RemotingCommand:
        request = msgspec.msgpack.decode(command.body, type=TierReportRequest)
        pins = await self._work.live_pins() if self._work and request.with_pins else []
        service = self._work.service if self._work else None
        topics = await topic_reports(service, request, pins=pins, now_ms=self._clock()) if service else []
        counters = self._account.meter.totals if self._account else StoreCounters()
        reply = TierReportReply(
            version=service.catalog.version if service else -1,
            last_error=service.last_error if service else self._last_error,
            requests={verb.value: count for verb, count in counters.requests.items()},
            sent_bytes=counters.sent_bytes,
            received_bytes=counters.received_bytes,
            topics=topics,
            last_scrub=self._work.scrub.last_report if self._work else None,
            outage_ms=self._account.outage_ms if self._account else 0,
            budget=self._account.budget_state() if self._account else None,
            waits_for_budget=self._account.topics_waiting_for_budget if self._account else [],
            oldest_waiting=(service.backlog.oldest_waiting() or "") if service else "",
            steady_scrub=self._work.scrub.steady_report() if self._work else None,
        )
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))


def tell_outage(link: HelperLink, watch: OutageWatch) -> None:
    """Report to the hot process since when the object store has not answered, or that it does again."""
    link.tell(HelperRequestCode.STORE_ABSENCE, StoreAway(since_ms=watch.since_ms or 0, reason=watch.last_error))


async def serve(options: HelperOptions, stop: asyncio.Event, *, role: TierRole | None = None) -> None:
    """Run the role until `stop`, or until the hot process goes away.

    Raises:
        FencedError: Another writer has taken over, the prefix is another store's, the object store is unfit or not
            trusted, or the hot process is of another build.
        MQError: The cold tier cannot be used.
    """
    role = role or TierRole()
    link = await connect(options, role=TIER_ROLE, handler=role, on_closed=stop.set)
    work = asyncio.create_task(role.run(link), name="tier")
    stopping = asyncio.create_task(stop.wait(), name="tier-stop")
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    except (FencedError, ForeignLedgerError, UnfitStoreError, UntrustedStoreError) as error:
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
