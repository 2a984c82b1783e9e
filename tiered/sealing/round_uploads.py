"""Round uploads: turns the seal plans of one round of the tier service into uploaded segments and packs.

SealRounds calls it, then commits what was uploaded. If a segment or pack fails, SealRounds commits the others and then
raises the failure: a demand that waits for the failed one must not succeed. The id of a failed segment is abandoned,
and its objects are deleted as garbage.
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
    """Belongs to the tier process's loop. Without `pack_sealer` there are no packs."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        sealer: Sealer,
        pack_sealer: PackSealer | None,
        concurrency_max: int,
        class_of: Callable[[str], str],
    ) -> None:
        """`concurrency_max`: segments sealed at one time. `class_of`: the TTL class of a topic."""
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
        """Seal one segment for each plan. `joined`: topics whose segment is stored as one object, not as three.

        Returns the segments with their plans, and the failure of the last plan that failed, None without one; the
        caller commits the segments, then raises the failure. A plan whose local files are gone or damaged is logged,
        and is no failure.
        """
        slots = asyncio.Semaphore(self._concurrency_max)

        async def seal_one(plan: SealPlan) -> SegmentEntry:
            async with slots:
                segment_id = self._writer.next_segment_id()
                keys, is_joined = self._writer.keys, plan.topic in joined
                try:
                    return await self._sealer.seal(plan, segment_id, is_joined=is_joined)
                except BaseException:
                    part_keys = keys.segment(plan.topic, segment_id)
                    joined_key = keys.merged_segment(plan.topic, segment_id)
                    self._writer.abandon(segment_id, (*part_keys, joined_key) if is_joined else part_keys)
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
        """Seal the plans of small topics into packs, one pack after another.

        Returns the packs, and the ObjectStoreUnavailableError that stopped the sealing, None without one. Any other
        error is raised; then all packs are abandoned.
        """
        sealed: list[SealedPack] = []
        if self._pack_sealer is None:
            return sealed, None
        try:
            async with contextlib.aclosing(self._pack_sealer.seal(plans, class_of=self._class_of)) as packs:
                async for sealed_pack in packs:
                    sealed.append(sealed_pack)  # noqa: PERF401 - the packs before a failure are returned
        except ObjectStoreUnavailableError as error:
            return sealed, error
        except BaseException:
            for sealed_pack in sealed:
                self._writer.abandon(sealed_pack.pack.id, (sealed_pack.pack.key,))
            raise
        return sealed, None


def group_by_ledger_entry(packs: Sequence[SealedPack]) -> list[list[SealedPack]]:
    """Divide the packs into groups, one for each ledger entry to commit.

    A group takes up to ENTRY_BYTES_MAX in its entry, or is one pack. Without packs there is one empty group: the entry
    may name segments.
    """
    groups: list[list[SealedPack]] = [[]]
    size_bytes = 0
    for sealed_pack in packs:
        pack = sealed_pack.pack
        # A ledger entry is JSON: columns are in it as base64, topics with quotes and a comma.
        pack_bytes = (len(pack.pieces) + len(pack.times) + len(pack.groups)) * 4 // 3 + sum(
            len(topic.encode()) + 3 for topic in pack.topics
        )
        if groups[-1] and size_bytes + pack_bytes > ENTRY_BYTES_MAX:
            groups.append([])
            size_bytes = 0
        groups[-1].append(sealed_pack)
        size_bytes += pack_bytes
    return groups
