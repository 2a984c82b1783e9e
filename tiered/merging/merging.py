"""Merging: bounds the number of packs per topic, beside sealing, within a budget of bytes.

    budget   grows by `bytes_per_second`, up to BURST_MS of it. A merge begins when the budget is not negative, and its
             written bytes are subtracted: so the rate holds in the long run, however large merges are

One merge at a time. It reads while rounds continue to commit; its own commit replaces its packs by the new objects if
all of them still exist, else the merge is given up. Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from thermocline.remoting.errors import (
    CorruptDataError,
    DiskFullError,
    FencedError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
)
from thermocline.tiered.catalog import Amend, Catalog, LedgerChanges, amend_or_give_up
from thermocline.tiered.cost import RequestBudget
from thermocline.tiered.merging.merge_policy import MergePlan, MergePolicy, own_bytes_of
from thermocline.tiered.merging.pack_merger import MergeResult, MergeRules, PackMerger

logger = logging.getLogger(__name__)

BURST_MS = 60_000
NONE_OWN = 1 << 62
"""More bytes than any topic has."""
FAILED_MAX = 64
RETRY_MS = 5_000


class MergeBudget:
    """Bytes that may be written now; negative while in debt."""

    def __init__(self, *, bytes_per_second: int, clock: Callable[[], int]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._available = 0.0
        self._counted_ms = clock()

    @property
    def is_free(self) -> bool:
        """Whether a merge may begin."""
        if not self._bytes_per_second:
            return False
        now_ms = self._clock()
        most = self._bytes_per_second * BURST_MS / 1_000
        self._available += self._bytes_per_second * max(0, now_ms - self._counted_ms) / 1_000
        self._available, self._counted_ms = min(self._available, most), now_ms
        return self._available >= 0

    def charge(self, size_bytes: int) -> None:
        """Subtract written bytes."""
        self._available -= size_bytes


class MergeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a committed merge."""

    packs_out: int
    packs_in: int
    segments_in: int
    written_bytes: int


