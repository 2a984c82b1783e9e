"""Tier service: the loop that moves what is due from the local log to the cold tier, and out of it again.

One round
  1. Count what the hot process has reported since the last one (`SealBacklog.account`).
  2. Seal the due topics, several at once, each into segments that are uploaded whole.
     What is due by age goes up together with all else that waits of small topics, in packs (`sealing/pack_sealer.py`);
     so do, with full segments, small topics that hold back the gate of local deletion (`gate_lag.py`), and full ones
     where a request budget does not pay for segments of their own (`sealing/seal_admission.py`).
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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, LedgerChanges, QueueHole
from thermocline.tiered.garbage import GarbageReport, GarbageRounds
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.sealing import RECORDS_MAX as LAG_RECORDS_MAX
from thermocline.tiered.sealing import (
    RETRY_DELAY_MS,
    RETRY_DELAY_MS_MAX,
    Carry,
    CatalogCommits,
    DueChanges,
    GateLag,
    OnSealed,
    PackSealer,
    RoundCosts,
    RoundUploads,
    SealAdmission,
    SealBacklog,
    SealDemands,
    Sealer,
    SealLead,
    SealOutcome,
    SealRounds,
    Sweeps,
    TopicReport,
)
from thermocline.tiered.state import CarriedState, StateLog

logger = logging.getLogger(__name__)


JOIN_CARE_PART = 4
"""What waits for a round's commit waits for a quarter of the seal age longer: uploads take their time."""
JOIN_AGE_MS_MAX = 600_000
"""With a greater seal age no round is waited for."""


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
        flush_offset: Callable[[], PhysicalOffset],
        on_committed: Callable[[Catalog, frozenset[str]], None],
        pack_sealer: PackSealer | None = None,
        admission: SealAdmission | None = None,
        check_store: Callable[[], Awaitable[None]] | None = None,
        lag_records_max: int = LAG_RECORDS_MAX,
        put_requests: Callable[[int], int] = lambda size_bytes: 1,
        on_sealed: OnSealed = lambda catalog, sealed_bytes: None,
        states: StateLog | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_committed(catalog, topics)`: called with the topics whose cold ranges changed, or none of them when only
        the gate of local deletion (`backlog.committed_offset`) has moved. Without `pack_sealer` every topic is sealed
        into segments of its own. `admission`: there is a request budget. `check_store`: raises
        ObjectStoreUnavailableError while the store is known to be away. `lag_records_max`: see GateLag. `put_requests`:
        how many requests it takes to put an object of so many bytes. `on_sealed`: see OnSealed. `states`: the writer's
        own state snapshots, see GarbageCollector."""
        self._admission = admission
        self._backlog = backlog
        self._config = config
        self._clock = clock
        self._flush_offset = flush_offset
        self._check_store = check_store
        self._wake = asyncio.Event()
        self._pressure = False
        self._round = asyncio.Lock()
        self._demands = SealDemands(backlog, wake=self._wake.set)
        self._lead = SealLead(age_ms=config.seal_age_ms)
        self._due = DueChanges(writer, config, can_pay=self._can_pay, now_ms=clock())
        self._commits = CatalogCommits(writer, backlog, self._due, on_committed=on_committed, sleep=sleep)
        self._garbage = GarbageRounds(
            writer, config, changing=self._commits.changing, clock=clock, can_pay=self._can_pay, states=states
        )
        self._rounds = SealRounds(
            commits=self._commits,
            backlog=backlog,
            due=self._due,
            uploads=RoundUploads(
                writer=writer,
                sealer=sealer,
                pack_sealer=pack_sealer,
                concurrency_max=config.upload_concurrency_max,
                class_of=self._due.class_of,
            ),
            costs=RoundCosts(
                writer,
                backlog,
                config,
                class_of=self._due.class_of,
                has_packs=pack_sealer is not None,
                is_budgeted=admission is not None,
                put_requests=put_requests,
            ),
            lag=GateLag(
                backlog,
                records_max=lag_records_max
                if config.merge_bytes_per_second
                else 0,  # without merging nothing is indexed
                segment_bytes=config.segment_bytes,
            ),
            lead=self._lead,
            admission=admission,
            can_pay=self._can_pay,
            clock=clock,
            on_sealed=on_sealed,
            carry=lambda: self.carry(),
        )
        self.carry: Carry = _carry_nothing
        """What entries of rounds carry of the broker's state; see StateRounds, which is made above this."""

    @property
    def catalog(self) -> Catalog:
        """The newest committed catalog."""
        return self._commits.catalog

    @property
    def backlog(self) -> SealBacklog:
        """What waits."""
        return self._backlog

    @property
    def last_error(self) -> str:
        """Why the last round failed; empty after one that did not."""
        return self._commits.last_error

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

    def report_queue(self, topic: str, queue_id: int, *, min_offset: QueueOffset, end_offset: QueueOffset) -> None:
        """Take in a queue of a reported topic, its file written up to `end_offset`."""
        if topic in self._backlog.topics:  # else the topic was deleted behind this report
            self._backlog.set_queue(topic, queue_id, min_offset=min_offset, end_offset=end_offset)

    def report_dropped(self, topic: str, incarnation: int, hole: QueueHole) -> None:
        """Note offsets that the hot process has dropped; the next entry declares those that no segment holds."""
        self._due.drop(topic, incarnation, hole)
        progress = self._backlog.topics.get(topic)
        if progress is not None and progress.incarnation == incarnation:
            self._backlog.raise_minimum(topic, hole.queue_id, hole.end_offset)

    def reported(self, *, log_offset: PhysicalOffset, pressure: bool) -> None:
        """A whole report has been taken in; see SealBacklog.set_reported_offset."""
        self._backlog.set_reported_offset(log_offset)
        if pressure and not self._pressure:
            self._wake.set()
        self._pressure = pressure

    async def seal(self, topic: str | None) -> list[SealOutcome]:
        """Seal on demand: everything of a topic (or of all) that is reported and flushed now; committed on return.

        Raises:
            InvalidRequestError: The topic is not tiered.
            UnavailableError: The hot process has not reported the topic yet, or some of the records cannot be read.
        """
        return await self._demands.seal(topic)

    async def amend(self, change: Callable[[Catalog], LedgerChanges | None]) -> bool:
        """Commit what `change` makes of the newest catalog; False when that is nothing. Between two rounds' commits.

        Raises:
            FencedError: Another writer has taken over.
            ObjectStoreUnavailableError: An earlier commit could not be settled; nothing was begun.
        """
        return await self._commits.amend(change)

    async def amend_with_next(self, change: Callable[[Catalog], LedgerChanges | None]) -> bool:
        """As `amend`, for a change of index objects: with the entry of the round that is due next. By itself when that
        does not come in time, when nothing comes in for a while, and at once when rounds are far apart. Raises as
        `amend`, and as `LedgerWriter.commit`."""
        is_idle, wait_ms = self._backlog.next_due_ms() is None, self.wait_for_entry_ms()
        joined = await self._commits.join(change, wait_ms=wait_ms) if wait_ms else None
        if joined is None and is_idle and self._backlog.next_due_ms() is not None:
            joined = await self._commits.join(change, wait_ms=self.wait_for_entry_ms())
        return await self.amend(change) if joined is None else joined

    def wait_for_entry_ms(self) -> int:
        """How long to wait for the entry of the next round, or, if nothing waits to be sealed, for something to come
        in; 0 where rounds may be far apart."""
        age_ms = self._config.seal_age_ms
        if age_ms > JOIN_AGE_MS_MAX:
            return 0
        due_ms = self._backlog.next_due_ms()
        left_ms = due_ms - self._lead.lead_ms - self._clock() if due_ms is not None else 0
        return max(0, left_ms) + max(1, age_ms // JOIN_CARE_PART)

    async def sweep_now(self) -> None:
        """Commit now what a round would in its time: topics that ended, and whatever has expired. Raises as `amend`."""
        self._due.hasten_sweep()
        await self.amend(lambda _: self._due.take_changes(now_ms=self._clock()))
        self._due.committed()

    async def collect_now(self) -> GarbageReport:
        """Delete what no live version names, without a grace period; pins hold. Raises as `run_once`."""
        return await self._garbage.collect_now()

    async def sweep_orphans(self) -> None:
        """List the prefix once more, and delete unreferenced objects. Raises as `run_once`."""
        await self._garbage.sweep_orphans()

    def now_ms(self) -> int:
        """The clock by which rounds go."""
        return self._clock()

    def class_of(self, topic: str) -> str:
        """The TTL class that a topic is in now."""
        return self._due.class_of(topic)

    def cuts_ms(self) -> dict[str, int]:
        """The cuts reported by the hot process: topic -> store time before which all messages have expired."""
        return self._due.cuts_ms(self.catalog)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[LedgerWriter]:
        """The ledger's writer, while no round commits or deletes anything."""
        async with self._commits.alone() as writer:
            yield writer

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            FencedError: Another writer has taken over this ledger.
        """
        delay_ms = RETRY_DELAY_MS
        while True:
            try:
                await self.run_once()
                self._commits.last_error, delay_ms = "", RETRY_DELAY_MS
                pause_ms = self.pause_ms()
            except ObjectStoreUnavailableError as error:
                self._commits.last_error = str(error)
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
        """Wait for the end of the round under way, if any: later plans include everything reported by now."""
        async with self._round:
            return

    async def _run_round(self) -> None:
        if self._check_store is not None:
            await self._check_store()
        await self._commits.settle()
        now_ms = self._clock()
        self._backlog.account()
        # Fixed for the round, so that it ends however fast messages come in.
        flush_offset = self._flush_offset()
        demands = self._demands.take_waiting()
        try:
            await self._rounds.run(demands, flush_offset=flush_offset, now_ms=now_ms, pressure=lambda: self._pressure)
        except BaseException:
            self._demands.give_back(demands)
            raise
        self._commits.publish(frozenset())
        demands.done(flush_offset=flush_offset)
        await self._garbage.collect_due(now_ms)

    def _can_pay(self, cost: int) -> bool:
        return self._admission is None or self._admission.budget.allows(cost)


async def _carry_nothing() -> CarriedState | None:
    return None
