"""Tier service: the loop that moves what is due from the local log to the cold tier, and out of it again.

One round
  1. Count what the hot process has reported since the last one (`SealBacklog.account`).
  2. Seal the due topics, several at once, each into segments that are uploaded whole.
     What is due by age goes up together with all else that waits of small topics, in packs (`packs/pack_sealer.py`);
     so do, with full segments, small topics that hold back the gate of local deletion (`gate_lag.py`), and full ones
     where a request budget does not pay for segments of their own (`cost/seal_admission.py`).
  3. Commit one ledger entry: the segments and packs, topics whose TTL or incarnation changed, what expired.
  4. Tell the hot process which queues reach how far now (`on_committed`), and collect garbage that is due.
A round with nothing to do costs no request.

Failures
  - The store does not answer: what was sealed is committed, the round ends, and the rest is sealed by a later one,
    which begins once the store has answered a small request (`check_store`): nothing is compressed for a store that is
    away. A commit whose outcome is unknown is settled before anything else happens. `wrappers/outage.py` tells people.
  - Something of the ledger is damaged: no garbage is collected until it is whole again; all else goes on.
  - FencedError: another writer has taken over. It leaves `run`; nothing more is written or deleted.

A topic is named in the ledger from its first segment on. Belongs to the tier process's loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    UnavailableError,
)
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.cost.round_costs import RoundCosts
from thermocline.tiered.cost.seal_admission import Admitted, DueTopic, SealAdmission
from thermocline.tiered.due_changes import DueChanges, TopicReport, changed_topics
from thermocline.tiered.errors import EarlierCommitUnsettledError
from thermocline.tiered.garbage import GarbageReport
from thermocline.tiered.garbage_rounds import GarbageRounds
from thermocline.tiered.gate_lag import GateLag
from thermocline.tiered.indexes.range_cut import RECORDS_MAX
from thermocline.tiered.ledger_entry import LedgerChanges, QueueHole
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.packs.pack_sealer import PackSealer, SealedPack
from thermocline.tiered.round_uploads import RoundUploads, entries_of
from thermocline.tiered.seal_backlog import SealBacklog, SealPlan
from thermocline.tiered.seal_lead import SealLead
from thermocline.tiered.sealer import Sealer
from thermocline.tiered.segment_entry import SegmentEntry
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.sweep_turn import Sweeps
from thermocline.tiered.tier_config import TierConfig

logger = logging.getLogger(__name__)

RETRY_DELAY_MS = 500
PLANS_AT_ONCE = 32
RETRY_DELAY_MS_MAX = 10_000


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
        check_store: Callable[[], Awaitable[None]] | None = None,
        lag_records_max: int = RECORDS_MAX,
        put_requests: Callable[[int], int] = lambda size_bytes: 1,
        on_sealed: Callable[[Catalog, Mapping[str, int]], None] = lambda catalog, sealed_bytes: None,
        states: StateLog | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_committed(catalog, topics)`: called with the topics whose cold ranges changed, or none of them when only
        the gate of local deletion (`backlog.committed_offset`) has moved. Without `pack_sealer` every topic is sealed
        into segments of its own. `admission`: there is a request budget. `check_store`: raises
        ObjectStoreUnavailableError while the store is known to be away. `lag_records_max`: see GateLag. `put_requests`:
        how many requests it takes to put an object of so many bytes. `on_sealed(catalog, raw bytes by topic)`: called
        with each commit of something sealed. `states`: the writer's own state snapshots, see GarbageCollector."""
        self._admission = admission
        self._sleep = sleep
        self._writer = writer
        self._backlog = backlog
        self._config = config
        self._clock = clock
        self._flush_offset = flush_offset
        self._on_committed = on_committed
        self._on_sealed = on_sealed
        self._check_store = check_store
        self._demands: list[_Demand] = []
        self._wake = asyncio.Event()
        self._pressure = False
        self._published_offset = -1
        self._last_error = ""
        self._changing = asyncio.Lock()
        """Held from the look at the catalog that a change is made by until the change is in: by rounds, merges, purges
        and repairs."""
        self._round = asyncio.Lock()
        self._lag = GateLag(
            backlog,
            records_max=lag_records_max if config.merge_bytes_per_second else 0,  # without merging nothing is indexed
            segment_bytes=config.segment_bytes,
        )
        self._lead = SealLead(age_ms=config.seal_age_ms)
        self._due = DueChanges(writer, config, can_pay=self._can_pay, now_ms=clock())
        self._garbage = GarbageRounds(
            writer, config, changing=self._changing, clock=clock, can_pay=self._can_pay, states=states
        )
        self._uploads = RoundUploads(
            writer=writer,
            sealer=sealer,
            pack_sealer=pack_sealer,
            concurrency_max=config.upload_concurrency_max,
            class_of=self._due.class_of,
        )
        self._costs = RoundCosts(
            writer,
            backlog,
            config,
            class_of=self._due.class_of,
            has_packs=pack_sealer is not None,
            put_requests=put_requests,
        )

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
        return self._due.sweeps

    def ttl_ms(self, topic: str) -> int | None:
        """The time to live in effect, as the hot process says it; None keeps messages for ever."""
        return self._due.ttl_ms(topic)

    def report_topic(self, report: TopicReport) -> None:
        """Take in a topic of the hot process; a new incarnation starts clean."""
        self._due.reports[report.topic] = report
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

    def report_dropped(self, topic: str, incarnation: int, hole: QueueHole) -> None:
        """Take in offsets that the hot process has given up; the next entry declares those that nobody holds."""
        self._due.drop(topic, incarnation, hole)
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
            InvalidRequestError: The topic is not tiered.
            UnavailableError: Nothing has been told of it yet.
        """
        if topic is not None:
            progress = self._backlog.topics.get(topic)
            if progress is None:
                raise UnavailableError("the cold tier has not been told of this topic yet", topic=topic)
            if not progress.tiered:
                raise InvalidRequestError("the cold tier holds nothing of this topic", topic=topic)
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
            self._publish(changed_topics(changes, before))
            return True

    async def sweep_now(self) -> None:
        """Commit now what a round would in its time: topics that ended, and whatever has expired. Raises as `amend`."""
        self._due.hasten_sweep()
        await self.amend(lambda _: self._due.take(now_ms=self._clock()))
        self._due.committed()

    async def collect_now(self) -> GarbageReport:
        """Delete what no live version names, without a grace period; pins hold. Raises as `run_once`."""
        return await self._garbage.collect_now()

    async def sweep_orphans(self) -> None:
        """List the prefix once more, and delete what nobody names. Raises as `run_once`."""
        await self._garbage.sweep_orphans()

    def now_ms(self) -> int:
        """The clock by which rounds go."""
        return self._clock()

    def class_of(self, topic: str) -> str:
        """The TTL class that a topic is in now."""
        return self._due.class_of(topic)

    def cuts_ms(self) -> dict[str, int]:
        """What has expired, by what the hot process said: topic -> store time before which everything has."""
        return self._due.cuts_ms(self.catalog)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[LedgerWriter]:
        """The ledger's writer, while no round commits or deletes anything."""
        async with self._changing:
            await self._settle()
            yield self._writer

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
                pause_ms = self.pause_ms()
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

    def pause_ms(self) -> int:
        """How long to wait for the next round: until something is due, the account interval at most."""
        interval_ms, next_due_ms = self._config.account_interval_ms, self._backlog.next_due_ms()
        if next_due_ms is None:
            return interval_ms
        left_ms = next_due_ms - self._lead.lead_ms - self._clock()
        # What is due and was not sealed waits for something else, as a request budget.
        return left_ms if 0 < left_ms < interval_ms else interval_ms

    async def run_once(self) -> None:
        """One round. Raises as `run`, and ObjectStoreUnavailableError when the store did not answer."""
        async with self._round:
            await self._run_round()

    async def after_this_round(self) -> None:
        """Wait until the round that is under way, if one is, has ended: what is planned later knows what has been
        reported by now."""
        async with self._round:
            return

    # -- one round -----------------------------------------------------------------------------------------------------

    async def _run_round(self) -> None:
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
            due = self._backlog.due(now_ms=now_ms, pressure=self._pressure, lead_ms=self._lead.lead_ms)
            admitted = self._admitted(due, now_ms=now_ms)
            topics = list(dict.fromkeys((*wanted, *self._with_others(admitted))))
            while True:
                advanced = await self._seal_and_commit(
                    topics, demands, flush_offset=flush_offset, now_ms=now_ms, admitted=admitted
                )
                # What is more than one segment takes is due again at once, if that can be paid for.
                full = [topic for topic in advanced if self._costs.is_full(topic)]
                admitted = self._admitted(full, now_ms=now_ms, is_more=True)
                again = {*wanted, *admitted.topics}
                topics = [topic for topic in advanced if topic in again]
                if advanced:
                    self._lead.note(self._clock() - now_ms)
                if not topics:
                    break
        except BaseException:
            self._demands = demands + self._demands
            raise
        self._publish(frozenset())
        for demand in demands:
            if not demand.done.done():
                demand.done.set_result(demand.outcomes)
        await self._garbage.collect_due(now_ms)

    async def _settle(self) -> None:
        """Nothing is sealed while an earlier commit's outcome is unknown."""
        before = self.catalog.version
        await self._writer.settle()
        if self.catalog.version != before:
            self._resume_after_settling()

    def _resume_after_settling(self) -> None:
        """A commit that had got no answer is in: start each topic from what the catalog says."""
        for report in self._due.reports.values():
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

    def _admitted(self, due: list[str], *, now_ms: int, is_more: bool = False) -> Admitted:
        """Those of the due topics that the request budget lets be sealed now, and how. `is_more`: the round goes on."""
        admission = self._admission
        if admission is None:
            return Admitted(topics=due)
        topics: list[DueTopic] = []
        for topic in due:
            first_ms = self._backlog.topics[topic].first_waiting_ms
            if first_ms is None:
                continue  # it has gone up with a demand
            must = self._pressure or admission.is_over_age(first_ms, now_ms=now_ms)
            topics.append(DueTopic(topic=topic, first_ms=first_ms, must=must))
        return admission.admit(
            topics,
            self._costs.seal,
            now_ms=now_ms,
            waiting=() if is_more else self._backlog.waiting(),
            is_more=is_more,
        )

    def _with_others(self, admitted: Admitted) -> list[str]:
        """The admitted topics, and those that go along."""
        topics = admitted.topics
        if not self._uploads.has_packs or not admitted.is_all:
            return topics
        if admitted.is_packed or not all(map(self._costs.is_full, topics)):
            self._lag.caught_up()
            return topics + self._backlog.waiting()  # whatever waits goes with what is due: it costs no request more
        if topics and self._lag.is_long and self._can_pay(admitted.cost + self._costs.packs_of_small()):
            return topics + self._lag.take()
        return topics

    def _can_pay(self, cost: int) -> bool:
        return self._admission is None or self._admission.budget.allows(cost)

    async def _seal_and_commit(
        self, topics: list[str], demands: list[_Demand], *, flush_offset: int, now_ms: int, admitted: Admitted
    ) -> list[str]:
        """Take one plan of each topic all the way; returns the topics that got further. `admitted`: what the request
        budget says of it."""
        if self._admission is None:
            return await self._take_turn(topics, demands, flush_offset, now_ms, is_packed=False)
        with self._admission.paying(admitted):
            return await self._take_turn(topics, demands, flush_offset, now_ms, is_packed=admitted.is_packed)

    async def _take_turn(
        self, topics: list[str], demands: list[_Demand], flush_offset: int, now_ms: int, *, is_packed: bool
    ) -> list[str]:
        bytes_max = self._costs.piece_bytes if is_packed and self._uploads.has_packs else None
        plans: list[SealPlan] = []
        for number, topic in enumerate(topics):
            if number % PLANS_AT_ONCE == PLANS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if topic not in self._backlog.topics:
                continue
            try:
                plan = self._backlog.plan(topic, flush_offset=flush_offset, bytes_max=bytes_max)
            except ObjectNotFoundError as error:
                logger.info("topic went away while it was planned topic=%s: %s", topic, error)
                continue
            except CorruptDataError as error:
                # Its files may be those of the topic's next life, of which we will be told.
                logger.warning("topic not sealed topic=%s: %s", topic, error)
                continue
            if plan is not None:
                plans.append(plan)
        small = self._small_topics(plans, demands, is_packed=is_packed)
        filled = [plan for plan in plans if plan.runs]
        sealed, failure = await self._uploads.seal_segments([plan for plan in filled if plan.topic not in small])
        packs, pack_failure = await self._uploads.seal_packs([plan for plan in filled if plan.topic in small])
        failure = failure or pack_failure
        advanced = {entry.topic for _, entry in sealed} | {plan.topic for plan in plans if not plan.runs}
        advanced |= {plan.topic for each in packs for plan, _ in each.pieces}
        changed: set[str] = set()
        async with self._changing:
            for group in entries_of(packs):
                before = self.catalog
                changes = self._due.take(
                    [entry for _, entry in sealed],
                    [each.pack for each in group],
                    now_ms=now_ms,
                    coming=[each.pack for each in packs],
                )
                if not changes.is_empty:
                    await self._commit(changes)
                self._due.committed()
                self._lag.sealed(entry for _, entry in sealed)
                self._tell_sealed([entry for _, entry in sealed], group)
                for plan, entry in sealed:
                    self._backlog.committed(plan)
                    self._tell_demands(demands, _outcome(entry))
                for each in group:
                    for plan, _ in each.pieces:
                        self._backlog.committed(plan)
                    self._tell_demands_of_pack(demands, each)
                sealed = []
                changed |= changed_topics(changes, before)
        for plan in plans:
            if not plan.runs:
                self._backlog.committed(plan)
        self._publish(frozenset(advanced | changed))
        if failure is not None:
            raise failure
        return sorted(advanced)

    def _small_topics(
        self, plans: Sequence[SealPlan], demands: Iterable[_Demand], *, is_packed: bool
    ) -> frozenset[str]:
        """The topics that go into packs: too small to fill a segment, if that matters, and not asked for by name."""
        if not self._uploads.has_packs:
            return frozenset()
        named = frozenset[str]().union(*(demand.topics for demand in demands if demand.topics is not None))
        return frozenset(
            plan.topic
            for plan in plans
            if plan.topic not in named and (is_packed or not self._costs.is_full(plan.topic))
        )

    def _publish(self, topics: frozenset[str]) -> None:
        """Tell of topics whose cold ranges changed, and of a gate that moved."""
        self._backlog.account()  # of what was reported while a seal or a commit was under way
        committed_offset = self._backlog.committed_offset()
        if topics or committed_offset != self._published_offset:
            self._published_offset = committed_offset
            self._on_committed(self.catalog, topics)

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

    def _tell_sealed(self, segments: Iterable[SegmentEntry], packs: Iterable[SealedPack]) -> None:
        sizes: Counter[str] = Counter()
        for segment in segments:
            sizes[segment.topic] += segment.raw_bytes
        for pack in packs:
            for plan, extent in pack.pieces:
                sizes[plan.topic] += extent.raw_bytes
        if sizes:
            self._on_sealed(self.catalog, sizes)

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


def _outcome(entry: SegmentEntry) -> SealOutcome:
    return SealOutcome(
        topic=entry.topic,
        segment_id=entry.segment_id,
        record_count=entry.record_count,
        raw_bytes=entry.raw_bytes,
        stored_bytes=entry.stored_bytes,
    )
