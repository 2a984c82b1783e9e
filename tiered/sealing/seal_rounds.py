"""Seal rounds: which topics a round of the tier service seals, in how many turns, and how they are committed.

    due        by size, age or pressure (SealBacklog), or waited for (TakenDemands)
    admitted   the due topics that the request budget pays for now (`sealing/seal_admission.py`)
    with them  all other waiting small topics, when packs are uploaded anyway, and topics that hold back the gate of
               local deletion for too long (`gate_lag.py`)
    a turn     one plan of each topic is uploaded, then all are committed by one ledger entry, or a few. A full segment
               is three objects; half a segment is one object, as a merge would make it later; the rest goes into
               packs. Records beyond one segment need another turn, if the budget pays for it

Successful uploads are committed before a failure is raised. A topic whose local files cannot be read rests before it is
tried again, unless a demand names it. Belongs to the tier service's loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.sealing.catalog_commits import CatalogCommits
from thermocline.tiered.sealing.due_changes import DueChanges, changed_topics
from thermocline.tiered.sealing.gate_lag import GateLag
from thermocline.tiered.sealing.pack_sealer import SealedPack
from thermocline.tiered.sealing.round_costs import RoundCosts
from thermocline.tiered.sealing.round_uploads import RoundUploads, group_by_ledger_entry
from thermocline.tiered.sealing.seal_admission import Admitted, DueTopic, SealAdmission
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPlan
from thermocline.tiered.sealing.seal_demands import TakenDemands
from thermocline.tiered.sealing.seal_lead import SealLead
from thermocline.tiered.segments import SegmentEntry
from thermocline.tiered.state import CarriedState

logger = logging.getLogger(__name__)

PLANS_AT_ONCE = 32
REST_MS = 60_000
"""How long a topic rests that could not be read: else each round would read and compress a segment in vain."""

Carry = Callable[[], Awaitable[CarriedState | None]]
"""Returns the state snapshot that the ledger entry of a seal may carry."""

OnSealed = Callable[[Catalog, Mapping[str, int]], None]
"""Called after each commit of sealed records, with the catalog and raw bytes by topic."""


class SealRounds:
    """See the module's header. Every call may raise ObjectStoreUnavailableError, and FencedError."""

    def __init__(
        self,
        *,
        commits: CatalogCommits,
        backlog: SealBacklog,
        due: DueChanges,
        uploads: RoundUploads,
        costs: RoundCosts,
        lag: GateLag,
        lead: SealLead,
        admission: SealAdmission | None,
        can_pay: Callable[[int], bool],
        clock: Callable[[], int],
        on_sealed: OnSealed,
        carry: Carry,
    ) -> None:
        """`admission`: only with a request budget. `can_pay`: whether it allows that many requests now."""
        self._commits = commits
        self._backlog = backlog
        self._due = due
        self._uploads = uploads
        self._costs = costs
        self._lag = lag
        self._lead = lead
        self._admission = admission
        self._can_pay = can_pay
        self._clock = clock
        self._on_sealed = on_sealed
        self._carry = carry
        self._resting: dict[tuple[str, int], int] = {}
        """Topics that could not be read, with their incarnation: until when they rest."""

    async def run(
        self, demands: TakenDemands, *, flush_offset: PhysicalOffset, now_ms: int, pressure: Callable[[], bool]
    ) -> None:
        """Seal the flushed records of due and demanded topics; all of them are committed on return. `pressure`:
        whether local files must be deleted."""
        wanted = demands.waited_for()
        # One that rests for longer than it may: the clock was set back.
        self._resting = {name: end for name, end in self._resting.items() if 0 < end - now_ms <= REST_MS}
        due = self._awake(self._backlog.due(now_ms=now_ms, pressure=pressure(), lead_ms=self._lead.lead_ms))
        admitted = self._admitted(due, now_ms=now_ms, pressure=pressure())
        topics = list(dict.fromkeys((*wanted, *self._with_others(admitted))))
        while True:
            advanced = await self._seal_and_commit(
                topics, demands, flush_offset=flush_offset, now_ms=now_ms, admitted=admitted
            )
            # Records beyond one segment are due again at once, if the budget pays for it.
            full = [topic for topic in advanced if self._costs.is_full(topic)]
            admitted = self._admitted(full, now_ms=now_ms, pressure=pressure(), is_more=True)
            again = {*wanted, *admitted.topics}
            topics = [topic for topic in advanced if topic in again]
            if advanced:
                self._lead.note(self._clock() - now_ms)
            if not topics:
                break

    def _admitted(self, due: list[str], *, now_ms: int, pressure: bool, is_more: bool = False) -> Admitted:
        """The due topics that the request budget lets be sealed now, and how. `is_more`: the round continues."""
        admission = self._admission
        if admission is None:
            return Admitted(topics=due)
        topics: list[DueTopic] = []
        for topic in due:
            first_ms = self._backlog.topics[topic].first_waiting_ms
            if first_ms is None:
                continue  # a demand has sealed it
            must = pressure or admission.is_over_age(first_ms, now_ms=now_ms)
            topics.append(DueTopic(topic=topic, first_ms=first_ms, must=must))
        return admission.admit(
            topics,
            self._costs.seal,
            now_ms=now_ms,
            waiting=() if is_more else self._backlog.waiting(),
            is_more=is_more,
        )

    def _with_others(self, admitted: Admitted) -> list[str]:
        """The admitted topics, and those sealed along with them."""
        topics = admitted.topics
        if not self._uploads.has_packs or not admitted.is_all:
            return topics
        if admitted.is_packed or not all(map(self._costs.is_full, topics)):
            self._lag.caught_up()
            return topics + self._awake(self._backlog.waiting())  # all waiting topics go along: no additional request
        if topics and self._lag.is_long and self._can_pay(admitted.cost + self._costs.packs_of_small()):
            return topics + self._awake(self._lag.take_topics())
        return topics

    def _awake(self, topics: list[str]) -> list[str]:
        """The topics that do not rest."""
        backlog = self._backlog.topics
        return [topic for topic in topics if (topic, backlog[topic].incarnation) not in self._resting]

    async def _seal_and_commit(
        self, topics: list[str], demands: TakenDemands, *, flush_offset: PhysicalOffset, now_ms: int, admitted: Admitted
    ) -> list[str]:
        """Take one plan of each topic all the way; returns the topics that got further. `admitted`: what the request
        budget says of it."""
        if self._admission is None:
            return await self._take_turn(topics, demands, flush_offset, now_ms, is_packed=False)
        with self._admission.paying(admitted):
            return await self._take_turn(topics, demands, flush_offset, now_ms, is_packed=admitted.is_packed)

    async def _take_turn(
        self, topics: list[str], demands: TakenDemands, flush_offset: PhysicalOffset, now_ms: int, *, is_packed: bool
    ) -> list[str]:
        bytes_max = self._costs.piece_bytes if is_packed and self._uploads.has_packs else None
        plans = await self._plans_of(topics, flush_offset=flush_offset, now_ms=now_ms, bytes_max=bytes_max)
        small, large = self._small_topics(plans, demands, is_packed=is_packed), frozenset[str]()
        if not is_packed:
            large = frozenset(plan.topic for plan in plans if plan.raw_bytes >= self._costs.own_bytes) & small
            small -= large
        filled = [plan for plan in plans if plan.runs]
        sealed, failure = await self._uploads.seal_segments(
            [plan for plan in filled if plan.topic not in small], joined=large
        )
        packs, pack_failure = await self._uploads.seal_packs([plan for plan in filled if plan.topic in small])
        failure = failure or pack_failure
        advanced = {entry.topic for _, entry in sealed} | {plan.topic for plan in plans if not plan.runs}
        advanced |= {plan.topic for each in packs for plan, _ in each.pieces}
        changed = await self._commit(sealed, packs, demands, now_ms=now_ms)
        for plan in plans:
            if not plan.runs:
                self._backlog.committed(plan)
        self._commits.publish(frozenset(advanced | changed))
        if failure is not None:
            raise failure
        for plan in filled:
            if plan.topic not in advanced:
                self._resting[plan.topic, plan.incarnation] = now_ms + REST_MS
        return sorted(advanced)

    async def _plans_of(
        self, topics: list[str], *, flush_offset: PhysicalOffset, now_ms: int, bytes_max: int | None
    ) -> list[SealPlan]:
        """One plan of each topic that has one; yields to the event loop now and then."""
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
                # Its files may be those of the topic's next incarnation, which will be reported.
                logger.warning("topic not sealed topic=%s: %s", topic, error)
                self._resting[topic, self._backlog.topics[topic].incarnation] = now_ms + REST_MS
                continue
            if plan is not None:
                plans.append(plan)
        return plans

    def _small_topics(self, plans: Sequence[SealPlan], demands: TakenDemands, *, is_packed: bool) -> frozenset[str]:
        """The topics that go into packs: not demanded by name and, unless `is_packed`, too small to fill a segment."""
        if not self._uploads.has_packs:
            return frozenset()
        named = demands.named
        return frozenset(
            plan.topic
            for plan in plans
            if plan.topic not in named and (is_packed or not self._costs.is_full(plan.topic))
        )

    async def _commit(
        self,
        sealed: list[tuple[SealPlan, SegmentEntry]],
        packs: list[SealedPack],
        demands: TakenDemands,
        *,
        now_ms: int,
    ) -> set[str]:
        """Commit the sealed segments and packs, and other due changes; returns the topics that changed."""
        changed: set[str] = set()
        carried = await self._carry() if sealed or packs else None
        async with self._commits.changing:
            for group in group_by_ledger_entry(packs):
                before = self._commits.catalog
                segments = [entry for _, entry in sealed]
                plans = [*(plan for plan, _ in sealed), *(plan for each in group for plan, _ in each.pieces)]
                for plan in plans:
                    self._backlog.check_waits(plan)
                changes = self._due.take_changes(
                    segments,
                    [each.pack for each in group],
                    now_ms=now_ms,
                    coming=[each.pack for each in packs],
                )
                if not changes.is_empty:
                    await self._commits.commit_joined(changes, carried)
                    carried = None
                self._due.committed()
                self._lag.sealed(segments)
                self._tell_sealed(segments, group)
                for plan in plans:
                    self._backlog.committed(plan)
                demands.committed(segments, group)
                sealed = []
                changed |= changed_topics(changes, before)
        return changed

    def _tell_sealed(self, segments: Iterable[SegmentEntry], packs: Iterable[SealedPack]) -> None:
        sizes: Counter[str] = Counter()
        for segment in segments:
            sizes[segment.topic] += segment.raw_bytes
        for pack in packs:
            for plan, extent in pack.pieces:
                sizes[plan.topic] += extent.raw_bytes
        if sizes:
            self._on_sealed(self._commits.catalog, sizes)
