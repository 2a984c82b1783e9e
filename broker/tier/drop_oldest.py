"""Drop oldest: deletes uncommitted messages when the disk is full and the bucket fails, if the policy allows it.

    refuse        (default) sends are refused until waiting messages are committed: no acknowledged message is lost
    drop-oldest   the oldest local files are deleted, sends go on: lost ranges are saved, logged, declared holes

The policy is the broker's (`coldFullPolicy`) or the topic's own (attribute `thermocline.full.policy`). A log file holds
messages of many topics: it may be deleted when all its waiting messages are of topics with `drop-oldest`. One waiting
message of another topic holds its file and all newer ones, and then sends of every topic are refused.

It counts above `diskSpaceWarningLevelRatio` alone, for as many files as bring the disk back under it, the oldest first,
and for the cold tier's gate alone: what the index, delayed and timed messages, open transactions and popping groups
still need stays.

    choose    which file border; per queue, which offsets below it wait, visible ones (expired ones are no loss)
    declare   durable in droppedRanges.json, sent to the tier process, one line a topic at ERROR
    relax     the gate, for this round of retention

Until the tier process has connected in this boot, committed offsets are unknown: all local messages count as waiting,
and the tier process removes the committed ones from the declared holes when it connects.
Belongs to the hot process's loop; looks at `QUEUES_AT_ONCE` queues between two turns of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import msgspec

from thermocline.broker.cold import ColdBounds, DroppedRange, DroppedRanges, is_tiered_topic
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets import FullPolicy

logger = logging.getLogger(__name__)

QUEUES_AT_ONCE = 200


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with local messages that may not be in the bucket: from `start_offset` on, at `physical_offset`."""

    queue: ConsumeQueue
    start_offset: QueueOffset
    physical_offset: PhysicalOffset


class DropOldest:
    """See the module's header."""

    def __init__(
        self,
        store: MessageStore,
        *,
        bounds: Callable[[str, int], ColdBounds | None],
        policy_of: Callable[[str], FullPolicy],
        visible_start: Callable[[ConsumeQueue], QueueOffset],
        ranges: DroppedRanges,
        save: Callable[[], Awaitable[None]],
        tell: Callable[[list[DroppedRange]], None],
        clock: Callable[[], int],
    ) -> None:
        """`bounds`: the cold tier's range of a queue; None: unknown. `visible_start`: the first local offset that
        has not expired. `save`: makes `ranges` durable. `tell`: sends new ones to the tier process."""
        self._store = store
        self._bounds = bounds
        self._policy_of = policy_of
        self._visible_start = visible_start
        self._ranges = ranges
        self._save = save
        self._tell = tell
        self._clock = clock

    async def relax(self, gate: RetentionGate) -> RetentionGate:
        """The gate, past what is dropped now; the same gate when nothing has to be, or may be."""
        retention, log = self._store.retention, self._store.commit_log
        border = retention.drop_border(gate)
        if border is None:
            return gate
        waiting = [each async for each in self._waiting_below(border)]
        refusing = [
            each.physical_offset for each in waiting if self._policy_of(each.queue.topic) is not FullPolicy.DROP_OLDEST
        ]
        border = min([border, *(offset - offset % log.file_bytes for offset in refusing)])
        if border <= log.min_offset:
            return gate
        dropped = [lost async for lost in self._lost_below(border, waiting)]
        assert all(lost.message_count > 0 for lost in dropped)
        self._ranges.add(dropped)
        if dropped:
            try:
                await self._save()
            except UnavailableError as error:
                self._ranges.remove(dropped)
                logger.error("nothing is dropped, as it cannot be written down: %s", error)
                return gate
            self._tell(dropped)
            self._log(dropped, border)
        assert gate.committed_offset is not None
        assert border % log.file_bytes == 0, "whole files go"
        return replace(gate, committed_offset=max(gate.committed_offset, border))

    async def _waiting_below(self, border: PhysicalOffset) -> AsyncIterator[_Waiting]:
        for number, queue in enumerate(list(self._store.queues), start=1):
            if number % QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not is_tiered_topic(queue.topic) or self._store.queues.find(queue.topic, queue.queue_id) is not queue:
                continue
            bounds = self._bounds(queue.topic, queue.queue_id)
            start = max(
                queue.min_offset, bounds.end_offset if bounds is not None else QUEUE_START, self._visible_start(queue)
            )
            start = queue.skip_empty(start)
            if start < queue.next_offset:
                physical_offset = queue.unit(start).physical_offset
                if physical_offset < border:
                    yield _Waiting(queue=queue, start_offset=start, physical_offset=physical_offset)

    async def _lost_below(self, border: PhysicalOffset, waiting: list[_Waiting]) -> AsyncIterator[DroppedRange]:
        now_ms = self._clock()
        for number, each in enumerate(waiting, start=1):
            if number % QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)
            queue = each.queue
            if each.physical_offset < border and self._store.queues.find(queue.topic, queue.queue_id) is queue:
                yield DroppedRange(
                    topic=queue.topic,
                    incarnation=self._store.incarnations.find(queue.topic).id,
                    queue_id=queue.queue_id,
                    start_offset=each.start_offset,
                    end_offset=queue.first_at_or_behind(border, start=each.start_offset),
                    dropped_ms=now_ms,
                )

    def _log(self, dropped: list[DroppedRange], border: PhysicalOffset) -> None:
        counts: Counter[str] = Counter()
        for each in dropped:
            counts[each.topic] += each.message_count
        for topic, count in sorted(counts.items()):
            logger.error(
                "messages dropped, as the disk is full and the bucket did not take them"
                " topic=%s messages=%d log_min_offset=%d",
                topic,
                count,
                border,
            )
