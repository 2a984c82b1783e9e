"""Garbage rounds: when the tier service deletes objects that no readable version of the catalog names.

    in due time   objects removed for a grace period, at most a few times in each; once, by listing, the orphans of
                  earlier writers
    on demand     all removed objects at once, and all orphans that a listing finds
Each waits until no commit is under way; listings for orphans do not, and in due time they go on from round to round.
While something of the ledger is damaged, nothing is deleted.
"""

import asyncio
import logging
from collections.abc import Callable

from thermocline.remoting.errors import CorruptDataError
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.garbage.garbage import GarbageCollector, GarbageReport
from thermocline.tiered.garbage.orphan_search import OrphanSearch
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.state import StateLog

logger = logging.getLogger(__name__)

COLLECTION_COST = 3
"""Listings and PUTs of a collection beside its commit: pins twice, the hint."""
LISTED_AT_ONCE = 50_000
"""Objects that a round lists, searching orphans: fifty requests, some seconds, so that sealing does not wait for all of
a year's. Three millions are listed before the first scrub, to which an orphan is a finding."""
COLLECTIONS_PER_GRACE = 24
"""How often garbage is collected at most: each collection reads the heads of all kept checkpoints, whose number grows
with commits; and while a pin holds garbage, each collection finds the same."""


class GarbageRounds:
    """See the module's header. Every call may raise ObjectStoreUnavailableError, and FencedError."""

    def __init__(
        self,
        writer: LedgerWriter,
        config: TierConfig,
        *,
        changing: asyncio.Lock,
        clock: Callable[[], int],
        can_pay: Callable[[int], bool],
        states: StateLog | None = None,
    ) -> None:
        """`changing`: held during deletions. `can_pay`: whether the request budget allows that many requests now.
        `states`: see GarbageCollector."""
        self._writer = writer
        self._config = config
        self._changing = changing
        self._clock = clock
        self._can_pay = can_pay
        self._collector = GarbageCollector(writer, states)
        self._search = OrphanSearch(writer)
        self._has_swept = False
        self._error = ""
        self._not_before_ms = 0

    async def collect_due(self, now_ms: int) -> None:
        """Delete due garbage. Orphans of earlier writers are searched once, by listing."""
        if 0 < self._not_before_ms - now_ms <= self._pause_ms_max:  # above it: the clock was set back
            return
        if self._has_swept and not self._collector.is_due(now_ms=now_ms):
            return
        if self._has_swept and not self._can_pay(COLLECTION_COST + self._cost_max):
            return
        if not self._has_swept and not await self._search.go_on(keys_max=LISTED_AT_ONCE):
            return
        async with self._changing:
            try:
                plan = await self._collector.plan(now_ms=now_ms, sweep=not self._has_swept, orphans=self._search)
            except CorruptDataError as error:
                if str(error) != self._error:
                    logger.error("nothing is deleted from the bucket: %s", error)
                self._error = str(error)
                self._not_before_ms = now_ms + self._config.sweep_interval_ms
                return
            self._error = ""
            report = await self._collector.execute(plan, now_ms=now_ms)
        self._has_swept = self._has_swept or not report.held_by_pin
        if not plan.needs_checkpoint:  # else the next round continues
            self._not_before_ms = now_ms + self._config.grace_ms // COLLECTIONS_PER_GRACE
        if report.deleted_count:
            logger.info("garbage deleted objects=%d bytes=%d", report.deleted_count, report.deleted_bytes)

    @property
    def _pause_ms_max(self) -> int:
        """The longest pause between two collections."""
        return max(self._config.sweep_interval_ms, self._config.grace_ms // COLLECTIONS_PER_GRACE)

    @property
    def _cost_max(self) -> int:
        """Of the commit, and of the checkpoint that a collection may need."""
        return self._writer.commit_cost_max + self._writer.checkpoint_cost_max

    async def collect_now(self) -> GarbageReport:
        """Delete all unreferenced objects, without a grace period but respecting pins, and orphans found by listing."""
        orphans = await self._found_orphans()
        async with self._changing:
            deleted = GarbageReport()
            # The first plan of a version without a checkpoint writes that, and leaves the ledger's garbage to the next.
            for is_last in (False, True):
                now_ms = self._clock()
                plan = await self._collector.plan(now_ms=now_ms, grace_ms=0, sweep=is_last, orphans=orphans)
                report = await self._collector.execute(plan, now_ms=now_ms)
                deleted = GarbageReport(
                    deleted_count=deleted.deleted_count + report.deleted_count,
                    deleted_bytes=deleted.deleted_bytes + report.deleted_bytes,
                    held_by_pin=report.held_by_pin,
                )
            return deleted

    async def sweep_orphans(self) -> None:
        """List the prefix once more, and delete unreferenced objects."""
        orphans = await self._found_orphans()
        async with self._changing:
            # As in `collect_now`.
            for _ in range(2):
                now_ms = self._clock()
                plan = await self._collector.plan(now_ms=now_ms, sweep=True, orphans=orphans)
                await self._collector.execute(plan, now_ms=now_ms)
                if not plan.needs_checkpoint:
                    break

    async def _found_orphans(self) -> OrphanSearch:
        search = OrphanSearch(self._writer)
        await search.go_on()
        return search
