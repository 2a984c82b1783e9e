"""Tier service: the loop that moves what is due from the local log to the cold tier, and out of it again.

One round
  1. Count what the hot process has reported since the last one (`SealBacklog.account`).
  2. Seal the due topics, several at once, each into segments that are uploaded whole.
  3. Commit one ledger entry: the segments, topics whose TTL or incarnation changed, segments that expired.
  4. Tell the hot process which queues reach how far now (`on_committed`), and collect garbage that is due.
A round with nothing to do costs no request.

Failures
  - The store does not answer: what was sealed is committed, the round ends, and the rest is sealed by a later one,
    which begins once the store has answered a small request (`check_store`): nothing is compressed for a store that is
    away. A commit whose outcome is unknown is settled before anything else happens.
  - Something of the ledger is damaged: no garbage is collected until it is whole again; all else goes on.
  - FencedError: another writer has taken over. It leaves `run`; nothing more is written or deleted.

A topic is named in the ledger from its first segment on. Belongs to the tier process's loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
)
from thermocline.tiered.catalog import NEVER_EXPIRES, Catalog, TopicEntry
from thermocline.tiered.errors import EarlierCommitUnsettledError
from thermocline.tiered.garbage import GarbageCollector
from thermocline.tiered.ledger_entry import LedgerChanges, LostRange, QueueHole, TopicChange, TopicDelete
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.pending_holes import PendingHoles
from thermocline.tiered.seal_backlog import SealBacklog, SealPlan
from thermocline.tiered.sealer import Sealer
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_format import QueueRun
from thermocline.tiered.tier_config import TierConfig
from thermocline.tiered.ttl import sweep

logger = logging.getLogger(__name__)

RETRY_DELAY_MS = 500
RETRY_DELAY_MS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic as the hot process has it. `ttl_ms` is the one in effect; None keeps messages for ever. `cut_ms`: what
    was stored before it has expired, for good; `expired_before_ms`: the part of that which changes of the time to live
    have fixed."""

    topic: str
    incarnation: int
    ttl_ms: int | None
    expired_before_ms: int
    cut_ms: int
    tiered: bool
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SealOutcome:
    """What a seal on demand has committed."""

    topic: str
    segment_id: str
    record_count: int
    raw_bytes: int
    stored_bytes: int


@dataclass(slots=True)
class _Demand:
    """Somebody waits until everything that was flushed when he asked is committed."""

    topics: frozenset[str] | None
    done: asyncio.Future[list[SealOutcome]]
    outcomes: list[SealOutcome]


