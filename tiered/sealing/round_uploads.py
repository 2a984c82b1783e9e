"""Round uploads: seals the plans of one round of the tier service, before one commit names all of them.

Segments that succeeded count even if others failed: the caller commits them, then raises the failure, because a demand
that waits for a failed segment must not succeed. A failed segment gives its id up.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence, Set

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.sealing.pack_sealer import ENTRY_BYTES_MAX, PackSealer, SealedPack
from thermocline.tiered.sealing.seal_backlog import SealPlan
from thermocline.tiered.sealing.sealer import Sealer
from thermocline.tiered.segments import SegmentEntry

logger = logging.getLogger(__name__)


class RoundUploads:
    """See the module's header. Without `pack_sealer` there are no packs."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        sealer: Sealer,
        pack_sealer: PackSealer | None,
        concurrency_max: int,
        class_of: Callable[[str], str],
    ) -> None:
        self._writer = writer
        self._sealer = sealer
        self._pack_sealer = pack_sealer
        self._concurrency_max = concurrency_max
        self._class_of = class_of

    @property
    def has_packs(self) -> bool:
        """Whether small topics go into packs."""
        return self._pack_sealer is not None

    async def seal_segments(
        self, plans: Sequence[SealPlan], *, joined: Set[str] = frozenset()
    ) -> tuple[list[tuple[SealPlan, SegmentEntry]], BaseException | None]:
        """Seal plans, a few at once. Returns the segments and the first failure; the caller commits the segments before
        it raises the failure. A failed segment gives its id up. `joined`: topics whose segments are one object each."""
        slots = asyncio.Semaphore(self._concurrency_max)

        async def seal_one(plan: SealPlan) -> SegmentEntry:
            async with slots:
                segment_id = self._writer.next_segment_id()
                keys, is_joined = self._writer.keys, plan.topic in joined
                try:
                    return await self._sealer.seal(plan, segment_id, is_joined=is_joined)
                except BaseException:
                    parts = keys.segment(plan.topic, segment_id)
                    whole = keys.merged_segment(plan.topic, segment_id)
                    self._writer.abandon(segment_id, (*parts, whole) if is_joined else parts)
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

    async def seal_packs(self, plans: Sequence[SealPlan]) -> tuple[list[SealedPack], BaseException | None]:
        """Seal small topics' plans into packs, one after another. Returns as `seal_segments`."""
        sealed: list[SealedPack] = []
        if self._pack_sealer is None:
            return sealed, None
        try:
            async with contextlib.aclosing(self._pack_sealer.seal(plans, class_of=self._class_of)) as packs:
                async for each in packs:
                    sealed.append(each)  # noqa: PERF401 - what came before a failure counts
        except ObjectStoreUnavailableError as error:
            return sealed, error
        except BaseException:
            for each in sealed:
                self._writer.abandon(each.pack.id, (each.pack.key,))
            raise
        return sealed, None


def entries_of(packs: Sequence[SealedPack]) -> list[list[SealedPack]]:
    """Split the packs into one list for each ledger entry, each within the entry's bound; at least one list."""
    groups: list[list[SealedPack]] = [[]]
    size_bytes = 0
    for each in packs:
        said_bytes = (len(each.pack.pieces) + len(each.pack.times) + len(each.pack.groups)) * 4 // 3 + sum(
            len(topic.encode()) + 3 for topic in each.pack.topics
        )
        if groups[-1] and size_bytes + said_bytes > ENTRY_BYTES_MAX:
            groups.append([])
            size_bytes = 0
        groups[-1].append(each)
        size_bytes += said_bytes
    return groups
