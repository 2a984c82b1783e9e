"""Tier service: the loop that moves what is due from the local log to the cold tier, and out of it again.

One round
  1. Count what the hot process has reported since the last one (`SealBacklog.account`).
  2. Seal the due topics, several at once, each into segments that are uploaded whole.
     What is due by age goes up together with all else that waits of small topics, in packs (`packs/pack_sealer.py`).
  3. Commit one ledger entry: the segments and packs, topics whose TTL or incarnation changed, what expired.
  4. Tell the hot process which queues reach how far now (`on_committed`), and collect garbage that is due.
A round with nothing to do costs no request.

Failures
  - The store does not answer: what was sealed is committed, the round ends, and the rest is sealed by a later one. A
    commit whose outcome is unknown is settled before anything else happens. `wrappers/outage.py` tells people.
  - Something of the ledger is damaged: no garbage is collected until it is whole again; all else goes on.
  - FencedError: another writer has taken over. It leaves `run`; nothing more is written or deleted.

A topic is named in the ledger from its first segment on. Belongs to the tier process's loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
)
from thermocline.tiered.catalog import NEVER_EXPIRES, Catalog
from thermocline.tiered.cost.seal_admission import DueTopic, SealAdmission
from thermocline.tiered.errors import EarlierCommitUnsettledError
from thermocline.tiered.garbage import GarbageCollector, GarbageReport
from thermocline.tiered.ledger_entry import LedgerChanges, TopicChange, TopicDelete
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.pack_sealer import ENTRY_BYTES_MAX, PackSealer, SealedPack
from thermocline.tiered.packs.pack_ttl import expired_packs
from thermocline.tiered.packs.ttl_class import ttl_class
from thermocline.tiered.seal_backlog import SealBacklog, SealPlan
from thermocline.tiered.sealer import Sealer
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.segment_upload import PUTS_PER_SEGMENT
from thermocline.tiered.sweep_turn import Sweeps, SweepTurn
from thermocline.tiered.tier_config import TierConfig
from thermocline.tiered.ttl import sweep

logger = logging.getLogger(__name__)

RETRY_DELAY_MS = 500
PLANS_AT_ONCE = 32
COLLECTION_COST = 3
"""Listings and PUTs of a collection beside its commit: pins twice, the hint."""
COLLECTIONS_PER_GRACE = 24
"""How often garbage is collected at most: each collection reads the heads of all kept checkpoints, of which there are
the more the more is committed; and while a pin holds garbage, each finds the same."""
RETRY_DELAY_MS_MAX = 10_000
SWEEPS_WAITED_MAX = 3
"""How many sweep intervals a pack that has expired may wait for a commit that is made anyway."""


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
        pack_sealer: PackSealer | None = None,
        admission: SealAdmission | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_committed(catalog, topics)`: called with the topics whose cold ranges changed, or none of them when only
        the gate of local deletion (`backlog.committed_offset`) has moved. Without `pack_sealer` every topic is sealed
        into segments of its own. `admission`: there is a request budget."""
        self._admission = admission
        self._sleep = sleep
        self._writer = writer
        self._backlog = backlog
        self._sealer = sealer
        self._config = config
        self._clock = clock
        self._flush_offset = flush_offset
        self._on_committed = on_committed
        self._pack_sealer = pack_sealer
        self._garbage = GarbageCollector(writer)
        self._reports: dict[str, TopicReport] = {}
        self._demands: list[_Demand] = []
        self._wake = asyncio.Event()
        self._pressure = False
        interval_ms = config.sweep_interval_ms
        self._segment_sweep = SweepTurn(interval_ms=interval_ms, waited_max_ms=0, now_ms=clock())
        self._pack_sweep = SweepTurn(
            interval_ms=interval_ms, waited_max_ms=SWEEPS_WAITED_MAX * interval_ms, now_ms=clock()
        )
        self._published_offset = -1
        self._has_swept_orphans = False
        self._last_error = ""
        self._garbage_error = ""
        self._garbage_not_before_ms = 0
        self._changing = asyncio.Lock()
        """Held from the look at the catalog that a change is made by until the change is in: by rounds, merges and
        repairs."""

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

    @property
    def sweeps(self) -> Sweeps:
        """The last sweeps whose commit is in, and the next ones."""
        return Sweeps(segments=self._segment_sweep.state, packs=self._pack_sweep.state)

    def ttl_ms(self, topic: str) -> int | None:
        """The time to live in effect, as the hot process says it; None keeps messages for ever."""
        report = self._reports.get(topic)
        return report.ttl_ms if report is not None else self.catalog.ttl_ms(topic)

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
            cold_ends=self.catalog.queue_ends(report.topic) if is_same else {},
        )

    def report_queue(self, topic: str, queue_id: int, *, min_offset: int, end_offset: int) -> None:
        """Take in a queue of a reported topic, its file written up to `end_offset`."""
        if topic in self._backlog.topics:  # else the topic was deleted behind this report
            self._backlog.set_queue(topic, queue_id, min_offset=min_offset, end_offset=end_offset)

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

    async def amend(self, change: Callable[[Catalog], LedgerChanges | None]) -> bool:
        """Commit what `change` makes of the newest catalog; False when that is nothing. Between two rounds' commits.

        Raises:
            FencedError: Another writer has taken over.
            ObjectStoreUnavailableError: An earlier commit could not be settled; nothing was begun.
        """
        async with self._changing:
            await self._settle()
            before = self.catalog
            changes = change(before)
            if changes is None or changes.is_empty:
                return False
            await self._commit(changes)
            self._publish(_changed_topics(changes, before))
            return True

    async def sweep_now(self) -> None:
        """Commit now what a round would in its time: topics that ended, and whatever has expired. Raises as `amend`."""
        self._segment_sweep.hasten()
        self._pack_sweep.hasten()
        await self.amend(lambda _: self._changes((), now_ms=self._clock()))
        self._sweeps_committed()

    async def collect_now(self) -> GarbageReport:
        """Delete what no live version names, without a grace period; pins hold. Raises as `run_once`."""
        async with self._changing:
            deleted = GarbageReport()
            # The first plan of a version without a checkpoint writes that, and leaves the ledger's garbage to the next.
            for _ in range(2):
                now_ms = self._clock()
                plan = await self._garbage.plan(now_ms=now_ms, grace_ms=0)
                report = await self._garbage.execute(plan, now_ms=now_ms)
                deleted = GarbageReport(
                    deleted_count=deleted.deleted_count + report.deleted_count,
                    deleted_bytes=deleted.deleted_bytes + report.deleted_bytes,
                    held_by_pin=report.held_by_pin,
                )
            return deleted

    def now_ms(self) -> int:
        """The clock by which rounds go."""
        return self._clock()

    def class_of(self, topic: str) -> str:
        """The TTL class that a topic is in now."""
        report = self._reports.get(topic)
        return ttl_class(report.ttl_ms if report is not None else self.catalog.ttl_ms(topic))

    def cuts_ms(self) -> dict[str, int]:
        """What has expired, by what the hot process said: topic -> store time before which everything has."""
        return self._cuts_ms(self.catalog)

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
                self._last_error = str(error)
                logger.debug("cold tier round failed: %s retry_ms=%d", error, delay_ms)
                pause_ms, delay_ms = delay_ms, min(delay_ms * 2, RETRY_DELAY_MS_MAX)
            try:
                async with asyncio.timeout(pause_ms / 1_000):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    async def run_once(self) -> None:
        """One round. Raises as `run`, and ObjectStoreUnavailableError when the store did not answer."""
        await self._settle()
        now_ms = self._clock()
        self._backlog.account()
        # Fixed for the round, so that it ends however fast messages come in.
        flush_offset = self._flush_offset()
        demands, self._demands = self._demands, []
        try:
            wanted = self._wanted(demands)
            due = self._admitted(self._backlog.due(now_ms=now_ms, pressure=self._pressure), now_ms=now_ms)
            if self._pack_sealer is not None and not all(map(self._is_full, due)):
                due += self._backlog.waiting()  # whatever waits goes with what is due: it costs no request more
            topics = list(dict.fromkeys((*wanted, *due)))
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
            self._backlog.set_cold_ends(report.topic, self.catalog.queue_ends(report.topic))
        self._publish(frozenset(self.catalog.topics))

    def _wanted(self, demands: Iterable[_Demand]) -> dict[str, None]:
        """The topics that somebody waits for, in the order of the backlog: not that of their names' hashes."""
        named = [demand.topics for demand in demands]
        if not named:
            return {}
        return {
            topic: None
            for topic, progress in self._backlog.topics.items()
            if progress.tiered
            and any(topics is None or topic in topics for topics in named)
            and progress.first_waiting_ms is not None
        }

    def _admitted(self, due: list[str], *, now_ms: int) -> list[str]:
        """Those of the due topics that the request budget lets be sealed now."""
        admission = self._admission
        if admission is None:
            return due
        topics: list[DueTopic] = []
        for topic in due:
            first_ms = self._backlog.topics[topic].first_waiting_ms
            assert first_ms is not None
            is_over_age = admission.is_over_age(first_ms, now_ms=now_ms)
            must = self._pressure or self._is_full(topic) or is_over_age
            topics.append(DueTopic(topic=topic, first_ms=first_ms, must=must))
        return admission.admit(topics, self._seal_cost, now_ms=now_ms)

    def _seal_cost(self, topics: Sequence[str]) -> int:
        """What it takes at most to seal topics in one round: small ones with all others that wait, in packs."""
        if self._pack_sealer is None:
            return PUTS_PER_SEGMENT * len(topics) + self._writer.commit_cost_max
        full_count = sum(map(self._is_full, topics))
        pack_count = self._pack_count() if full_count < len(topics) else 0
        more_entries = max(0, pack_count - 1)  # a pack of very many topics has an entry of its own
        return PUTS_PER_SEGMENT * full_count + pack_count + more_entries + self._writer.commit_cost_max

    def _pack_count(self) -> int:
        """How many packs there would be if all small topics that wait were sealed now."""
        sizes: dict[str, int] = {}
        for topic in self._backlog.waiting():
            if not self._is_full(topic):
                name = self.class_of(topic)
                sizes[name] = sizes.get(name, 0) + self._backlog.topics[topic].waiting_bytes
        return sum(1 + size_bytes // self._config.pack_bytes for size_bytes in sizes.values())

    def _can_pay_commit(self) -> bool:
        return self._can_pay(self._writer.commit_cost_max)

    def _can_pay(self, cost: int) -> bool:
        return self._admission is None or self._admission.budget.allows(cost)

    def _is_full(self, topic: str) -> bool:
        progress = self._backlog.topics.get(topic)
        return progress is not None and progress.waiting_bytes >= self._config.segment_bytes

    async def _seal_and_commit(
        self, topics: list[str], demands: list[_Demand], *, flush_offset: int, now_ms: int
    ) -> list[str]:
        """Take one plan of each topic all the way; returns the topics that got further."""
        plans: list[SealPlan] = []
        for number, topic in enumerate(topics):
            if number % PLANS_AT_ONCE == PLANS_AT_ONCE - 1:
                await asyncio.sleep(0)
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
        small = self._small_topics(plans, demands)
        sealed, failure = await self._seal_all([plan for plan in plans if plan.runs and plan.topic not in small])
        packs, pack_failure = await self._seal_packs([plan for plan in plans if plan.runs and plan.topic in small])
        failure = failure or pack_failure
        advanced = {entry.topic for _, entry in sealed} | {plan.topic for plan in plans if not plan.runs}
        advanced |= {plan.topic for each in packs for plan, _ in each.pieces}
        changed: set[str] = set()
        async with self._changing:
            for group in _entries(packs):
                before = self.catalog
                changes = self._changes([entry for _, entry in sealed], [each.pack for each in group], now_ms=now_ms)
                if not changes.is_empty:
                    await self._commit(changes)
                self._sweeps_committed()
                for plan, entry in sealed:
                    self._backlog.committed(plan)
                    self._tell_demands(demands, _outcome(entry))
                for each in group:
                    for plan, _ in each.pieces:
                        self._backlog.committed(plan)
                    self._tell_demands_of_pack(demands, each)
                sealed = []
                changed |= _changed_topics(changes, before)
        for plan in plans:
            if not plan.runs:
                self._backlog.committed(plan)
        self._publish(frozenset(advanced | changed))
        if failure is not None:
            raise failure
        return sorted(advanced)

    def _small_topics(self, plans: Sequence[SealPlan], demands: Iterable[_Demand]) -> frozenset[str]:
        """The topics that go into packs: too small to fill a segment, and not asked for by name."""
        if self._pack_sealer is None:
            return frozenset()
        named = frozenset[str]().union(*(demand.topics for demand in demands if demand.topics is not None))
        return frozenset(plan.topic for plan in plans if plan.topic not in named and not self._is_full(plan.topic))

    async def _seal_packs(self, plans: Sequence[SealPlan]) -> tuple[list[SealedPack], BaseException | None]:
        """Seal small topics' plans into packs, one after another; as `_seal_all`, what succeeded counts."""
        sealed: list[SealedPack] = []
        if self._pack_sealer is None:
            return sealed, None
        try:
            for ttl_class_name, group in self._pack_sealer.divide(plans, class_of=self.class_of):
                each = await self._pack_sealer.seal(ttl_class_name, group)
                if each is not None:
                    sealed.append(each)
        except ObjectStoreUnavailableError as error:
            return sealed, error
        except BaseException:
            for each in sealed:
                self._writer.abandon(each.pack.id, (each.pack.key,))
            raise
        return sealed, None

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

    def _changes(
        self, segments: Sequence[SegmentEntry], packs: Sequence[PackEntry] = (), *, now_ms: int
    ) -> LedgerChanges:
        """What one commit is to change. Pure, but for whose turn the next sweeps are."""
        catalog = self.catalog
        deletes: list[TopicDelete] = []
        changes: list[TopicChange] = []
        new_topics = {segment.topic for segment in segments} | {topic for pack in packs for topic in pack.topics}
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
            if known_ttl_ms != report.ttl_ms or known_cut_ms < report.expired_before_ms:
                changes.append(
                    TopicChange(
                        topic=report.topic,
                        incarnation=report.incarnation,
                        ttl_ms=NEVER_EXPIRES if report.ttl_ms is None else report.ttl_ms,
                        expired_before_ms=report.expired_before_ms,
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
        # What has expired is visible nowhere anyway: it may wait for a commit that is made for something else.
        cuts_ms, is_made = self._cuts_ms(catalog), bool(live or packs or changes or deletes)
        swept = LedgerChanges()
        if self._segment_sweep.is_on(now_ms=now_ms, is_made=is_made, can_pay=self._can_pay_commit):
            self._segment_sweep.look(cuts_ms, now_ms=now_ms)
            swept = sweep(catalog, cuts_ms)
        ending = {delete.topic for delete in deletes}
        is_made = is_made or bool(swept.segments_out)
        packs_out: tuple[str, ...] = ()
        if self._pack_sweep.is_on(now_ms=now_ms, is_made=is_made, can_pay=self._can_pay_commit):
            self._pack_sweep.look(cuts_ms, now_ms=now_ms)
            # Not those that go anyway with a topic that ends in the same commit.
            packs_out = tuple(
                pack_id
                for pack_id in expired_packs(catalog, cuts_ms)
                if ending.isdisjoint(catalog.packs[pack_id].topics)
            )
        grace_ms = self._config.grace_ms
        is_known = catalog.settings.grace_ms == grace_ms
        return LedgerChanges(
            segments_in=tuple(live),
            segments_out=tuple(gone for gone in swept.segments_out if gone.topic not in ending),
            topics=tuple(changes),
            topics_deleted=tuple(deletes),
            packs_in=tuple(packs),
            packs_out=packs_out,
            quarantine_out=tuple(gone for gone in swept.quarantine_out if gone.topic not in ending),
            settings=None if is_known else msgspec.structs.replace(catalog.settings, grace_ms=grace_ms),
        )

    def _sweeps_committed(self) -> None:
        self._segment_sweep.committed()
        self._pack_sweep.committed()

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
                logger.debug("commit got no answer: %s", error)
                self._last_error = str(error)
                await self._sleep(delay_ms / 1_000)
                delay_ms = min(delay_ms * 2, RETRY_DELAY_MS_MAX)

    def _tell_demands(self, demands: Iterable[_Demand], outcome: SealOutcome) -> None:
        for demand in demands:
            if demand.topics is None or outcome.topic in demand.topics:
                demand.outcomes.append(outcome)

    def _tell_demands_of_pack(self, demands: Iterable[_Demand], sealed: SealedPack) -> None:
        for plan, extent in sealed.pieces:
            outcome = SealOutcome(
                topic=plan.topic,
                segment_id=sealed.pack.pack_id,
                record_count=sum(queue.end_offset - queue.start_offset for queue in extent.queues),
                raw_bytes=extent.raw_bytes,
                stored_bytes=extent.stored_bytes,
            )
            self._tell_demands(demands, outcome)

    async def _collect_garbage(self, now_ms: int) -> None:
        """Delete what is due. Orphans of earlier writers are looked for once, by listing."""
        if now_ms < self._garbage_not_before_ms:
            return
        if self._has_swept_orphans and not self._garbage.is_due(now_ms=now_ms):
            return
        if self._has_swept_orphans and not self._can_pay(COLLECTION_COST + self._writer.commit_cost_max):
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
        if not plan.needs_checkpoint:  # else the next round goes on with it
            self._garbage_not_before_ms = now_ms + self._config.grace_ms // COLLECTIONS_PER_GRACE
        if report.deleted_count:
            logger.info("garbage deleted objects=%d bytes=%d", report.deleted_count, report.deleted_bytes)


def _outcome(entry: SegmentEntry) -> SealOutcome:
    return SealOutcome(
        topic=entry.topic,
        segment_id=entry.segment_id,
        record_count=entry.record_count,
        raw_bytes=entry.raw_bytes,
        stored_bytes=entry.stored_bytes,
    )


def _entries(packs: Sequence[SealedPack]) -> list[list[SealedPack]]:
    """The packs of each ledger entry, of which there is always one: as many as it may name."""
    groups: list[list[SealedPack]] = [[]]
    size_bytes = 0
    for each in packs:
        said_bytes = (len(each.pack.pieces) + len(each.pack.times)) * 4 // 3 + sum(
            len(topic.encode()) + 3 for topic in each.pack.topics
        )
        if groups[-1] and size_bytes + said_bytes > ENTRY_BYTES_MAX:
            groups.append([])
            size_bytes = 0
        groups[-1].append(each)
        size_bytes += said_bytes
    return groups


def _changed_topics(changes: LedgerChanges, before: Catalog) -> frozenset[str]:
    """The topics whose cold ranges or settings a commit upon `before` changed."""
    topics = {segment.topic for segment in changes.segments_in} | {kept.segment.topic for kept in changes.quarantine}
    topics |= {gone.topic for gone in (*changes.segments_out, *changes.quarantine_out)}
    topics |= {gone.topic for gone in changes.topics_deleted}
    topics |= {topic for pack in changes.packs_in for topic in pack.topics}
    topics |= {topic for pack_id in changes.packs_out for topic in before.packs[pack_id].topics}
    return frozenset(topics | {change.topic for change in changes.topics})
