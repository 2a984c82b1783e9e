"""Remaining messages: how many messages of a queue a group has still to consume. Only messages that exist are counted.

    cold start .. declared hole .. cold end      hole       hot start .................. end
    |  messages  |                |  messages  |            |  messages                  |

Offsets without a message: below the queue's minimum (expired, or deleted), declared holes within the cold tier, what is
between the cold end and the first local message (a hole that the catalog table does not name yet), and the fillers at a
local queue's start. After a recovery from the bucket offsets jump by about 10^9, so `end - offset` is no lag.

A message in quarantine counts: the consumer's pulls stop in front of it until it is healed or has expired.
Belongs to the hot process's loop thread.
"""

from __future__ import annotations

import msgspec

from thermocline.broker.cold import ColdReads
from thermocline.broker.queues.visible_queues import VisibleQueues
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import QueueOffset
from thermocline.store.queues import ConsumeQueue
from thermocline.tiered.catalog import QueueGaps


class QueueContent(msgspec.Struct, frozen=True, kw_only=True):
    """The ranges of a queue with messages: [minimum, end), except the gaps. `is_exact`: the minimum is not too low."""

    minimum: QueueOffset
    end: QueueOffset
    gaps: QueueGaps
    is_exact: bool = True

    def next_offset(self, offset: QueueOffset) -> QueueOffset:
        """The offset of the first message at or behind `offset`; the end when there is none."""
        if offset >= self.end:
            return offset
        return min(self.gaps.next_offset(max(offset, self.minimum)), self.end)

    def count(self, start: QueueOffset, end: QueueOffset | None = None) -> int:
        """How many messages [start, end) has; up to the queue's end without an `end`."""
        end = self.end if end is None else min(end, self.end)
        return self.gaps.count(max(start, self.minimum), end)


class RemainingMessages:
    """See the module's header."""

    def __init__(self, visible: VisibleQueues, cold: ColdReads) -> None:
        self._visible = visible
        self._cold = cold

    def near(self, queue: ConsumeQueue, offset: QueueOffset) -> QueueContent | None:
        """The messages that a group at `offset` has still to consume, by this process's state; None while the cold tier
        has not reported. Not exact where the minimum may be too low by expired messages of the cold tier."""
        if offset >= queue.min_offset:
            return self._content(queue, offset, minimum=self._visible.hot_start(queue), is_exact=True)
        bounds = self._cold.bounds(queue.topic, queue.queue_id)
        if bounds is None:
            return None
        minimum = self._visible.near_minimum(queue)
        return self._content(queue, offset, minimum=minimum, is_exact=minimum >= queue.min_offset)

    async def exact(self, queue: ConsumeQueue, offset: QueueOffset) -> QueueContent:
        """The same, with the minimum asked of the tier process where that is needed.

        Raises:
            UnavailableError: It cannot be asked now.
        """
        content = self.near(queue, offset)
        if content is not None and content.is_exact:
            return content
        return self._content(queue, offset, minimum=await self._visible.minimum(queue), is_exact=True)

    async def nearest(self, queue: ConsumeQueue, offset: QueueOffset) -> QueueContent | None:
        """The exact answer; while the tier process cannot be asked, the answer by this process's state."""
        try:
            return await self.exact(queue, offset)
        except UnavailableError:
            return self.near(queue, offset)

    def _content(
        self, queue: ConsumeQueue, offset: QueueOffset, *, minimum: QueueOffset, is_exact: bool
    ) -> QueueContent:
        start = queue.min_offset
        first = max(start, offset)
        spans = [(first, queue.skip_empty(first))]
        bounds = self._cold.bounds(queue.topic, queue.queue_id)
        if bounds is not None and bounds.min_offset < bounds.end_offset:
            spans += bounds.gaps.within(bounds.min_offset, start).spans
            spans.append((bounds.end_offset, start))
        return QueueContent(minimum=minimum, end=self._visible.end(queue), gaps=QueueGaps.of(spans), is_exact=is_exact)
