"""Order info: the last batch that a group popped in order from one queue, and the state of its messages.

No member of the group gets more of the queue while a message of the batch is neither acknowledged nor visible again: so
the order holds, and a failing message blocks its queue. JSON, in consumerOrderInfo.json and in order records:

    popTime   ms              o   offsets: the first, then distances from it     cm  bits of those acknowledged
    i   invisible time, ms    ot  {offset: when it is visible again, ms}         l   when the batch was popped, ms
    a   attempt id, or none   oc  {offset: how often it was given out before}
    ab  offsets behind the batch that were acknowledged, when a batch before held them; none mostly

`ot` only where it is not popTime + i. The same attempt id asks again for a batch whose answer was lost: it is given
once more, and counts as the same time. `ab` is this broker's own, RocketMQ passes it over: there a message that was
acknowledged comes again when one before it was not; here its acknowledgement stands.
Source: ConsumerOrderInfoManager.java (OrderInfo), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from thermocline.pop.check_point import MESSAGES_MAX, are_possible
from thermocline.remoting.offsets import QueueOffset

LONG_END = 1 << 63


@dataclass(slots=True, kw_only=True)
class OrderInfo:
    """See the module's header. `offsets` ascend; there is one at least."""

    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[QueueOffset, ...]
    popped_ms: int
    attempt_id: str | None = None
    acked_bits: int = 0
    visible_ms: dict[QueueOffset, int] = field(default_factory=dict)
    counts: dict[QueueOffset, int] = field(default_factory=dict)
    acked_behind: frozenset[QueueOffset] = frozenset()

    def is_blocking(self, now_ms: int, *, attempt_id: str | None = None) -> bool:
        """Whether the queue is blocked now; the same attempt may get the batch again."""
        if attempt_id is not None and attempt_id == self.attempt_id:
            return False
        return now_ms < self.free_ms

    @property
    def free_ms(self) -> int:
        """When the queue is free, acknowledgements aside; 0 when it is."""
        return max((self._visible_ms(offset) for offset in self.open_offsets()), default=0)

    @property
    def next_offset(self) -> QueueOffset:
        """Where the group goes on: the first message that is not acknowledged, or behind the last."""
        opened = self.open_offsets()
        if opened:
            return opened[0]
        offset = self.offsets[-1] + 1
        while offset in self.acked_behind:
            offset += 1
        return offset

    @property
    def count_min(self) -> int:
        """How often every message of the batch was given out before, at the least."""
        return min((self.counts.get(offset, 0) for offset in self.offsets), default=0)

    def is_idle_since(self, time_ms: int) -> bool:
        """Whether it has blocked no POP since then, and no message behind `next_offset` is acknowledged."""
        return max(self.popped_ms, self.free_ms) < time_ms and not self.acked_from(self.next_offset)

    def open_offsets(self) -> list[QueueOffset]:
        """The messages that are not acknowledged."""
        return [offset for index, offset in enumerate(self.offsets) if not self.acked_bits >> index & 1]

    def acked_from(self, offset: QueueOffset) -> frozenset[QueueOffset]:
        """Acknowledged offsets to skip when the group goes on at `offset`: none when it was moved back."""
        if offset < self.next_offset:
            return frozenset()
        acked = {each for index, each in enumerate(self.offsets) if self.acked_bits >> index & 1}
        return frozenset(each for each in self.acked_behind | acked if each >= offset)

    def set_back(self, now_ms: int) -> OrderInfo | None:
        """The same after the clock was set back: what was popped while it was ahead is visible its invisible time from
        now on at the latest. None when it is so already."""
        visible_ms = now_ms + max(0, self.invisible_ms)
        late = {offset: visible_ms for offset in self.open_offsets() if self._visible_ms(offset) > visible_ms}
        if self.popped_ms <= now_ms or not late:
            return None
        return replace(self, visible_ms=self.visible_ms | late)

    def follow(self, previous: OrderInfo) -> None:
        """Go on from the batch before: what was in it too is given out once more, or was acknowledged."""
        acked = previous.acked_from(self.offsets[0])
        for index, offset in enumerate(self.offsets):
            self.acked_bits |= (offset in acked) << index
        self.acked_behind = frozenset(offset for offset in acked if offset > self.offsets[-1])
        if self.attempt_id is not None and self.attempt_id == previous.attempt_id:
            self.counts = dict(previous.counts)
            return
        given = set(previous.offsets)
        self.counts = {offset: previous.counts.get(offset, 0) + 1 for offset in self.offsets if offset in given}

    def _visible_ms(self, offset: QueueOffset) -> int:
        return self.visible_ms.get(offset, self.pop_time_ms + self.invisible_ms)


class OrderInfoJson(msgspec.Struct, kw_only=True, omit_defaults=False):
    """Members in the order of their names, as fastjson writes them."""

    a: str | None = None
    ab: list[QueueOffset] | msgspec.UnsetType = msgspec.UNSET
    cm: int = 0
    i: int | None = None
    l: int = 0  # noqa: E741 - RocketMQ's name
    o: list[int] | None = None
    oc: dict[QueueOffset, int] | None = None
    ot: dict[QueueOffset, int] | None = None
    pop_time: int = msgspec.field(default=0, name="popTime")

    @classmethod
    def of(cls, info: OrderInfo) -> Self:
        """The JSON form of an order info."""
        first = info.offsets[0]
        return cls(
            a=info.attempt_id,
            ab=sorted(info.acked_behind) or msgspec.UNSET,
            cm=info.acked_bits,
            i=info.invisible_ms,
            l=info.popped_ms,
            o=[first, *(offset - first for offset in info.offsets[1:])],
            oc=info.counts or None,
            ot=info.visible_ms or None,
            pop_time=info.pop_time_ms,
        )

    @property
    def fits_64_bits(self) -> bool:
        """Whether every number in it is one of Java's."""
        numbers = [self.cm, self.i or 0, self.l, self.pop_time, *(self.o or ())]
        numbers += [] if self.ab is msgspec.UNSET else self.ab
        for table in (self.oc or {}, self.ot or {}):
            numbers += [*table.keys(), *table.values()]
        return all(-LONG_END <= number < LONG_END for number in numbers)

    def info(self) -> OrderInfo | None:
        """The order info; None when it says nothing that could block a queue."""
        if not self.o or len(self.o) > MESSAGES_MAX:
            return None
        first = QueueOffset(self.o[0])
        offsets = (first, *(first + distance for distance in self.o[1:]))
        if not are_possible(offsets, start=first):
            return None
        return OrderInfo(
            pop_time_ms=self.pop_time,
            invisible_ms=self.i or 0,
            offsets=offsets,
            popped_ms=self.l,
            attempt_id=self.a,
            acked_bits=self.cm,
            acked_behind=frozenset(() if self.ab is msgspec.UNSET else self.ab),
            visible_ms=dict(self.ot or {}),
            counts=dict(self.oc or {}),
        )


def make_order_info(
    offsets: Sequence[QueueOffset],
    *,
    pop_time_ms: int,
    invisible_ms: int,
    attempt_id: str | None,
    previous: OrderInfo | None,
) -> OrderInfo:
    """The order info of a batch that is popped now. `offsets`: all that were read, acknowledged before or not."""
    info = OrderInfo(
        pop_time_ms=pop_time_ms,
        invisible_ms=invisible_ms,
        offsets=tuple(offsets),
        popped_ms=pop_time_ms,
        attempt_id=attempt_id,
    )
    if previous is not None:
        info.follow(previous)
    return info