class TierService:
    """See the module's header."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        backlog: SealBacklog,
        sealer: Sealer,
        config: TierConfig,
        clock: Callable[[], int],
        flush_offset: Callable[[], int],
        on_committed: Callable[[Catalog, frozenset[str]], None],
        check_store: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`check_store`: raises ObjectStoreUnavailableError while the store is known to be away.
        `on_committed(catalog, topics)`: called with the topics whose cold ranges changed, or none of them when only
        the gate of local deletion (`backlog.committed_offset`) has moved."""
        self._writer = writer
        self._backlog = backlog
        self._sealer = sealer
        self._config = config
        self._clock = clock
        self._flush_offset = flush_offset
        self._on_committed = on_committed
        self._check_store = check_store
        self._garbage = GarbageCollector(writer)
        self._holes = PendingHoles()
        self._reports: dict[str, TopicReport] = {}
        self._demands: list[_Demand] = []
        self._wake = asyncio.Event()
        self._pressure = False
        self._next_sweep_ms = 0
        self._published_offset = -1
        self._has_swept_orphans = False
        self._last_error = ""
        self._garbage_error = ""
        self._garbage_not_before_ms = 0
        self._changing = asyncio.Lock()
        """Held from the look at the catalog that a change is made by until the change is in: by rounds and repairs."""

    @property
    def catalog(self) -> Catalog:
        """The newest committed catalog."""
        return self._writer.catalog

    @property
    def backlog(self) -> SealBacklog:
        """What waits."""
        return self._backlog

    @property
    def last_error(self) -> str:
        """Why the last round failed; empty after one that did not."""
        return self._last_error

    def report_topic(self, report: TopicReport) -> None:
        """Take in a topic of the hot process; a new incarnation starts clean."""
        self._reports[report.topic] = report
        if report.deleted:
            self._backlog.delete_topic(report.topic)
            return
        entry = self.catalog.topics.get(report.topic)
        is_same = entry is not None and entry.incarnation == report.incarnation and not entry.deleted
        self._backlog.set_topic(
            report.topic,
            incarnation=report.incarnation,
            cut_ms=report.cut_ms,
            tiered=report.tiered,
            cold_ends=entry.queue_ends() if entry is not None and is_same else {},
        )

    def report_queue(self, topic: str, queue_id: int, *, min_offset: int, end_offset: int) -> None:
        """Take in a queue of a reported topic, its file written up to `end_offset`."""
        if topic in self._backlog.topics:  # else the topic was deleted behind this report
            self._backlog.set_queue(topic, queue_id, min_offset=min_offset, end_offset=end_offset)

    def report_dropped(self, topic: str, incarnation: int, hole: QueueHole) -> None:
        """Take in offsets that the hot process has given up; the next entry declares those that nobody holds."""
        self._holes.add(topic, incarnation, hole)
        progress = self._backlog.topics.get(topic)
        if progress is not None and progress.incarnation == incarnation:
            self._backlog.raise_minimum(topic, hole.queue_id, hole.end_offset)

    def reported(self, *, log_offset: int, pressure: bool) -> None:
        """A whole report has been taken in; see SealBacklog.set_reported_offset."""
        self._backlog.set_reported_offset(log_offset)
        if pressure and not self._pressure:
            self._wake.set()
        self._pressure = pressure

    async def seal(self, topic: str | None) -> list[SealOutcome]:
        """Seal on demand: everything of a topic (or of all) that is reported and flushed now; committed on return.

        Raises:
            InvalidRequestError: There is no such topic, or it is not tiered.
        """
        if topic is not None:
            progress = self._backlog.topics.get(topic)
            if progress is None or not progress.tiered:
                raise InvalidRequestError("the cold tier holds no topic of this name", topic=topic)
        demand = _Demand(
            frozenset([topic]) if topic is not None else None, asyncio.get_running_loop().create_future(), []
        )
        self._demands.append(demand)
        self._wake.set()
        return await demand.done

    async def repair(self, change: Callable[[Catalog], LedgerChanges | None]) -> bool:
        """Commit what `change` makes of the newest catalog; False when that is nothing. Between two rounds' commits.

        Raises:
            FencedError: Another writer has taken over.
            ObjectStoreUnavailableError: An earlier commit could not be settled; nothing was begun.
        """
        async with self._changing:
            await self._settle()
            changes = change(self.catalog)
            if changes is None or changes.is_empty:
                return False
            await self._commit(changes)
            topics = {segment.topic for segment in changes.segments_in} | {out.topic for out in changes.segments_out}
            topics |= {kept.segment.topic for kept in changes.quarantine}
            self._publish(frozenset(topics | {out.topic for out in changes.quarantine_out}))
            return True

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[LedgerWriter]:
        """The ledger's writer, while no round commits or deletes anything."""
        async with self._changing:
            await self._settle()
            yield self._writer

    async def sweep_orphans(self) -> None:
        """List the prefix once more, and delete what nobody names. Raises as `run_once`."""
        async with self._changing:
            now_ms = self._clock()
            plan = await self._garbage.plan(now_ms=now_ms, sweep=True)
            await self._garbage.execute(plan, now_ms=now_ms)

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            FencedError: Another writer has taken over this ledger.
        """
        delay_ms = RETRY_DELAY_MS
        while True:
            try:
                await self.run_once()
                self._last_error, delay_ms = "", RETRY_DELAY_MS
                pause_ms = self._config.account_interval_ms
            except ObjectStoreUnavailableError as error:
                level = logging.DEBUG if self._last_error else logging.WARNING
                self._last_error = str(error)
                logger.log(level, "cold tier round failed: %s retry_ms=%d", error, delay_ms)
                pause_ms, delay_ms = delay_ms, min(delay_ms * 2, RETRY_DELAY_MS_MAX)
            try:
                async with asyncio.timeout(pause_ms / 1_000):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    async def run_once(self) -> None:
        """One round. Raises as `run`, and ObjectStoreUnavailableError when the store did not answer."""
        if self._check_store is not None:
            await self._check_store()
        await self._settle()
        now_ms = self._clock()
        self._backlog.account()
        # Fixed for the round, so that it ends however fast messages come in.
        flush_offset = self._flush_offset()
        demands, self._demands = self._demands, []
        try:
            wanted = self._wanted(demands)
            topics = list(dict.fromkeys((*wanted, *self._backlog.due(now_ms=now_ms, pressure=self._pressure))))
            while True:
                advanced = await self._seal_and_commit(topics, demands, flush_offset=flush_offset, now_ms=now_ms)
                # What is more than one segment takes is due again at once.
                topics = [topic for topic in advanced if topic in wanted or self._is_full(topic)]
                if not topics:
                    break
        except BaseException:
            self._demands = demands + self._demands
            raise
        self._publish(frozenset())
        for demand in demands:
            if not demand.done.done():
                demand.done.set_result(demand.outcomes)
        await self._collect_garbage(now_ms)

    # -- one round -----------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Nothing is sealed while an earlier commit's outcome is unknown."""
        before = self.catalog.version
        await self._writer.settle()
        if self.catalog.version != before:
            self._resume_after_settling()

    def _resume_after_settling(self) -> None:
        """A commit that had got no answer is in: start each topic from what the catalog says."""
        for report in self._reports.values():
            entry = self.catalog.topics.get(report.topic)
            progress = self._backlog.topics.get(report.topic)
            if entry is None or progress is None or entry.incarnation != progress.incarnation:
                continue
            self._backlog.set_cold_ends(report.topic, entry.queue_ends())
        self._publish(frozenset(self.catalog.topics))

    def _wanted(self, demands: Iterable[_Demand]) -> set[str]:
        wanted: set[str] = set()
        for demand in demands:
            names = demand.topics if demand.topics is not None else self._backlog.topics.keys()
            wanted.update(
                topic
                for topic in names
                if (progress := self._backlog.topics.get(topic)) is not None
                and progress.tiered
                and progress.first_waiting_ms is not None
            )
        return wanted

    def _is_full(self, topic: str) -> bool:
        progress = self._backlog.topics.get(topic)
        return progress is not None and progress.waiting_bytes >= self._config.segment_bytes

    async def _seal_and_commit(
        self, topics: list[str], demands: list[_Demand], *, flush_offset: int, now_ms: int
    ) -> list[str]:
        """Take one plan of each topic all the way; returns the topics that got further."""
        plans: list[SealPlan] = []
        for topic in topics:
            if topic not in self._backlog.topics:
                continue
            try:
                plan = self._backlog.plan(topic, flush_offset=flush_offset)
            except ObjectNotFoundError as error:
                logger.info("topic went away while it was planned topic=%s: %s", topic, error)
                continue
            except CorruptDataError as error:
                # Its files may be those of the topic's next life, of which we will be told.
                logger.warning("topic not sealed topic=%s: %s", topic, error)
                continue
            if plan is not None:
                plans.append(plan)
        sealed, failure = await self._seal_all([plan for plan in plans if plan.runs])
        async with self._changing:
            changes = self._changes([entry for _, entry in sealed], now_ms=now_ms)
            if not changes.is_empty:
                await self._commit(changes)
        for plan in plans:
            if not plan.runs:
                self._backlog.committed(plan)
        for plan, entry in sealed:
            self._backlog.committed(plan)
            self._tell_demands(demands, entry)
        advanced = {entry.topic for _, entry in sealed} | {plan.topic for plan in plans if not plan.runs}
        changed = {change.topic for change in changes.topics} | {gone.topic for gone in changes.topics_deleted}
        changed |= {gone.topic for gone in (*changes.segments_out, *changes.quarantine_out)}
        self._publish(frozenset(advanced | changed))
        if failure is not None:
            raise failure
        return sorted(advanced)

    def _publish(self, topics: frozenset[str]) -> None:
        """Tell of topics whose cold ranges changed, and of a gate that moved."""
        self._backlog.account()  # of what was reported while a seal or a commit was under way
        committed_offset = self._backlog.committed_offset()
        if topics or committed_offset != self._published_offset:
            self._published_offset = committed_offset
            self._on_committed(self.catalog, topics)

    async def _seal_all(
        self, plans: list[SealPlan]
    ) -> tuple[list[tuple[SealPlan, SegmentEntry]], BaseException | None]:
        """Seal plans, a few at once. One that fails gives its id up; the others count, and are to be committed before
        the failure is raised: whoever waits for the failed one must not be told that all is done."""
        slots = asyncio.Semaphore(self._config.upload_concurrency_max)

        async def seal_one(plan: SealPlan) -> SegmentEntry:
            async with slots:
                segment_id = self._writer.next_segment_id()
                try:
                    return await self._sealer.seal(plan, segment_id)
                except BaseException:
                    self._writer.abandon(segment_id, self._writer.keys.segment(plan.topic, segment_id))
                    raise

        outcomes = await asyncio.gather(*(seal_one(plan) for plan in plans), return_exceptions=True)
        sealed: list[tuple[SealPlan, SegmentEntry]] = []
        failure: BaseException | None = None
        for plan, outcome in zip(plans, outcomes, strict=True):
            if isinstance(outcome, SegmentEntry):
                sealed.append((plan, outcome))
            elif isinstance(outcome, ObjectNotFoundError | CorruptDataError):
                logger.error("topic not sealed topic=%s: %s", plan.topic, outcome)
            else:
                failure = outcome
        return sealed, failure

    def _changes(self, segments: list[SegmentEntry], *, now_ms: int) -> LedgerChanges:
        """What one commit is to change. Pure, but for the time of the next sweep."""
        catalog = self.catalog
        deletes: list[TopicDelete] = []
        changes: list[TopicChange] = []
        new_topics = {segment.topic for segment in segments}
        for report in self._reports.values():
            entry = catalog.topics.get(report.topic)
            is_named = entry is not None and not entry.deleted
            ended = report.incarnation if report.deleted else report.incarnation - 1
            if entry is not None and is_named and entry.incarnation <= ended:
                deletes.append(TopicDelete(report.topic, entry.incarnation))
                is_named = False
            if report.deleted or not (is_named or report.topic in new_topics):
                continue
            known_ttl_ms = catalog.ttl_ms(report.topic) if is_named else None
            known_cut_ms = entry.expired_before_ms if entry is not None and is_named else 0
            holes = self._holes_of(report, entry if is_named else None, segments) if self._holes else ()
            if known_ttl_ms != report.ttl_ms or known_cut_ms < report.expired_before_ms or holes:
                changes.append(
                    TopicChange(
                        topic=report.topic,
                        incarnation=report.incarnation,
                        ttl_ms=NEVER_EXPIRES if report.ttl_ms is None else report.ttl_ms,
                        expired_before_ms=report.expired_before_ms,
                        holes=holes,
                    )
                )
        live = [
            segment
            for segment in segments
            if (report := self._reports[segment.topic]).incarnation == segment.incarnation and not report.deleted
        ]
        for segment in segments:
            if segment not in live:
                self._writer.abandon(segment.id, segment.keys)
        swept = LedgerChanges()
        if now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + self._config.sweep_interval_ms
            swept = sweep(catalog, self._cuts_ms(catalog))
        ending = {delete.topic for delete in deletes}
        grace_ms = self._config.grace_ms
        is_known = catalog.settings.grace_ms == grace_ms
        return LedgerChanges(
            segments_in=tuple(live),
            segments_out=tuple(gone for gone in swept.segments_out if gone.topic not in ending),
            topics=tuple(changes),
            topics_deleted=tuple(deletes),
            quarantine_out=tuple(gone for gone in swept.quarantine_out if gone.topic not in ending),
            settings=None if is_known else msgspec.structs.replace(catalog.settings, grace_ms=grace_ms),
        )

    def _holes_of(
        self, report: TopicReport, entry: TopicEntry | None, coming: list[SegmentEntry]
    ) -> tuple[QueueHole, ...]:
        """What of a topic was dropped and is held by no segment, those included that come with this entry."""
        held: list[QueueRun | LostRange | QueueHole] = [] if entry is None else [*entry.ranges(), *entry.holes]
        held += [run for segment in coming if segment.topic == report.topic for run in segment.runs]
        self._holes.forget_before(report.topic, report.incarnation)
        return self._holes.take(
            report.topic, report.incarnation, ((each.queue_id, each.start_offset, each.end_offset) for each in held)
        )

    def _cuts_ms(self, catalog: Catalog) -> dict[str, int]:
        """Topic -> cut, of the topics that both the hot process and the catalog have under one incarnation."""
        return {
            report.topic: report.cut_ms
            for report in self._reports.values()
            if not report.deleted
            and (entry := catalog.topics.get(report.topic)) is not None
            and entry.incarnation == report.incarnation
        }

    async def _commit(self, changes: LedgerChanges) -> None:
        """Commit, and when nobody knows whether it was carried out, find out before anything else."""
        delay_ms = RETRY_DELAY_MS
        is_begun = False
        while True:
            try:
                if is_begun:
                    await self._writer.settle()
                else:
                    await self._writer.commit(changes)
                return
            except ObjectStoreUnavailableError as error:
                is_begun = is_begun or not isinstance(error, EarlierCommitUnsettledError)
                logger.log(logging.DEBUG if self._last_error else logging.WARNING, "commit got no answer: %s", error)
                self._last_error = str(error)
                await asyncio.sleep(delay_ms / 1_000)
                delay_ms = min(delay_ms * 2, RETRY_DELAY_MS_MAX)

    def _tell_demands(self, demands: Iterable[_Demand], entry: SegmentEntry) -> None:
        outcome = SealOutcome(
            topic=entry.topic,
            segment_id=entry.segment_id,
            record_count=entry.record_count,
            raw_bytes=entry.raw_bytes,
            stored_bytes=entry.stored_bytes,
        )
        for demand in demands:
            if demand.topics is None or entry.topic in demand.topics:
                demand.outcomes.append(outcome)

    async def _collect_garbage(self, now_ms: int) -> None:
        """Delete what is due. Orphans of earlier writers are looked for once, by listing."""
        if now_ms < self._garbage_not_before_ms:
            return
        if self._has_swept_orphans and not self._garbage.is_due(now_ms=now_ms):
            return
        async with self._changing:
            try:
                plan = await self._garbage.plan(now_ms=now_ms, sweep=not self._has_swept_orphans)
            except CorruptDataError as error:
                if str(error) != self._garbage_error:
                    logger.error("nothing is deleted from the bucket: %s", error)
                self._garbage_error = str(error)
                self._garbage_not_before_ms = now_ms + self._config.sweep_interval_ms
                return
            self._garbage_error = ""
            report = await self._garbage.execute(plan, now_ms=now_ms)
        self._has_swept_orphans = True
        if report.deleted_count:
            logger.info("garbage deleted objects=%d bytes=%d", report.deleted_count, report.deleted_bytes)