class Merging:
    """See the module's header."""

    def __init__(
        self,
        *,
        merger: PackMerger,
        policy: MergePolicy,
        budget: MergeBudget,
        segment_bytes: int,
        catalog: Callable[[], Catalog],
        class_of: Callable[[str], str],
        cuts_ms: Callable[[], Mapping[str, int]],
        amend: Amend,
        requests: RequestBudget | None = None,
        commit_cost: Callable[[], int] = lambda: 1,
    ) -> None:
        """`amend` commits a change of the newest catalog, between two rounds' commits; see TierService. `requests`: the
        request budget, which merges respect, with at most `commit_cost` for a commit. A merge that is too expensive
        with segments of topics' own is done without them; one that exceeds a whole burst is not done."""
        self._requests = requests
        self._commit_cost = commit_cost
        self._merger = merger
        self._policy = policy
        self._budget = budget
        self._segment_bytes = segment_bytes
        self._catalog = catalog
        self._class_of = class_of
        self._cuts_ms = cuts_ms
        self._amend = amend
        self._lock = asyncio.Lock()
        self._failed: dict[frozenset[str], None] = {}

    async def run_once(self) -> MergeOutcome | None:
        """One merge, committed; None when none is due.

        Raises:
            ObjectStoreUnavailableError: No answer; the written objects have been given up.
            DiskFullError: No disk space; the written objects have been given up.
            FencedError: Another writer has taken over.
        """
        async with self._lock:
            plan = self._affordable()
            if plan is None:
                return None
            if self._requests is None:
                return await self._merge(plan, own_bytes=self._own_bytes)
            own_bytes, cost = self._choose_own_bytes(plan, self._requests)
            with self._requests.holding(cost):
                return await self._merge(plan, own_bytes=own_bytes)

    async def rewrite(self, plan: MergePlan) -> MergeOutcome | None:
        """A merge on demand, budget or not; None when it was overtaken. Raises as `run_once`, and CorruptDataError."""
        async with self._lock:
            return await self._merge(plan, own_bytes=self._own_bytes, raises=True)

    def charge(self, size_bytes: int) -> None:
        """Charge bytes written on demand beside merges: merges wait until the budget has recovered."""
        self._budget.charge(size_bytes)

    async def run(self, changed: asyncio.Event) -> None:
        """Run due merges, again whenever `changed` is set; until cancelled or fenced. Logs failures."""
        had_room = True
        while True:
            try:
                outcome = await self.run_once()
                failure: ObjectStoreUnavailableError | DiskFullError | None = None
                had_room = had_room or outcome is not None
            except FencedError:
                return  # sealing fails likewise, and logs it
            except ObjectStoreUnavailableError as error:
                outcome, failure = None, error
                logger.debug("packs not merged: %s retry_ms=%d", error, RETRY_MS)
            except DiskFullError as error:
                outcome, failure = None, error
                if had_room:
                    logger.warning("packs are not merged until there is room: %s", error)
                had_room = False
            if outcome is not None:
                continue
            # While the budget is negative, wait for time to pass.
            pause_ms = RETRY_MS if failure is not None or self._next() is not None else None
            try:
                async with asyncio.timeout(None if pause_ms is None else pause_ms / 1_000):
                    await changed.wait()
            except TimeoutError:
                continue
            changed.clear()
            if failure is not None:
                await asyncio.sleep(RETRY_MS / 1_000)

    def _next(self) -> MergePlan | None:
        plan = self._policy.choose(self._catalog())
        return None if plan is None or _name(plan) in self._failed else plan

    def _affordable(self) -> MergePlan | None:
        """The next merge, if it may begin now."""
        plan = self._next() if self._budget.is_free else None
        if plan is None or self._requests is None:
            return plan
        return plan if self._requests.allows(self._choose_own_bytes(plan, self._requests)[1], who="merge") else None

    @property
    def _own_bytes(self) -> int:
        return own_bytes_of(self._segment_bytes)

    def _choose_own_bytes(self, plan: MergePlan, requests: RequestBudget) -> tuple[int, int]:
        """The bytes from which on a topic gets segments of its own, and the most requests of the merge then."""
        cost = self._cost(plan, own_bytes=self._own_bytes)
        if cost <= requests.most:
            return self._own_bytes, cost
        return NONE_OWN, self._cost(plan, own_bytes=NONE_OWN)

    def _cost(self, plan: MergePlan, *, own_bytes: int) -> int:
        """The most requests of a merge: packs of each range and class, as many segments as pieces, the commit."""
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for pack in plan.packs:
            for topic, piece in zip(pack.topics, pack.table().pieces(), strict=True):
                counts[topic] += 1
                sizes[topic] += piece.raw_bytes
        segments = sum(counts[topic] for topic, size_bytes in sizes.items() if size_bytes >= own_bytes)
        others = [topic for topic, size_bytes in sizes.items() if size_bytes < own_bytes]
        classes = len({self._class_of(topic) for topic in others})
        ranges = 1 << (plan.depth - min(pack.depth for pack in plan.packs))
        return segments + min(len(others), ranges * classes) + self._commit_cost()

    async def _merge(self, plan: MergePlan, *, own_bytes: int, raises: bool = False) -> MergeOutcome | None:
        rules = MergeRules(
            class_of=self._class_of,
            cuts_ms=self._cuts_ms(),
            own_bytes=own_bytes,
            segment_bytes=self._segment_bytes,
        )
        try:
            result = await self._read_and_write(plan, rules)
        except ObjectNotFoundError as error:
            logger.info("packs went while they were merged: %s", error)
            return None
        except CorruptDataError as error:
            if raises:
                raise
            # They stay as they are, readable except for the damage; a scrub reports it, and heals it.
            logger.error("packs not merged: %s", error)
            self._failed[_name(plan)] = None
            while len(self._failed) > FAILED_MAX:
                del self._failed[next(iter(self._failed))]
            return None
        self._budget.charge(result.written_bytes)
        is_in = await amend_or_give_up(
            self._amend, lambda catalog: self._changes(catalog, result), give_up=lambda: self._merger.give_up(result)
        )
        if not is_in:
            logger.info("merge overtaken packs=%d", len(plan.packs))
            return None
        outcome = MergeOutcome(
            packs_out=len(result.packs_out),
            packs_in=len(result.packs_in),
            segments_in=len(result.segments_in),
            written_bytes=result.written_bytes,
        )
        logger.info(
            "packs merged level=%d packs_out=%d packs_in=%d segments_in=%d bytes=%d",
            plan.level,
            outcome.packs_out,
            outcome.packs_in,
            outcome.segments_in,
            outcome.written_bytes,
        )
        return outcome

    async def _read_and_write(self, plan: MergePlan, rules: MergeRules) -> MergeResult:
        """Raises as `PackMerger.merge`; CorruptDataError also when a pack is missing that the newest catalog names, and
        FencedError when that is another writer's, who may have deleted it."""
        try:
            return await self._merger.merge(plan, self._catalog(), rules)
        except ObjectNotFoundError as error:
            packs = self._catalog().packs
            if all(pack.pack_id in packs for pack in plan.packs):
                await self._merger.check_newest()
                raise CorruptDataError("a pack that the catalog names is missing", **error.context) from error
            raise

    def _changes(self, catalog: Catalog, result: MergeResult) -> LedgerChanges | None:
        """The change that replaces the packs by the result; None when a pack is gone or a topic was deleted."""
        if not all(pack_id in catalog.packs for pack_id in result.packs_out):
            return None
        for segment in result.segments_in:
            topic = catalog.topics.get(segment.topic)
            if topic is None or topic.deleted or topic.incarnation != segment.incarnation:
                return None
        return LedgerChanges(
            packs_out=result.packs_out, packs_in=tuple(result.packs_in), segments_in=tuple(result.segments_in)
        )


def _name(plan: MergePlan) -> frozenset[str]:
    return frozenset(pack.pack_id for pack in plan.packs)
